"""The stretches of files that a part of a corpus consists of.

A part is a stretch of bytes of all files, laid end to end (parts). It begins and ends inside a file
only where documents have the numbers of lines or rows:

    file      |--document 1--|----document 2----|--3--|----document 4----|
    lines      1              5                  9     12
    bytes     |.......... part 1 .........|......... part 2 .............|
                                          line ends before: 7, so part 2 begins with document 3

A document belongs to the part in which it starts, and so does every other file, such as a
compressed one. The line ends before the cut are counted, and both neighbors count the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from litebert.base.errors import DataError
from litebert.base.registry import SOURCES
from litebert.parts import Part
from litebert.remote.names import path_of
from litebert.remote.reading import is_file, open_file, size_of
from litebert.text.files import HTML_SUFFIXES
from litebert.text.lines import BLOCK, COMPRESSIONS, find_suffix
from litebert.text.records import count_parquet_rows


@dataclass(frozen=True)
class Stretch:
    """The documents of a source whose number, of a line or of a row from 1, is above `first`, up to
    `last`; None is the end of the source.
    """

    name: str
    first: int = 0
    last: int | None = None

    @property
    def is_whole(self) -> bool:
        return self.first == 0 and self.last is None


def list_stretches(names: Sequence[str], markup: str, part: Part | None) -> list[Stretch]:
    """Return what a part reads of the sources `names`, in order; everything without a part."""
    if part is None:
        return [Stretch(name) for name in names]
    sizes = [size_of(name) if is_file(name) else 0 for name in names]
    stretches = []
    for index, (low, high) in part.choose_stretches(sizes).items():
        name, size = names[index], max(1, sizes[index])
        suffix, is_compressed = find_suffix(name), path_of(name).suffix.lower() in COMPRESSIONS
        is_stripped = markup == "strip" and suffix in (*HTML_SUFFIXES, ".md")
        is_other = is_compressed or suffix in SOURCES or name in SOURCES
        if (low, high) == (0, size):
            stretches.append(Stretch(name))
        elif is_file(name) and not is_stripped and not is_other:  # documents have numbers
            first = _find_number(name, low, size) if low else 0
            last = _find_number(name, high, size) if high < size else None
            if last is None or last > first:
                stretches.append(Stretch(name, first, last))
        elif low == 0:
            stretches.append(Stretch(name))
    return stretches


def _find_number(name: str, offset: int, size: int) -> int:
    """Return the number of the last line or row that begins before a cut at `offset` bytes."""
    if path_of(name).suffix.lower() == ".parquet":
        # Reading the rows of a damaged file will say what is wrong.
        return offset * (count_parquet_rows(name) or 0) // size
    count = 0
    try:
        with open_file(name) as file:
            while offset > 0 and (block := file.read(min(offset, BLOCK))):
                count += block.count(b"\n")
                offset -= len(block)
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror}") from error
    return count
