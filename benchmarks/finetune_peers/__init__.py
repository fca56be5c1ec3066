"""Classifiers from the same labeled rows, by litebert and by other programs."""
