"""The input and the output of a worker: texts of inputs, JSON of answers, refusals, and a clock of
steps.
"""

from __future__ import annotations

import json
import time
from typing import Any

from litebert.serve.wire import Row


class Longest:
    """A clock of the longest time between two calls."""

    def __init__(self) -> None:
        self.seconds, self._last = 0.0, time.perf_counter()

    def __call__(self) -> None:
        now = time.perf_counter()
        self.seconds, self._last = max(self.seconds, now - self._last), now


def texts_of(value: Any) -> list[str]:
    """Return the texts of an input."""
    if isinstance(value, str):
        return [value]
    return (
        [text for part in value for text in texts_of(part)]
        if isinstance(value, (list, tuple))
        else []
    )


def without_nul(value: Any) -> Any:
    """Replace the NUL characters of an input by spaces, as in every file that litebert reads."""
    if isinstance(value, str):
        return value.replace("\0", " ")
    return list(map(without_nul, value)) if isinstance(value, (list, tuple)) else value


def unknown_token(token: int, vocabulary: int) -> Row:
    message = (
        f" has the token {token}, and the model knows {vocabulary:,}; send texts, or ids of "
        "its own tokenizer"
    )
    return Row(b"", 0, message, "validation")


def too_many(count: int, who: str, most: int) -> Row:
    return Row(b"", 0, f" has {count:,} tokens, and {who} {most:,}; shorten it", "too_large")


def as_json(value: Any) -> bytes:
    """Format a value as JSON; a number that JSON does not know becomes null."""
    try:
        return json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).encode()
    except ValueError:
        plain = json.loads(json.dumps(value), parse_constant=lambda _: None)
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()
