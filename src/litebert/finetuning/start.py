"""The start of a fine-tuning run: an encoder, a fresh head, the parts of the task, and the identity
of the run.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
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
from litebert.config.serialization import to_dict
from litebert.errors import ConfigError, DataError, ModelError, RunError
from litebert.finetuning.baselines import RunBaseline
from litebert.finetuning.defaults import choose_amount, choose_head, choose_length
from litebert.finetuning.exits import require_exits
from litebert.finetuning.items import EncodedPart, Item, count_shared
from litebert.finetuning.scoring import name_metric
from litebert.finetuning.task import Task
from litebert.finetuning.teacher import TaskTeacher, encode_unlabeled, open_teacher
from litebert.interop import read_folder
from litebert.interop.loaded import LoadedModel, fresh_dense, note_untrained
from litebert.interop.sentence_modules import vector_settings
from litebert.model.encoder import initialiser
from litebert.model.heads import HeadActivation, Pooling
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from litebert.recipes.files import is_recipe_name, recipe
from litebert.recipes.finetuning import choose_default_recipe
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.coverage import Coverage
from litebert.train.run_folder import RunFolder
from litebert.train.teacher import build_record, match_layers, refuse_other_teacher

log = logging.getLogger("litebert")

SHARED = 0.2
"""Share of the rows of a part that may be training rows too; more are no accident."""
FEW_STEPS = 100
"""A run of fewer steps seldom learns a task."""


@dataclass(frozen=True)
class InitialModel:
    """The model that fine-tuning begins with."""

    encoder: EncoderConfig
    state: dict[str, torch.Tensor] | None
    """The encoder's weights; None for an untrained one."""
    tokenizer: Tokenizer
    dense: HeadActivation | None = None
    """The activation of the dense map that a head puts on [CLS] where there is no pooler; None: a
    fresh pooler.
    """
    notes: tuple[str, ...] = ()
    """Notes about the model, for people."""
    pooling: Pooling = "cls"
    """Pooling of a head of whole texts in an encoder with `prediction=hidden`."""
    head: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """The weights that every head starts from in such an encoder, by their names in the head; empty
    for fresh ones.
    """
    vectors: Pooling | None = None
    """How the model was trained to make a vector of its states, where it says so."""


def load_initial(
    model: str | Path, tokenizer: str | Path | None = None, task: Task[Any] | None = None
) -> InitialModel:
    """The encoder of a model folder, or a recipe's untrained one.

    Args:
        task: what it is fine-tuned for; then the notes say which of its weights the encoder lacks.

    Raises:
        ModelError: the folder is no model.
        ConfigError: a recipe without a tokenizer, a folder that has none, or another tokenizer than
            the folder's.
    """
    if is_recipe_name(str(model)):
        if tokenizer is None:
            raise ConfigError(f"{model} is a recipe, an untrained network; give it a --tokenizer")
        words, config = Tokenizer.load(tokenizer), recipe(str(model))
        note = f"{model} is a recipe: the network starts untrained"
        if Path(model).is_dir():
            note += f" (for the folder of that name, write ./{model})"
        encoder = replace(config.encoder, vocab_size=words.vocab_size)
        return InitialModel(encoder, None, words, fresh_dense(config), (note,))
    loaded = read_folder(model, tokenizer=tokenizer)
    if loaded.tokenizer is None:
        raise ConfigError(f"{model} has no tokenizer; give it a --tokenizer")
    words, shape = loaded.tokenizer, loaded.config.encoder
    unread = note_untrained(
        loaded.untrained, loaded.config, loaded.path
    )  # of heads that fine-tuning has no use for
    notes = [note for note in loaded.notes if note not in unread]
    head, hidden = _select_head_weights(loaded), shape.prediction == "hidden"
    if task is not None and hidden and not head:
        notes.append(
            f"{model} has no dense map of a prediction head; the task learns one of its own"
        )
    if (
        task is not None
        and task.output.reads_cls
        and not hidden
        and not shape.pooler
        and loaded.dense is None
    ):
        notes.append(f"{model} has no pooler; the task learns one of its own")
    state = loaded.model.encoder.state_dict()
    try:
        vectors = vector_settings(loaded)
    except ModelError:  # modules that only embedding asks for
        vectors = None
    trained_for = (
        vectors.pooling if vectors is not None else "mean" if loaded.pooling == "mean" else None
    )
    return InitialModel(
        shape, state, words, loaded.dense, tuple(notes), loaded.pooling, head, trained_for
    )


def _select_head_weights(loaded: LoadedModel) -> dict[str, torch.Tensor]:
    """The dense map and the norm that fine-tuning goes on with; those of a generator have its
    width, and stay there.
    """
    if loaded.config.encoder.prediction != "hidden":
        return {}
    model = loaded.model
    if isinstance(model, Pretrainer):
        if (
            "mlm" not in model.objectives
            or "mlm" in loaded.untrained
            or model.config.generator is not None
        ):
            return {}
        state = model.objectives["mlm"].get_submodule("head").state_dict()
    else:
        state = model.head.state_dict()
    return {name: tensor for name, tensor in state.items() if name.startswith(("dense.", "norm."))}


def build_task_model(
    start: InitialModel,
    task: Task[Any],
    config: FinetuneConfig,
    fitted: Mapping[str, torch.Tensor] | None = None,
) -> TaskModel:
    """The encoder under a head that is a function of the seed, but for what is fitted, by its names
    in the head.
    """
    shape = start.encoder
    if config.dropout >= 0:
        shape = replace(shape, hidden_dropout=config.dropout, attention_dropout=config.dropout)
    reads_cls = task.output.reads_cls
    hidden = shape.prediction == "hidden"
    mean = reads_cls and config.head_reads == "mean"
    dense = start.dense if reads_cls and not (hidden or shape.pooler or mean) else None
    shape = replace(shape, pooler=reads_cls and not hidden and not mean and dense is None)
    pooling: Pooling = "mean" if mean else start.pooling if hidden and reads_cls else "cls"
    torch.manual_seed(config.train.seed)
    model = TaskModel(shape, reads_cls, task.output.width, dense, pooling)
    model.head.dropout.p = config.head_dropout
    model.encoder.recompute = config.train.recompute
    if (
        start.state is not None
    ):  # a pooler that it lacks stays fresh, and one without use is left out
        fresh = model.encoder.state_dict()
        model.encoder.load_state_dict(
            {name: start.state.get(name, tensor) for name, tensor in fresh.items()}
        )
    if task.output.width:
        model.head.load_state_dict({**model.head.state_dict(), **start.head, **(fitted or {})})
    if config.distill.width and config.distill.states:
        model.state_map = torch.nn.Linear(shape.hidden_size, config.distill.width)
        model.state_map.apply(initialiser(shape))
    return model


# ---------------------------------------------------------------------------- the parts of the task


@dataclass(frozen=True)
class PreparedTask:
    """The state that seeds share: the encoder to begin with, and all parts of the task, read and
    encoded.
    """

    source: str
    """The model as it was named."""
    task: Task[Any]
    start: InitialModel
    config: FinetuneConfig
    train: EncodedPart
    dev: tuple[EncodedPart, ...]
    tests: tuple[EncodedPart, ...]
    notes: tuple[str, ...] = ()
    """Notes about the parts and the model, for people."""
    teacher: TaskTeacher | None = None
    unlabelled: EncodedPart | None = None
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
        """All that is trained on: the training rows, then the unlabelled ones."""
        return [*self.train.items, *(self.unlabelled.items if self.unlabelled else ())]

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

    @property
    def computing_teacher(self) -> EncoderConfig | None:
        """The shape of the teacher's encoder, where it computes beside the student."""
        if self.teacher is None or not self.config.distill.compared:
            return None
        return self.teacher.loaded.config.encoder

    def as_pretraining(self) -> Config:
        """A config that takes as much memory: its vocabulary head has next to nothing to guess."""
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
                parallel=loop.parallel,
            ),
        )

    def remark_on_steps(self) -> None:
        """Log how to take more steps, where they may be too few."""
        if self.steps < FEW_STEPS and not self.config.steps:
            rate, smaller = (
                self.config.train.optimizer.learning_rate,
                max(1, min(8, self.batch // 2)),
            )
            log.warning(
                f"{self.config.epochs:g} passes over {len(self.rows):,} rows in batches of "
                f"{self.batch} "
                f"are only {self.steps} steps, which may be too few to learn; try "
                f"--train.batch '{smaller} "
                f"sequences', --epochs {3 * self.config.epochs:g} or "
                "--train.optimizer.learning-rate "
                f"{3 * rate:.1g}"
            )


@progress.task("reading the task")
def prepare_task(
    model: str | Path,
    task: Task[Any],
    config: FinetuneConfig | None,
    start: InitialModel,
    teacher: str | Path | None = None,
    unlabelled: Sequence[Any] | None = None,
    chosen: Sequence[str] = (),
) -> PreparedTask:
    """Read and encode; arguments and errors are those of `finetune_seeds`.

    Args:
        chosen: what a run that continues chose when it started.
    """
    if unlabelled is not None and teacher is None:
        raise ConfigError(
            "--unlabelled adds texts that only a teacher answers; name one with --teacher, "
            "or leave it out"
        )
    config = config or choose_default_recipe(start.encoder, start.dense, task.point)
    config, choices = _settle_config(model, task, config, start)
    if not task.dev:
        raise DataError(
            f"the {task.name} task has no dev part, which chooses the best weights; give a dev file"
        )
    words, length = start.tokenizer, config.length
    taught = None if teacher is None else open_teacher(teacher, task, words, length)
    if taught is not None and config.distill.compared:
        taught.require_layers(words, length)
        shape = taught.loaded.config.encoder
        config = replace(
            config, distill=match_layers(config.distill, start.encoder, shape, taught.source)
        )
    more = None if unlabelled is None else encode_unlabeled(task, list(unlabelled), words, length)
    notes: list[str] = []
    train, *others = (
        _encode_part(task, name, words, length, notes) for name in ("train", *task.dev, *task.tests)
    )
    _warn_about_parts(train, others, words)
    for note in (
        *start.notes,
        *filter(None, [task.output.balance([item.target for item in train.items])]),
    ):
        notes.append(note)
        log.info(note)
    dev, tests = others[: len(task.dev)], others[len(task.dev) :]
    config, amounts = choose_amount(
        config, task, len(train.items) + len(more.items if more else ())
    )
    for choice in (*choices, *amounts):
        log.info(choice)
    parts = (train, tuple(dev), tuple(tests))
    chosen_now = (*chosen, *choices, *amounts)
    return PreparedTask(
        str(model), task, start, config, *parts, tuple(notes), taught, more, chosen_now
    )


def _settle_config(
    model: str | Path, task: Task[Any], config: FinetuneConfig, start: InitialModel
) -> tuple[FinetuneConfig, list[str]]:
    """Choose the length and the head, check the config against the task's output, and list the
    choices, a sentence each.
    """
    positions = start.encoder.max_positions
    config, choices = choose_length(config, task, start.tokenizer, positions)
    config, heads = choose_head(config, task, start.state is not None, start.vectors)
    if config.length > positions:
        log.info(f"length is {positions} instead of {config.length}: {model} has no more positions")
        config = replace(config, length=positions)
    config = task.output.recipe_for(config, start.encoder)
    task.output.require_linear(config)
    if config.exits:
        require_exits(task.output, start.encoder.layers)
    return config, choices + heads


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
    task: Task[Any], name: str, tokenizer: Tokenizer, length: int, notes: list[str]
) -> EncodedPart:
    files = task.file_names.get(name, [])
    label = (
        f"{name} ({', '.join(files) if len(files) < 4 else f'{len(files)} files'})"
        if files
        else name
    )
    with progress.task(f"reading and tokenizing {label}"):
        examples = task.read(name)
        items = task.encode(examples, tokenizer, length)
    for note in task.notes:
        notes.append(f"{label}: {note}")
        log.info(notes[-1])
    if name == "train":
        items = [item for item in items if item.target is not None]
    if not items:
        raise DataError(
            f"the {name} part of the {task.name} task has no examples; give a file that has some"
        )
    return EncodedPart(name, examples, items)


# ---------------------------------------------------------------------------------- which run it is

_FREE = (
    "format",
    "model",
    "teacher",
    "teacher_fingerprint",
    "steps",
    "chosen",
    "tokenizer_fingerprint",
    "test_fingerprint",
    "config.exit_drop",
    "config.examples",
    "config.train.save_every",
    "config.train.keep_checkpoints",
    "config.train.parallel",
    "config.train.recompute",
)
"""Fields of finetune.json that may change between calls: they change no weight, follow from the
rest, or are compared apart."""


def claim(folder: RunFolder, prepared: PreparedTask, steps: int, train: Sequence[Item]) -> None:
    """Start a run in a folder, or check that the folder holds this very run; `train` has the
    targets that are learned.

    Raises:
        RunError: the folder holds another run.
    """
    run = _identity(prepared, steps, train)
    for before in folder.identities():
        refuse_other_teacher(folder.path, before, run["teacher"], run["teacher_fingerprint"])
        folder.refuse_other({**before, "files": run["files"]}, run, _FREE)
        if before.get("test_fingerprint") != run["test_fingerprint"]:
            raise RunError(
                f"{folder.path} holds a run with another test part; give its own, or "
                "answer this one with "
                "litebert predict"
            )
    if not folder.identity_file.exists():
        folder.claim(run)


def _identity(prepared: PreparedTask, steps: int, train: Sequence[Item]) -> dict[str, Any]:
    """Build the content of finetune.json, which identifies a run."""
    task, start = prepared.task, prepared.start
    dev = [item for part in prepared.dev for item in part.items]
    tests = [item for part in prepared.tests for item in part.items]
    teacher = prepared.teacher
    return {
        "format": 1,
        "task": task.full_name,
        "metric": name_metric(task),
        "model": prepared.source,
        "files": task.file_names,  # by part, their names; for people and tables, never compared
        "steps": steps,
        "chosen": list(prepared.chosen),  # for people, never compared
        "config": to_dict(prepared.config),
        **task.identity(),
        **(
            build_record(None, None)
            if teacher is None
            else build_record(teacher.source, teacher.fingerprint)
        ),
        "model_fingerprint": _digest(_weights(start)),
        "tokenizer_fingerprint": start.tokenizer.fingerprint,
        "data_fingerprint": _digest(_tokens([*train, *dev], task.output.labels)),
        "test_fingerprint": _digest(_tokens(tests, ())),
        # Of examples as their files have them: the same for every tokenizer.
        "dev_fingerprint": _digest(
            repr(example).encode("utf-8", "backslashreplace")
            for part in prepared.dev
            for example in part.examples
        ),
    }


def _digest(pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _weights(start: InitialModel) -> Iterator[bytes]:
    yield json.dumps(to_dict(start.encoder)).encode()
    if start.pooling != "cls":
        yield start.pooling.encode()
    for name, tensor in (*(start.state or {}).items(), *start.head.items()):
        yield name.encode() + tensor.contiguous().numpy().tobytes()


def _tokens(items: Sequence[Item], labels: Sequence[str]) -> Iterator[bytes]:
    yield json.dumps(labels).encode()
    for item in items:
        for row in item.rows:
            yield row.ids.tobytes() + row.types.tobytes()
        yield (
            item.target.tobytes()
            if isinstance(item.target, np.ndarray)
            else repr(item.target).encode()
        )
