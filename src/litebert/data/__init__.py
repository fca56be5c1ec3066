"""Text to batches: corpus -> tokenizer -> shards -> segments -> masking -> batches."""
