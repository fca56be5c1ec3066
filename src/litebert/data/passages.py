"""What every sequence format builds on: the segments it gives, their lengths, and the document of
example i.

An example is found alone, from one number per document: the running sum of how many examples each
document has. So nothing is walked, stored or kept. The price is eight bytes of memory per document.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from litebert.config import SequenceConfig
from litebert.data.random_keys import Keys, uniforms
from litebert.errors import DataError

if TYPE_CHECKING:
    from litebert.data.shards import Split

Tokens = NDArray[np.integer]
Numbers = NDArray[np.int64]
Draws = NDArray[np.float64]
Chosen = NDArray[np.bool_]
SentenceTask = Literal["sop", "nsp"]

_CHOICES = 1  # the stream of draws that formats read
_DRAWS = 9  # as many as the format that draws most reads


class Segments(NamedTuple):
    """The text of one sequence, special tokens aside."""

    parts: tuple[Tokens, ...]
    """Laid out as [CLS] part [SEP] part [SEP] ...; none is empty."""
    label: int
    """0 in order (sop) or next (nsp), 1 swapped or random, -100 not labelled."""
    paired: bool
    """The parts are two segments, of token types 0 and 1; otherwise one segment, with [SEP] between
    documents.
    """


class SequenceFormat(ABC):
    """Which tokens of which documents stand in example i."""

    two_segments = True

    def __init__(
        self,
        split: Split,
        sequences: SequenceConfig,
        sentence: SentenceTask | None,
        pair_separators: int = 1,
    ) -> None:
        """Raises DataError where the split cannot serve the task; `pair_separators`: [SEP] between
        two segments.
        """
        self._split = split
        self._sentence = sentence
        self._short = sequences.short_probability
        self._budget = (
            sequences.length - 2 - pair_separators * self.two_segments
        )  # less [CLS] and the last [SEP] too
        self._index = CumulativeIndex(self._counts())

    @property
    def examples(self) -> int:
        """Sequences per epoch."""
        return self._index.total

    def __call__(self, examples: NDArray[np.int64], keys: Keys) -> list[Segments]:
        """The segments of `examples` (B,), drawn from `keys` (B,)."""
        return self._segments(examples, uniforms(keys, _DRAWS, _CHOICES).T)

    def _targets(self, u: Draws) -> Numbers:
        """Tokens to fill: the budget, or with `short_probability` a uniform number in [2,
        budget]."""
        return np.where(
            u[0] < self._short, 2 + (u[1] * (self._budget - 1)).astype(np.int64), self._budget
        )

    @abstractmethod
    def _counts(self) -> NDArray[np.int64]:
        """What each document has (documents,), numbered in `_index`: examples, where a format says
        nothing else.
        """

    @abstractmethod
    def _segments(self, examples: Numbers, u: Draws) -> list[Segments]:
        """The segments of `examples` (B,) by their draws `u` (_DRAWS, B), of which the first two
        are for `_targets`.
        """


class CumulativeIndex:
    """Things of which each document has some (examples, tokens), numbered through the split.

    document     0   1       2
    its things   3   0       2
    numbers      0 1 2       3 4        locate(4) = (2, 1, 2)
    """

    def __init__(self, counts: NDArray[np.int64]) -> None:
        """From the counts (documents,). Raises DataError where they are all zero."""
        self._ends = np.cumsum(counts)
        self.total = int(self._ends[-1]) if len(counts) else 0
        if not self.total:
            raise DataError(
                "this split of the shards holds no tokens; prepare more text, or more for "
                "this split"
            )

    def locate(self, numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Of each number (B,) the document, which of that document's it is, and how many the
        document has.
        """
        documents = self._ends.searchsorted(numbers, "right")
        before, own = self._held(documents)
        return documents, numbers - before, own

    def elsewhere(self, documents: Numbers, u: NDArray[np.float64]) -> tuple[Numbers, Numbers]:
        """Of each document (B,) one of the others' numbers, uniform in `u`: its document, and which
        of that document's it is."""
        before, own = self._held(documents)
        numbers = (u * (self.total - own)).astype(np.int64)
        return self.locate(np.where(numbers < before, numbers, numbers + own))[:2]

    def before(self, documents: Numbers) -> Numbers:
        """How many things are before those of each document."""
        return np.where(documents > 0, self._ends[documents - 1], 0)

    def _held(self, documents: Numbers) -> tuple[Numbers, Numbers]:
        """How many things are before those of each document, and how many are its own."""
        before = self.before(documents)
        return before, self._ends[documents] - before


Length = TypeVar("Length", int, NDArray[np.int64])


def trimmed_lengths(first: Length, second: Length, target: Length) -> tuple[Length, Length]:
    """The lengths of two segments in `target` tokens: one by one off the longer, off the second
    where they are equal.

    So do the official BERT and ALBERT code (truncate_seq_pair).
    """
    excess = np.maximum(0, first + second - target)
    level = np.minimum(excess, abs(first - second))
    rest = excess - level
    longer = first > second
    return first - level * longer - rest // 2, second - level * (1 - longer) - (rest + 1) // 2
