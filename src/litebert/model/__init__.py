"""The one encoder: embedding, positions, blocks, encoder; objectives and heads on top."""
