"""The position-wise feed-forward block, plain or gated, owning the layer norm of its residual sum.

Shapes: B sequences, S tokens, H hidden size, I intermediate size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import EncoderConfig
from litebert.model.block import Block

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}
"""Those of a config, and tanh, which only a head has."""


class FeedForward(Block):
    """act(xW)V, or (act(xW) * xU)V when gated (Shazeer 2020)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.gated = config.feedforward == "gated"
        self.pre_norm = config.norm == "pre"
        self.activation = ACTIVATIONS[config.activation]
        width = config.intermediate_size * (2 if self.gated else 1)
        self.input = nn.Linear(config.hidden_size, width, bias=config.bias)
        self.output = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.bias)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=config.bias)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, x_BSH: Tensor) -> Tensor:
        """Transform, add and normalise, (B, S, H) in and out."""
        if self.pre_norm:
            return x_BSH + self._transform(self.norm(x_BSH))
        normed: Tensor = self.norm(x_BSH + self._transform(x_BSH))
        return normed

    def _transform(self, x_BSH: Tensor) -> Tensor:
        x = self.input(x_BSH)
        if self.gated:
            gate_BSI, value_BSI = x.chunk(2, dim=-1)
            x = self.activation(gate_BSI) * value_BSI
        else:
            x = self.activation(x)
        out: Tensor = self.dropout(self.output(x))
        return out
