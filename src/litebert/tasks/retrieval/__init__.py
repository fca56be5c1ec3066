"""Retrieval: folders in the layout of BEIR, BM25, and the scores of rankings."""
