"""An example as the encoder reads it: rows of tokens, and what they teach or ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.data.passages import trimmed_lengths
from litebert.tokenizer import Tokenizer


class EncodedRow(NamedTuple):
    """One sequence as the encoder reads it, special tokens included, without padding."""

    ids: NDArray[np.int32]
    """(n,)"""
    types: NDArray[np.int32]
    """(n,): 0 in the first segment, 1 in the second."""


@dataclass(frozen=True)
class Item:
    """What one row (or, for choices, one row for each) teaches or asks. A long example may have several items."""

    example: int
    """Its place among the examples it was made from."""
    rows: tuple[EncodedRow, ...]
    """One; with choices one for each."""
    target: Any
    """What is right, in the form that the task's output says; None where the answer is not known."""
    detail: Any = None
    """What the task needs to turn logits into an answer, such as offsets; it reaches no model."""

    @property
    def length(self) -> int:
        """Tokens of its longest row."""
        return max(len(row.ids) for row in self.rows)


@dataclass(frozen=True)
class EncodedPart:
    """A part of a task, read and encoded once."""

    name: str
    examples: list[Any]
    items: list[Item]


def build_row(
    tokenizer: Tokenizer, first: Sequence[int], second: Sequence[int] | None = None, length: int | None = None
) -> EncodedRow:
    """[CLS] first [SEP], or [CLS] first [SEP] second [SEP], cut to `length` tokens.

    Tokens are dropped from the ends, as the official BERT and ALBERT code do for GLUE.
    """
    separators = tokenizer.pair_separators
    if length is not None:
        room = length - (2 if second is None else 2 + separators)
        lengths = trimmed_lengths(len(first), len(second or ()), room)
        first, second = first[: lengths[0]], None if second is None else second[: lengths[1]]
    start = [tokenizer.cls_id, *first, *[tokenizer.sep_id] * (1 if second is None else separators)]
    rest = [] if second is None else [*second, tokenizer.sep_id]
    return EncodedRow(np.array(start + rest, np.int32), np.array([0] * len(start) + [1] * len(rest), np.int32))
