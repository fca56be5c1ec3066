"""What a kind of positions does within attention: nothing, rotations, or a bias of one's own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from litebert.config import EncoderConfig


class AttentionPositions(nn.Module):
    """Rotates queries and keys by position, or biases the scores. This base does neither."""

    def rotate(self, x_BASD: Tensor) -> Tensor:
        """Queries or keys as attention shall compare them, (B, A, S, D) in and out."""
        return x_BASD

    def tables(self) -> tuple[Tensor, Tensor] | None:
        """Cosines and sines of a rotation of halves of the features (`Rotary`); None for others."""
        return None

    def bias(self, length: int) -> Tensor | None:
        """Return what is added to scores of S = `length` tokens; it broadcasts to (B, A, S, S)."""
        return None


class Rotary(AttentionPositions):
    """Rotation of queries and keys by position (Su et al. 2021), up to `max_positions`."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: EncoderConfig, base: float = 10000.0) -> None:
        super().__init__()
        head_size = config.hidden_size // config.heads
        rate_D = base ** (-torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
        angle_SD = torch.outer(torch.arange(config.max_positions, dtype=torch.float32), rate_D)
        self.register_buffer(
            "cos", torch.cat((angle_SD.cos(), angle_SD.cos()), dim=-1), persistent=False
        )
        self.register_buffer(
            "sin", torch.cat((-angle_SD.sin(), angle_SD.sin()), dim=-1), persistent=False
        )

    def rotate(self, x_BASD: Tensor) -> Tensor:
        """Rotate the first half of the features against the second."""
        length = x_BASD.shape[2]
        cos_SD, sin_SD = self.cos[:length].to(x_BASD.dtype), self.sin[:length].to(x_BASD.dtype)
        # A CPU takes twice the time for element-wise products of strided rows.
        x_BASD = x_BASD.contiguous()
        first, second = x_BASD.chunk(2, dim=-1)
        return torch.addcmul(x_BASD * cos_SD, torch.cat((second, first), dim=-1), sin_SD)

    def tables(self) -> tuple[Tensor, Tensor]:
        """The whole tables, equal for both halves of the features but for the sign of the sines."""
        return self.cos, self.sin
