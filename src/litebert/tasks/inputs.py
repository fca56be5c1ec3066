"""Inputs of `predict` as Python values: what a list or tuple of texts is, and what is none."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any


def members(value: Any) -> tuple[Any, ...]:
    """What a list holds.

    Raises:
        TypeError: it is none; a text, a set or a dictionary has no order that could be meant.
    """
    if isinstance(value, (str, bytes, Mapping, Set)):
        raise TypeError
    return tuple(value)


def texts(value: Any, *counts: int) -> tuple[str, ...]:
    """The texts that a list holds, as many as one of `counts` where these are given.

    Raises:
        TypeError: it holds something else.
    """
    found = members(value)
    if not all(isinstance(text, str) for text in found) or (counts and len(found) not in counts):
        raise TypeError
    return found
