"""Files and records to documents to sentences."""
