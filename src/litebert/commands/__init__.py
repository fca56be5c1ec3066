"""The verbs of the command line: they read arguments, call the packages' functions and print tables
or JSON.
"""
