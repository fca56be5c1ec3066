"""The encoding of a file: named by the user, else declared by its first bytes."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from litebert.base.errors import DataError, LitebertError

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
    """Parse the words of `--encoding`, like `cp1252` and `*.old=cp1252`: the encoding of all files,
    and those of files that match a pattern.
    """
    default: str | None = None
    by_pattern: dict[str, str] = {}
    for word in words:
        pattern, equals, encoding = word.rpartition("=")
        if equals and not (pattern and encoding):
            missing = "encoding" if pattern else "files"
            raise DataError(f"--encoding {word} names no {missing}; write it as PATTERN=ENCODING")
        if equals:
            by_pattern[pattern] = encoding
        elif default is not None:
            raise DataError(
                f"--encoding names both {default} and {word}; for some files write PATTERN=ENCODING"
            )
        else:
            default = encoding
    check(*by_pattern.values(), *([default] if default is not None else []))
    return default or "utf-8", by_pattern


def check(*encodings: str, error: type[LitebertError] = DataError) -> None:
    """Refuse what is no encoding of text files: an unknown name, or a codec such as idna."""
    for encoding in encodings:
        try:
            if codecs.lookup(encoding).name in _NOT_OF_FILES:
                raise LookupError
            "".encode(encoding)  # refuses codecs that do not turn text into bytes
            codecs.getincrementaldecoder(encoding)
        except (LookupError, ValueError) as cause:
            message = (
                f"there is no encoding '{encoding}' of text; use one like utf-8, latin-1, "
                "cp1252, utf-16"
            )
            raise error(message) from cause


def is_match(pattern: str, name: str) -> bool:
    return pattern == name or Path(name).match(pattern)


def choose_encoding(
    name: str, head: bytes, default: str, by_pattern: Mapping[str, str], html: bool
) -> str:
    """Choose the encoding of a file by the last matching pattern, else `default`. UTF-8 gives way
    to a byte-order mark in `head`, and in a web page to the declaration at its top.
    """
    matching = [encoding for pattern, encoding in by_pattern.items() if is_match(pattern, name)]
    if matching:
        return matching[-1]
    if codecs.lookup(default).name != "utf-8":
        return default
    from_mark = next((encoding for mark, encoding in _MARKS if head.startswith(mark)), None)
    if from_mark:
        return from_mark
    declared = _DECLARED.search(head[:2048]) if html else None
    if declared:
        try:
            check(declared[1].decode())
            return codecs.lookup(declared[1].decode()).name
        except DataError:  # pages declare encodings that do not exist
            pass
    return default
