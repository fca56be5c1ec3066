"""Whole sentences to sequences of one segment: of one document, or of the stream of all documents.

    sentences   |--1--|-----2-----|-3-|----4----|--5--|
    places      .              .              .              ceil(n / budget) of them, spread evenly over n tokens
    tiles       |==1==|=======2=======|=======3=======|      each starts with the sentence that holds its place

A tile starts at the place itself if the start of the sentence is more than half a budget back. A sequence grows
from the start of its tile forwards or from its end backwards, by a coin, by whole sentences as long as they fit; where
it meets an end of the text with room left, it grows on at its other end. A sentence that does not fit is left to
others, unless more than half of the target would stay empty; then it is cut, and so is one that is longer than the
budget (SpanBERT drops those).

A tile may be larger than the budget, by at most a half. An epoch then misses what lies at its other end: in prose of 24
tokens a sentence 4 % of a stream at length 512, 17 % at 64. The coin makes up for that over the epochs: each shows
every token with a chance of one half or more, short targets aside.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.data import IGNORED
from litebert.data.passages import Segments, SequenceFormat, Tokens

PACKING = 2
"""The version of these formats; a run keeps the one that it began with (`FullSentencesOfVersion1`)."""


class DocumentSentences(SequenceFormat):
    """Whole sentences of one document, so sequences at its end are short (RoBERTa section 4.2; SpanBERT section 3.3).

    Each document is a text of its own.
    """

    two_segments = False

    def _counts(self) -> NDArray[np.int64]:
        return -(-self._split.document_tokens // self._budget)

    def _segments(self, example: int, u: list[float]) -> Segments:
        document, tile, tiles = self._index.locate(example)
        tokens, starts = self._split.sentences_of(document)
        text = _Text(starts[:-1], starts[1:], len(tokens))
        forwards = u[2] < 0.5
        place = (tile if forwards else tile + 1) * len(tokens) // tiles
        start, end = text.passage(place, self._budget // 2, self._target(u), forwards)
        return Segments((tokens[start:end],), IGNORED, paired=False)


class FullSentences(SequenceFormat):
    """Whole sentences over the ends of documents, so sequences are full (RoBERTa section 4.2).

    The text is the stream of all documents in stored order, with a separator between two. It counts as a token, but
    at the ends of a sequence there is none. As in fairseq, sequences are shuffled and documents are not: those in one
    sequence are neighbours in the shards.
    """

    two_segments = False
    _reach = 1  # tokens beyond the budget to look at: a passage may start behind the separator that its place is on

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

    def _segments(self, example: int, u: list[float]) -> Segments:
        forwards = u[2] < 0.5
        place = (example if forwards else example + 1) * self._size // self.examples
        # What a passage may hold: its edge is at most half a budget before the place, its ends one from each other.
        low, high = max(place - 3 * self._budget // 2, 0), min(place + self._budget + self._reach, self._size)
        document, inside, _ = self._index.locate(low)
        begin = low - inside
        documents: list[tuple[int, Tokens]] = []
        starts, ends = [], []
        while begin < high:
            tokens, offsets = self._split.sentences_of(document)
            if len(tokens):
                documents.append((begin, tokens))
                starts.append(begin + offsets[:-1])
                ends.append(begin + offsets[1:])
                begin += len(tokens) + 1
            document += 1
        text = _Text(np.concatenate(starts), np.concatenate(ends), self._size)
        start, end = text.passage(place, self._budget // 2, self._target(u), forwards)
        parts = (tokens[max(start - base, 0) : max(end - base, 0)] for base, tokens in documents)
        return Segments(tuple(part for part in parts if len(part)), IGNORED, paired=False)


class FullSentencesOfVersion1(FullSentences):
    """Full sentences of runs that began before version 2.

    A passage that starts behind a separator passes over a sentence of one token that would fill its budget and begins a
    document.
    """

    _reach = 0


class _Text(NamedTuple):
    """Where sentences start and end, ascending (s,), in a text of `size` tokens; around a place is enough."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    size: int

    def passage(self, place: int, reach: int, target: int, forwards: bool) -> tuple[int, int]:
        """Start and end of at most `target` tokens from the edge between two tiles, at `place`, on."""
        before, after = self._edge(place, reach)
        if forwards:
            start, end = after, self._forwards(after, target)
            if end == self.size:
                start = min(start, self._backwards(end, target))
        else:
            start, end = self._backwards(before, target), before
            if start == 0:
                end = max(end, self._forwards(start, target))
        return start, end

    def _edge(self, place: int, reach: int) -> tuple[int, int]:
        """The end of the tile before `place`, and the start of the tile after it: one, or on two sides of a [SEP]."""
        if place == self.size:
            return place, place
        sentence = int(self.starts.searchsorted(place, "right")) - 1
        start, end = int(self.starts[sentence]), int(self.ends[sentence])
        if place - start <= reach:
            return int(self.ends[sentence - 1]) if sentence else start, start
        return (place, place) if place < end else (end, int(self.starts[sentence + 1]))

    def _forwards(self, start: int, target: int) -> int:
        """The last end of a sentence that fits; a place inside one where less than half would be filled."""
        last = int(self.ends.searchsorted(start + target, "right")) - 1
        end = int(self.ends[last]) if last >= 0 else start
        return end if 2 * (end - start) >= target else min(start + target, self.size)

    def _backwards(self, end: int, target: int) -> int:
        """The first start of a sentence that fits, in the same way."""
        first = int(self.starts.searchsorted(end - target, "left"))
        start = int(self.starts[first]) if first < len(self.starts) else end
        return start if 2 * (end - start) >= target else max(end - target, 0)
