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
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError

from litebert.config import Config, OptimizerConfig, SequenceConfig, replace
from litebert.config.amounts import parse_amount
from litebert.config.finetuning import FinetuneConfig, current_fields
from litebert.errors import ConfigError, DataError, RunError
from litebert.finetune import losses
from litebert.finetune.batches import TaskBatch, TaskBatches
from litebert.finetune.identity import FREE, IDENTITY, balance, identity
from litebert.finetune.scoring import Logits, Part, logits_of, metric_name, one_answer, score_parts, score_tests
from litebert.finetune.start import Start, layer_rates, starting_point, task_model
from litebert.finetune.task import Item, Task, full_name
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
        self, model: TaskModel, task: Task[Any], batches: TaskBatches, dev: Sequence[Part], pad_id: int,
        scale: tuple[float, float], device: devices.Device, best: Path, layer_decay: float,
    ) -> None:  # fmt: skip
        self.module, self.task, self.batches, self.dev, self.pad_id = model, task, batches, dev, pad_id
        self.scale, self.device, self.best, self.layer_decay = scale, device, best, layer_decay
        self.layers = model.encoder.config.layers
        self.diagnostic_state: dict[str, Any] = {}
        self.kept: dict[str, Logits] = {}
        """What the best weights say of each development part, where this very process saw them."""

    def batch(self, step: int, rows: slice) -> TaskBatch:
        """Rows of the batch of a step."""
        return self.batches(step, rows)

    def counts(self, batch: TaskBatch) -> dict[str, int]:
        """Predictions in a batch."""
        return {_HEAD: losses.count(batch, self.task.problem)}

    def losses(self, batch: TaskBatch, layers: int) -> dict[str, Loss]:
        """The loss of the task."""
        logits = self.module(batch.input_ids, batch.token_type_ids, batch.attention_mask)
        return {_HEAD: losses.loss(logits, batch, self.task.problem)}

    def weights(self) -> Mapping[str, float]:
        """One loss."""
        return {_HEAD: 1.0}

    def lr_scales(self) -> Mapping[str, float]:
        """Layer-wise learning rates."""
        return layer_rates(self.module, self.layer_decay)

    def logits(self, part: Part) -> Logits:
        """What the model says of a part now."""
        return logits_of(self.module, part.items, self.task, self.pad_id, self.device, self.scale)

    def evaluate(self) -> dict[str, float]:
        """Scores on the development parts; the best weights by the first part's metric are kept aside."""
        logits = {part.name: self.logits(part) for part in self.dev}
        scores = score_parts(self.task, self.dev, logits)
        decisive = scores[metric_name(self.task)]
        if math.isnan(decisive):  # a correlation with answers that are all alike, say
            decisive = -math.inf
        if "best" not in self.diagnostic_state or decisive > self.diagnostic_state["best"]:
            self.diagnostic_state["best"], self.kept = decisive, logits
            self.diagnostic_state["one_answer"] = one_answer(self.task, self.dev[0], logits[self.dev[0].name])
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
class Ready:
    """What does not differ between seeds: the encoder to begin with, and all parts of the task, read and encoded."""

    source: str
    start: Start
    config: FinetuneConfig
    train: Part
    dev: tuple[Part, ...]
    tests: tuple[Part, ...]

    @property
    def parts(self) -> tuple[Part, ...]:
        """All that is answered at the end."""
        return (*self.dev, *self.tests)


def make_ready(
    model: str | Path,
    task: Task[Any],
    config: FinetuneConfig | None,
    *,
    tokenizer: str | Path | None = None,
    start: Start | None = None,
) -> Ready:
    """Read and encode, once for all seeds; arguments and errors are those of `finetune`.

    `start` is what `starting_point` gave, where it was asked before.
    """
    start = start or starting_point(model, tokenizer, task)
    config = config or finetune_recipe(default_recipe_for(start.encoder, start.dense), full_name(task))
    if config.length > start.encoder.max_positions:
        log.info(f"length {config.length} is cut to the {start.encoder.max_positions} positions of {model}")
        config = replace(config, length=start.encoder.max_positions)
    if not task.dev:
        raise DataError(f"{task.name} has no part to choose the best weights by; give a dev file")
    train, *others = (_part(task, name, start.tokenizer, config.length) for name in ("train", *task.dev, *task.tests))
    for note in (*start.notes, *filter(None, [balance(task, train.items)])):
        log.info(note)
    dev, tests = others[: len(task.dev)], others[len(task.dev) :]
    return Ready(str(model), start, config, train, tuple(dev), tuple(tests))


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
    ready = make_ready(model, task, config, tokenizer=tokenizer)
    return finetune_ready(ready, task, out, ready.config.train.seed, device=device, on_step=on_step)


def finetune_ready(
    ready: Ready,
    task: Task[Any],
    out: str | Path,
    seed: int,
    *,
    device: str = "auto",
    on_step: Callable[[Loop[TaskBatch]], None] | None = None,
) -> Finetuned:
    """`finetune` with one of several seeds."""
    folder = RunFolder(Path(out), IDENTITY)
    ready = replace(ready, config=replace(ready.config, train=replace(ready.config.train, seed=seed)))
    machine = devices.choose(ready.config.train.precision, device)
    with folder.owned():
        again = folder.was_set_aside
        done = _run(ready, task, folder, again, machine, on_step)
        if done.collapsed and ready.config.restart and not again:
            if done.outcome.signal is not None:  # the same command goes on from here
                return replace(done, outcome=replace(done.outcome, finished=False), scores={})
            rate = ready.config.train.optimizer.learning_rate / 3
            log.warning(
                f"the model gives one answer to everything; starting once more with a learning rate of {rate:.1e} "
                f"(what there was lies in {ASIDE}/)"
            )
            folder.set_aside()
            done = _run(ready, task, folder, True, machine, on_step)
        if done.collapsed:
            log.warning("the model gives one answer to everything: its scores are those of guessing")
    return done


def _part(task: Task[Any], name: str, tokenizer: Tokenizer, length: int) -> Part:
    examples = task.read(name)
    items = task.encode(examples, tokenizer, length)
    for note in task.notes:
        log.info(note)
    if name == "train":
        items = [item for item in items if item.target is not None]
    if not items:
        raise DataError(f"{task.name} has no example in its {name} part; give a file with some")
    return Part(name, examples, items)


def _scaled(task: Task[Any], items: Sequence[Item]) -> tuple[list[Item], tuple[float, float]]:
    """Numbers with mean 0 and deviation 1, so that one learning rate serves prices and shares alike."""
    if task.problem != "number":
        return list(items), (0.0, 1.0)
    targets = np.array([item.target for item in items], np.float64)
    mean, deviation = float(targets.mean()), float(targets.std()) or 1.0
    return [replace(item, target=(item.target - mean) / deviation) for item in items], (mean, deviation)


def _run(
    ready: Ready, task: Task[Any], place: RunFolder, again: bool, machine: devices.Device,
    on_step: Callable[[Loop[TaskBatch]], None] | None,
) -> Finetuned:  # fmt: skip
    """One run to its end; `again` after one that collapsed, at a third of the rate."""
    config, start, folder = ready.config, ready.start, place.path
    batch = int(parse_amount(config.train.batch, "train.batch", ("sequences",)).value)
    steps = config.steps or max(1, math.ceil(config.epochs * len(ready.train.items) / batch))
    warmup = config.train.schedule.warmup
    if 1 <= warmup >= steps:
        raise ConfigError(f"train.schedule.warmup is {warmup:g} steps of {steps}; give a share of the run, such as 0.1")
    items, scale = _scaled(task, ready.train.items)
    pad = start.tokenizer.pad_id
    model = task_model(start, task, config).to(machine.device)
    _claim(place, identity(ready.source, start, task, config, steps, items, ready.dev, ready.tests))
    settings = replace(config.train, optimizer=_slower(config.train.optimizer, again))
    file = folder / "scores.json"  # the last to be written
    if file.exists() and not (folder / "checkpoints").exists():  # someone made room
        return Finetuned(folder, steps, Outcome(steps, True, None, {}, 0, 0.0), read_json(file, RunError), False, again)
    best = folder / "best.safetensors"
    batches = TaskBatches(items, task.problem, pad, batch, steps, config.train.seed)
    trainable = TrainableTaskModel(model, task, batches, ready.dev, pad, scale, machine, best, config.layer_decay)
    loop = Loop(
        trainable=trainable, config=settings, steps=steps, batch_sequences=batch, device=machine, folder=folder,
        on_step=on_step or (lambda loop: None),
    )  # fmt: skip
    outcome = loop.run()
    if not outcome.finished:
        return Finetuned(folder, steps, outcome, {})
    if not file.exists():
        model.load_state_dict(read_tensors(best))
        kept = trainable.kept if machine.autocast is None else {}
        trainable.device = replace(machine, autocast=None)  # as `predict` computes, and other programs
        logits = kept | {part.name: trainable.logits(part) for part in ready.parts if part.name not in kept}
        scores = score_parts(task, ready.dev, logits) | score_tests(task, ready.tests, logits)
        _write_predictions(folder / "predictions", task, ready.parts, logits)
        _write_model(folder / "model", model, task, ready, scale, scores)
        write_json(file, scores)
    one = trainable.diagnostic_state["one_answer"]
    return Finetuned(folder, steps, outcome, read_json(file, RunError), one, again)


def _claim(folder: RunFolder, run: dict[str, Any]) -> None:
    """Start a run in a folder, or check that the folder holds this very run."""
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


def _write_predictions(folder: Path, task: Task[Any], parts: Sequence[Part], logits: Mapping[str, Logits]) -> None:
    folder.mkdir(exist_ok=True)
    for part in parts:
        answers = task.answers(part.examples, part.items, logits[part.name])
        task.write(part.examples, answers, folder / task.file_name(part.name))


def _write_model(
    folder: Path, model: TaskModel, task: Task[Any], ready: Ready, scale: tuple[float, float],
    scores: Mapping[str, float],
) -> None:  # fmt: skip
    with torch.no_grad():  # the saved model gives numbers as they are
        if task.problem == "number":
            model.head.classifier.weight.mul_(scale[1])
            model.head.classifier.bias.mul_(scale[1]).add_(scale[0])
    shutil.rmtree(folder, ignore_errors=True)
    shape = model.encoder.config
    length = ready.config.length
    whole = Config(name=task.name, encoder=shape, sequences=SequenceConfig(length=length), objectives=("mlm",))
    about: dict[str, Any] = {"task": task.name, "problem": task.problem, "length": length,
                             "version": getattr(task, "version", 1)}  # fmt: skip
    if task.kind == "sequence":
        about["pair"] = any(example.pair is not None for example in ready.train.examples)
    if "threshold" in scores:  # of SQuAD 2.0, for `predict`
        about["threshold"] = scores["threshold"]
    if stride := getattr(task, "stride", None):
        about["stride"] = stride
    if order := getattr(task, "order", None):
        about["order"] = order
    save_litebert(LoadedModel(model, whole, ready.start.tokenizer, folder, task.labels, task=about), folder)
