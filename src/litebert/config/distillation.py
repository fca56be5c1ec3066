"""THE SPACE of learning from a teacher, at pretraining and at fine-tuning. Without a teacher
nothing here is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from litebert.base.errors import require
from litebert.config.ranges import require_range

Pairs = tuple[tuple[int, int], ...]
"""(layer of the student, layer of the teacher), counted from 1."""


@dataclass(frozen=True, kw_only=True)
class LayersConfig:
    """The settings of learning from a teacher's layers, whatever its width."""

    states: float = 0.0
    """Weight of the teacher's hidden states (Jiao et al. 2020, TinyBERT)."""
    state_layers: Pairs = ()
    """Pairs of a layer of the student and one of the teacher, from 1; by default evenly spread."""
    relations: float = 0.0
    """Weight of the relations of queries, keys and values (Wang et al. 2021, MiniLMv2)."""
    relation_layers: Pairs = ()
    """Pairs of layers as in state_layers; by default the last layer of both."""
    relation_heads: int = 0
    """Heads that the relations are computed in; 0 takes as many as both sizes allow."""
    width: int = 0
    """Hidden size of the teacher, which a run takes from it."""

    def __post_init__(self) -> None:
        require_range(self, "distill.", "states", "relations", least=0, below=math.inf)
        for name in ("state_layers", "relation_layers"):
            pairs = getattr(self, name)
            require(
                all(layer >= 1 for pair in pairs for layer in pair),
                f"distill.{name} is {pairs}; layers are counted from 1",
            )
        require_range(self, "distill.", "relation_heads", "width", least=0)


@dataclass(frozen=True, kw_only=True)
class TaskDistillConfig(LayersConfig):
    """Learning a task from a teacher's answers (Hinton et al. 2015, "Distilling the Knowledge in a
    Neural Network"), and from its layers where `states` or `relations` is above 0."""

    weight: float = 0.9
    """Weight of the teacher's answers; the labels have the rest."""
    temperature: float = 2.0
    """Divisor of the logits before teacher and student are compared."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range(self, "distill.", "weight", above=0, most=1)
        require_range(self, "distill.", "temperature", above=0, below=math.inf)

    @property
    def compared(self) -> dict[str, float]:
        """The weights of what is compared layer by layer, for which a step needs more of the
        teacher than answers.
        """
        return {
            name: weight for name in ("states", "relations") if (weight := getattr(self, name)) > 0
        }


@dataclass(frozen=True, kw_only=True)
class DistillConfig(LayersConfig):
    """The settings of learning from a teacher in pretraining: its predictions, its states, and how
    its tokens relate. Each part with a weight above 0 is an objective: soft, states and relations.
    """

    soft: float = 1.0
    """Weight of the teacher's probabilities of masked tokens (Sanh et al. 2019, DistilBERT)."""
    temperature: float = 2.0
    """Divisor of the logits before teacher and student are compared."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range(self, "distill.", "temperature", above=0, below=math.inf)
        require_range(self, "distill.", "soft", least=0, below=math.inf)

    @property
    def objectives(self) -> tuple[str, ...]:
        return tuple(name for name in ("soft", "states", "relations") if getattr(self, name) > 0)
