"""Rows of tokens side by side, with little padding, as an engine reads them. Nothing here needs
torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.finetuning.items import EncodedRow


class PaddedRows(NamedTuple):
    """R rows side by side, (R, S): padded to the longest and on to a multiple of eight, where the
    model has as many positions.
    """

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

    Args:
        lengths: tokens of the longest row of each item.
        most: tokens that a pass may have, padding included; it has one item at least.
        rows: of each item, one by default.
        padding: tokens that an item may be shorter than the longest of its pass; any number by
            default.
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
