"""The two blocks of a layer: attention with one fused q, k, v product, and feed-forward, plain or gated.

Shapes: B sequences, S tokens, H hidden size, A heads, D = H / A head size, I intermediate size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import EncoderConfig
from litebert.model.kernels import scaled_dot_product

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}
"""Those of a config, and tanh, which only a head has."""


class Block(nn.Module):
    """A part of a layer, owning the layer norm of its residual sum. Layers that share it hold the same instance."""

    pre_norm: bool
    norm: nn.LayerNorm
    transform: Callable[..., Tensor]
    """What is added to a state, of that state, normalised in a pre-norm encoder, and further inputs."""

    def forward(self, x_BSH: Tensor, *inputs: Any) -> Tensor:
        """Transform, add and normalise, (B, S, H) in and out."""
        if self.pre_norm:
            return x_BSH + self.transform(self.norm(x_BSH), *inputs)
        normed: Tensor = self.norm(x_BSH + self.transform(x_BSH, *inputs))
        return normed

    def matrices(self) -> list[nn.Parameter]:
        """The matrices between hidden states, which Muon takes: every parameter of two dimensions."""
        return [parameter for parameter in self.parameters() if parameter.ndim == 2]


def compile_blocks(module: nn.Module) -> None:
    """Compile each kind of block once for all layers, so that depth costs nothing; layers may share weights or not.

    Torch stops compiling a function after eight versions of it, and runs what follows as it is. All blocks are
    versions of one function, and two kinds, sequences with and without padding, and sizes that change make more.

    CUDA graphs, which `mode="reduce-overhead"` adds, are left out. They keep one copy of all buffers for each call of
    a block in a step, and gradients that accumulate over micro-batches would lie in memory which the next replay
    overwrites. The time that launching takes, which they save, a larger micro-batch saves too.
    """
    torch._dynamo.config.cache_size_limit = max(64, torch._dynamo.config.cache_size_limit)
    for block in module.modules():
        if isinstance(block, Block):
            block.compile()


class AttentionPositions(nn.Module):
    """What positions do to attention: rotate queries and keys, or bias the scores. This base does neither."""

    def rotate(self, x_BASD: Tensor) -> Tensor:
        """Queries or keys as attention shall compare them, (B, A, S, D) in and out."""
        return x_BASD

    def bias(self, length: int) -> Tensor | None:
        """What is added to scores of S = `length` tokens, asked for once a pass; it broadcasts to (B, A, S, S)."""
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

    def transform(self, x_BSH: Tensor, mask: Tensor | None, positions: AttentionPositions) -> Tensor:
        """Attend, with a mask as `kernels.scaled_dot_product` takes it."""
        batch, length, hidden = x_BSH.shape
        qkv = self.qkv(x_BSH).view(batch, length, 3, self.heads, hidden // self.heads)
        q_BASD, k_BASD, v_BASD = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        dropout = self.attention_dropout if self.training else 0.0
        y_BASD = scaled_dot_product(positions.rotate(q_BASD), positions.rotate(k_BASD), v_BASD, mask, dropout)
        out: Tensor = self.dropout(self.output(y_BASD.transpose(1, 2).reshape(batch, length, hidden)))
        return out


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

    def transform(self, x_BSH: Tensor) -> Tensor:
        """(B, S, H) in and out."""
        x = self.input(x_BSH)
        if self.gated:
            gate_BSI, value_BSI = x.chunk(2, dim=-1)
            x = self.activation(gate_BSI) * value_BSI
        else:
            x = self.activation(x)
        out: Tensor = self.dropout(self.output(x))
        return out
