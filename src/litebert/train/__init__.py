"""The one loop, for pretraining and fine-tuning, and what it needs."""
