"""The one reader of JSON from outside: strict, in bounded depth, with errors for people."""

from __future__ import annotations

import errno
import json
import math
import re
import stat
from collections.abc import Collection, Mapping
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from litebert.base.errors import LitebertError

DEEPEST = 100
"""Levels of nested lists and objects in JSON; no format that litebert reads needs ten."""
_STRING = re.compile(rb'"[^"]*"')
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_NOT_BRACKETS = bytes(sorted({*range(256)} - {*b'[]{}"'}))
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_BLOCK = 1 << 16
"""Brackets counted at a time: a text that opens a million is refused after the first block."""


def read_json(path: Path, error: type[LitebertError], fix: str = "restore it") -> dict[str, Any]:
    """A file that holds one JSON object; see `parse_json`."""
    try:
        data = parse_json(read_regular(path))
    except OSError as problem:
        raise error(f"{path} cannot be read ({problem.strerror}); {fix}") from None
    except ValueError as problem:
        raise error(f"{path} is not valid JSON ({problem}); {fix}") from None
    if not isinstance(data, dict):
        raise error(f"{path} must hold a JSON object; {fix}")
    return data


def read_regular(path: Path, most: int = 1 << 30) -> bytes:
    """The content of a regular file of `most` bytes: a pipe or a device might never end."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    if about.st_size > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
    return path.read_bytes()


def parse_json(text: str | bytes, read_keys: Collection[str] | None = None) -> Any:
    """The value of a JSON text from outside; bytes are UTF-8, with or without a mark.

    A key that stands twice in an object (with `read_keys`, one of those) is an error, because
    readers disagree on which of its values counts.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig")
    if text.count("[") + text.count("{") > DEEPEST and is_nested_deeper(
        text.encode("utf-8", "replace"), DEEPEST
    ):
        raise ValueError(f"nested more than {DEEPEST} levels deep")
    try:
        return json.loads(text, object_pairs_hook=partial(_object_of, read_keys=read_keys))
    except RecursionError:  # of an interpreter that is deep in other calls already
        raise ValueError("nested too deeply") from None


def is_nested_deeper(text: bytes, levels: int) -> bool:
    """True where more than so many lists and objects are open at once in unparsed JSON."""
    if b"\\" in text:
        text = _ESCAPE.sub(b"", text)
    brackets = _STRING.sub(b"", text.translate(None, _NOT_BRACKETS)).replace(b'"', b"")
    depth = 0
    for start in range(0, len(brackets), _BLOCK):
        depths = list(
            accumulate(map(_STEPS.__getitem__, brackets[start : start + _BLOCK]), initial=depth)
        )
        if max(depths) > levels:
            return True
        depth = depths[-1]
    return False


def _object_of(pairs: list[tuple[str, Any]], read_keys: Collection[str] | None) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = (
            name
            for name in names
            if names.count(name) > 1 and (read_keys is None or name in read_keys)
        )
        if (name := next(repeated, None)) is not None:
            raise ValueError(f"the key {name!r} stands twice in one object")
    return fields


def numbers(data: Mapping[str, Any]) -> dict[str, float]:
    """Numbers out of a JSON object that `json_text` made."""
    return {name: math.nan if value is None else value for name, value in data.items()}


def fault_of(error: Exception) -> str:
    """Say what is wrong with a JSON file, from the error that reading its fields raised."""
    if isinstance(error, KeyError):
        return f"there is no field {error}"
    if isinstance(
        error, (TypeError, AttributeError)
    ):  # in Python's words, which mean nothing to whoever has the file
        return "a field is not of the right kind"
    return str(error)
