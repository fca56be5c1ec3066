"""From labels to the best model that they allow: methods, the choice among them, and `fit`."""
