"""Small things that several tests are made with: texts, tokenizers, models, runs; and how a refusal
is checked.
"""
