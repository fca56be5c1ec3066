"""Fine-tuning: a pretrained encoder, a task and a run folder, in the loop of pretraining.

A run folder holds

    finetune.json     the config and the task, the steps it takes, and hashes of the model and of the encoded data
    metrics.jsonl     one row per window of steps, scores on the development parts and remarks
    checkpoints/      the newest valid ones; the same command continues
    best.safetensors  the weights with the best score so far
    model/            at the end: those weights as a litebert model folder, with tokenizer and labels
    predictions/      answers to the development parts and, where there is one, the test part
    scores.json       the scores of model/
"""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from litebert.config import Config, OptimizerConfig, SequenceConfig, replace
from litebert.config.amounts import parse_amount
from litebert.config.finetuning import FinetuneConfig, current_fields
from litebert.errors import ConfigError, DataError, RunError
from litebert.finetuning.batches import TaskBatch, TaskBatches
from litebert.finetuning.identity import FREE, IDENTITY, identity
from litebert.finetuning.outputs import Output
from litebert.finetuning.scoring import (
    EncodedPart,
    Logits,
    logits_of,
    metric_name,
    network_logits,
    one_answer,
    score_parts,
    score_tests,
)
from litebert.finetuning.start import InitialModel, layer_rates, load_initial, task_model
from litebert.finetuning.task import Task
from litebert.interop import LoadedModel, save_litebert
from litebert.interop.files import read_tensors, write_tensors
from litebert.model.objectives import Loss
from litebert.model.task_model import TaskModel
from litebert.recipes.finetuning import default_recipe_for, finetune_recipe
from litebert.storage import read_json, write_json, written_whole
from litebert.tokenizer import Tokenizer
from litebert.train import device as devices
from litebert.train.loop import Loop, Outcome
from litebert.train.run_folder import ASIDE, RunFolder

log = logging.getLogger("litebert")

_HEAD = "task"
"""Name of the one loss."""


@dataclass(frozen=True)
class Finetuned:
    """A fine-tuning run as it stands in its folder."""

    folder: Path
    steps: int
    outcome: Outcome
    scores: dict[str, float]
    """Of the best weights; empty where the run is not finished."""
    collapsed: bool = False
    """Whether it gives one answer to everything, restart or not."""
    restarted: bool = False
    """Whether one that collapsed went before, at three times the rate."""


class TrainableTaskModel:
    """A `TaskModel` with its task, as the loop sees it."""

    def __init__(
        self, model: TaskModel, task: Task[Any], output: Output, batches: TaskBatches, dev: Sequence[EncodedPart],
        pad_id: int, device: devices.Device, best: Path, layer_decay: float,
    ) -> None:  # fmt: skip
        self.module, self.task, self.output, self.batches, self.dev = model, task, output, batches, dev
        self.pad_id, self.device, self.best, self.layer_decay = pad_id, device, best, layer_decay
        self.layers = model.encoder.config.layers
        self.diagnostic_state: dict[str, Any] = {}
        self.kept: dict[str, Logits] = {}
        """What the best weights say of each development part, where this very process saw them."""

    def batch(self, step: int, rows: slice) -> TaskBatch:
        """Rows of the batch of a step."""
        return self.batches(step, rows)

    def counts(self, batch: TaskBatch) -> dict[str, int]:
        """Predictions in a batch."""
        return {_HEAD: self.output.count(batch)}

    def losses(self, batch: TaskBatch, layers: int) -> dict[str, Loss]:
        """The loss of the task."""
        logits = self.module(batch.input_ids, batch.token_type_ids, batch.attention_mask)
        return {_HEAD: self.output.loss(logits, batch)}

    def weights(self) -> Mapping[str, float]:
        """One loss."""
        return {_HEAD: 1.0}

    def lr_scales(self) -> Mapping[str, float]:
        """Layer-wise learning rates."""
        return layer_rates(self.module, self.layer_decay)

    def logits(self, part: EncodedPart) -> Logits:
        """What the model says of a part now."""
        was_training = self.module.training
        self.module.eval()
        logits = logits_of(partial(network_logits, self.module, self.device), part.items, self.output, self.pad_id)
        self.module.train(was_training)
        return logits

    def evaluate(self) -> dict[str, float]:
        """Scores on the development parts; the best weights by the first part's metric are kept aside."""
        logits = {part.name: self.logits(part) for part in self.dev}
        scores = score_parts(self.task, self.dev, logits)
        decisive = scores[metric_name(self.task)]
        if math.isnan(decisive):  # a correlation with answers that are all alike, say
            decisive = -math.inf
        if "best" not in self.diagnostic_state or decisive > self.diagnostic_state["best"]:
            self.diagnostic_state["best"], self.kept = decisive, logits
            self.diagnostic_state["one_answer"] = one_answer(self.output, self.dev[0], logits[self.dev[0].name])
            self._keep()
        return scores

    def _keep(self) -> None:
        try:
            with written_whole(self.best) as aside:
                write_tensors(aside, self.module.state_dict())
        except (OSError, SafetensorError) as error:
            raise RunError(
                f"cannot write the best weights to {self.best} ({error}); free the disk, and run the same command again"
            ) from error

    def diagnostics(self, step: int, row: Mapping[str, Any]) -> list[str]:
        """Nothing to warn of before the end."""
        return []


# ---- the run -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PreparedTask:
    """What does not differ between seeds: the encoder to begin with, and all parts of the task, read and encoded."""

    source: str
    start: InitialModel
    config: FinetuneConfig
    train: EncodedPart
    dev: tuple[EncodedPart, ...]
    tests: tuple[EncodedPart, ...]

    @property
    def parts(self) -> tuple[EncodedPart, ...]:
        """All that is answered at the end."""
        return (*self.dev, *self.tests)


def prepare_task(
    model: str | Path,
    task: Task[Any],
    config: FinetuneConfig | None,
    *,
    tokenizer: str | Path | None = None,
    start: InitialModel | None = None,
) -> PreparedTask:
    """Read and encode, once for all seeds; arguments and errors are those of `finetune`.

    `start` is what `load_initial` gave, where it was asked before.
    """
    start = start or load_initial(model, tokenizer, task)
    config = config or finetune_recipe(default_recipe_for(start.encoder, start.dense), task.full_name)
    if config.length > start.encoder.max_positions:
        log.info(f"length {config.length} is cut to the {start.encoder.max_positions} positions of {model}")
        config = replace(config, length=start.encoder.max_positions)
    if not task.dev:
        raise DataError(f"{task.name} has no part to choose the best weights by; give a dev file")
    train, *others = (_part(task, name, start.tokenizer, config.length) for name in ("train", *task.dev, *task.tests))
    for note in (*start.notes, *filter(None, [task.output.balance([item.target for item in train.items])])):
        log.info(note)
    dev, tests = others[: len(task.dev)], others[len(task.dev) :]
    return PreparedTask(str(model), start, config, train, tuple(dev), tuple(tests))


def finetune(
    model: str | Path,
    task: Task[Any],
    out: str | Path,
    config: FinetuneConfig | None = None,
    *,
    tokenizer: str | Path | None = None,
    device: str = "auto",
    on_step: Callable[[Loop[TaskBatch]], None] | None = None,
) -> Finetuned:
    """Fine-tune a model on a task; the same call on the same folder continues, or returns what is finished.

    Args:
        model: a run, a litebert model or a Hugging Face folder; or a recipe's name, with `tokenizer`.
        config: by default the recipe that `finetuning.default_recipe_for` finds for the encoder and the task.

    Raises:
        DataError: a file of the task cannot be used.
        RunError: the folder is in use, or holds another run.
        NonFiniteError: a loss or gradient was not finite; no step was taken from it.
    """
    RunFolder(Path(out), IDENTITY).check()
    prepared = prepare_task(model, task, config, tokenizer=tokenizer)
    return finetune_prepared(prepared, task, out, prepared.config.train.seed, device=device, on_step=on_step)


def finetune_prepared(
    prepared: PreparedTask,
    task: Task[Any],
    out: str | Path,
    seed: int,
    *,
    device: str = "auto",
    on_step: Callable[[Loop[TaskBatch]], None] | None = None,
) -> Finetuned:
    """`finetune` with one of several seeds."""
    folder = RunFolder(Path(out), IDENTITY)
    prepared = replace(prepared, config=replace(prepared.config, train=replace(prepared.config.train, seed=seed)))
    machine = devices.choose(prepared.config.train.precision, device)
    with folder.owned():
        again = folder.was_set_aside
        done = _run(prepared, task, folder, again, machine, on_step)
        if done.collapsed and prepared.config.restart and not again:
            if done.outcome.signal is not None:  # the same command goes on from here
                return replace(done, outcome=replace(done.outcome, finished=False), scores={})
            rate = prepared.config.train.optimizer.learning_rate / 3
            log.warning(
                f"the model gives one answer to everything; starting once more with a learning rate of {rate:.1e} "
                f"(what there was lies in {ASIDE}/)"
            )
            folder.set_aside()
            done = _run(prepared, task, folder, True, machine, on_step)
        if done.collapsed:
            log.warning("the model gives one answer to everything: its scores are those of guessing")
    return done


def _part(task: Task[Any], name: str, tokenizer: Tokenizer, length: int) -> EncodedPart:
    examples = task.read(name)
    items = task.encode(examples, tokenizer, length)
    for note in task.notes:
        log.info(note)
    if name == "train":
        items = [item for item in items if item.target is not None]
    if not items:
        raise DataError(f"{task.name} has no example in its {name} part; give a file with some")
    return EncodedPart(name, examples, items)


def _run(
    prepared: PreparedTask, task: Task[Any], place: RunFolder, again: bool, machine: devices.Device,
    on_step: Callable[[Loop[TaskBatch]], None] | None,
) -> Finetuned:  # fmt: skip
    """One run to its end; `again` after one that collapsed, at a third of the rate."""
    config, start, folder = prepared.config, prepared.start, place.path
    batch = int(parse_amount(config.train.batch, "train.batch", ("sequences",)).value)
    steps = config.steps or max(1, math.ceil(config.epochs * len(prepared.train.items) / batch))
    warmup = config.train.schedule.warmup
    if 1 <= warmup >= steps:
        raise ConfigError(f"train.schedule.warmup is {warmup:g} steps of {steps}; give a share of the run, such as 0.1")
    output = task.output.fitted([item.target for item in prepared.train.items])
    items = [replace(item, target=output.to_learn(item.target)) for item in prepared.train.items]
    pad = start.tokenizer.pad_id
    model = task_model(start, task, config).to(machine.device)
    _claim(place, identity(prepared.source, start, task, config, steps, items, prepared.dev, prepared.tests))
    settings = replace(config.train, optimizer=_slower(config.train.optimizer, again))
    file = folder / "scores.json"  # the last to be written
    if file.exists() and not (folder / "checkpoints").exists():  # someone made room
        return Finetuned(folder, steps, Outcome(steps, True, None, {}, 0, 0.0), read_json(file, RunError), False, again)
    best = folder / "best.safetensors"
    batches = TaskBatches(items, output, pad, batch, steps, config.train.seed)
    trainable = TrainableTaskModel(model, task, output, batches, prepared.dev, pad, machine, best, config.layer_decay)
    loop = Loop(
        trainable=trainable, config=settings, steps=steps, batch_sequences=batch, device=machine, folder=folder,
        on_step=on_step,
    )  # fmt: skip
    outcome = loop.run()
    if not outcome.finished:
        return Finetuned(folder, steps, outcome, {})
    if not file.exists():
        model.load_state_dict(read_tensors(best))
        kept = trainable.kept if machine.autocast is None else {}
        trainable.device = replace(machine, autocast=None)  # as `predict` computes, and other programs
        logits = kept | {part.name: trainable.logits(part) for part in prepared.parts if part.name not in kept}
        scores = score_parts(task, prepared.dev, logits) | score_tests(task, prepared.tests, logits)
        _write_predictions(folder / "predictions", task, prepared.parts, logits)
        _write_model(folder / "model", model, task, output, prepared)
        write_json(file, scores)
    one = trainable.diagnostic_state["one_answer"]
    return Finetuned(folder, steps, outcome, read_json(file, RunError), one, again)


def _claim(folder: RunFolder, run: dict[str, Any]) -> None:
    """InitialModel a run in a folder, or check that the folder holds this very run."""
    for there in folder.identities():
        folder.refuse_other({**there, "config": current_fields(there.get("config", {}))}, run, FREE)
        if there.get("test_fingerprint") != run["test_fingerprint"]:
            raise RunError(f"{folder.path} holds a run with another test part; give its own, or answer this one with "
                           "litebert predict")  # fmt: skip
    if not folder.identity_file.exists():
        folder.claim(run)


def _slower(optimizer: OptimizerConfig, again: bool) -> OptimizerConfig:
    """A third of all rates, for the second time."""
    if not again:
        return optimizer
    return replace(
        optimizer, learning_rate=optimizer.learning_rate / 3, muon_learning_rate=optimizer.muon_learning_rate / 3
    )


def _write_predictions(
    folder: Path, task: Task[Any], parts: Sequence[EncodedPart], logits: Mapping[str, Logits]
) -> None:
    folder.mkdir(exist_ok=True)
    for part in parts:
        answers = task.answers(part.examples, part.items, logits[part.name])
        task.write(part.examples, answers, folder / task.file_name(part.name))


def _write_model(folder: Path, model: TaskModel, task: Task[Any], output: Output, prepared: PreparedTask) -> None:
    output.settle(model.head)
    shutil.rmtree(folder, ignore_errors=True)
    shape = model.encoder.config
    length = prepared.config.length
    whole = Config(name=task.name, encoder=shape, sequences=SequenceConfig(length=length), objectives=("mlm",))
    about = {"task": task.name, "kind": output.head, "problem": output.name, "length": length, **task.settings()}
    loaded = LoadedModel(model, whole, prepared.start.tokenizer, folder, output.labels, task=about)
    save_litebert(loaded, folder)
