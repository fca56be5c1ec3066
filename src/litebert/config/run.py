"""THE SPACE of a run: optimizer, schedule and loop of pretraining and fine-tuning, and what
pretraining adds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from litebert.base.errors import require
from litebert.config.amounts import parse_amount
from litebert.config.ranges import require_range


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW, LAMB (You et al. 2020, as in the official ALBERT code), or Muon on the block matrices,
    AdamW elsewhere.
    """

    name: Literal["adamw", "lamb", "muon"] = "adamw"
    """Optimizer; Muon takes the matrices of blocks, AdamW the rest."""
    learning_rate: float | None = 1e-4
    """Peak rate; with Muon, that of AdamW."""
    beta1: float = 0.9
    """Decay of the mean of the gradients, in AdamW and LAMB."""
    beta2: float = 0.999
    """Decay of the mean of the squared gradients, in AdamW and LAMB."""
    eps: float = 1e-6
    """Added to the root of the mean squared gradient before dividing by it."""
    weight_decay: float = 0.01
    """Decoupled weight decay; norms and biases are left out."""
    bias_correction: bool = True
    """Correct the bias of AdamW's moments; TensorFlow's AdamW does not."""
    muon_learning_rate: float = 0.02
    """Peak rate of Muon on the matrices of the attention and feed-forward blocks."""
    muon_momentum: float = 0.95
    """Momentum of Muon; used only with name=muon."""

    def __post_init__(self) -> None:
        rates = "learning_rate", "muon_learning_rate", "eps"
        require_range(self, "train.optimizer.", *rates, above=0)
        decays = "beta1", "beta2", "muon_momentum"
        require_range(self, "train.optimizer.", *decays, least=0, below=1)
        require_range(self, "train.optimizer.", "weight_decay", least=0)

    @property
    def peak(self) -> float:
        """The learning rate as a number, once it is chosen."""
        assert self.learning_rate is not None
        return self.learning_rate


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Learning rate as a factor of the peak, over T steps with W of warm-up."""

    name: Literal["linear", "tf_linear", "product_linear", "cosine", "trapezoid"] = "linear"
    """Curve of the rate: linear as in fairseq, in BERT or in ELECTRA, cosine, or flat with a linear
    end."""
    warmup: float = 0.025
    """A share of the run if below 1, otherwise a number of steps."""
    cooldown: float = 0.2
    """Share of the run; used only by trapezoid."""

    def __post_init__(self) -> None:
        require_range(self, "train.schedule.", "warmup", least=0)
        require_range(self, "train.schedule.", "cooldown", least=0, most=1)


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """The loop of pretraining and of fine-tuning. A batch is written as people say it: `32
    sequences`, `64k tokens`.
    """

    batch: str | None = "32 sequences"
    """Sequences or tokens per optimizer step."""
    micro_batch: int | Literal["auto"] = 0
    """Sequences of a forward pass; 0 takes the whole batch, auto what fits in memory."""
    recompute: bool = False
    """Compute activations again in the backward pass: less memory, a third more time, the same
    results."""
    clip: float = 1.0
    """Largest global gradient norm; 0 for no clipping."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto uses bfloat16 autocast if the machine computes it natively."""
    seed: int = 0
    """Seed of all random choices."""
    save_every: str = "5m"
    """Time or steps between checkpoints; one is always written at the end."""
    keep_checkpoints: int = 2
    """Number of the newest checkpoints to keep; older ones are deleted."""
    evaluate_every: str = "10%"
    """Share of the run or steps between held-out evaluations."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)

    def __post_init__(self) -> None:
        self._check_batch()
        parse_amount(self.save_every, "train.save_every", ("time", "steps"))
        parse_amount(self.evaluate_every, "train.evaluate_every", ("share", "steps"))
        require(
            self.at_once >= 0, f"train.micro_batch is {self.micro_batch}; it must be at least 0"
        )
        require_range(self, "train.", "clip", least=0)
        require_range(self, "train.", "keep_checkpoints", least=1)
        require(abs(self.seed) < 2**63, f"train.seed is {self.seed}; it must fit in 64 bits")

    def _check_batch(self) -> None:
        if self.batch is not None:
            parse_amount(self.batch, "train.batch", ("sequences", "tokens"))

    @property
    def at_once(self) -> int:
        """The micro-batch as a number; 0, for the whole batch, where it has yet to be chosen."""
        return self.micro_batch if isinstance(self.micro_batch, int) else 0


@dataclass(frozen=True, kw_only=True)
class TrainConfig(LoopConfig):
    """The loop of pretraining. A budget is written as people say it: `30m`, `5000 steps`, `300M
    tokens`.
    """

    batch: str = "32 sequences"
    """Sequences or tokens of an optimizer step; auto chooses by the budget, and on a GPU by its
    speed."""
    budget: str = "1000 steps"
    """Time (90s, 30m, 2h), steps or tokens; a time is measured and turned into steps."""
    depth_schedule: tuple[tuple[float, int], ...] = ()
    """Growing depth of shared layers: pairs of a share of the run and a number of layers."""
    length_schedule: tuple[tuple[float, int], ...] = ()
    """Growing sequences: pairs of a share of the run and a length in tokens."""
    evaluate_sequences: int = 512
    """Held-out sequences per evaluation."""
    compile: bool = False
    """Compile layers, embedding and prediction with torch.compile."""
    batch_processes: int | Literal["auto"] = "auto"
    """Processes that make batches; 0 leaves it to a thread, auto decides by the device."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.optimizer.learning_rate is not None,
            "train.optimizer.learning_rate is None; only fine-tuning chooses it, so give a number",
        )
        parse_amount(self.budget, "train.budget", ("time", "steps", "tokens"))
        require_range(self, "train.", "evaluate_sequences", least=1)
        processes = self.batch_processes
        require(
            processes == "auto" or processes >= 0,
            f"train.batch_processes is {processes}; it must be auto, or a number that is "
            "not negative",
        )
        for name in ("depth_schedule", "length_schedule"):
            shares = [share for share, _ in getattr(self, name)]
            require(
                all(0 < share < 1 for share in shares) and shares == sorted(set(shares)),
                f"train.{name} shares {shares} must rise strictly between 0 and 1",
            )
        require(
            all(depth >= 1 for _, depth in self.depth_schedule),
            "train.depth_schedule depths must be at least 1",
        )

    def _check_batch(self) -> None:
        if self.batch != "auto":
            super()._check_batch()
