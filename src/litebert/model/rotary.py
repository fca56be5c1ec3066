"""Rotary positions: queries and keys are rotated by their place (Su et al. 2021, section 3.2.2).

Shapes: B sequences, S tokens, A heads, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from litebert.config import EncoderConfig
from litebert.model.attention import AttentionPositions
from litebert.model.kernels import whole_rows


class Rotary(AttentionPositions):
    """Cosines and sines for every place up to `max_positions`."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: EncoderConfig, base: float = 10000.0) -> None:
        super().__init__()
        head_size = config.hidden_size // config.heads
        rate_D = base ** (-torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
        angle_SD = torch.outer(torch.arange(config.max_positions, dtype=torch.float32), rate_D)
        self.register_buffer("cos", torch.cat((angle_SD.cos(), angle_SD.cos()), dim=-1), persistent=False)
        self.register_buffer("sin", torch.cat((-angle_SD.sin(), angle_SD.sin()), dim=-1), persistent=False)

    def rotate(self, x_BASD: Tensor) -> Tensor:
        """Rotate the first half of the features against the second."""
        length = x_BASD.shape[2]
        cos_SD, sin_SD = self.cos[:length].to(x_BASD.dtype), self.sin[:length].to(x_BASD.dtype)
        x_BASD = whole_rows(x_BASD)
        first, second = x_BASD.chunk(2, dim=-1)
        return torch.addcmul(x_BASD * cos_SD, torch.cat((second, first), dim=-1), sin_SD)
