"""Ways around kernels that are slow on one kind of processor, all in one place; docs/decisions.md has the figures.

`scaled_dot_product`: on a CPU in bfloat16, the backward pass of PyTorch's fused attention is slow, so that training
there takes two matrix products instead. `pad_rows`: under autocast there, oneDNN makes and keeps a kernel for every
number of rows it meets, the largest where the vocabulary is projected. Other machines pay nothing for either.

Shapes: B sequences, S tokens, A heads, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def scaled_dot_product(q_BASD: Tensor, k_BASD: Tensor, v_BASD: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """softmax(q k^T / sqrt(D) + mask) v (BERT section 3), in the dtype of q.

    Shapes:
        q_BASD, k_BASD, v_BASD, returns: (B, A, S, D)
        mask: broadcast to (B, A, S, S): bool, True where a key may be read, or numbers that are added to the scores
    """
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(q_BASD.dtype)
    if not (q_BASD.dtype == torch.bfloat16 and q_BASD.device.type == "cpu" and torch.is_grad_enabled()):
        return F.scaled_dot_product_attention(q_BASD, k_BASD, v_BASD, attn_mask=mask, dropout_p=dropout)
    scores_BASS = (q_BASD * q_BASD.shape[-1] ** -0.5) @ k_BASD.transpose(-1, -2)
    if mask is not None:
        scores_BASS += additive(mask, scores_BASS.dtype) if mask.dtype == torch.bool else mask
    with torch.autocast("cpu", enabled=False):  # which would take the softmax to float32 and back
        weights_BASS = scores_BASS.softmax(-1)
    return F.dropout(weights_BASS, dropout) @ v_BASD


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A bool mask as numbers to add to scores: 0 where it is True, elsewhere the lowest finite number of `dtype`."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)


def pad_rows(rows: Tensor) -> Tensor:
    """On a CPU under autocast, rows of zeros behind those given (K, ...), up to a multiple of 64."""
    if rows.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return rows
    return F.pad(rows, (0, 0) * (rows.ndim - 1) + (0, -len(rows) % 64))
