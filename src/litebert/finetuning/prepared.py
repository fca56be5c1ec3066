"""A fine-tuning request, and the task that it opens. The encoder to begin with and all parts of the
task are read and encoded once for all seeds.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from litebert import progress
from litebert.config import (
    Config,
    EncoderConfig,
    MaskingConfig,
    SequenceConfig,
    TrainConfig,
    replace,
)
from litebert.config.amounts import parse_amount
from litebert.config.distillation import DistillConfig, LayersConfig
from litebert.config.finetuning import FinetuneConfig
from litebert.errors import ConfigError, DataError
from litebert.finetuning.baselines import RunBaseline
from litebert.finetuning.batches import TaskBatch
from litebert.finetuning.defaults import choose_amount, choose_head, choose_length
from litebert.finetuning.exits import require_exits
from litebert.finetuning.initial import InitialModel
from litebert.finetuning.items import EncodedPart, Item, count_shared
from litebert.finetuning.task import Task, TaskFiles
from litebert.finetuning.task_teacher import TaskTeacher
from litebert.finetuning.teachers import TaskTeachers, encode_unlabeled, open_teachers
from litebert.text.records import Notes
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.coverage import Coverage
from litebert.train.loop import Loop
from litebert.train.run import RunRequest
from litebert.train.teacher import match_layers

log = logging.getLogger("litebert")

SHARED = 0.2
"""Share of the rows of a part that may be training rows too; more are no accident."""
FEW_STEPS = 100
"""A run of fewer steps seldom learns a task."""
OnStep = Callable[[Loop[TaskBatch]], None]
"""A function that is called after every step."""


@dataclass(frozen=True, kw_only=True)
class FinetuneRequest(RunRequest):
    """A request to fine-tune; the arguments are those of `finetune_seeds`."""

    model: str | Path
    files: TaskFiles[Any]
    config: FinetuneConfig | None = None
    seeds: int = 1
    tokenizer: str | Path | None = None
    teachers: Sequence[str | Path] = ()
    """Folders of models to learn from, or the baseline by its name."""
    unlabeled: Sequence[Any] | None = None
    start: InitialModel | None = None
    on_step: OnStep | None = None
    baseline: RunBaseline | None = None
    mislabeled: int = 0

    @property
    def folders(self) -> list[Path]:
        """The folder of each seed."""
        if self.seeds == 1:
            return [self.out]
        return [self.out / f"seed-{number}" for number in range(self.seeds)]


@dataclass(frozen=True)
class PreparedTask:
    """The state that seeds share: the encoder to begin with, and all parts of the task, read and
    encoded.
    """

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
    notes: tuple[str, ...] = ()
    """Notes about the parts and the model, for people."""
    teachers: TaskTeachers | None = None
    unlabeled: EncodedPart | None = None
    """Rows that only the teacher has answers to."""
    chosen: tuple[str, ...] = ()
    """The choices made for this run, a sentence each."""
    baseline: RunBaseline | None = None
    """The baseline, which seeds share; None where nobody asked for it."""
    fitted: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """The last map of the head as it was fitted before training, by its names in the head; empty
    where it was not.
    """

    @property
    def rows(self) -> list[Item]:
        """All that is trained on: the training rows, then the unlabeled ones."""
        return [*self.train.items, *(self.unlabeled.items if self.unlabeled else ())]

    @property
    def batch(self) -> int:
        """Sequences of a batch."""
        return int(parse_amount(self.config.train.batch, "train.batch", ("sequences",)).value)

    @property
    def steps(self) -> int:
        """How many steps a run takes."""
        return self.config.steps or max(
            1, math.ceil(self.config.epochs * len(self.rows) / self.batch)
        )

    def with_seed(self, seed: int) -> PreparedTask:
        """Return the task with another seed."""
        return replace(
            self, config=replace(self.config, train=replace(self.config.train, seed=seed))
        )

    @property
    def compared_teacher(self) -> TaskTeacher | None:
        """The teacher that computes beside the student, because layers are compared."""
        if self.teachers is None or not self.config.distill.compared:
            return None
        return self.teachers.require_network()

    @property
    def computing_teacher(self) -> EncoderConfig | None:
        """The shape of the teacher's encoder, where it computes beside the student."""
        teacher = self.compared_teacher
        return None if teacher is None else teacher.loaded.config.encoder

    def as_pretraining(self) -> Config:
        """Return a config that takes as much memory: its vocabulary head has next to nothing to
        guess.
        """
        loop, encoder = self.config.train, self.start.encoder
        compared: dict[str, Any] = {}
        if self.computing_teacher is not None:
            layers = {
                shared.name: getattr(self.config.distill, shared.name)
                for shared in fields(LayersConfig)
            }
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
                batch=loop.batch,
                micro_batch=loop.micro_batch,
                recompute=loop.recompute,
                optimizer=loop.optimizer,
            ),
        )

    def announce_baseline(self, folders: Sequence[Path]) -> None:
        """Log the score of the baseline, if there is one, unless each of the folders has it."""
        if self.baseline is not None:
            self.baseline.announce(self.task, self.train, (*self.dev, *self.tests), folders)

    def remark_on_steps(self) -> None:
        """Log how to take more steps, where they may be too few."""
        if self.steps < FEW_STEPS and not self.config.steps:
            rate, smaller = (
                self.config.train.optimizer.learning_rate,
                max(1, min(8, self.batch // 2)),
            )
            remedies = f"--batch-size {smaller} or --epochs {3 * self.config.epochs:g}"
            if not self.fitted:  # else a larger rate would spoil the head
                remedies = f"{remedies.replace(' or', ',')} or --lr {3 * rate:.1g}"
            log.warning(
                f"{self.config.epochs:g} passes over {len(self.rows):,} rows in batches of "
                f"{self.batch} are only {self.steps} steps, which may be too few to learn; try "
                f"{remedies}"
            )


@progress.task("reading the task")
def prepare_task(
    request: FinetuneRequest,
    start: InitialModel,
    config: FinetuneConfig,
    chosen: Sequence[str] = (),
) -> PreparedTask:
    """Read and encode the parts of a task; errors are those of `finetune_seeds`.

    Args:
        chosen: choices that a run made when it started, if it continues.
    """
    files, words, more = request.files, start.tokenizer, request.unlabeled
    task = files.task
    if more is not None and not request.teachers:
        raise ConfigError(
            "--unlabeled adds texts that only a teacher answers; name one with --teacher, "
            "or leave it out"
        )
    config, choices = _settle_config(request.model, files, config, start)
    if not task.dev:
        raise DataError(
            f"the {task.name} task has no dev part, which chooses the best weights; give a dev file"
        )
    config, teachers = _open_teachers(request, start, config)
    length, unlabeled = config.length, None
    if more is not None:
        unlabeled = encode_unlabeled(task, list(more), words, length)
    notes: list[str] = []
    train, *others = (
        _encode_part(files, name, words, length, notes)
        for name in ("train", *task.dev, *task.tests)
    )
    if teachers is not None:
        teachers = teachers.with_examples(train.examples)
    _warn_about_parts(train, others, words)
    balance = task.output.balance([item.target for item in train.items])
    for note in (*start.notes, *filter(None, [balance])):
        notes.append(note)
        log.info(note)
    rows = len(train.items) + (0 if unlabeled is None else len(unlabeled.items))
    config, amounts = choose_amount(config, task, rows)
    for choice in (*choices, *amounts):
        log.info(choice)
    return PreparedTask(
        source=str(request.model),
        task=task,
        file_names=files.file_names,
        start=start,
        config=config,
        train=train,
        dev=tuple(others[: len(task.dev)]),
        tests=tuple(others[len(task.dev) :]),
        notes=tuple(notes),
        teachers=teachers,
        unlabeled=unlabeled,
        chosen=(*chosen, *choices, *amounts),
        baseline=request.baseline,
    )


def _settle_config(
    model: str | Path, files: TaskFiles[Any], config: FinetuneConfig, start: InitialModel
) -> tuple[FinetuneConfig, list[str]]:
    """Choose the length and the head, check the config against the task's output, and list the
    choices, a sentence each.
    """
    positions = start.encoder.max_positions
    task = files.task
    config, choices = choose_length(config, files, start.tokenizer, positions)
    config, heads = choose_head(config, task, start.state is not None, start.vectors)
    if config.length > positions:
        log.info(f"length is {positions} instead of {config.length}, the limit of {model}")
        config = replace(config, length=positions)
    config = task.output.recipe_for(config, start.encoder)
    task.output.require_linear(config)
    task.output.require_weights(config)
    if config.early_exits:
        require_exits(task.output, start.encoder.layers)
    return config, choices + heads


def _open_teachers(
    request: FinetuneRequest, start: InitialModel, config: FinetuneConfig
) -> tuple[FinetuneConfig, TaskTeachers | None]:
    """Open the teachers of a request, if it has some, and complete the config from the shape of the
    one whose layers are compared.
    """
    if not request.teachers:
        return config, None
    words, length = start.tokenizer, config.length
    teachers = open_teachers(request.teachers, request.files.task, words, length)
    if width := teachers.vector_width:
        config = replace(config, distill=replace(config.distill, width=width))
    if config.distill.compared:
        teacher = teachers.require_network()
        teacher.require_layers(words, length)
        shape = teacher.loaded.config.encoder
        distill = match_layers(config.distill, start.encoder, shape, teacher.source)
        config = replace(config, distill=distill)
    return config, teachers


def _warn_about_parts(train: EncodedPart, others: Sequence[EncodedPart], words: Tokenizer) -> None:
    """Warn of texts that the tokenizer does not cover, and of parts that repeat training rows."""
    coverage = Coverage(words)
    coverage.add(row.ids for part in (train, *others) for item in part.items for row in item.rows)
    coverage.warn()
    for part in others:
        if (shared := count_shared(part, train)) > SHARED * len(part.items):
            log.warning(
                f"{shared:,} of {len(part.items):,} rows of {part.name} are training rows too, so "
                "its scores say little about new rows; give other files, or take these rows out of "
                "one part"
            )


def _encode_part(
    files: TaskFiles[Any], name: str, tokenizer: Tokenizer, length: int, notes: list[str]
) -> EncodedPart:
    task, names, part_notes = files.task, files.file_names.get(name, []), Notes()
    label = (
        f"{name} ({', '.join(names) if len(names) < 4 else f'{len(names)} files'})"
        if names
        else name
    )
    with progress.task(f"reading and tokenizing {label}"):
        examples = files.read(name, part_notes)
        items = task.encode(examples, tokenizer, length, part_notes)
    for note in part_notes.notes():
        notes.append(f"{label}: {note}")
        log.info(notes[-1])
    if name == "train":
        taught = task.output.learns_map  # from texts that have no target of their own
        items = [item for item in items if taught or item.target is not None]
    if not items:
        raise DataError(
            f"the {name} part of the {task.name} task has no examples; give a file that has some"
        )
    return EncodedPart(name, examples, items)
