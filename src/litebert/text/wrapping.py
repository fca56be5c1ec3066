"""Hard-wrapped text, as in e-mail, Markdown and old books: how it is detected and unwrapped. Its
line ends, which end a sentence elsewhere, would leave "sentences" that begin and end anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

_SAMPLE = 2000
_LEAST = 10
"""Line ends inside paragraphs. With fewer there is no warning."""
_WIDTHS = (20, 120)
"""Least and largest width, in characters, of hard-wrapped text."""

# Lines that start a new paragraph: an item of a list, a quotation, a row of a table, a heading.
_PARAGRAPH_START = re.compile(r"\s*(?:[-*+•]\s|\d{1,3}[.)]\s|[>|]|#{1,6}\s|={3}|-{3}|```)")
_HEADING = re.compile(r"\s*#{1,6}\s")
_UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef"
)
"""Thai, Lao, Tibetan, Burmese, Khmer, Chinese and Japanese are written without spaces."""
_JOINED = re.compile(rf"(?<=[{_UNSPACED}])\n(?=[{_UNSPACED}])|(?<=\w-)\n(?=\w)")


class WrapDetector:
    """Detects whether the lines of a file are hard-wrapped: many of those inside paragraphs end in
    the middle of a sentence (with a letter, a digit or a comma, before no capital), and most of
    those nearly reach the width.
    """

    def __init__(self) -> None:
        self._lengths: list[int] = []
        self._broken: list[int] = []

    def watch(self, lines: Iterable[str]) -> Iterator[str]:
        """Pass lines on, and record the lengths of those that a paragraph continues after."""
        before, rest = "", iter(lines)
        for line in islice(rest, _SAMPLE):
            line_before, before = before, line.strip()
            # A letter begins most lines and no paragraph mark. The test saves a regular expression.
            if (
                line_before
                and before
                and ((first := before[0]).isalpha() or not _PARAGRAPH_START.match(before))
            ):
                self._lengths.append(len(line_before))
                last = line_before[-1]
                begins_inside = first.isalnum() and not first.isupper()
                if begins_inside and (last.isalnum() or last in ",、，"):
                    self._broken.append(len(line_before))
            yield line
        yield from rest

    @property
    def is_wrapped(self) -> bool:
        lengths = sorted(self._lengths)
        if len(lengths) < _LEAST or len(self._broken) < 0.25 * len(lengths):
            return False
        width = lengths[int(0.95 * len(lengths))]
        long = sum(length >= 0.75 * width for length in self._broken)
        return _WIDTHS[0] <= width <= _WIDTHS[1] and long >= 0.6 * len(self._broken)


def unwrap_lines(text: str) -> str:
    """Return the text with each paragraph on one line. Lines are joined with a space, but not after
    a hyphen inside a word, or in scripts that are written without spaces. Blank lines end a
    paragraph; headings, items of a list, quotations and rows of a table start one.
    """
    paragraphs: list[list[str]] = [[]]
    for line in text.split("\n"):
        bare = line.strip()
        follows_heading = paragraphs[-1] and _HEADING.match(paragraphs[-1][0])
        if not bare or _PARAGRAPH_START.match(line) or follows_heading:
            paragraphs.append([])
        if bare:
            paragraphs[-1].append(bare)
    return "\n".join(
        _JOINED.sub("", "\n".join(lines)).replace("\n", " ") for lines in paragraphs if lines
    )
