"""Whole sentences to sequences of one segment: of one document, or of the stream of all documents.

    sentences   |--1--|-----2-----|-3-|----4----|--5--|
    places      .              .              .      ceil(n / budget), spread evenly
    tiles       |==1==|=======2=======|=======3=======|  each starts with the sentence of its place

A tile starts at the place itself if the start of the sentence is more than half a budget back. A
sequence grows from the start of its tile forwards or from its end backwards, by a coin, by whole
sentences as long as they fit; where it meets an end of the text with room left, it grows on at its
other end. A sentence that does not fit is left to others, unless more than half of the target would
stay empty; then it is cut, and so is one that is longer than the budget (SpanBERT drops those).

A tile may be larger than the budget, by at most a half. An epoch then misses what lies at its other
end: in prose of 24 tokens a sentence 4 % of a stream at length 512, 17 % at 64. The coin makes up
for that over the epochs: each shows every token with a chance of one half or more, short targets
aside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from litebert.data import IGNORED
from litebert.data.passages import (
    Chosen,
    CumulativeIndex,
    Draws,
    Numbers,
    Segments,
    SequenceFormat,
    Tokens,
)

if TYPE_CHECKING:
    from litebert.data.shards import Documents, Split


class DocumentSentences(SequenceFormat):
    """Whole sentences of one document, so sequences at its end are short (RoBERTa section 4.2;
    SpanBERT section 3.3).

    Each document is a text of its own.
    """

    two_segments = False

    def _counts(self) -> NDArray[np.int64]:
        return -(-self._split.document_tokens // self._budget)

    def _segments(self, examples: Numbers, u: Draws) -> list[Segments]:
        documents, tile, tiles = self._index.locate(examples)
        text, forwards = self._split.read(documents), u[2] < 0.5
        places = np.where(forwards, tile, tile + 1) * text.tokens // tiles
        runs = _passages(_Separate(text), places, self._budget // 2, self._targets(u), forwards)
        return [Segments((tokens,), IGNORED, paired=False) for tokens in text.passages(*runs)]


class FullSentences(SequenceFormat):
    """Whole sentences over the ends of documents, so sequences are full (RoBERTa section 4.2).

    The text is the stream of all documents in stored order, with a separator between two. It counts
    as a token, but at the ends of a sequence there is none. As in fairseq, sequences are shuffled
    and documents are not: those in one sequence are neighbours in the shards.
    """

    two_segments = False

    @property
    def examples(self) -> int:
        return -(-self._size // self._budget)

    @property
    def _size(self) -> int:
        """Tokens of the stream; the last document has no separator after it."""
        return self._index.total - 1

    def _counts(self) -> NDArray[np.int64]:
        """Tokens of each document in the stream."""
        tokens = self._split.document_tokens
        return tokens + (tokens > 0)

    def _segments(self, examples: Numbers, u: Draws) -> list[Segments]:
        forwards = u[2] < 0.5
        places = np.where(forwards, examples, examples + 1) * self._size // self.examples
        # What a passage may hold: its edge is at most half a budget before the place, its ends one
        # from each other.
        low = np.maximum(places - 3 * self._budget // 2, 0)
        low -= self._index.locate(low)[1]
        # One more, for a passage may start behind the separator that its place is on.
        high = np.minimum(places + self._budget + 1, self._size)
        text = _Stream(self._split, self._index, self._size, low, high)
        starts, ends = _passages(text, places, self._budget // 2, self._targets(u), forwards)
        # A passage has a part of each of its documents.
        documents = self._index.locate(starts)[0]
        counts = self._index.locate(ends)[0] - documents + 1
        rows = np.arange(len(examples)).repeat(counts)
        documents = np.arange(len(rows)) - (counts.cumsum() - counts - documents)[rows]
        parts, begins = self._split.read(documents), self._index.before(documents)
        tokens = parts.passages(
            np.clip(starts[rows] - begins, 0, parts.tokens),
            np.clip(ends[rows] - begins, 0, parts.tokens),
        )
        found: list[list[Tokens]] = [[] for _ in range(len(examples))]
        for row, part in zip(rows.tolist(), tokens, strict=True):
            if len(part):
                found[row].append(part)
        return [Segments(tuple(parts), IGNORED, paired=False) for parts in found]


def _passages(
    text: _Separate | _Stream, places: Numbers, reach: int, targets: Numbers, forwards: Chosen
) -> tuple[Numbers, Numbers]:
    """Starts and ends (B,) of at most so many tokens as the targets say, from the edge between two
    tiles at each place on."""

    def ahead(starts: Numbers) -> Numbers:
        """The last end of a sentence that fits; a place inside one where less than half would be
        filled.
        """
        ends = text.last_end(starts + targets)
        return np.where(
            2 * (ends - starts) >= targets, ends, np.minimum(starts + targets, text.size)
        )

    def back(ends: Numbers) -> Numbers:
        """The first start of a sentence that fits, in the same way."""
        starts = text.first_start(ends - targets)
        return np.where(2 * (ends - starts) >= targets, starts, np.maximum(ends - targets, 0))

    before, after = text.edges(places, reach)
    ends, starts = ahead(after), back(before)
    after = np.where(ends == text.size, np.minimum(after, back(ends)), after)
    before = np.where(starts == 0, np.maximum(before, ahead(starts)), before)
    return np.where(forwards, after, starts), np.where(forwards, ends, before)


class _Separate:
    """B texts of one document each."""

    def __init__(self, documents: Documents) -> None:
        self._documents, self.size = documents, documents.tokens

    def edges(self, places: Numbers, reach: int) -> tuple[Numbers, Numbers]:
        """The end of the tile before each place and the start of the one after it, which here are
        one.
        """
        number = np.minimum(self._documents.starts_until(places), self._documents.sentences) - 1
        starts = self._documents.starts(number)
        edges = np.where((places == self.size) | (places - starts > reach), places, starts)
        return edges, edges

    def last_end(self, places: Numbers) -> Numbers:
        """The last end of a sentence that is not beyond the place; 0 where there is none."""
        return self._documents.starts(
            self._documents.starts_until(np.minimum(places, self.size)) - 1
        )

    def first_start(self, places: Numbers) -> Numbers:
        """The first start of a sentence that is not before the place; the end of the text where
        there is none.
        """
        number = self._documents.starts_until(np.minimum(places, self.size) - 1)
        return self._documents.starts(np.minimum(number, self._documents.sentences))


class _Stream:
    """B times the stream of all documents, of which sentences count that begin in documents from
    `low` on, where one begins, and before `high`."""

    def __init__(
        self, split: Split, index: CumulativeIndex, size: int, low: Numbers, high: Numbers
    ) -> None:
        self._split, self._index, self.size, self._low, self._high = split, index, size, low, high

    def edges(self, places: Numbers, reach: int) -> tuple[Numbers, Numbers]:
        """The end of the tile before each place and the start of the one after it: one, or on two
        sides of a [SEP].
        """
        text, inside, begin = self._read(places)
        number = np.minimum(text.starts_until(inside), text.sentences) - 1
        starts, ends = begin + text.starts(number), begin + text.starts(number + 1)
        near, on_separator = places - starts <= reach, places >= ends
        before = np.where(near, np.where((number == 0) & (begin > 0), begin - 1, starts), places)
        after = np.where(near, starts, places + on_separator)
        at_end = places == self.size
        return np.where(at_end, places, before), np.where(at_end, places, after)

    def last_end(self, places: Numbers) -> Numbers:
        """The last end of a sentence that is not beyond the place; that of the document before
        where there is none.
        """
        text, inside, begin = self._read(np.minimum(places, self.size))
        number = text.starts_until(inside) - 1
        return np.where(
            (number < 1) | (begin >= self._high), begin - 1, begin + text.starts(number)
        )

    def first_start(self, places: Numbers) -> Numbers:
        """The first start of a sentence that is not before the place; beyond the stream where there
        is none.
        """
        text, inside, begin = self._read(np.maximum(places, self._low))
        number = text.starts_until(inside - 1)
        following = begin + text.tokens + 1
        following = np.where(following < self._high, following, self.size + 1)
        number_inside = np.minimum(number, text.sentences)
        return np.where(number < text.sentences, begin + text.starts(number_inside), following)

    def _read(self, places: Numbers) -> tuple[Documents, Numbers, Numbers]:
        """The documents of the places, the places in them, and where the documents begin."""
        documents, inside, _ = self._index.locate(places)
        return self._split.read(documents), inside, places - inside
