"""THE SPACE: every model, data and training choice as a field of a frozen dataclass.

A point of the space is a complete `Config`; `recipes/` names the points, `replace` moves between
them. The defaults of its fields stand here, and in `run` for those of `train`. Impossible points
are refused at construction.

    Config
    ├── encoder     EncoderConfig     shape, sharing, norm, positions, dropout: encoder.py
    ├── sequences   SequenceConfig    how sentences become sequences
    ├── masking     MaskingConfig     unit x length law x replacement x copies
    ├── objectives  names             what is learned: mlm, sop, nsp, rtd, sbo
    ├── rtd         ReplacedTokenConfig   the generator of replaced token detection
    ├── sbo         SpanBoundaryConfig    the span boundary objective
    ├── distill     DistillConfig         what is learned from a teacher: distillation.py
    ├── table       TableConfig           how the token table starts
    └── train       TrainConfig       batch, budget, precision, depth schedule: run.py
        ├── optimizer  OptimizerConfig
        └── schedule   ScheduleConfig
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from dataclasses import replace as replace  # re-exported: a variant is `replace(recipe, ...)`
from typing import Any, Literal

from litebert.base.errors import nearest, require
from litebert.base.registry import OBJECTIVES
from litebert.config.amounts import parse_amount
from litebert.config.distillation import DistillConfig
from litebert.config.encoder import EncoderConfig
from litebert.config.ranges import require_range
from litebert.config.run import TrainConfig


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
        require_range(self, "rtd.", "generator_width", above=0, most=1)
        require_range(self, "rtd.", "weight", above=0)


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
        require_range(self, "sbo.", "positions", least=1, most=10_000)
        require_range(self, "sbo.", "position_size", least=1, most=1_000_000)


Format = Literal["segment-pair", "sentence-pair", "full-sentences", "doc-sentences"]
AUTO_BATCH = 4096
"""Tokens of a batch that stands in for `train.batch=auto`, where no budget in time or tokens
decides.
"""
PAIR_FORMATS: tuple[Format, ...] = ("segment-pair", "sentence-pair")
"""Formats of two segments; the others have one."""


@dataclass(frozen=True, kw_only=True)
class SequenceConfig:
    """How the sentences of a document become sequences (BERT appendix A.2; RoBERTa section 4.2)."""

    format: Format = "segment-pair"
    """What a sequence holds: two runs of sentences, two sentences, or sentences up to its length,
    within a document or across."""
    length: int = 512
    """Longest sequence in tokens, [CLS] and [SEP] included."""
    short_probability: float = 0.1
    """Share of the sequences that are made shorter than the longest, at random."""

    def __post_init__(self) -> None:
        require_range(self, "sequences.", "length", least=8)
        require_range(self, "sequences.", "short_probability", least=0, most=1)


@dataclass(frozen=True, kw_only=True)
class MaskingConfig:
    """Masked language modeling: unit x length law x replacement x copies. No mask is stored on
    disk.
    """

    rate: float = 0.15
    """Share of the tokens that are predicted, on average exactly; held-out text has 15%."""
    unit: Literal["token", "word"] = "word"
    """The unit of a span; words come from the tokenizer."""
    span: Literal["single", "ngram", "geometric"] = "ngram"
    """Length law: one unit; n units with p(n) ~ 1/n (ALBERT 4.1); or p(n) ~ (1 - p)^n (SpanBERT
    3.1)."""
    max_span: int = 3
    """Longest span in units; not used with span=single."""
    geometric_p: float = 0.2
    """p of the geometric law; used only with span=geometric."""
    replace_mask: float = 0.8
    """Share of the predicted tokens that become [MASK]."""
    replace_random: float = 0.1
    """Share of the predicted tokens that become a random token; the rest stay as they are."""
    replace_per: Literal["token", "span"] = "token"
    """What is replaced alike: each token, or the tokens of a span (SpanBERT 3.1)."""
    copies: int = 0
    """Static masks: versions of each sequence that take turns; 0 draws a fresh one each time."""

    def __post_init__(self) -> None:
        require_range(self, "masking.", "rate", "geometric_p", above=0, below=1)
        require_range(self, "masking.", "max_span", least=1)
        require_range(self, "masking.", "copies", least=0)
        require(
            self.replace_mask >= 0
            and self.replace_random >= 0
            and self.replace_mask + self.replace_random <= 1,
            f"masking.replace_mask {self.replace_mask} and masking.replace_random "
            f"{self.replace_random} must be shares that sum to at most 1",
        )
        require(
            self.replace_mask + self.replace_random > 0,
            "masking.replace_mask and masking.replace_random are both 0, which hides "
            "nothing; set one above 0",
        )


@dataclass(frozen=True, kw_only=True)
class TableConfig:
    """How the token table of a new run starts."""

    start: Literal["random", "cooccurrence"] = "random"
    """Start of the table: drawn at random, or from counts of neighbors in the training text."""
    window: int = 5
    """Largest distance of two neighbors, in tokens; used only with start=cooccurrence."""
    context: Literal["sentence", "document"] = "sentence"
    """Where neighbors stand, for start=cooccurrence."""
    std: float = 0.1
    """Standard deviation of the vectors; used only with start=cooccurrence."""
    model: str | None = field(default=None, metadata={"left_out_if_empty": True})
    """A larger model, of any tokenizer, from whose token table a new run starts."""

    def __post_init__(self) -> None:
        require_range(self, "table.", "window", least=1, most=1000)
        require_range(self, "table.", "std", above=0, below=math.inf)
        for name in ("window", "context", "std"):
            value = getattr(self, name)
            require(
                self.start == "cooccurrence" or value == getattr(TableConfig, name),
                f"table.{name} is {value}, which only table.start=cooccurrence reads; set that "
                f"too, or leave table.{name} out",
            )


@dataclass(frozen=True, kw_only=True)
class Config:
    """One complete point of the space."""

    name: str
    """The name of the recipe it came from, for people; no result depends on it."""
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    sequences: SequenceConfig = field(default_factory=SequenceConfig)
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    objectives: tuple[str, ...] = ("mlm", "sop")
    """What is learned: mlm, sop, nsp, rtd, sbo, or soft, states and relations of a teacher, or your
    own."""
    objective_settings: tuple[str, ...] = field(default=(), metadata={"left_out_if_empty": True})
    """Settings of objectives of your own, each as NAME.SETTING=VALUE."""
    rtd: ReplacedTokenConfig = field(default_factory=ReplacedTokenConfig)
    sbo: SpanBoundaryConfig = field(default_factory=SpanBoundaryConfig)
    distill: DistillConfig = field(default_factory=DistillConfig)
    table: TableConfig = field(default_factory=TableConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    tracker: tuple[str, ...] = field(default=(), metadata={"left_out_if_empty": True})
    """Trackers of metrics and results: tensorboard, wandb, mlflow or trackio."""

    def __post_init__(self) -> None:
        require(
            len(self.objectives) > 0,
            f"objectives is empty; name at least one of {', '.join(OBJECTIVES)}",
        )
        require(
            len(set(self.objectives)) == len(self.objectives),
            f"objectives {self.objectives} repeats one",
        )
        for name in self.objectives:
            require(name in OBJECTIVES, f"objectives has '{name}'; {nearest(name, OBJECTIVES)}")
        self._check_objective_settings()
        for objective in self.build_objectives().values():
            objective.check()
        require(
            self.sequences.length <= self.encoder.max_positions,
            f"sequences.length {self.sequences.length} exceeds encoder.max_positions "
            f"{self.encoder.max_positions}",
        )
        lengths = [length for _, length in self.train.length_schedule]
        require(
            lengths == sorted(lengths)
            and all(8 <= length <= self.sequences.length for length in lengths),
            f"train.length_schedule lengths {lengths} must rise from at least 8 to "
            f"sequences.length ({self.sequences.length}); give others, or --train.length-schedule "
            "with nothing after it",
        )
        depths = [depth for _, depth in self.train.depth_schedule]
        if depths:
            require(
                self.encoder.sharing in ("all", "groups"),
                "train.depth_schedule grows shared layers, and "
                f"encoder.sharing={self.encoder.sharing} has layers "
                "of their own; use sharing=all or drop the schedule",
            )
            require(
                self.encoder.groups <= min(depths)
                and depths == sorted(depths)
                and depths[-1] <= self.encoder.layers,
                f"train.depth_schedule depths {depths} must rise from encoder.groups "
                f"({self.encoder.groups}) to encoder.layers ({self.encoder.layers}); give other "
                "depths, or --train.depth-schedule with nothing after it",
            )

    def _check_objective_settings(self) -> None:
        for entry in self.objective_settings:
            name, dot, setting = entry.partition("=")[0].partition(".")
            require(
                bool(name and dot and setting and "=" in entry),
                f"objective_settings has '{entry}'; write NAME.SETTING=VALUE",
            )
            require(
                name in OBJECTIVES,
                f"objective_settings has '{entry}', and there is no objective '{name}'; "
                f"{nearest(name, OBJECTIVES)}",
            )
            require(
                OBJECTIVES[name].settings_class is not None,
                f"objective_settings has '{entry}', and objective {name} has no settings of "
                "this kind; leave it out",
            )
        for objective in self.build_objectives().values():
            _ = objective.settings  # which refuses unknown settings and wrong values

    def settings_of(self, objective: str) -> dict[str, Any]:
        """The settings of an objective in `objective_settings`, each value read as JSON, else kept
        as text.
        """
        settings: dict[str, Any] = {}
        for entry in self.objective_settings:
            key, _, text = entry.partition("=")
            name, _, setting = key.partition(".")
            if name == objective:
                try:
                    settings[setting] = json.loads(text)
                except ValueError:
                    settings[setting] = text
        return settings

    def build_objectives(self) -> dict[str, Any]:
        """The objectives (`model.objectives.Objective`) by name, in order, each of this config."""
        return {name: OBJECTIVES[name](name, self) for name in self.objectives}

    @property
    def generator(self) -> EncoderConfig | None:
        """The point of the space that proposes tokens to an objective; None where no objective has
        one.
        """
        generators = (objective.generator for objective in self.build_objectives().values())
        return next((generator for generator in generators if generator is not None), None)

    def without_its_run(self) -> Config:
        """The config that another run or another shape begins from: without a teacher, without a
        start of its token table, and at full depth and length from the first step."""
        objectives = tuple(
            name for name, objective in self.build_objectives().items() if not objective.taught
        )
        train = replace(self.train, depth_schedule=(), length_schedule=())
        return replace(
            self,
            objectives=objectives or self.objectives,
            distill=DistillConfig(),
            table=TableConfig(),
            train=train,
        )

    def stages(self) -> tuple[tuple[float, int, int], ...]:
        """The parts of a run with one depth and one length: the share of the run at which each
        ends, its layers, and the tokens of its sequences."""
        depths, lengths = self.train.depth_schedule, self.train.length_schedule
        ends = sorted({1.0, *(share for share, _ in (*depths, *lengths))})
        return tuple(
            (
                end,
                next((depth for share, depth in depths if end <= share), self.encoder.layers),
                next((length for share, length in lengths if end <= share), self.sequences.length),
            )
            for end in ends
        )

    @property
    def mean_length(self) -> float:
        """Tokens of a full sequence, on average over the steps of a run."""
        stages = self.stages()
        starts = (0.0, *(end for end, _, _ in stages))
        return sum(
            (end - start) * length for start, (end, _, length) in zip(starts, stages, strict=False)
        )

    @property
    def batch_sequences(self) -> int:
        """Sequences per optimizer step; as many as `AUTO_BATCH` tokens make where the number has
        yet to be chosen.
        """
        if self.train.batch == "auto":
            return max(1, AUTO_BATCH // self.sequences.length)
        amount = parse_amount(self.train.batch, "train.batch", ("sequences", "tokens"))
        if amount.unit == "tokens":
            return max(1, int(amount.value) // self.sequences.length)
        return int(amount.value)

    @property
    def micro_sequences(self) -> int:
        return min(self.train.at_once or self.batch_sequences, self.batch_sequences)
