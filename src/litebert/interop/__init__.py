"""Names of other programs' weights, as tables, and one interpreter."""
