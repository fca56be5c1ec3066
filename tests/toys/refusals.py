"""How a test checks that a user's mistake is refused: by the kind of error and the place it names,
not by its prose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from litebert.base.errors import LitebertError


@contextmanager
def refused(
    kind: type[LitebertError], *places: object
) -> Iterator[pytest.ExceptionInfo[LitebertError]]:
    """The block raises exactly this kind of error, in one line that names every place (a file, a
    field, a value).

    A place stands whole in the message: `4` is not found in `14` or `0.4`, nor `train` in
    `training`.
    """
    with pytest.raises(kind) as caught:
        yield caught
    names(str(caught.value), *places)
    assert type(caught.value) is kind, f"{type(caught.value).__name__} instead of {kind.__name__}"


def names(message: str, *places: object) -> None:
    """A message is one line and names every place."""
    message = message.removesuffix("\n")
    assert message.strip()
    assert "\n" not in message, message
    for place in map(str, places):
        assert _standing_alone(place).search(message), f"{message!r} does not name {place!r}"


def _standing_alone(place: str) -> re.Pattern[str]:
    """The place where no word goes on at either end and no number does: neither 4 in 14 nor 4 in
    0.4 or -4.
    """
    before = (
        r"(?<![\w.\-])(?<!\d,)" if place[0].isdigit() else r"(?<!\w)" if place[0].isalnum() else ""
    )
    after = r"(?!\w|[.,]\d)" if place[-1].isdigit() else r"(?!\w)" if place[-1].isalnum() else ""
    return re.compile(before + re.escape(place) + after)
