"""Hugging Face folders: the tables of names, the settings, reading and writing."""
