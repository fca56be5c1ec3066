"""What every sequence format builds on: the segments it gives, their lengths, and the document of example i.

An example is found alone, from one number per document: the running sum of how many examples each document has. So
nothing is walked, stored or kept. The price is eight bytes of memory per document.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.config import SequenceConfig
from litebert.data.random_keys import Keys, uniforms
from litebert.errors import DataError

if TYPE_CHECKING:
    from litebert.data.shards import Split

Tokens = NDArray[np.integer]
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
    """The parts are two segments, of token types 0 and 1; otherwise one segment, with [SEP] between documents."""


class SequenceFormat(ABC):
    """Which tokens of which documents stand in example i."""

    two_segments = True

    def __init__(
        self, split: Split, sequences: SequenceConfig, sentence: SentenceTask | None, pair_separators: int = 1
    ) -> None:
        """Raises DataError where the split cannot serve the task; `pair_separators`: [SEP] between two segments."""
        self._split = split
        self._sentence = sentence
        self._short = sequences.short_probability
        self._budget = sequences.length - 2 - pair_separators * self.two_segments  # less [CLS] and the last [SEP] too
        self._index = CumulativeIndex(self._counts())

    @property
    def examples(self) -> int:
        """Sequences per epoch."""
        return self._index.total

    def __call__(self, examples: NDArray[np.int64], keys: Keys) -> list[Segments]:
        """The segments of `examples` (B,), drawn from `keys` (B,)."""
        draws = uniforms(keys, _DRAWS, _CHOICES).tolist()
        return [self._segments(*drawn) for drawn in zip(examples.tolist(), draws, strict=True)]

    def _target(self, u: list[float]) -> int:
        """Tokens to fill: the budget, or with `short_probability` a uniform number in [2, budget]."""
        return 2 + int(u[1] * (self._budget - 1)) if u[0] < self._short else self._budget

    @abstractmethod
    def _counts(self) -> NDArray[np.int64]:
        """What each document has (documents,), numbered in `_index`: examples, where a format says nothing else."""

    @abstractmethod
    def _segments(self, example: int, u: list[float]) -> Segments:
        """The segments of one example, by its draws `u`, of which the first two are for `_target`."""


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
            raise DataError("this split of the shards holds no tokens; prepare more text, or more for this split")

    def locate(self, number: int) -> tuple[int, int, int]:
        """The document of a number, which of that document's it is, and how many the document has."""
        document = int(self._ends.searchsorted(number, "right"))
        before, own = self._held(document)
        return document, number - before, own

    def elsewhere(self, document: int, u: float) -> tuple[int, int]:
        """One of the others' numbers, uniform in `u`: its document, and which of that document's it is."""
        before, own = self._held(document)
        number = int(u * (self.total - own))
        return self.locate(number if number < before else number + own)[:2]

    def _held(self, document: int) -> tuple[int, int]:
        """How many things are before those of a document, and how many are its own."""
        before = int(self._ends[document - 1]) if document else 0
        return before, int(self._ends[document]) - before


def trimmed_lengths(first: int, second: int, target: int) -> tuple[int, int]:
    """The lengths of two segments in `target` tokens: one by one off the longer, off the second where they are equal.

    So do the official BERT and ALBERT code (truncate_seq_pair).
    """
    excess = max(0, first + second - target)
    level = min(excess, abs(first - second))
    rest = excess - level
    if first > second:
        first -= level
    else:
        second -= level
    return first - rest // 2, second - (rest + 1) // 2
