"""The files and the scores of each benchmark, and of your own table."""
