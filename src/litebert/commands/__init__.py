"""The verbs of the command line: arguments in, the rooms' functions called, tables or JSON out."""
