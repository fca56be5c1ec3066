"""The one encoder: embedding, attention, feedforward, encoder; objectives and heads on top."""
