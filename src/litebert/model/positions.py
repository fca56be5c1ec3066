"""How the encoder knows the order of its tokens: each kind describes itself here, without torch.

A kind may add vectors to the embeddings (`table`), which a generator borrows, and may rotate
queries and keys or bias the scores (`attention`). To add a kind, subclass `Positions` and write
`POSITIONS.add("mine", Mine)`; import torch inside methods only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litebert.base.errors import require

if TYPE_CHECKING:
    from litebert.config import EncoderConfig
    from litebert.model.attention_positions import AttentionPositions
    from litebert.model.embedding import AddedPositions


class Positions:
    """One kind of positions, in the encoder of one config; this base knows no order at all."""

    rotates = False
    """True where attention keeps rotated copies of queries and keys for the backward pass."""

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config

    def check(self) -> None:
        """Refuse an impossible config by a ConfigError; this base refuses an offset."""
        offset = self.config.position_offset
        require(
            offset == 0,
            f"encoder.position_offset is {offset}, which only encoder.positions=learned reads",
        )

    def table_parameters(self) -> int:
        return 0

    def attention_parameters(self) -> int:
        return 0

    def table(self) -> AddedPositions | None:
        """A module whose rows are added to the token embeddings; None for none."""
        return None

    def attention(self) -> AttentionPositions:
        """A module that rotates queries and keys or biases the scores; all layers of a stack use
        it, but those with a `window_attention`."""
        from litebert.model.attention_positions import AttentionPositions

        return AttentionPositions()

    def window_attention(self) -> AttentionPositions | None:
        """Such a module for layers that attend within a window; None if they use the same."""
        return None


class LearnedPositions(Positions):
    """A learned table of width E (BERT section 3.2), after `position_offset` other rows."""

    def check(self) -> None:
        """Any encoder can have a table."""

    def table_parameters(self) -> int:
        return (
            self.config.position_offset + self.config.max_positions
        ) * self.config.embedding_size

    def table(self) -> AddedPositions:
        from litebert.model.embedding import PositionTable

        return PositionTable(self.config)


class RotaryPositions(Positions):
    """Rotation of queries and keys by their position (Su et al. 2021); no parameters."""

    rotates = True

    def check(self) -> None:
        super().check()
        hidden, heads = self.config.hidden_size, self.config.heads
        even = (hidden // heads) % 2 == 0
        require(
            even, f"encoder.positions=rotary needs an even head size, and {hidden}/{heads} is odd"
        )

    def attention(self) -> AttentionPositions:
        from litebert.model.attention_positions import Rotary

        return Rotary(self.config, self.config.rotary_base)

    def window_attention(self) -> AttentionPositions | None:
        from litebert.model.attention_positions import Rotary

        base = self.config.window_rotary_base
        return None if base == self.config.rotary_base else Rotary(self.config, base)
