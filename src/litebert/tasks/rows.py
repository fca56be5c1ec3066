"""Rows of tokens: built from texts, and laid side by side with little padding. No torch here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.data.segments import trim_lengths
from litebert.kernels.network import Rows
from litebert.tasks.values import EncodedPart, EncodedRow, Item
from litebert.tokenizer import Tokenizer


class PaddedRows:
    """R rows that are computed together, as the engine reads them: side by side, (R, S), padded to
    a multiple of eight if the model has the positions; or end to end. Its items are the three
    arrays side by side. So many of the rows as are `together`, of a pair, cannot be divided.
    """

    def __init__(
        self,
        rows: Sequence[EncodedRow],
        pad_id: int = 0,
        positions: int | None = None,
        together: int = 1,
    ) -> None:
        self._rows, self._pad_id, self._positions = rows, pad_id, positions
        self.together = together

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        yield from (self.ids, self.types, self.mask)

    def part(self, begin: int, end: int) -> PaddedRows:
        return PaddedRows(self._rows[begin:end], self._pad_id, self._positions, self.together)

    @cached_property
    def lengths(self) -> list[int]:
        """The tokens of each row."""
        return [len(row.ids) for row in self._rows]

    @cached_property
    def size(self) -> int:
        """S."""
        longest = max(self.lengths)
        size = -(-longest // 8) * 8
        return size if self._positions is None else max(longest, min(size, self._positions))

    @cached_property
    def _padded(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        return pad_ids([row.ids for row in self._rows], self._pad_id, self.size)

    @property
    def ids(self) -> NDArray[np.int64]:
        return self._padded[0]

    @property
    def mask(self) -> NDArray[np.bool_]:
        """True at a token, False at padding."""
        return self._padded[1]

    @cached_property
    def types(self) -> NDArray[np.int64]:
        types = np.zeros_like(self.ids)
        types[self.mask] = np.concatenate([row.types for row in self._rows])
        return types

    @cached_property
    def end_to_end(self) -> Rows:
        """The same without padding."""
        starts = np.array([0, *accumulate(self.lengths)], np.int64)
        if len(self._rows) == 1:
            return Rows(*self._rows[0], starts)
        nothing = [np.zeros(0, np.int32)]
        ids, types = (np.concatenate(nothing + [row[i] for row in self._rows]) for i in (0, 1))
        return Rows(ids, types, starts)


def pad_ids(
    rows: Sequence[Sequence[int] | NDArray[np.int32]], fill: int, size: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Lay rows side by side, (R, size), with `fill` after their ends, and mark the tokens."""
    ids = np.full((len(rows), size), fill, np.int64)
    mask = np.arange(size) < np.array([len(row) for row in rows])[:, None]
    ids[mask] = np.concatenate(rows)
    return ids, mask


def group_by_length(
    lengths: Sequence[int], most: int, rows: Sequence[int] | None = None, padding: int | None = None
) -> Iterator[list[int]]:
    """Group the places of items of nearly the same length, the longest first, for forward passes
    with little padding.

    A pass has one item, or at most `most` tokens with padding, of the items' `rows` (1 by default);
    no item is shorter than its longest by more than `padding` tokens.
    """
    if len(lengths) == 1:
        yield [0]
        return
    group: list[int] = []
    count = 0
    for position in np.argsort(-np.array(lengths, np.int64), kind="stable").tolist():
        row_count = rows[position] if rows else 1
        longest = lengths[group[0]] if group else 0
        if group and (
            (count + row_count) * longest > most
            or (padding is not None and longest - lengths[position] > padding)
        ):
            yield group
            group, count = [], 0
        group.append(position)
        count += row_count
    if group:
        yield group


def number_groups(items: Sequence[Item]) -> NDArray[np.int64]:
    """Number what no split divides, the items' groups or examples, from 0 by first mention, (N,).
    Where all are of one group, it is the example.
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
    def hash_tokens(item: Item) -> int:
        return hash(tuple(row.ids.tobytes() for row in item.rows))

    hashes = set(map(hash_tokens, other.items))
    return sum(hash_tokens(item) in hashes for item in part.items)


def build_row(
    tokenizer: Tokenizer,
    first: Sequence[int],
    second: Sequence[int] | None = None,
    length: int | None = None,
) -> EncodedRow:
    """Build the row [CLS] first [SEP], or [CLS] first [SEP] second [SEP], cut to `length` tokens at
    the ends (BERT's and ALBERT's code for GLUE), or the beginnings as the tokenizer says.
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
    encoded, room = tokenizer.encode(texts), max(0, length - 2)
    longest = min(max(map(len, encoded), default=0), room)
    types, cls, sep = np.zeros(longest + 2, np.int32), tokenizer.cls_id, tokenizer.sep_id
    rows, cut = [], 0
    for ids in encoded:
        if len(ids) > room:
            cut += 1
            ids = ids[len(ids) - room :] if tokenizer.truncation_side == "left" else ids[:room]
        row = np.array([cls, *ids, sep], np.int32)
        rows.append(EncodedRow(row, types[: len(row)]))
    return rows, cut
