"""Servers of sentence vectors side by side; `python benchmarks/serving --help` says how."""
