"""Token, position and token type embeddings of width E, and the map to the hidden size.

ALBERT section 3.1: a V x E table and an E x H map instead of a V x H table. Order as in the official code: sum,
layer norm, dropout, then the map with nothing after it.

Shapes: B sequences, S tokens, E embedding size, H hidden size.
"""

from __future__ import annotations

from typing import Literal, Protocol

from torch import Tensor, nn

from litebert.config import EncoderConfig
from litebert.errors import DataError
from litebert.registry import POSITIONS


class AddedPositions(Protocol):
    """A module whose rows are added to the token embeddings."""

    def rows(self, length: int, attention_mask: Tensor | None) -> Tensor:
        """What is added to sequences of S = `length` tokens, (S, E) or (B, S, E).

        `attention_mask` is (B, S), nonzero on real tokens; None where nothing is padded.
        """


class PositionTable(nn.Embedding):
    """One learned row of width E for each position, after the rows of `position_offset`."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config.position_offset + config.max_positions, config.embedding_size)
        self.offset = config.position_offset

    def rows(self, length: int, attention_mask: Tensor | None) -> Tensor:
        """As `AddedPositions.rows`. Behind an offset real tokens are counted; padding has the row before the first."""
        if self.offset == 0 or attention_mask is None:
            return self.weight[self.offset : self.offset + length]
        real = attention_mask.ne(0).long()
        position_BSE: Tensor = self(self.offset - 1 + real.cumsum(1) * real)
        return position_BSE


class Embedding(nn.Module):
    """Ids to vectors."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.embedding_size
        self.max_positions = config.max_positions
        self.word = nn.Embedding(config.vocab_size, width)
        self.position: AddedPositions | None = POSITIONS[config.positions](config).table()
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
            attention_mask: (B, S), nonzero on real tokens; read where a position table has an offset
            returns: (B, S, H)

        Raises:
            DataError: a sequence is longer than the model's positions.
        """
        x_BSE = self.look_up(input_ids, attention_mask)
        projected: Tensor = self.project(finish(x_BSE, token_type_ids, self.token_type, self.norm, self.dropout))
        return projected

    def look_up(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Rows of the token table and what positions add to them: (B, S) to (B, S, E)."""
        length = input_ids.shape[1]
        if length > self.max_positions:
            raise DataError(f"a sequence has {length} tokens and the model's encoder.max_positions is "
                            f"{self.max_positions}; shorten or split the text")  # fmt: skip
        x_BSE: Tensor = self.word(input_ids)
        return x_BSE if self.position is None else x_BSE + self.position.rows(length, attention_mask)


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
        token_type, norm = (lender.token_type, lender.norm) if self.norm is None else (self.token_type, self.norm)
        projected: Tensor = self.project(finish(x_BSE, token_type_ids, token_type, norm, self.dropout))
        return projected
