"""The space of fine-tuning as one frozen config.

A fine-tuning run is the loop of pretraining over a task, so the fields of `train` mean what they
mean there. How long it lasts is given in epochs, or in steps as the ALBERT paper does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from litebert.base.errors import require
from litebert.config.distillation import TaskDistillConfig
from litebert.config.ranges import require_range
from litebert.config.run import LoopConfig, OptimizerConfig, ScheduleConfig

HeadName = Literal[
    "backbone", "mlm", "pretraining", "discriminator", "sequence", "tokens", "span", "choice"
]
"""The heads that a model folder may hold: `pretraining` is mlm with a sentence objective; the last
four are what fine-tuned models have."""


def _train() -> LoopConfig:
    return LoopConfig(
        batch="32 sequences",
        save_every="2m",
        evaluate_every="20%",
        optimizer=OptimizerConfig(name="adamw", learning_rate=1e-3, weight_decay=0.01),
        schedule=ScheduleConfig(name="linear", warmup=0.1),
    )


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """How a pretrained encoder learns a task.

    What is None (length, epochs, head_reads, fit_head, train.batch and
    train.optimizer.learning_rate may be) is chosen from the model and the training rows when a run
    starts. A run records its choices, and keeps them when it continues. The command line chooses
    whatever is not given, unless --preset is.
    """

    length: int | None = 128
    """Longest row in tokens; longer texts are cut or read in windows."""
    epochs: float | None = 4.0
    """Passes over the training rows."""
    steps: int = 0
    """Optimizer steps instead of epochs; 0 for epochs."""
    patience: int = 0
    """Stop after so many evaluations without a higher score; 0 takes all steps."""
    dropout: float = -1.0
    """Dropout in the encoder; -1 for that of the model."""
    deletion: float = 0.0
    """Share of tokens that each reading leaves out, for --task pairs on texts alone."""
    head_dropout: float = 0.1
    """Dropout before the classifier."""
    head_reads: Literal["paper", "mean", "unit"] | None = "paper"
    """What a classifier of texts reads: [CLS] as in the paper, or the mean of the last states,
    also of length 1 (unit)."""
    fit_head: bool | None = False
    """Fit the classifier on the frozen states before training, and keep it unless training is
    better."""
    class_weights: Literal["equal", "balanced"] | dict[str, float] = "equal"
    """Weight of a class in the loss: balanced, as in scikit-learn, or by name, such as yes 3."""
    focal_gamma: float = 0.0
    """Exponent of the focal loss (Lin et al. 2017); 2 in the paper, 0 for none."""
    layer_decay: float = 1.0
    """Learning rate of a layer relative to that above it; 0.8 in ELECTRA-base."""
    early_exits: bool = False
    """Learn to answer easy texts after few layers."""
    early_exits_max_drop: float = 0.5
    """Points of score that early exits may cost."""
    distill: TaskDistillConfig = field(default_factory=TaskDistillConfig)
    """The settings of learning from a teacher; nothing is learned without one
    (page "Distillation").
    """
    calibrate: bool = True
    """Fit a temperature on development rows, so that probabilities are how often answers are
    right."""
    restart: bool = True
    """Restart once, at a third of the rate, where a run collapses to one answer."""
    seeds: int = 1
    """Seeds to run; several give a median and a spread."""
    baseline: bool = True
    """Also score a TF-IDF model, in seconds."""
    mislabeled: int = 0
    """Training rows to list in mislabeled.csv whose label is likely wrong."""
    tracker: tuple[str, ...] = ()
    """Trackers of metrics and results: tensorboard, wandb, mlflow or trackio."""
    examples: bool = True
    """Keep four short texts with the model for the playground, and mistakes in the report."""
    train: LoopConfig = field(default_factory=_train)
    """The loop. It has the fields of `train` in pretraining, without the fields that only
    pretraining has.
    """

    def __post_init__(self) -> None:
        require(
            self.class_weights != {}, "class_weights is empty; give balanced, or weights by name"
        )
        named = {} if isinstance(self.class_weights, str) else self.class_weights
        for label, weight in named.items():
            require(
                0 < weight <= 1e6,
                f"class_weights of {label} is {weight}; it must be above 0 and at most 1e6",
            )
        require(
            self.dropout == -1 or 0 <= self.dropout < 1,
            f"dropout is {self.dropout}; it must be in [0, 1), or -1",
        )
        require_range(self, "", "length", least=8)
        require_range(self, "", "epochs", above=0, below=math.inf)
        require_range(self, "", "seeds", least=1)
        require_range(self, "", "mislabeled", "steps", "patience", least=0)
        require_range(self, "", "deletion", "head_dropout", least=0, below=1)
        require_range(self, "", "focal_gamma", "early_exits_max_drop", least=0, below=math.inf)
        require_range(self, "", "layer_decay", above=0, most=1)
