"""Workarounds for the kernels of one kind of processor; elsewhere they do nothing."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def pad_rows(rows: Tensor) -> Tensor:
    """On a CPU under autocast, rows of zeros behind those given (K, ...), up to a multiple of 64.

    oneDNN multiplies there in bfloat16, and makes and keeps a kernel for every number of rows it meets, the largest
    where the vocabulary is projected (docs/decisions.md).
    """
    if rows.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return rows
    return F.pad(rows, (0, 0) * (rows.ndim - 1) + (0, -len(rows) % 64))
