"""Guesses for masked tokens, and the likelihood of texts that they give."""
