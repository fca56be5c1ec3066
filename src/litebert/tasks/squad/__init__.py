"""SQuAD 1.1 and 2.0: files, spans, scores."""
