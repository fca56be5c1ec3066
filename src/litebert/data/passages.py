"""The base of all sequence formats: their segments, the lengths of those, and the document of
example i.

An example is found alone, from one number for each document: the running sum of the examples of
each document. So nothing is walked or stored. The price is eight bytes of memory per document.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from litebert.config import SequenceConfig
from litebert.data.random_keys import Keys, draw_uniforms
from litebert.errors import DataError

if TYPE_CHECKING:
    from litebert.data.shards import Split

Tokens = NDArray[np.integer]
Numbers = NDArray[np.int64]
Draws = NDArray[np.float64]
Chosen = NDArray[np.bool_]
SentenceTask = Literal["sop", "nsp"]

_CHOICES = 1
"""Stream of draws that formats read."""
_DRAWS = 9
"""Draws of the format that reads most."""


class Segments(NamedTuple):
    """The text of one sequence without special tokens."""

    parts: tuple[Tokens, ...]
    """Laid out as [CLS] part [SEP] part [SEP] ...; no part is empty."""
    label: int
    """0 in order (sop) or next (nsp), 1 swapped or random, -100 not labeled."""
    paired: bool
    """True for two segments, of token types 0 and 1. False for one segment, with [SEP] between
    documents.
    """


class SequenceFormat(ABC):
    """Decides which tokens of which documents make up example i."""

    two_segments = True

    def __init__(
        self,
        split: Split,
        sequences: SequenceConfig,
        sentence: SentenceTask | None,
        pair_separators: int = 1,
    ) -> None:
        """Args:
            pair_separators: number of [SEP] between two segments.

        Raises:
            DataError: the split cannot serve the task.
        """
        self._split = split
        self._sentence = sentence
        self._short = sequences.short_probability
        # [CLS] and the last [SEP] take two positions.
        self._budget = sequences.length - 2 - pair_separators * self.two_segments
        self._index = CumulativeIndex(self._count())

    @property
    def examples(self) -> int:
        """Sequences per epoch."""
        return self._index.total

    def __call__(self, examples: NDArray[np.int64], keys: Keys) -> list[Segments]:
        """Return the segments of `examples` (B,), drawn from `keys` (B,)."""
        return self._make_segments(examples, draw_uniforms(keys, _DRAWS, _CHOICES).T)

    def _draw_targets(self, u: Draws) -> Numbers:
        """Return the tokens to fill: the budget, or with `short_probability` a uniform number in
        [2, budget].
        """
        return np.where(
            u[0] < self._short, 2 + (u[1] * (self._budget - 1)).astype(np.int64), self._budget
        )

    @abstractmethod
    def _count(self) -> NDArray[np.int64]:
        """Return the things of each document (documents,) that `_index` numbers.

        They are examples, where a format does not say otherwise.
        """

    @abstractmethod
    def _make_segments(self, examples: Numbers, u: Draws) -> list[Segments]:
        """Return the segments of `examples` (B,) by their draws `u` (_DRAWS, B).

        The first two draws are for `_draw_targets`.
        """


class CumulativeIndex:
    """Things of which each document has some (examples, tokens), numbered through the split.

    document     0   1       2
    its things   3   0       2
    numbers      0 1 2       3 4        locate(4) = (2, 1, 2)
    """

    def __init__(self, counts: NDArray[np.int64]) -> None:
        """Args:
            counts: things of each document (documents,).

        Raises:
            DataError: the counts are all zero.
        """
        self._ends = np.cumsum(counts)
        self.total = int(self._ends[-1]) if len(counts) else 0
        if not self.total:
            raise DataError(
                "this split of the shards holds no tokens; prepare more text, or more for "
                "this split"
            )

    def locate(self, numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Return the document of each number (B,), its number in that document, and the document's
        count.
        """
        documents = self._ends.searchsorted(numbers, "right")
        before, counts = self._count_things(documents)
        return documents, numbers - before, counts

    def locate_elsewhere(
        self, documents: Numbers, u: NDArray[np.float64]
    ) -> tuple[Numbers, Numbers]:
        """Draw for each document (B,) a thing of another document, uniform in `u`.

        Returns the document, and the number in that document.
        """
        before, counts = self._count_things(documents)
        numbers = (u * (self.total - counts)).astype(np.int64)
        return self.locate(np.where(numbers < before, numbers, numbers + counts))[:2]

    def count_before(self, documents: Numbers) -> Numbers:
        """Count the things before those of each document."""
        return np.where(documents > 0, self._ends[documents - 1], 0)

    def _count_things(self, documents: Numbers) -> tuple[Numbers, Numbers]:
        """Count the things before those of each document, and those of the document."""
        before = self.count_before(documents)
        return before, self._ends[documents] - before


Length = TypeVar("Length", int, NDArray[np.int64])


def trim_lengths(first: Length, second: Length, target: Length) -> tuple[Length, Length]:
    """Return the lengths of two segments that are trimmed to `target` tokens together.

    Tokens are taken one at a time off the longer segment, off the second where they are equal. So
    do the official BERT and ALBERT code (truncate_seq_pair).
    """
    excess = np.maximum(0, first + second - target)
    level = np.minimum(excess, abs(first - second))
    rest = excess - level
    longer = first > second
    return first - level * longer - rest // 2, second - level * (1 - longer) - (rest + 1) // 2
