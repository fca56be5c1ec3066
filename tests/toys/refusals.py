"""How a test checks that a user's mistake is refused: by the kind of error and the place it names, not by its prose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from litebert.errors import LitebertError


@contextmanager
def refused(kind: type[LitebertError], *places: object) -> Iterator[pytest.ExceptionInfo[LitebertError]]:
    """The block raises exactly this kind of error, in one line that names every place (a file, a field, a value).

    A place stands whole in the message: `4` is not found in `14`, nor `train` in `training`.
    """
    with pytest.raises(kind) as caught:
        yield caught
    names(str(caught.value), *places)
    assert type(caught.value) is kind, f"{type(caught.value).__name__} instead of {kind.__name__}"


def names(message: str, *places: object) -> None:
    """A message is one line and names every place."""
    assert message.strip()
    assert "\n" not in message, message
    for place in map(str, places):
        start = message.find(place)
        while start >= 0 and not _stands_alone(message, start, start + len(place)):
            start = message.find(place, start + 1)
        assert start >= 0, f"{message!r} does not name {place!r}"


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether no word or number goes on at either end."""
    before = start > 0 and text[start - 1].isalnum() and text[start].isalnum()
    after = end < len(text) and text[end - 1].isalnum() and text[end].isalnum()
    return not (before or after)
