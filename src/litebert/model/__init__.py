"""The one encoder: embedding, positions, attention, feedforward, encoder; objectives and heads on top."""
