"""Which encoding a file is read in: the one that the user named, else the one that its first bytes
declare.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from litebert.errors import DataError, LitebertError

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8"),
)
_DECLARED = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?([\w.:-]{1,40})""", re.IGNORECASE)
_NOT_OF_FILES = ("idna", "punycode", "undefined")


def parse_encodings(words: Iterable[str]) -> tuple[str, dict[str, str]]:
    """The encoding of all files, and those of files that match a pattern, from words like `cp1252`
    and `*.old=cp1252`.

    Raises DataError for an encoding that does not exist, or two for all files.
    """
    every: str | None = None
    some: dict[str, str] = {}
    for word in words:
        pattern, equals, encoding = word.rpartition("=")
        if equals and not (pattern and encoding):
            lacks = "encoding" if pattern else "files"
            raise DataError(f"--encoding {word} names no {lacks}; write it as PATTERN=ENCODING")
        if equals:
            some[pattern] = encoding
        elif every is not None:
            raise DataError(
                f"--encoding names both {every} and {word}; for some files write PATTERN=ENCODING"
            )
        else:
            every = encoding
    check(*some.values(), *([every] if every is not None else []))
    return every or "utf-8", some


def check(*encodings: str, error: type[LitebertError] = DataError) -> None:
    """Refuse what is no encoding of text files: an unknown name, or a codec such as base64 or idna.

    Raises:
        error: one of the encodings cannot be used.
    """
    for encoding in encodings:
        try:
            if codecs.lookup(encoding).name in _NOT_OF_FILES:
                raise LookupError
            "".encode(encoding)  # refuses codecs that do not turn text into bytes
            codecs.getincrementaldecoder(encoding)
        except (LookupError, ValueError) as problem:
            message = (
                f"there is no encoding '{encoding}' of text; use one like utf-8, latin-1, "
                "cp1252, utf-16"
            )
            raise error(message) from problem


def is_match(pattern: str, name: str) -> bool:
    """Whether a pattern of `--encoding` means the file `name`."""
    return pattern == name or Path(name).match(pattern)


def choose_encoding(name: str, head: bytes, every: str, some: Mapping[str, str], html: bool) -> str:
    """The encoding of the file `name` that begins with the bytes `head`.

    It is what the last matching pattern of `some` says, else `every`. UTF-8 gives way to a
    byte-order mark, and in a web page to the declaration at its top.
    """
    named = [encoding for pattern, encoding in some.items() if is_match(pattern, name)]
    if named:
        return named[-1]
    if codecs.lookup(every).name != "utf-8":
        return every
    marked = next((encoding for mark, encoding in _MARKS if head.startswith(mark)), None)
    if marked:
        return marked
    declared = _DECLARED.search(head[:2048]) if html else None
    if declared:
        try:
            check(declared[1].decode())
            return codecs.lookup(declared[1].decode()).name
        except DataError:
            pass
    return every
