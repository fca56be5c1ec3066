"""C for CPUs: what a training step fuses (training.c), and networks that answer (answers.c)."""
