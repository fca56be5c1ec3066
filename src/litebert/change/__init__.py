"""A model made from another one: smaller, for longer texts, or with another vocabulary."""
