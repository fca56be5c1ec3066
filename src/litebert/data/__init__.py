"""Text to batches: corpus -> tokenizer -> shards -> segments -> masking -> batches."""

IGNORED = -100
"""The target of what is not predicted, which losses ignore."""
