"""Token, position and token type embeddings of width E, and the map to the hidden size.

ALBERT section 3.1: a V x E table and an E x H map instead of a V x H table. Order as in the
official code: sum, layer norm, dropout, then the map with nothing after it; or with
`embedding_norm=after`, sum, map, layer norm, dropout.

Shapes: B sequences, S tokens, E embedding size, H hidden size.
"""

from __future__ import annotations

from typing import Literal, Protocol

from torch import Tensor, nn

from litebert.base.registry import POSITIONS
from litebert.config import EncoderConfig
from litebert.kernels.network import too_long
from litebert.model.operations import Dropout, layer_norm

Borrows = Literal["tables", "all"]
"""The parts that a generator's embedding borrows from the encoder's."""


class AddedPositions(Protocol):
    def rows(self, length: int, attention_mask: Tensor | None) -> Tensor:
        """Return what is added to S = `length` tokens, (S, E) or (B, S, E), given their mask."""


class PositionTable(nn.Embedding):
    """One learned row of width E for each position, after the rows of `position_offset`."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config.position_offset + config.max_positions, config.embedding_size)
        self.offset = config.position_offset

    def rows(self, length: int, attention_mask: Tensor | None) -> Tensor:
        """Behind an offset real tokens are counted; padding has the row before the first."""
        if self.offset == 0 or attention_mask is None:
            return self.weight[self.offset : self.offset + length]
        real = attention_mask.ne(0).long()
        position_BSE: Tensor = self(self.offset - 1 + real.cumsum(1) * real)
        return position_BSE


class Embedding(nn.Module):
    """Ids to vectors.

    A generator's borrows the encoder's token and position tables (ELECTRA section 3.2), or as in
    its code the token types and the layer norm too, unless the norm has width H. The lender comes
    with every call and is no child, so that its weights are held and saved once.
    """

    position: AddedPositions | None

    def __init__(self, config: EncoderConfig, borrows: Borrows | None = None) -> None:
        super().__init__()
        width = config.embedding_size
        self.max_positions, self.borrows = config.max_positions, borrows
        self.norm_after = config.embedding_norm == "after"
        if borrows is None:
            self.word = nn.Embedding(config.vocab_size, width)
            self.position = POSITIONS[config.positions](config).table()
        if borrows != "all":
            self.token_type = (
                nn.Embedding(config.segment_types, width) if config.segment_types else None
            )
        if borrows != "all" or self.norm_after:
            normed = config.hidden_size if self.norm_after else width
            self.norm = nn.LayerNorm(normed, eps=config.norm_eps, bias=config.bias)
        self.dropout = Dropout(config.hidden_dropout)
        bias = config.bias and not self.norm_after
        self.project = (
            nn.Linear(width, config.hidden_size, bias=bias) if config.projects else nn.Identity()
        )

    @property
    def map(self) -> Tensor | None:
        """The map E -> H, (H, E); None where E = H and there is none."""
        return self.project.weight if isinstance(self.project, nn.Linear) else None

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        lender: Embedding | None = None,
    ) -> Tensor:
        """Embed a batch, given as to `Encoder.states`; (B, S, H)."""
        length = input_ids.shape[1]
        if length > self.max_positions:
            raise too_long(length, self.max_positions)
        tables = lender or self
        owner = tables if self.borrows == "all" else self
        x_BSE: Tensor = tables.word(input_ids)
        if tables.position is not None:
            x_BSE = x_BSE + tables.position.rows(length, attention_mask)
        if owner.token_type is not None:
            if token_type_ids is None or owner.token_type.num_embeddings == 1:
                x_BSE = x_BSE + owner.token_type.weight[0]
            else:
                x_BSE = x_BSE + owner.token_type(token_type_ids)
        if self.norm_after:
            normed: Tensor = self.dropout(layer_norm(self.project(x_BSE), self.norm))
            return normed
        projected: Tensor = self.project(self.dropout(layer_norm(x_BSE, owner.norm)))
        return projected
