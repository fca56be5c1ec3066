"""Token, position and token type embeddings of width E, and the map to the hidden size.

ALBERT section 3.1: a V x E table and an E x H map instead of a V x H table. Order as in the official code: sum,
layer norm, dropout, then the map with nothing after it.

Shapes: B sequences, S tokens, E embedding size, H hidden size.
"""

from __future__ import annotations

from typing import Literal

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
        self.offset = config.position_offset
        rows = config.position_offset + config.max_positions
        self.word = nn.Embedding(config.vocab_size, width)
        self.position = nn.Embedding(rows, width) if config.positions == "learned" else None
        self.token_type = nn.Embedding(config.segment_types, width) if config.segment_types else None
        self.norm = nn.LayerNorm(width, eps=config.norm_eps, bias=config.bias)
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.project = nn.Linear(width, config.hidden_size, bias=config.bias) if config.projects else nn.Identity()

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        """Embed a batch.

        Shapes:
            input_ids: (B, S) int64
            token_type_ids: (B, S) int64; None is all zeros
            attention_mask: (B, S), nonzero on real tokens; read where positions are counted from an offset
            returns: (B, S, H)

        Raises:
            DataError: a sequence is longer than the model's positions.
        """
        looked_up_BSE = self.look_up(input_ids, attention_mask)
        projected: Tensor = self.project(
            finish(looked_up_BSE, token_type_ids, self.token_type, self.norm, self.dropout)
        )
        return projected

    def look_up(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Rows of the token and the position table, summed: (B, S) to (B, S, E)."""
        length = input_ids.shape[1]
        if length > self.max_positions:
            raise DataError(f"a sequence has {length} tokens and the model's encoder.max_positions is "
                            f"{self.max_positions}; shorten or split the text")  # fmt: skip
        x_BSE: Tensor = self.word(input_ids)
        if self.position is None:
            return x_BSE
        if self.offset == 0 or attention_mask is None:
            return x_BSE + self.position.weight[self.offset : self.offset + length]
        real = attention_mask.ne(0).long()  # real tokens are counted, and padding has the row before the first of them
        position_BSE: Tensor = self.position(self.offset - 1 + real.cumsum(1) * real)
        return x_BSE + position_BSE


def finish(
    x_BSE: Tensor,
    token_type_ids: Tensor | None,
    token_type: nn.Embedding | None,
    norm: nn.LayerNorm,
    dropout: nn.Dropout,
) -> Tensor:
    """Add token types, normalise and drop out, (B, S, E) in and out."""
    if token_type is not None:
        if token_type_ids is None or token_type.num_embeddings == 1:
            x_BSE = x_BSE + token_type.weight[0]
        else:
            x_BSE = x_BSE + token_type(token_type_ids)
    finished: Tensor = dropout(norm(x_BSE))
    return finished


class BorrowedEmbedding(nn.Module):
    """Ids to vectors by the tables of another embedding, with a map to a hidden size of its own.

    ELECTRA shares the token and position tables (section 3.2); its code shares the token types and the layer norm too.
    The lender comes with every call and is no child of this module, so its weights are held and saved once.
    """

    def __init__(self, config: EncoderConfig, borrows: Literal["tables", "all"]) -> None:
        super().__init__()
        width = config.embedding_size
        own = borrows == "tables"
        self.token_type = nn.Embedding(config.segment_types, width) if own and config.segment_types else None
        self.norm = nn.LayerNorm(width, eps=config.norm_eps, bias=config.bias) if own else None
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.project = nn.Linear(width, config.hidden_size, bias=config.bias) if config.projects else nn.Identity()

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None, attention_mask: Tensor | None, lender: Embedding
    ) -> Tensor:
        """Embed a batch, as `Embedding.forward` does."""
        x_BSE = lender.look_up(input_ids, attention_mask)
        if self.norm is None:
            finished = finish(x_BSE, token_type_ids, lender.token_type, lender.norm, self.dropout)
        else:
            finished = finish(x_BSE, token_type_ids, self.token_type, self.norm, self.dropout)
        projected: Tensor = self.project(finished)
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
        self.register_buffer("cos", torch.cat((angle_SD.cos(), angle_SD.cos()), dim=-1), persistent=False)
        self.register_buffer("sin", torch.cat((-angle_SD.sin(), angle_SD.sin()), dim=-1), persistent=False)

    def forward(self, x_BASD: Tensor) -> Tensor:
        """Rotate the first half of the features against the second, (B, A, S, D) in and out."""
        length = x_BASD.shape[2]
        cos_SD, sin_SD = self.cos[:length].to(x_BASD.dtype), self.sin[:length].to(x_BASD.dtype)
        x_BASD = x_BASD.contiguous()  # products of whole rows, which a CPU makes in half the time of strided halves
        first, second = x_BASD.chunk(2, dim=-1)
        return torch.addcmul(x_BASD * cos_SD, torch.cat((second, first), dim=-1), sin_SD)
