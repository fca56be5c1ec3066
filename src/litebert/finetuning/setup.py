"""What the seeds of a run share: the encoder, the encoded parts, and the config in which `resolve`
fills what a person left open. A run that continues takes the choices from its record.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import numpy as np
import torch

from litebert.base.errors import ConfigError, nearest
from litebert.config import (
    Config,
    EncoderConfig,
    FinetuneConfig,
    MaskingConfig,
    SequenceConfig,
    TrainConfig,
)
from litebert.config.amounts import parse_amount
from litebert.config.distillation import DistillConfig, LayersConfig
from litebert.config.serialization import from_dict
from litebert.finetuning.initial import InitialModel
from litebert.finetuning.teachers import Student, TaskTeacher, TaskTeachers
from litebert.judge.baselines import RunBaseline
from litebert.judge.exits import require_exits
from litebert.recipes.finetuning import (
    choose_default_preset,
    choose_preset_name,
    finetune_preset,
    share_warmup,
)
from litebert.tasks.outputs import Output
from litebert.tasks.similarity import DROPOUT, Similarity
from litebert.tasks.task import Task, TaskFiles
from litebert.tasks.token_outputs import Tags
from litebert.tasks.values import EncodedPart, Item
from litebert.text.tally import format_count

log = logging.getLogger("litebert")

SHORTEST, LONGEST = 128, 512
"""Tokens between which the length of rows is chosen: shorter saves nothing, because a batch is
padded to its longest row; longer costs more than four of `SHORTEST`.
"""
SHARE_READ = 0.95
"""Share of the training texts to read whole, if `LONGEST` and the model's positions allow."""
FEW_ROWS = 2000
"""Training rows below which a batch has 16 sequences instead of 32, and no short run chooses."""
LEAST_STEPS, PASSES = 200, 3
"""Steps from a fitted head on few rows, and passes over them, at least."""
RATE, RATE_WIDTH = 5e-5, 384
"""The learning rate of an encoder of that hidden size from a fitted head; it grows as the hidden
size shrinks."""
_SAMPLE = 10_000
"""Texts whose lengths are counted, at most."""
Change: TypeAlias = Callable[[FinetuneConfig], FinetuneConfig]
"""The default config -> the config that a person wants."""


@dataclass(frozen=True)
class Setup:
    """What the seeds of a run share."""

    source: str
    """The model as it was named."""
    task: Task[Any]
    file_names: Mapping[str, list[str]]
    """The names of the files of each part."""
    start: InitialModel
    config: FinetuneConfig
    train: EncodedPart
    dev: tuple[EncodedPart, ...]
    tests: tuple[EncodedPart, ...]
    unlabeled: EncodedPart | None = None
    """Rows that only the teacher has answers to."""
    teachers: TaskTeachers | None = None
    baseline: RunBaseline | None = None
    """None where nobody asked for it."""
    chosen: tuple[str, ...] = ()
    """The choices made for this run, a sentence each."""
    tries_rates: bool = False
    """Short runs choose the learning rate."""
    fitted: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """The last map of the head as fitted before training, by its names in the head, or empty."""

    @property
    def rows(self) -> list[Item]:
        """All that is trained on: the training rows, then the unlabeled ones."""
        return [*self.train.items, *(self.unlabeled.items if self.unlabeled else ())]

    @property
    def length(self) -> int:
        assert self.config.length is not None
        return self.config.length

    @property
    def batch(self) -> int:
        assert self.config.train.batch is not None
        return int(parse_amount(self.config.train.batch, "train.batch", ("sequences",)).value)

    @property
    def steps(self) -> int:
        if self.config.steps:
            return self.config.steps
        assert self.config.epochs is not None
        return max(1, math.ceil(self.config.epochs * len(self.rows) / self.batch))

    @property
    def student(self) -> Student:
        return Student(self.task, self.start.tokenizer, self.length)

    def fit_targets(self, items: Sequence[Item]) -> tuple[Output, list[Item]]:
        """Fit the output to the targets of items, and give these the targets that are learned."""
        output, targets = self.task.output.fit([item.target for item in items])
        output = output.weigh(self.config, targets)
        return output, [
            replace(item, target=target) for item, target in zip(items, targets, strict=True)
        ]

    @property
    def compared_teacher(self) -> TaskTeacher | None:
        """The teacher that computes beside the student, because layers are compared."""
        if self.teachers is None or not self.config.distill.compared:
            return None
        return self.teachers.require_network()

    @property
    def computing_teacher(self) -> EncoderConfig | None:
        teacher = self.compared_teacher
        return None if teacher is None else teacher.loaded.config.encoder

    def as_pretraining(self) -> Config:
        """Return a config of as much memory, whose vocabulary head guesses next to nothing."""
        loop, encoder = self.config.train, self.start.encoder
        compared: dict[str, Any] = {}
        if self.computing_teacher is not None:
            names = [shared.name for shared in fields(LayersConfig)]
            layers = {name: getattr(self.config.distill, name) for name in names}
            distill = DistillConfig(soft=0, **layers)
            compared = {"distill": distill, "objectives": ("mlm", *distill.objectives)}
        longest = max(item.length for item in self.rows)
        return Config(
            name=self.source,
            encoder=encoder,
            sequences=SequenceConfig(length=max(8, min(longest, encoder.max_positions))),
            masking=MaskingConfig(rate=1e-6),
            **{"objectives": ("mlm",), **compared},
            train=TrainConfig(
                batch=f"{self.batch} sequences",
                micro_batch=loop.micro_batch,
                recompute=loop.recompute,
                optimizer=loop.optimizer,
            ),
        )


# --------------------------------------------------------------------------------------- the config


def change_config(base: FinetuneConfig, change: Change) -> FinetuneConfig:
    """Change a preset or the default. Only one of epochs and steps sets how long to train: a preset
    with a number of steps gives it up, and its warm-up becomes a share.
    """
    config = change(base)
    sets_epochs, sets_steps = config.epochs != base.epochs, config.steps != base.steps
    if sets_epochs and sets_steps:
        raise ConfigError("epochs and steps both set how long to train; give one of them")
    if sets_epochs or sets_steps:
        if config.train.schedule.warmup == base.train.schedule.warmup:
            warmup = share_warmup(base).train.schedule.warmup
            schedule = replace(config.train.schedule, warmup=warmup)
            config = replace(config, train=replace(config.train, schedule=schedule))
        config = replace(config, steps=config.steps if sets_steps else 0)
    return config


@dataclass(frozen=True)
class Resolved:
    """A config with nothing open but batch, epochs and rate, which `resolve_amount` fills."""

    config: FinetuneConfig
    choices: tuple[str, ...]
    """The choices that were made, a sentence each."""
    recorded: tuple[str, ...]
    """Those that a run in the folder made when it started."""


def resolve(
    config: FinetuneConfig | Change | None,
    start: InitialModel,
    files: TaskFiles[Any],
    record: Mapping[str, Any] | None = None,
) -> Resolved:
    """Fill what a config leaves open, from the model and the training texts, or from the `record`
    of a run that continues (finetune.json); and check it.
    """
    task, positions = files.task, start.encoder.max_positions
    default = choose_default_preset(start.encoder, start.dense, task.point)
    if config is None:
        config = default
    elif not isinstance(config, FinetuneConfig):
        config = change_config(default, config)
    recorded: tuple[str, ...] = ()
    if record is not None:
        asked, run = config, from_dict(FinetuneConfig, record.get("config", {}))
        config = _take_recorded(config, run)
        recorded = tuple(record.get("chosen", ())) if config != asked else ()
    preset = finetune_preset(choose_preset_name(start.encoder, start.dense), task.point)
    choices = list[str]()
    if config.length is None:
        config = replace(config, length=preset.length)
        examples = files.read("train")
        lengths = task.lengths(examples[:: 1 + len(examples) // _SAMPLE], start.tokenizer)
        if lengths is not None and len(lengths):
            # A multiple of eight that reads `SHARE_READ` of the training texts whole.
            whole = 8 * int(np.ceil(np.quantile(lengths, SHARE_READ) / 8))
            length = min(positions, max(SHORTEST, min(LONGEST, whole)))
            share = float((lengths <= length).mean())
            choices.append(f"length {length} tokens, enough for {share:.1%} of the training texts")
            config = replace(config, length=length)
    if config.head_reads is None and config.fit_head is None and task.output.linear:
        config = replace(config, fit_head=start.state is not None)
        if start.vectors == "mean":
            config = replace(config, head_reads="unit")
            choices.append("the head reads the mean of the states, which the model was trained for")
    config = replace(
        config,
        head_reads=config.head_reads or preset.head_reads,
        fit_head=bool(config.fit_head),
    )
    assert config.length is not None
    if config.length > positions:
        log.info(f"length is {positions} instead of {config.length}, the limit of the model")
        config = replace(config, length=positions)
    config = settle_for_output(task.output, config, start.encoder)
    return Resolved(config, tuple(choices), recorded)


def resolve_amount(
    config: FinetuneConfig, start: InitialModel, task: Task[Any], rows: int
) -> tuple[FinetuneConfig, list[str], bool]:
    """Fill the batch, the epochs and the rate that so many training rows need, where they are open.

    Few rows are read more often, and in smaller batches, so that a run has steps enough to learn.
    From a fitted head they take `LEAST_STEPS` or `PASSES`, at a rate that such an encoder bears.
    Otherwise epochs fall with the fourth root of the rows, from 10 at 500 rows to 3 at 67,000.
    Tasks other than those of whole texts keep the numbers of their preset.

    Returns:
        The config; what was chosen, in sentences; and whether short runs are to choose the rate.
    """
    preset = finetune_preset(choose_preset_name(start.encoder, start.dense), task.point)
    train, amounts = config.train, list[str]()
    opens_epochs = config.epochs is None and not config.steps
    is_of_texts = task.output.head == "sequence"
    few = config.fit_head and rows < FEW_ROWS
    if train.batch is None:
        train = replace(train, batch=preset.train.batch)
        if is_of_texts:
            train = replace(train, batch=f"{16 if rows < FEW_ROWS else 32} sequences")
            amounts.append(f"batches of {train.batch}")
    if config.epochs is None:
        config = replace(config, epochs=preset.epochs)
    if opens_epochs and few:
        assert train.batch is not None
        batch = parse_amount(train.batch, "train.batch", ("sequences",)).value
        steps = max(LEAST_STEPS, math.ceil(PASSES * rows / batch))
        config = replace(config, steps=steps)
        amounts.append(f"{steps} steps")
    elif opens_epochs and is_of_texts:
        epochs = float(np.clip(round(10 * (500 / rows) ** 0.25), 1, 15))
        config = replace(config, epochs=epochs)
        amounts.append(f"{epochs:g} epochs")
    elif opens_epochs and preset.steps:
        # With the warm-up in steps, as the paper has it, unless another one was asked for.
        config, schedule = replace(config, steps=preset.steps), train.schedule
        if schedule.warmup == share_warmup(preset).train.schedule.warmup:
            schedule = replace(schedule, warmup=preset.train.schedule.warmup)
        train = replace(train, schedule=schedule)
    opens_rate = train.optimizer.learning_rate is None
    if opens_rate:
        rate = scale_rate(start.encoder) if config.fit_head else preset.train.optimizer.peak
        train = replace(train, optimizer=replace(train.optimizer, learning_rate=rate))
        if few:
            amounts.append(f"a learning rate of {rate:.1e}")
    config = replace(config, train=train)
    chosen = [f"{' and '.join(amounts)}, for {rows:,} training rows"] if amounts else []
    return config, chosen, opens_rate and not few


def scale_rate(encoder: EncoderConfig) -> float:
    """Compute the rate of an encoder that starts from a fitted head."""
    narrow: float = max(1.0, RATE_WIDTH / encoder.hidden_size)
    return RATE * math.pow(narrow, 1.5)


def set_rate(config: FinetuneConfig, rate: float) -> FinetuneConfig:
    optimizer = replace(config.train.optimizer, learning_rate=rate)
    return replace(config, train=replace(config.train, optimizer=optimizer))


def _take_recorded(config: FinetuneConfig, run: FinetuneConfig) -> FinetuneConfig:
    train, schedule = config.train, config.train.schedule
    if config.length is None:
        config = replace(config, length=run.length)
    if config.epochs is None and not config.steps:
        config = replace(config, epochs=run.epochs, steps=run.steps)
        schedule = replace(schedule, warmup=run.train.schedule.warmup)
    if config.head_reads is None:
        config = replace(config, head_reads=run.head_reads)
    if config.fit_head is None:
        config = replace(config, fit_head=run.fit_head)
    if train.batch is None:
        train = replace(train, batch=run.train.batch)
    optimizer = train.optimizer
    if optimizer.learning_rate is None:
        optimizer = replace(optimizer, learning_rate=run.train.optimizer.learning_rate)
    return replace(config, train=replace(train, optimizer=optimizer, schedule=schedule))


def settle_for_output(
    output: Output, config: FinetuneConfig, encoder: EncoderConfig
) -> FinetuneConfig:
    """Return the config with what an output needs: texts without pairs are learned from dropout."""
    deletes = False
    if isinstance(output, Similarity):
        width = encoder.hidden_size
        for size in output.sizes:
            if not 1 <= size < width:
                raise ConfigError(
                    f"matryoshka has the size {size}, and the vectors have {width} numbers; give "
                    f"sizes from 1 to {width - 1}"
                )
        if output.sizes and output.taught:
            raise ConfigError(
                "matryoshka orders the numbers of a vector, and a student takes over the order of "
                "its teacher; leave out --matryoshka or --teacher"
            )
        if output.sizes and output.whiten:
            raise ConfigError(
                "whitening mixes the numbers of a vector, which matryoshka orders; leave out "
                "--whiten or --matryoshka"
            )
        batch = config.train.batch
        if batch and parse_amount(batch, "train.batch", ("sequences",)).value < 2:
            raise ConfigError(
                f"train.batch is '{batch}', but a pair is compared with the others of its batch; "
                "give 2 sequences or more"
            )
        deletes = output.supervision == "texts"
        if deletes and not config.deletion and not output.taught:
            if config.dropout == -1 and encoder.hidden_dropout == encoder.attention_dropout == 0:
                log.info(
                    f"dropout is {DROPOUT} instead of the model's 0, since texts without pairs are "
                    "learned from two dropout masks"
                )
                config = replace(config, dropout=DROPOUT)
            if config.dropout == 0:
                raise ConfigError(
                    "dropout is 0, but texts without pairs are learned from two dropout masks; "
                    f"leave --dropout out, or give {DROPOUT}"
                )
    if config.deletion and not deletes:
        raise ConfigError(
            f"deletion is {config.deletion}, and only texts without pairs are read with tokens "
            "left out; set it to 0"
        )
    if not output.linear and (config.fit_head or config.head_reads in ("mean", "unit")):
        raise ConfigError(
            "fit_head and head_reads=mean are for classes, labels and numbers of whole texts, "
            f"and this task answers with {output.name}; leave them out"
        )
    require_weights(output, config)
    if config.early_exits:
        require_exits(output, encoder.layers)
    return config


def require_weights(output: Output, config: FinetuneConfig) -> None:
    """Refuse weights of classes and the focal loss where an output has neither."""
    if not output.weighs and (config.class_weights != "equal" or config.focal_gamma):
        raise ConfigError(
            "class_weights and focal_gamma are for classes and labels of whole texts, and this "
            f"task answers with {output.name}; leave them out"
        )
    for name in () if isinstance(config.class_weights, str) else config.class_weights:
        if name not in output.labels:
            raise ConfigError(f"class_weights names '{name}'; {nearest(name, output.labels)}")


def describe_balance(output: Output, targets: Sequence[Any]) -> str | None:
    """Describe the share of each label in targets; of more than ten the commonest and rarest."""
    if not output.labels:
        return None
    counts, total, unit = output.counts(targets), len(targets), "training example"
    if isinstance(output, Tags):
        total, unit = int(counts.sum()), "training word"
    shares = counts / max(1, total)
    order = np.argsort(-shares, kind="stable") if len(shares) > 10 else np.arange(len(shares))
    listed = [f"{output.labels[i]} {shares[i]:.1%}" for i in order[:10]]
    if len(shares) > 10:
        listed.append(f"and {len(shares) - 10} rarer labels, down to {shares[order[-1]]:.2%}")
    return f"{format_count(total, unit)}: {', '.join(listed)}"
