"""Attention within a window, computed without what the window excludes.

Queries are cut into blocks of C tokens, C at least the window, and a block reads two blocks of
keys: its own and half a block on each side. So scores, masks and copies grow with S, not S x S.
Short sequences (`cost.window_block`), exports, traces and positions that bias the scores take one
multiplication under a mask instead.

Global tokens, the first G, are read by every block beside its own keys, and read everything in a
multiplication of their own. Every token reads itself, padding too, so that no row of scores is
empty.

Shapes: B sequences, S tokens, A heads, D head size, N = ceil(S / C) blocks, G global tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.model.operations import attend


class Blocks(NamedTuple):
    """How the queries of a windowed layer are cut."""

    size: int
    """C, in tokens."""
    first: int = 0
    """G."""
    first_mask: Tensor | None = None
    """The keys that the global tokens read, as bool or additive, (B, 1, G, S); None for all."""


def window_mask(
    reach: int,
    length: int,
    real_BS: Tensor | None,
    device: torch.device,
    first: int = 0,
    queries: int | None = None,
) -> Tensor:
    """The keys that each query reads, among all: (1, 1, S, S), or with padding (B, 1, S, S).

    A query reads `reach` tokens on each side and the `first` G; `real_BS` is True on real tokens.
    Only the first `queries` are asked for, by default S.
    """
    key = torch.arange(length, device=device)
    query = key[:queries, None]
    distance = (key - query).abs()
    near = (distance <= reach) | (key < first) | (query < first)
    near = near[None, None]
    return near if real_BS is None else near & (real_BS[:, None, None] | (distance == 0))


def block_mask(
    reach: int,
    block: int,
    batch: int,
    length: int,
    real_BS: Tensor | None,
    device: torch.device,
    first: int = 0,
) -> Tensor:
    """The keys that each query reads, among the global ones and those of its block: (B N, 1, C, G +
    2 C); arguments as of `window_mask`.
    """
    half, count = block // 2, -(-length // block)
    query = torch.arange(block, device=device)
    key = torch.arange(-half, block + half, device=device)
    distance = (key - query[:, None]).abs()
    if real_BS is None:
        real_BS = torch.ones(1, length, dtype=torch.bool, device=device)
    real_BNK = F.pad(real_BS, (half, count * block - length + half)).unfold(1, 2 * block, block)
    read = (distance <= reach) & (real_BNK[:, :, None] | (distance == 0))
    read = read.expand(batch, count, block, 2 * block)
    if first:  # each key once: among the global ones, or near
        position = block * torch.arange(count, device=device)[:, None, None] + key
        near = read & ((position >= first) | (distance == 0))
        read = torch.cat(
            (real_BS[:, None, None, :first].expand(batch, count, block, first), near), dim=3
        )
    return read.flatten(0, 1)[:, None]


def attend_by_blocks(
    q_BASD: Tensor, k_BASD: Tensor, v_BASD: Tensor, mask: Tensor, blocks: Blocks, dropout: float
) -> Tensor:
    """Attention by blocks of queries, (B, A, S, D), with `block_mask`'s mask, bool or additive."""
    batch, heads, length, size = q_BASD.shape
    block, first, first_mask = blocks
    count = -(-length // block)

    def split_blocks(x_BASD: Tensor, blocks: int, before: int) -> Tensor:
        """(B, blocks, A, C, D): `before` zeros, the tokens, and zeros."""
        after = blocks * block - before - length
        x_BASD = F.pad(x_BASD, (0, 0, before, after)) if before or after else x_BASD
        return x_BASD.view(batch, heads, blocks, block, size).transpose(1, 2)

    def neighbors(x_BASD: Tensor) -> Tensor:
        x_BNACD = split_blocks(x_BASD, count + 1, block // 2)
        parts = [x_BNACD[:, :-1], x_BNACD[:, 1:]]
        if first:
            parts.insert(0, x_BASD[:, None, :, :first].expand(batch, count, heads, first, size))
        return torch.cat(parts, dim=3).flatten(0, 1)

    q_NACD = split_blocks(q_BASD, count, 0).flatten(0, 1)
    y_NACD = attend(q_NACD, neighbors(k_BASD), neighbors(v_BASD), mask, dropout)
    y_BNACD = y_NACD.view(batch, count, heads, block, size)
    y_BASD = y_BNACD.transpose(1, 2).flatten(2, 3)[:, :, :length]
    if first:
        y_BAGD = attend(q_BASD[:, :, :first], k_BASD, v_BASD, first_mask, dropout)
        y_BASD = torch.cat((y_BAGD, y_BASD[:, :, first:]), dim=2)
    return y_BASD
