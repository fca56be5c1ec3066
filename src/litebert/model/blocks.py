"""The two blocks of a layer: attention with one fused q, k, v matrix multiplication, and
feed-forward, plain or gated.

Shapes: B sequences, S tokens, H hidden size, A heads, D = H / A head size, I intermediate size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from litebert.config import EncoderConfig
from litebert.model.operations import (
    Dropout,
    Rotation,
    attend,
    layer_norm,
    linear_activation,
    linear_heads,
    linear_norm,
)
from litebert.model.unpadded import Unpadded, attend_unpadded
from litebert.model.windows import Blocks, attend_by_blocks


class Block(nn.Module):
    """A part of a layer, with the layer norm of its residual sum; layers that share it hold one."""

    pre_norm: bool
    norm: nn.LayerNorm | nn.Identity
    inner: Callable[..., Tensor]
    """Compute the last product's input from a state (pre-norm: normalized) and more inputs."""
    output: nn.Linear
    dropout: Dropout

    def forward(self, x_BSH: Tensor, *inputs: Any, norm: bool = True) -> Tensor:
        """Transform, add and normalize, (B, S, H); a pre-norm block may leave out its `norm`."""
        if self.pre_norm:
            normed = layer_norm(x_BSH, self.norm) if norm else x_BSH
            added: Tensor = self.dropout(self.output(self.inner(normed, *inputs)))
            return x_BSH + added
        assert isinstance(self.norm, nn.LayerNorm)
        return linear_norm(self.inner(x_BSH, *inputs), self.output, self.dropout, x_BSH, self.norm)

    def matrices(self) -> list[nn.Parameter]:
        """The matrices between hidden states, which Muon takes: all of two dimensions."""
        return [parameter for parameter in self.parameters() if parameter.ndim == 2]


class Attention(Block):
    """One attention block (BERT section 3); without `norm`, its input is not normalized."""

    def __init__(self, config: EncoderConfig, norm: bool = True) -> None:
        super().__init__()
        self.heads = config.heads
        self.pre_norm = config.norm == "pre"
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=config.bias)
        self.output = nn.Linear(config.hidden_size, config.hidden_size, bias=config.bias)
        input_norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=config.bias)
        self.norm = input_norm if norm else nn.Identity()
        self.dropout = Dropout(config.hidden_dropout)
        self.attention_dropout = config.attention_dropout

    def inner(
        self,
        x_BSH: Tensor,
        mask: Tensor | None,
        positions: Rotation,
        way: Blocks | Unpadded | None = None,
    ) -> Tensor:
        """Attend, with a mask as of `operations.attend`, by blocks of queries (model/windows.py),
        or without padding (model/unpadded.py).
        """
        q_BASD, k_BASD, v_BASD = linear_heads(x_BSH, self.qkv, self.heads, positions)
        dropout = self.attention_dropout if self.training else 0.0
        if isinstance(way, Unpadded):
            y_BASD = attend_unpadded(q_BASD, k_BASD, v_BASD, way)
        elif way:
            assert mask is not None
            y_BASD = attend_by_blocks(q_BASD, k_BASD, v_BASD, mask, way, dropout)
        else:
            y_BASD = attend(q_BASD, k_BASD, v_BASD, mask, dropout)
        return y_BASD.transpose(1, 2).reshape(x_BSH.shape)


class FeedForward(Block):
    """act(xW)V, or (act(xW) * xU)V when gated (Shazeer 2020)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.gated = config.feedforward == "gated"
        self.pre_norm = config.norm == "pre"
        self.activation = config.activation
        width = config.intermediate_size * (2 if self.gated else 1)
        self.input = nn.Linear(config.hidden_size, width, bias=config.bias)
        self.output = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.bias)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=config.bias)
        self.dropout = Dropout(config.hidden_dropout)

    def inner(self, x_BSH: Tensor) -> Tensor:
        """The hidden layer, (B, S, I)."""
        return linear_activation(x_BSH, self.input, self.activation, self.gated)
