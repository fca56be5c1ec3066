"""From a model folder to answers: tokenizer, task and engine."""
