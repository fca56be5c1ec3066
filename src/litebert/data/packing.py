"""Sequences of one segment: whole sentences of one document, or of the stream of all documents.

    sentences   |--1--|-----2-----|-3-|----4----|--5--|
    points      .              .              .      ceil(n / budget), spread evenly
    tiles       |==1==|=======2=======|=======3=======|  each starts with the sentence of its point

A tile starts at the point itself if the start of the sentence is more than half a budget before it.
A sequence grows forwards from the start of its tile, or backwards from its end. A coin decides. It
grows by whole sentences as long as they fit. Where it meets an end of the text with space left, it
grows at its other end. A sentence that does not fit is left to others, unless more than half of the
target would stay empty. Then it is cut, and so is a sentence that is longer than the budget
(SpanBERT drops those).

A tile may be larger than the budget, by at most a half. An epoch then misses the text at its other
end: in prose of 24 tokens a sentence 4 % of a stream at length 512, 17 % at 64. The coin makes up
for that over the epochs: each shows every token with a chance of one half or more, apart from short
targets.
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

    def _count(self) -> NDArray[np.int64]:
        return -(-self._split.document_tokens // self._budget)

    def _make_segments(self, examples: Numbers, u: Draws) -> list[Segments]:
        documents, tile, tiles = self._index.locate(examples)
        text, forwards = self._split.read(documents), u[2] < 0.5
        points = np.where(forwards, tile, tile + 1) * text.tokens // tiles
        runs = _grow_passages(
            _SeparateTexts(text), points, self._budget // 2, self._draw_targets(u), forwards
        )
        return [Segments((tokens,), IGNORED, paired=False) for tokens in text.read_passages(*runs)]


class FullSentences(SequenceFormat):
    """Whole sentences across the ends of documents, so sequences are full (RoBERTa section 4.2).

    The text is the stream of all documents in stored order, with a separator between two. The
    separator counts as a token, but no sequence begins or ends with one. As in fairseq, sequences
    are shuffled and documents are not: those in one sequence are neighbors in the shards.
    """

    two_segments = False

    @property
    def examples(self) -> int:
        return -(-self._size // self._budget)

    @property
    def _size(self) -> int:
        """Tokens of the stream. The last document has no separator after it."""
        return self._index.total - 1

    def _count(self) -> NDArray[np.int64]:
        """Return the tokens of each document in the stream."""
        tokens = self._split.document_tokens
        return tokens + (tokens > 0)

    def _make_segments(self, examples: Numbers, u: Draws) -> list[Segments]:
        forwards = u[2] < 0.5
        points = np.where(forwards, examples, examples + 1) * self._size // self.examples
        # The edge of a passage is at most half a budget before its point, and its two ends are at
        # most a budget apart.
        low = np.maximum(points - 3 * self._budget // 2, 0)
        low -= self._index.locate(low)[1]
        # One more, for a passage may start after the separator that is at its point.
        high = np.minimum(points + self._budget + 1, self._size)
        text = _DocumentStream(self._split, self._index, self._size, low, high)
        starts, ends = _grow_passages(
            text, points, self._budget // 2, self._draw_targets(u), forwards
        )
        # A passage consists of a part of each of its documents.
        documents = self._index.locate(starts)[0]
        counts = self._index.locate(ends)[0] - documents + 1
        rows = np.arange(len(examples)).repeat(counts)
        documents = np.arange(len(rows)) - (counts.cumsum() - counts - documents)[rows]
        parts, begins = self._split.read(documents), self._index.count_before(documents)
        tokens = parts.read_passages(
            np.clip(starts[rows] - begins, 0, parts.tokens),
            np.clip(ends[rows] - begins, 0, parts.tokens),
        )
        parts_of_row: list[list[Tokens]] = [[] for _ in range(len(examples))]
        for row, ids in zip(rows.tolist(), tokens, strict=True):
            if len(ids):
                parts_of_row[row].append(ids)
        return [Segments(tuple(parts), IGNORED, paired=False) for parts in parts_of_row]


def _grow_passages(
    text: _SeparateTexts | _DocumentStream,
    points: Numbers,
    reach: int,
    targets: Numbers,
    forwards: Chosen,
) -> tuple[Numbers, Numbers]:
    """Grow a passage of at most `targets` (B,) tokens from the edge between two tiles at each
    point.

    Returns the starts and ends (B,).
    """

    def find_end(starts: Numbers) -> Numbers:
        """Return the last end of a sentence that fits, or cut one where less than half would be
        filled.
        """
        ends = text.find_last_end(starts + targets)
        return np.where(
            2 * (ends - starts) >= targets, ends, np.minimum(starts + targets, text.size)
        )

    def find_start(ends: Numbers) -> Numbers:
        """Return the first start of a sentence that fits, in the same way."""
        starts = text.find_first_start(ends - targets)
        return np.where(2 * (ends - starts) >= targets, starts, np.maximum(ends - targets, 0))

    before, after = text.find_edges(points, reach)
    ends, starts = find_end(after), find_start(before)
    after = np.where(ends == text.size, np.minimum(after, find_start(ends)), after)
    before = np.where(starts == 0, np.maximum(before, find_end(starts)), before)
    return np.where(forwards, after, starts), np.where(forwards, ends, before)


class _SeparateTexts:
    """B texts of one document each."""

    def __init__(self, documents: Documents) -> None:
        self._documents, self.size = documents, documents.tokens

    def find_edges(self, points: Numbers, reach: int) -> tuple[Numbers, Numbers]:
        """Return the end of the tile before each point, and the start of the tile after it, which
        are the same.
        """
        number = np.minimum(self._documents.count_starts(points), self._documents.sentences) - 1
        starts = self._documents.find_starts(number)
        edges = np.where((points == self.size) | (points - starts > reach), points, starts)
        return edges, edges

    def find_last_end(self, points: Numbers) -> Numbers:
        """Return the last end of a sentence that is not beyond the point; 0 where there is none."""
        return self._documents.find_starts(
            self._documents.count_starts(np.minimum(points, self.size)) - 1
        )

    def find_first_start(self, points: Numbers) -> Numbers:
        """Return the first start of a sentence that is not before the point; the end of the text
        where there is none.
        """
        number = self._documents.count_starts(np.minimum(points, self.size) - 1)
        return self._documents.find_starts(np.minimum(number, self._documents.sentences))


class _DocumentStream:
    """The stream of all documents, B times.

    Sentences count if their document begins from `low` on, where a document begins, and before
    `high`.
    """

    def __init__(
        self, split: Split, index: CumulativeIndex, size: int, low: Numbers, high: Numbers
    ) -> None:
        self._split, self._index, self.size, self._low, self._high = split, index, size, low, high

    def find_edges(self, points: Numbers, reach: int) -> tuple[Numbers, Numbers]:
        """Return the end of the tile before each point, and the start of the tile after it.

        They are the same, or lie on the two sides of a [SEP].
        """
        text, inside, begin = self._read(points)
        number = np.minimum(text.count_starts(inside), text.sentences) - 1
        starts, ends = begin + text.find_starts(number), begin + text.find_starts(number + 1)
        near, on_separator = points - starts <= reach, points >= ends
        before = np.where(near, np.where((number == 0) & (begin > 0), begin - 1, starts), points)
        after = np.where(near, starts, points + on_separator)
        at_end = points == self.size
        return np.where(at_end, points, before), np.where(at_end, points, after)

    def find_last_end(self, points: Numbers) -> Numbers:
        """Return the last end of a sentence that is not beyond the point.

        Where there is none, it is the end of the document before.
        """
        text, inside, begin = self._read(np.minimum(points, self.size))
        number = text.count_starts(inside) - 1
        return np.where(
            (number < 1) | (begin >= self._high), begin - 1, begin + text.find_starts(number)
        )

    def find_first_start(self, points: Numbers) -> Numbers:
        """Return the first start of a sentence that is not before the point; beyond the stream
        where there is none.
        """
        text, inside, begin = self._read(np.maximum(points, self._low))
        number = text.count_starts(inside - 1)
        following = begin + text.tokens + 1
        following = np.where(following < self._high, following, self.size + 1)
        number_inside = np.minimum(number, text.sentences)
        return np.where(number < text.sentences, begin + text.find_starts(number_inside), following)

    def _read(self, points: Numbers) -> tuple[Documents, Numbers, Numbers]:
        """Return the documents of the points, the points in them, and where the documents begin."""
        documents, inside, _ = self._index.locate(points)
        return self._split.read(documents), inside, points - inside
