"""Tags of words: files in CoNLL columns, entities, scores."""
