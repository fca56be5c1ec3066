"""Rows for engines from arrays side by side."""

from __future__ import annotations

import numpy as np

from litebert.tasks.rows import PaddedRows
from litebert.tasks.values import EncodedRow


def take_rows(ids_RS: np.ndarray, types_RS: np.ndarray, mask_RS: np.ndarray) -> PaddedRows:
    """Take padded rows, whose padding stands at the end, with as much of it as they have."""
    each = zip(ids_RS, types_RS, mask_RS, strict=True)
    rows = PaddedRows(
        [
            EncodedRow(*(array[mask].astype(np.int32) for array in (ids, types)))
            for ids, types, mask in each
        ]
    )
    rows.size = ids_RS.shape[1]
    return rows
