"""An example as the encoder reads it: rows of tokens, and what they teach or ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.data.segments import trim_lengths
from litebert.tokenizer import Tokenizer


class EncodedRow(NamedTuple):
    """One sequence as the encoder reads it, special tokens included, without padding."""

    ids: NDArray[np.int32]
    """(n,)"""
    types: NDArray[np.int32]
    """(n,): 0 in the first segment, 1 in the second."""


@dataclass(frozen=True)
class Item:
    """One row (or, for choices, a row for each) with its target. A long example may have several
    items.
    """

    example: int
    """Its place among the examples it was made from."""
    rows: tuple[EncodedRow, ...]
    """One; with choices one for each."""
    target: Any
    """The label, in the form of the task's output; None where it is not known."""
    detail: Any = None
    """Data that the task needs to turn logits into an answer, such as offsets; the model never gets
    it.
    """
    teacher_logits: NDArray[np.floating[Any]] | None = None
    """A teacher's logits, in the form of `Output.of_item`."""
    group: int | None = None
    """The number of the rows that it belongs to, which no split divides; None where it is alone."""
    weight: float = 1.0
    """Its weight in the loss of the labels."""

    @property
    def length(self) -> int:
        """Tokens of its longest row."""
        return max(len(row.ids) for row in self.rows)


@dataclass(frozen=True)
class PlainItem(Item):
    """An example as a baseline reads it: texts as they stand, or words, and no rows of tokens."""

    texts: tuple[str, ...] = ()
    """A text, the two of a pair, or the words of a sentence."""


@dataclass(frozen=True)
class EncodedPart:
    """A part of a task, read and encoded once."""

    name: str
    examples: list[Any]
    items: list[Item]


def number_groups(items: Sequence[Item]) -> NDArray[np.int64]:
    """Number what no split divides, the group or else the example of each item, from 0 in order of
    first mention, (N,). Where all are of one group, it is the example.
    """
    is_one = len({item.group for item in items}) == 1
    numbers: dict[tuple[bool, int], int] = {}
    keys = (
        (True, item.example) if item.group is None or is_one else (False, item.group)
        for item in items
    )
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def count_shared(part: EncodedPart, other: EncodedPart) -> int:
    """Count the items of a part that have the very tokens of an item of another part."""
    # Hashes, because the tokens of millions of rows would be in memory twice.
    hashes = {_hash_tokens(item) for item in other.items}
    return sum(_hash_tokens(item) in hashes for item in part.items)


def _hash_tokens(item: Item) -> int:
    return hash(tuple(row.ids.tobytes() for row in item.rows))


def build_row(
    tokenizer: Tokenizer,
    first: Sequence[int],
    second: Sequence[int] | None = None,
    length: int | None = None,
) -> EncodedRow:
    """Build the row [CLS] first [SEP], or [CLS] first [SEP] second [SEP], cut to `length` tokens.

    Tokens are dropped from the ends, as the official BERT and ALBERT code do for GLUE, or from the
    beginnings where the tokenizer says so.
    """
    separators = tokenizer.pair_separators
    if length is not None:
        room = length - (2 if second is None else 2 + separators)
        lengths = trim_lengths(len(first), len(second or ()), room)
        if tokenizer.truncation_side == "left":
            first = first[len(first) - lengths[0] :]
            second = None if second is None else second[len(second) - lengths[1] :]
        first, second = first[: lengths[0]], None if second is None else second[: lengths[1]]
    start = [tokenizer.cls_id, *first, *[tokenizer.sep_id] * (1 if second is None else separators)]
    rest = [] if second is None else [*second, tokenizer.sep_id]
    return EncodedRow(
        np.array(start + rest, np.int32), np.array([0] * len(start) + [1] * len(rest), np.int32)
    )


def build_single_rows(
    tokenizer: Tokenizer, texts: Sequence[str], length: int
) -> tuple[list[EncodedRow], int]:
    """Build the row of each text alone, for all at once, and count how many were cut."""
    flat, lengths = tokenizer.encode_flat(texts)
    read = np.minimum(lengths, max(0, length - 2))
    if cut := int((read < lengths).sum()):
        place = np.arange(len(flat)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        if tokenizer.truncation_side == "left":
            place = np.repeat(lengths, lengths) - 1 - place
        flat = flat[place < np.repeat(read, lengths)]
    ends = np.cumsum(read + 2)
    starts = ends - read - 2
    ids, inner = np.empty(int((read + 2).sum()), np.int32), np.ones(int((read + 2).sum()), bool)
    inner[starts] = inner[ends - 1] = False
    ids[starts], ids[ends - 1], ids[inner] = tokenizer.cls_id, tokenizer.sep_id, flat
    types = np.zeros(int(read.max(initial=0)) + 2, np.int32)
    places = zip(starts.tolist(), ends.tolist(), strict=True)
    return [EncodedRow(ids[start:end], types[: end - start]) for start, end in places], cut
