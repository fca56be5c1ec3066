"""Rows of tokens: built from texts, and laid side by side with little padding. No torch here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.data.segments import trim_lengths
from litebert.finetuning.values import EncodedPart, EncodedRow, Item
from litebert.tokenizer import Tokenizer


class PaddedRows(NamedTuple):
    """R rows side by side, (R, S), padded to a multiple of eight if the model has the positions."""

    ids: NDArray[np.int64]
    types: NDArray[np.int64]
    mask: NDArray[np.bool_]
    """True at a token, False at padding."""


def pad_rows(rows: Sequence[EncodedRow], pad_id: int, positions: int | None = None) -> PaddedRows:
    """Pad rows to a common length; `positions` are those of the model, where they are known."""
    longest = max(len(row.ids) for row in rows)
    size = -(-longest // 8) * 8
    if positions is not None:
        size = max(longest, min(size, positions))
    ids, mask = pad_ids([row.ids for row in rows], pad_id, size)
    types = np.zeros_like(ids)
    types[mask] = np.concatenate([row.types for row in rows])
    return PaddedRows(ids, types, mask)


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
