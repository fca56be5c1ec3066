"""Text whose lines were broken to a width, as in e-mail, Markdown and old books: how it is
recognised and joined again.

A line end always ends a sentence here. Where a file is hard-wrapped, that leaves "sentences" that
begin and end anywhere, and objectives about the order of sentences learn from those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

_SAMPLE = 2000
"""Lines of a file that are looked at."""
_LEAST = 10
"""Line ends inside paragraphs; with fewer there is no warning."""
_WIDTHS = (20, 120)
"""Characters of the longest lines of hard-wrapped text."""

# Lines that begin something of their own: an item of a list, a quotation, a row, a heading.
_PARAGRAPH_START = re.compile(r"\s*(?:[-*+•]\s|\d{1,3}[.)]\s|[>|]|#{1,6}\s|={3}|-{3}|```)")
_HEADING = re.compile(r"\s*#{1,6}\s")
_UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef"
)
"""Thai, Lao, Tibetan, Burmese, Khmer, Chinese and Japanese are written without spaces."""
_JOINED = re.compile(rf"(?<=[{_UNSPACED}])\n(?=[{_UNSPACED}])|(?<=\w-)\n(?=\w)")


class WrapDetector:
    """Watches the lines of a file go by; `found` says afterwards whether they are hard-wrapped.

    They are where a good part of the lines inside paragraphs end in the middle of a sentence (with
    a letter, a digit or a comma, before a line that begins with no capital), and most of those
    nearly reach the width.
    """

    def __init__(self) -> None:
        self._lengths: list[int] = []
        self._broken: list[int] = []

    def watch(self, lines: Iterable[str]) -> Iterator[str]:
        """Pass lines on."""
        before, rest = "", iter(lines)
        for line in islice(rest, _SAMPLE):
            line_before, before = before, line.strip()
            if (
                line_before
                and before
                and ((first := before[0]).isalpha() or not _PARAGRAPH_START.match(before))
            ):  # a shortcut
                self._lengths.append(len(line_before))
                if _is_continued(line_before[-1], first):
                    self._broken.append(len(line_before))
            yield line
        yield from rest

    @property
    def found(self) -> bool:
        lengths = sorted(self._lengths)
        if len(lengths) < _LEAST or len(self._broken) < 0.25 * len(lengths):
            return False
        width = lengths[int(0.95 * len(lengths))]
        long = sum(length >= 0.75 * width for length in self._broken)
        return _WIDTHS[0] <= width <= _WIDTHS[1] and long >= 0.6 * len(self._broken)


def _is_continued(last: str, first: str) -> bool:
    return first.isalnum() and not first.isupper() and (last.isalnum() or last in ",、，")


def unwrap_lines(text: str) -> str:
    """The text with each paragraph on one line.

    Lines are joined with a space; without one after a hyphen inside a word, and between characters
    of scripts that are written without spaces. Blank lines end a paragraph; headings, items of
    lists, quotations and rows of tables start one of their own.
    """
    paragraphs: list[list[str]] = [[]]
    for line in text.split("\n"):
        bare = line.strip()
        if (
            not bare
            or _PARAGRAPH_START.match(line)
            or (paragraphs[-1] and _HEADING.match(paragraphs[-1][0]))
        ):
            paragraphs.append([])
        if bare:
            paragraphs[-1].append(bare)
    return "\n".join(
        _JOINED.sub("", "\n".join(lines)).replace("\n", " ") for lines in paragraphs if lines
    )
