"""What every sequence format stands on: the segments it gives, their lengths, and the document of example i.

An example is found alone, from one number per document: the running sum of how many examples each document has. So
nothing is walked, baked or kept. The price is eight bytes of memory per document.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.errors import DataError

Tokens = NDArray[np.integer]
SentenceTask = Literal["sop", "nsp"]

CHOICES = 1
"""The stream of draws that formats read."""
UNLABELLED = -100
"""The sentence label that losses ignore."""


class Segments(NamedTuple):
    """The text of one sequence, special tokens aside."""

    parts: tuple[Tokens, ...]
    """Laid out as [CLS] part [SEP] part [SEP] ...; none is empty."""
    label: int
    """0 in order (sop) or next (nsp), 1 swapped or random, -100 not labelled."""
    paired: bool
    """The parts are two segments, of token types 0 and 1; otherwise one segment, with [SEP] between documents."""


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
            raise DataError("this split of the shards holds no token; prepare more text, or more of it for this split")

    def locate(self, number: int) -> tuple[int, int, int]:
        """The document of a number, which of that document's it is, and how many the document has."""
        document = int(self._ends.searchsorted(number, "right"))
        before = int(self._ends[document - 1]) if document else 0
        return document, number - before, int(self._ends[document]) - before

    def elsewhere(self, document: int, u: float) -> tuple[int, int]:
        """One of the others' numbers, uniform in `u`: its document, and which of that document's it is."""
        before = int(self._ends[document - 1]) if document else 0
        own = int(self._ends[document]) - before
        number = int(u * (self.total - own))
        other, place, _ = self.locate(number if number < before else number + own)
        return other, place


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
