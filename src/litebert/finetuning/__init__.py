"""Fine-tuning: what a task is, the run, its seeds and its scores."""
