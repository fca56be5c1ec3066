"""Answers over HTTP: routes, a queue that forms batches, and worker processes that compute."""
