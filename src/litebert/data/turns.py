"""Turns of several splits that are read by weight: whose turn each sequence is.

    weights   2 books, 1 web
    number    0      1    2      | 3      4    5      | ...
    split     books  web  books  | books  web  books  | ...
    of it     0      0    1      | 2      1    3      | ...

The turns repeat after as many sequences as the weights add up to. Sequence k of a split with weight
w stands at (k + 1/2) / w of a round. So a split is never far from its share: after n sequences of m
splits, it has its share s of them, n s, give or take (1 + s (m - 2)) / 2. Any turn is found alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from litebert.data.shards import Split

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class MixedSplit:
    """Splits of several sets, of which each gives sequences by its weight."""

    splits: tuple[Split, ...]
    weights: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Tokens of all of them."""
        return sum(split.tokens for split in self.splits)


AnySplit: TypeAlias = "Split | MixedSplit"


def list_splits(split: AnySplit) -> list[tuple[Split, int]]:
    """List the splits in a split, with their weights."""
    if isinstance(split, MixedSplit):
        return list(zip(split.splits, split.weights, strict=True))
    return [(split, 1)]


class Turns:
    """The turns of several splits, by the number of the sequence."""

    def __init__(self, weights: Sequence[int]) -> None:
        """Args:
        weights: sequences of each split in a round, whole numbers above 0.
        """
        self._weights = np.array(weights, np.int64)
        splits = np.arange(len(weights)).repeat(self._weights)
        numbers = np.arange(len(splits)) - (self._weights.cumsum() - self._weights)[splits]
        # Quotients of whole numbers this small are equal only where the fractions are.
        order = np.lexsort((splits, (2 * numbers + 1) / self._weights[splits]))
        self._splits, self._numbers = splits[order], numbers[order]

    def locate(self, sequences: Numbers) -> tuple[Numbers, Numbers]:
        """Return the split of each sequence (B,), and the number of the sequence in that split."""
        rounds, places = np.divmod(sequences, len(self._splits))
        splits = self._splits[places]
        return splits, rounds * self._weights[splits] + self._numbers[places]

    def count(self, sequences: int) -> list[int]:
        """Count the sequences of each split among the first `sequences`."""
        rounds, places = divmod(sequences, len(self._splits))
        rest = np.bincount(self._splits[:places], minlength=len(self._weights))
        counts: list[int] = (rounds * self._weights + rest).tolist()
        return counts
