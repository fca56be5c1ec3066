"""From labels to the best model that they allow: ways, the choice among them, and `fit`."""
