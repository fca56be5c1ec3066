"""A command line in a test, written as a person types it."""

from __future__ import annotations

import shlex


def typed(line: str, *values: object) -> list[str]:
    """Split a line into words as a shell does; each word `{}` is the next of the values, whole."""
    rest = iter(values)
    words = [str(next(rest)) if word == "{}" else word for word in shlex.split(line)]
    assert not list(rest), "every value has its place"
    return words
