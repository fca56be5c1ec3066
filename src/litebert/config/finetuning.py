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
    """Longest row in tokens; the task truncates longer texts or reads them in windows. Shorter ones
    cost less.
    """
    epochs: float | None = 4.0
    """Passes over the training examples."""
    steps: int = 0
    """Optimizer steps, instead of epochs; 0 to use epochs."""
    patience: int = 0
    """Stop after this many evaluations in a row (train.evaluate_every) without a higher score; 0 to
    take all steps."""
    dropout: float = -1.0
    """Dropout in the encoder; -1 for the model's own (none in ALBERT version 2)."""
    deletion: float = 0.0
    """Share of the tokens that each reading of a text leaves out, drawn each time; for --task pairs
    on
    texts alone.
    """
    head_dropout: float = 0.1
    """Dropout before the classifier."""
    head_reads: Literal["paper", "mean", "unit"] | None = "paper"
    """The states that the classifier of a whole text reads. paper: what the encoder's paper reads,
    [CLS] through a pooler or a dense map. mean: the mean of the last states, as models of sentence
    vectors are trained for, by one linear map (in an encoder with prediction=hidden, by the dense
    map of its heads). unit: that mean scaled to length 1, by one linear map.
    """
    fit_head: bool | None = False
    """Fit the classifier on the frozen states before training, score it before the first step, and
    keep it where no later weights score higher."""
    class_weights: Literal["equal", "balanced"] | dict[str, float] = "equal"
    """The weight of a class in the loss. balanced: rows / (classes * rows of the class), as
    scikit-learn counts it, so that all classes together count as much as a common one. Else the
    weight of some classes by their names, such as yes 3; the others weigh 1. For several labels it
    weighs the rows that have a label against those that lack it.
    """
    focal_gamma: float = 0.0
    """The exponent of the focal loss (Lin et al. 2017), which multiplies the loss of a row by
    (1 - p) ** gamma, p the probability of its label; 0 for plain cross-entropy, 2 in the paper.
    """
    layer_decay: float = 1.0
    """Learning rate of a layer relative to the one above it (ELECTRA: 0.8 small and base, 0.9
    large).
    """
    early_exits: bool = False
    """Train the classifier after every layer, so that easy texts may exit the network early
    (page "Early exits").
    """
    early_exits_max_drop: float = 0.5
    """Points of score (hundredths) that early exits may cost on the development part."""
    distill: TaskDistillConfig = field(default_factory=TaskDistillConfig)
    """The settings of learning from a teacher; nothing is learned without one
    (page "Distillation").
    """
    calibrate: bool = True
    """Divide the logits of the final model by a temperature, fitted on the first development part,
    so that probabilities match how often answers are right (page "Answers to rely on"). Only for
    classes and labels, and only where it helps by more than chance.
    """
    restart: bool = True
    """If a run collapses to one answer, restart once at a third of the learning rate."""
    seeds: int = 1
    """Number of seeds to run, counted on from train.seed; with several, the median, mean and spread
    are reported."""
    baseline: bool = True
    """Also fit and score the baseline, which counts words and characters of the same rows in
    seconds."""
    mislabeled: int = 0
    """Number of training rows to list in mislabeled.csv whose label is likely wrong."""
    tracker: tuple[str, ...] = ()
    """Trackers that also get the metrics, the config and the results: tensorboard, wandb, mlflow or
    trackio."""
    examples: bool = True
    """Keep at most four short development texts with the model, for the playground, and the texts
    of the surest mistakes in the report (page "Trust")."""
    train: LoopConfig = field(default_factory=_train)
    """The loop. It has the fields of `train` in pretraining, without the fields that only
    pretraining has.
    """

    def __post_init__(self) -> None:
        named = {} if isinstance(self.class_weights, str) else self.class_weights
        for name, value, right, what in (
            *(
                (f"class_weights of {label}", weight, 0 < weight <= 1e6, "above 0 and at most 1e6")
                for label, weight in named.items()
            ),
            ("class_weights", "empty", self.class_weights != {}, "balanced, or weights by name"),
            ("length", self.length, self.length is None or self.length >= 8, "at least 8"),
            (
                "epochs",
                self.epochs,
                self.epochs is None or 0 < self.epochs < math.inf,
                "a number above 0",
            ),
            ("seeds", self.seeds, self.seeds >= 1, "at least 1"),
            ("mislabeled", self.mislabeled, self.mislabeled >= 0, "0 or more rows"),
            ("steps", self.steps, self.steps >= 0, "0 or more"),
            ("patience", self.patience, self.patience >= 0, "0 or more evaluations"),
            (
                "dropout",
                self.dropout,
                self.dropout == -1 or 0 <= self.dropout < 1,
                "in [0, 1), or -1",
            ),
            ("deletion", self.deletion, 0 <= self.deletion < 1, "in [0, 1)"),
            ("head_dropout", self.head_dropout, 0 <= self.head_dropout < 1, "in [0, 1)"),
            (
                "focal_gamma",
                self.focal_gamma,
                0 <= self.focal_gamma < math.inf,
                "0 or more, such as 2",
            ),
            ("layer_decay", self.layer_decay, 0 < self.layer_decay <= 1, "above 0 and at most 1"),
            (
                "early_exits_max_drop",
                self.early_exits_max_drop,
                0 <= self.early_exits_max_drop < math.inf,
                "0 or more points",
            ),
        ):
            require(right, f"{name} is {value}; it must be {what}")
