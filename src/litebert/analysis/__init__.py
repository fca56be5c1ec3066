"""Readers of encoder outputs and of runs."""
