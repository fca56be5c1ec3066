"""THE SPACE of objectives that have settings of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from litebert.base.errors import require


@dataclass(frozen=True, kw_only=True)
class ReplacedTokenConfig:
    """Replaced token detection (ELECTRA section 3.1): the encoder predicts which tokens a small
    generator replaced.

    The generator is another point of the space: the encoder's, with `generator_width` of its hidden
    size, heads and intermediate size, without a pooler. Used only with objective rtd; the generator
    learns objective mlm.
    """

    generator_width: float = 0.25
    """Share of the encoder's width; 1 in the released ELECTRA-small."""
    generator_embeddings: Literal["tables", "all"] = "all"
    """What the generator shares with the encoder: the tables of tokens and positions (ELECTRA 3.2),
    or also types and norm."""
    weight: float = 50.0
    """Weight of the rtd loss; the weight of the generator's mlm loss is 1."""

    def __post_init__(self) -> None:
        require(
            0 < self.generator_width <= 1,
            f"rtd.generator_width is {self.generator_width}; it must be above 0 and at most 1",
        )
        require(self.weight > 0, f"rtd.weight is {self.weight}; it must be positive")


@dataclass(frozen=True, kw_only=True)
class SpanBoundaryConfig:
    """The span boundary objective (SpanBERT section 3.2): predict the tokens of a masked span from
    the two around it.

    Used only with objective sbo.
    """

    positions: int = 15
    """Tokens of a span that are predicted, from the first on."""
    position_size: int = 200
    """Width of that table."""

    def __post_init__(self) -> None:
        require(
            1 <= self.positions <= 10_000,
            f"sbo.positions is {self.positions}; it must be from 1 to 10000",
        )
        require(
            1 <= self.position_size <= 1_000_000,
            f"sbo.position_size is {self.position_size}; it must be from 1 to 1000000",
        )
