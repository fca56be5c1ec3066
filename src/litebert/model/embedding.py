"""Token, position and token type embeddings of width E, and the map to the hidden size.

ALBERT section 3.1: a V x E table and an E x H map instead of a V x H table. Order as in the official code: sum,
layer norm, dropout, then the map with nothing after it.

Shapes: B sequences, S tokens, E embedding size, H hidden size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from litebert.config import EncoderConfig
from litebert.errors import DataError


class Embedding(nn.Module):
    """Ids to vectors."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.embedding_size
        self.max_positions = config.max_positions
        self.word = nn.Embedding(config.vocab_size, width)
        self.position = nn.Embedding(config.max_positions, width) if config.positions == "learned" else None
        self.token_type = nn.Embedding(config.segment_types, width) if config.segment_types else None
        self.norm = nn.LayerNorm(width, eps=config.norm_eps, bias=config.bias)
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.project = nn.Linear(width, config.hidden_size, bias=config.bias) if config.projects else nn.Identity()

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Embed a batch.

        Shapes:
            input_ids: (B, S) int64
            token_type_ids: (B, S) int64; None is all zeros
            returns: (B, S, H)

        Raises:
            DataError: a sequence is longer than the model's positions.
        """
        length = input_ids.shape[1]
        if length > self.max_positions:
            raise DataError(f"a sequence has {length} tokens and the model's encoder.max_positions is "
                            f"{self.max_positions}; shorten or split the text")  # fmt: skip
        x_BSE = self.word(input_ids)
        if self.position is not None:
            x_BSE = x_BSE + self.position.weight[:length]
        if self.token_type is not None:
            if token_type_ids is None:
                x_BSE = x_BSE + self.token_type.weight[0]
            else:
                x_BSE = x_BSE + self.token_type(token_type_ids)
        projected: Tensor = self.project(self.dropout(self.norm(x_BSE)))
        return projected


class Rotary(nn.Module):
    """Cosines and sines that rotate queries and keys by their position (Su et al. 2021, section 3.2.2)."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: EncoderConfig, base: float = 10000.0) -> None:
        super().__init__()
        head_size = config.hidden_size // config.heads
        rate_D = base ** (-torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
        angle_SD = torch.outer(torch.arange(config.max_positions, dtype=torch.float32), rate_D)
        self.register_buffer("cos", angle_SD.cos(), persistent=False)
        self.register_buffer("sin", angle_SD.sin(), persistent=False)

    def forward(self, x_BASD: Tensor) -> Tensor:
        """Rotate the first half of the features against the second, (B, A, S, D) in and out."""
        length = x_BASD.shape[2]
        cos, sin = self.cos[:length].to(x_BASD.dtype), self.sin[:length].to(x_BASD.dtype)
        first, second = x_BASD.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
