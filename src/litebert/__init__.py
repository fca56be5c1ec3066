"""litebert: small text encoders, trained on your own text and shipped."""
