"""The operations of a layer between its matrix multiplications: PyTorch's, or on a CPU one compiled
pass for several.

PyTorch's way is the reference; it runs everywhere, and exports and `torch.compile` see it. The
compiled way (training.c) is taken where gradients are, on a CPU in float32 and bfloat16: the bias
of a matrix multiplication joins the pass that follows it, and its gradient the one before it on the
way back. Both agree to rounding (tests/model/test_fused.py), but they drop other elements:
PyTorch's generator draws one after the other, and the compiled pass each by its place.

`attend` and `pad_rows` are ways around kernels that are slow on a CPU in bfloat16, with figures in
docs/decisions.md: the backward pass of PyTorch's fused attention, and oneDNN's
under autocast, which makes and keeps one for every number of rows.

Shapes: B sequences, S tokens, H hidden size, A heads, D head size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.model import fused

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}
"""Those of a config, and tanh, which only a head has."""


def linear_activation(x: Tensor, linear: nn.Linear, activation: str, gated: bool = False) -> Tensor:
    """act(x W + b), or when gated act(first half) * second half."""
    if activation in fused.ACTIVATIONS and fused.can_follow(x, linear, linear.out_features):
        return fused.activate(F.linear(x, linear.weight), linear.bias, activation, gated)
    x = linear(x)
    if not gated:
        return ACTIVATIONS[activation](x)
    gate, value = x.chunk(2, dim=-1)
    return ACTIVATIONS[activation](gate) * value


def dropout(x: Tensor, share: float) -> Tensor:
    if share and fused.can_follow(x, None, 1):
        return fused.dropout(x, share)
    return F.dropout(x, share)


class Dropout(nn.Dropout):
    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training else x


def linear_norm(
    x: Tensor, linear: nn.Linear, dropout: Dropout, residual: Tensor, norm: nn.LayerNorm
) -> Tensor:
    """norm(residual + dropout(x W + b))."""
    if not (
        fused.can_follow(x, linear, linear.out_features)
        and fused.can_follow(residual, norm, linear.out_features)
    ):
        added = residual + dropout(linear(x))
        return norm(added).to(added.dtype)  # type: ignore[no-any-return]
    share = dropout.p if dropout.training else 0.0
    return fused.add_norm(F.linear(x, linear.weight), linear.bias, residual, norm, share)


def layer_norm(x: Tensor, norm: nn.Module) -> Tensor:
    if isinstance(norm, nn.LayerNorm) and fused.can_follow(x, norm, x.shape[-1]):
        return fused.add_norm(x, None, None, norm)
    normed: Tensor = norm(x)
    return normed


class Rotation(Protocol):
    def rotate(self, x_BASD: Tensor) -> Tensor:
        """Queries or keys as attention shall compare them."""

    def tables(self) -> tuple[Tensor, Tensor] | None:
        """The cosines and sines of a rotation of halves, where `rotate` is one."""


def linear_heads(
    x_BSH: Tensor, linear: nn.Linear, heads: int, positions: Rotation
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of one multiplication, (B, A, S, D) each, the first two rotated."""
    batch, length, hidden = x_BSH.shape
    shape = (batch, length, 3, heads, hidden // heads)
    tables = positions.tables()
    if fused.can_follow(x_BSH, linear, 3 * hidden) and (
        tables is None or (tables[0].dtype == torch.float32 and len(tables[0]) >= length)
    ):
        qkv = F.linear(x_BSH, linear.weight).view(shape)
        q_BASD, k_BASD, v_BASD = fused.split_heads(qkv, linear.bias, tables)
        if tables is not None:
            return q_BASD, k_BASD, v_BASD
    else:
        q_BASD, k_BASD, v_BASD = linear(x_BSH).view(shape).permute(2, 0, 3, 1, 4).unbind(0)
    return positions.rotate(q_BASD), positions.rotate(k_BASD), v_BASD


def attend(
    q_BASD: Tensor, k_BASD: Tensor, v_BASD: Tensor, mask: Tensor | None, share: float
) -> Tensor:
    """softmax(q k^T / sqrt(D) + mask) v (BERT section 3), (B, A, S, D) each, in the dtype of q,
    with dropout of a share of the weights.

    The mask is broadcast to (B, A, S, S): bool, True where a key may be read, or numbers that are
    added to the scores.
    """
    learned = mask is not None and mask.requires_grad
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(q_BASD.dtype)
    coarse = q_BASD.dtype == torch.bfloat16
    scale = q_BASD.shape[-1] ** -0.5
    # PyTorch's fused attention has no dropout on a CPU either.
    if (coarse or share) and not learned and fused.can_follow(q_BASD, None, k_BASD.shape[2]):
        weights_BASS = fused.attention_weights(q_BASD, k_BASD, mask, scale)
        return dropout(weights_BASS, share) @ v_BASD
    if not (coarse and q_BASD.device.type == "cpu" and torch.is_grad_enabled()):
        return F.scaled_dot_product_attention(
            q_BASD, k_BASD, v_BASD, attn_mask=mask, dropout_p=share
        )
    scores_BASS = (q_BASD * scale) @ k_BASD.transpose(-1, -2)
    if mask is not None:
        scores_BASS += additive(mask, scores_BASS.dtype) if mask.dtype == torch.bool else mask
    with torch.autocast("cpu", enabled=False):  # which would take the softmax to float32 and back
        weights_BASS = scores_BASS.softmax(-1)
    return dropout(weights_BASS, share) @ v_BASD


def computing_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which matrix multiplications of x are computed: autocast's, if that is on."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A bool mask to add to scores: 0 where it is True, else the lowest finite number."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)


def cross_entropy(logits_NC: Tensor, labels_N: Tensor, ignored: int) -> tuple[Tensor, Tensor]:
    """The summed cross-entropy in nats, in float32, and how many labels have the highest logit."""
    if fused.can_follow(logits_NC, None, 1) and fused.labels_fit(
        labels_N, logits_NC.shape[-1], ignored
    ):
        return fused.cross_entropy(logits_NC, labels_N, ignored)
    logits_NC = logits_NC.float()
    total = F.cross_entropy(logits_NC, labels_N, ignore_index=ignored, reduction="sum")
    return total, (logits_NC.argmax(-1) == labels_N).sum()


def pad_rows(rows: Tensor) -> Tensor:
    """On a CPU under autocast, zeros behind the rows (K, ...), up to a multiple of 64."""
    if rows.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return rows
    return F.pad(rows, (0, 0) * (rows.ndim - 1) + (0, -len(rows) % 64))
