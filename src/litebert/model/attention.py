"""Multi-head self-attention with one fused q, k, v product, owning the layer norm of its residual sum.

Shapes: B sequences, S tokens, H hidden size, A heads, D = H / A head size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from litebert.config import EncoderConfig
from litebert.model.block import Block
from litebert.model.kernels import scaled_dot_product


class AttentionPositions(nn.Module):
    """What positions do to attention: rotate queries and keys, or bias the scores. This base does neither."""

    def rotate(self, x_BASD: Tensor) -> Tensor:
        """Queries or keys as attention shall compare them, (B, A, S, D) in and out."""
        return x_BASD

    def bias(self, length: int) -> Tensor | None:
        """What is added to the scores of sequences of S = `length` tokens, in a shape that broadcasts to (B, A, S, S).

        It is asked for once in a forward pass. None adds nothing.
        """
        return None


class Rotary(AttentionPositions):
    """Queries and keys are rotated by their place (Su et al. 2021, section 3.2.2), up to `max_positions`."""

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
        x_BASD = x_BASD.contiguous()  # a CPU takes twice the time for element-wise products of strided rows
        first, second = x_BASD.chunk(2, dim=-1)
        return torch.addcmul(x_BASD * cos_SD, torch.cat((second, first), dim=-1), sin_SD)


class Attention(Block):
    """One attention block (BERT section 3)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.pre_norm = config.norm == "pre"
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=config.bias)
        self.output = nn.Linear(config.hidden_size, config.hidden_size, bias=config.bias)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=config.bias)
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.attention_dropout = config.attention_dropout

    def forward(self, x_BSH: Tensor, mask: Tensor | None, positions: AttentionPositions) -> Tensor:
        """Attend, add and normalise.

        Shapes:
            x_BSH: (B, S, H)
            mask: as `kernels.scaled_dot_product` takes it: True where a key may be read, or a bias of the scores
            returns: (B, S, H)
        """
        if self.pre_norm:
            return x_BSH + self._attend(self.norm(x_BSH), mask, positions)
        normed: Tensor = self.norm(x_BSH + self._attend(x_BSH, mask, positions))
        return normed

    def _attend(self, x_BSH: Tensor, mask: Tensor | None, positions: AttentionPositions) -> Tensor:
        batch, length, hidden = x_BSH.shape
        qkv = self.qkv(x_BSH).view(batch, length, 3, self.heads, hidden // self.heads)
        q_BASD, k_BASD, v_BASD = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        dropout = self.attention_dropout if self.training else 0.0
        y_BASD = scaled_dot_product(positions.rotate(q_BASD), positions.rotate(k_BASD), v_BASD, mask, dropout)
        out: Tensor = self.dropout(self.output(y_BASD.transpose(1, 2).reshape(batch, length, hidden)))
        return out
