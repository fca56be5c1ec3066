"""Frames of plain values between the service and its worker processes, over pipes: inputs to which
the same is done, and the answers as JSON. `marshal` reads plain values only.
"""

from __future__ import annotations

import json
import marshal
from typing import Any, BinaryIO, NamedTuple

LENGTH = 8
"""Bytes before a frame that hold its length."""


class Group(NamedTuple):
    """Inputs to which the same is done."""

    operation: str
    options: tuple[tuple[str, Any], ...]
    inputs: list[Any]


class Row(NamedTuple):
    """The answer to one input: JSON and how many tokens were read; or why it is refused."""

    payload: bytes
    tokens: int
    refusal: str = ""
    """After the name of the input: ` has 900 tokens ...`."""
    kind: str = ""
    """The `error_type` of a refusal."""
    truncated: int = 0
    """Tokens that were cut off, because the model reads no more."""


def refuse(message: str, kind: str = "validation") -> Row:
    return Row(b"", 0, message, kind)


def refuse_length(count: int, who: str, most: int) -> Row:
    return refuse(f" has {count:,} tokens, and {who} {most:,}; shorten it", "too_large")


def as_json(value: Any) -> bytes:
    """Format a value as JSON; a number that JSON does not know becomes null."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        plain = json.loads(json.dumps(value), parse_constant=lambda _: None)
        text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def pack(value: Any) -> bytes:
    """Make the frame of a value."""
    body = marshal.dumps(value)
    return len(body).to_bytes(LENGTH, "big") + body


def unpack(body: bytes) -> Any:
    """Return the value of a frame, without its length."""
    return marshal.loads(body)


def read(file: BinaryIO) -> Any:
    """Read the next frame; None at the end of a file, and in a frame whose writer was killed."""
    head = file.read(LENGTH)
    if len(head) < LENGTH:
        return None
    body = file.read(size := int.from_bytes(head, "big"))
    return unpack(body) if len(body) == size else None
