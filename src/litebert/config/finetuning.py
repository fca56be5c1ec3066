"""The space of fine-tuning as one frozen config.

A fine-tuning run is the loop of pretraining over a task, so the fields of `TrainConfig` mean what they mean there;
only how long it lasts is said in epochs, or in steps as the ALBERT paper does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from litebert.config.run import OptimizerConfig, ScheduleConfig, TrainConfig
from litebert.errors import ConfigError


def _train() -> TrainConfig:
    return TrainConfig(
        batch="32 sequences",
        save_every="2m",
        evaluate_every="20%",
        optimizer=OptimizerConfig(name="adamw", learning_rate=1e-3, weight_decay=0.01),
        schedule=ScheduleConfig(name="linear", warmup=0.1),
    )


_OF_PRETRAINING = ("budget", "compile", "evaluate_sequences", "depth_schedule")
_INSTEAD = {"budget": ", and give epochs or steps"}


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """How a pretrained encoder learns a task."""

    length: int = 128
    """Longest row in tokens; longer texts are cut or windowed, as the task does. Shorter ones cost what they are."""
    epochs: float = 4.0
    """Passes over the training examples."""
    steps: int = 0
    """Optimizer steps instead of epochs; 0 for epochs."""
    dropout: float = -1.0
    """In the encoder; -1 for the model's own (none in ALBERT version 2)."""
    head_dropout: float = 0.1
    """Before the classifier."""
    layer_decay: float = 1.0
    """Learning rate of a layer relative to the one above it (ELECTRA: 0.8 small and base, 0.9 large)."""
    restart: bool = True
    """Start once more at a third of the learning rate where a run collapses to one answer."""
    train: TrainConfig = field(default_factory=_train)
    """The loop; `train.budget` is set from epochs or steps."""

    def __post_init__(self) -> None:
        for name, value, right, what in (
            ("length", self.length, self.length >= 8, "at least 8"),
            ("epochs", self.epochs, 0 < self.epochs < math.inf, "a number above 0"),
            ("steps", self.steps, self.steps >= 0, "0 or more"),
            ("dropout", self.dropout, self.dropout == -1 or 0 <= self.dropout < 1, "in [0, 1), or -1"),
            ("head_dropout", self.head_dropout, 0 <= self.head_dropout < 1, "in [0, 1)"),
            ("layer_decay", self.layer_decay, 0 < self.layer_decay <= 1, "above 0 and at most 1"),
        ):
            if not right:
                raise ConfigError(f"{name} is {value}; it must be {what}")
        for name in _OF_PRETRAINING:
            if getattr(self.train, name) != getattr(_train(), name):
                raise ConfigError(f"train.{name} is for pretraining only; leave it out" + _INSTEAD.get(name, ""))
