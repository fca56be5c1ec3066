"""Pretraining: a recipe, token shards and a run folder; `evaluate` for held-out scores afterwards.

A run folder is readable by a person:

    recipe.json     the config, its budget and vocabulary resolved
    run.json        the steps the budget bought, the data and the machine: what makes a resumed run the same run
    tokenizer/      opens with transformers.AutoTokenizer too
    metrics.jsonl   one row per window of steps, held-out scores and remarks
    checkpoints/    the newest valid ones
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from litebert.config import Config, replace
from litebert.config.amounts import parse_amount
from litebert.config.serialization import from_dict, to_dict, to_json
from litebert.data.batches import Batch, Batches
from litebert.data.shards import Shards
from litebert.errors import ConfigError, DataError, RunError
from litebert.model.blocks import Block
from litebert.model.objectives import Loss
from litebert.model.pretrainer import Pretrainer
from litebert.progress import task
from litebert.storage import atomic_write, read_json
from litebert.train import device as devices
from litebert.train import metrics
from litebert.train.evaluate import evaluate_split
from litebert.train.loop import Loop, Outcome
from litebert.train.measure import measure, steps_for
from litebert.train.run_folder import RunFolder

log = logging.getLogger("litebert")

PLATEAU_NATS = 0.15
"""A loss less than this below the unigram entropy has learned little but how frequent pieces are."""
PLATEAU_ROWS = 40
"""Rows of metrics, a fifth of a run, before that is called a plateau; and never before `PLATEAU_STEPS`."""
PLATEAU_STEPS = 300

DIVERGED_NATS = 1.0
"""A loss that has risen this much above its lowest, and above the unigram entropy, has diverged."""
DIVERGED_ROWS = 10
"""Rows of metrics, a twentieth of a run, before that is reported."""

_LEFTOVERS = ("tokenizer", "recipe.json")
"""What a run that was killed before its run.json leaves, beside hidden files."""
_FREE = ("name", "train.save_every", "train.keep_checkpoints")
"""Fields that may change between calls, for they change no weight."""


@dataclass(frozen=True)
class Run:
    """A pretraining run as it stands in its folder."""

    folder: Path
    config: Config
    steps: int
    outcome: Outcome


class TrainablePretrainer:
    """A `Pretrainer` with its batches, as the loop sees it (`loop.Trainable`)."""

    def __init__(self, config: Config, model: Pretrainer, shards: Shards, device: devices.Device) -> None:
        self.config, self.module, self.shards, self.device = config, model, shards, device
        self.layers = config.encoder.layers
        sentence = next((one.sentence for one in model.named_objectives.values() if one.sentence), None)
        self.batches = Batches(
            shards.train,
            shards.tokenizer,
            config.sequences,
            config.masking,
            sentence,
            config.batch_sequences,
            config.train.seed,
        )
        self.diagnostic_state: dict[str, Any] = {}

    def batch(self, step: int, rows: slice) -> Batch:
        batch = self.batches(step, rows)
        for objective in self.module.named_objectives.values():
            batch = objective.prepare(batch)
        return batch

    def counts(self, batch: Batch) -> dict[str, int]:
        return {name: objective.count(batch) for name, objective in self.module.named_objectives.items()}

    def losses(self, batch: Batch, layers: int) -> dict[str, Loss]:
        losses: dict[str, Loss] = self.module(batch, layers)
        return losses

    def weights(self) -> Mapping[str, float]:
        return {name: objective.weight for name, objective in self.module.named_objectives.items()}

    def lr_scales(self) -> Mapping[str, float]:
        return {}

    def evaluate(self) -> dict[str, float]:
        return evaluate_split(
            self.module,
            self.shards.heldout,
            self.shards.tokenizer,
            self.device,
            length=self.config.sequences.length,
            sequences=self.config.train.evaluate_sequences,
        )

    def diagnostics(self, step: int, row: Mapping[str, Any]) -> list[str]:
        own = self.module.named_objectives.items()
        watched = next((name for name, one in own if any(curves.unigram_entropy for curves in one.curves)), None)
        warning = plateau_warning(self.diagnostic_state, step, row.get(f"{watched}_loss"), self.shards.unigram_entropy)
        return [warning] if warning else []


def plateau_warning(state: dict[str, Any], step: int, loss: float | None, entropy: float) -> str | None:
    """Warn when a run sits on the unigram entropy of its data, the loss of knowing only piece frequencies, or has
    diverged, and report when it has left; `state` smooths the loss and counts the rows between calls.
    """
    if loss is None:
        return None
    loss = state["plateau_loss"] = 0.8 * state.get("plateau_loss", loss) + 0.2 * loss  # small batches are noisy
    lowest = state["plateau_lowest"] = min(loss, state.get("plateau_lowest", loss))
    on_it, above = loss > entropy - PLATEAU_NATS, loss > entropy + PLATEAU_NATS
    diverged = above and loss > lowest + DIVERGED_NATS
    state["plateau_rows"] = state.get("plateau_rows", 0) + 1 if on_it else 0
    state["diverged_rows"] = state.get("diverged_rows", 0) + 1 if diverged else 0
    said = state.get("plateau_said")
    if said and not on_it:
        state["plateau_said"] = False
        what = "recovered" if said == "diverged" else "left the plateau"
        return f"step {step}: the loss has {what} ({loss:.2f}; unigram entropy {entropy:.2f})"
    if step < PLATEAU_STEPS:
        return None
    if state["diverged_rows"] >= DIVERGED_ROWS and said != "diverged":
        state["plateau_said"] = "diverged"
        return (
            f"step {step}: the loss has risen from {lowest:.2f} to {loss:.2f}, above the unigram entropy of this data "
            f"({entropy:.2f} nats): the run has diverged and is unlikely to recover. Stop it and start another --out "
            "with a lower train.optimizer.learning_rate, a longer train.schedule.warmup or encoder.norm=pre"
        )
    if state["plateau_rows"] < PLATEAU_ROWS or said or diverged:
        return None
    state["plateau_said"] = True
    if above:
        return (
            f"step {step}: the loss {loss:.2f} is still above the unigram entropy of this data ({entropy:.2f} nats): "
            "so far the model has not even learned how frequent each piece is. The train.optimizer.learning_rate may "
            "be too low, or so high that nothing is learned"
        )
    return (
        f"step {step}: the loss {loss:.2f} sits on the unigram entropy of this data ({entropy:.2f} nats): so far "
        "the model has learned how frequent each piece is and nothing else. Some runs leave this plateau late; to "
        "leave it sooner try train.optimizer.name=muon, encoder.norm=pre, shallower layers first "
        "(train.depth_schedule), shorter sequences, or another train.optimizer.learning_rate"
    )


def pretrain(
    recipe: Config,
    data: str | Path,
    out: str | Path,
    *,
    device: str = "auto",
    tensorboard: bool = False,
    on_step: Callable[[Loop[Batch]], None] | None = None,
) -> Run:
    """Pretrain a config on token shards; the same call on the same folder continues, or returns what is finished.

    Args:
        recipe: the point of the space; its `train.budget` says how long.
        data: a folder written by `prepare`.
        out: the run folder.
        device: auto, cpu, cuda or cuda:N.
        on_step: called after every step.

    Raises:
        DataError: the data cannot be used, or holds nothing out.
        RunError: the folder is in use, or holds a run of another config or of other data.
        NonFiniteError: a loss or gradient was not finite; no step was taken from it.
    """
    remarks: list[str] = []
    with metrics.remarks(remarks):
        return _pretrain(recipe, data, Path(out), device, tensorboard, on_step, remarks)


def _pretrain(
    recipe: Config, data: str | Path, out: Path, device: str, tensorboard: bool,
    on_step: Callable[[Loop[Batch]], None] | None, remarks: list[str],
) -> Run:  # fmt: skip
    folder = RunFolder(out, "run.json", _LEFTOVERS)
    folder.check()
    shards = Shards.open(data, verify=True)
    if not shards.heldout.tokens:
        remedy = "prepare it with a --heldout above 0"
        if shards.index["settings"].get("heldout"):
            remedy = "prepare more documents, or shorter ones (--split says where one ends)"
        raise DataError(f"{shards.path} holds out no text to evaluate on; {remedy}")
    config = resolve(recipe, shards)
    machine = devices.choose(config.train.precision, device)
    with folder.owned():
        steps = _start(folder, config, shards, machine)
        model = build(config, machine)
        loop = Loop(
            trainable=TrainablePretrainer(config, model, shards, machine),
            config=config.train,
            steps=steps,
            batch_sequences=config.batch_sequences,
            device=machine,
            folder=folder.path,
            depth_schedule=config.train.depth_schedule,
            tensorboard=tensorboard,
            on_step=on_step,
            ranks=folder.ranks,
            remarks=remarks,
        )
        return Run(folder.path, config, steps, loop.run())


@task("building the network")
def build(config: Config, machine: devices.Device) -> Pretrainer:
    """The untrained model, a function of the config and its seed."""
    torch.manual_seed(config.train.seed)
    model = Pretrainer(config).to(machine.device)
    if config.train.compile:
        for module in model.modules():
            if isinstance(module, Block):
                module.compile()
    return model


def resolve(config: Config, shards: Shards) -> Config:
    """The config on this data: the vocabulary is the tokenizer's."""
    size, asked = shards.tokenizer.vocab_size, config.encoder.vocab_size
    if size != asked:
        log.info(f"encoder.vocab_size is {size}, of the tokenizer in {shards.path} (recipe: {asked})")
    return replace(config, encoder=replace(config.encoder, vocab_size=size))


def _start(folder: RunFolder, config: Config, shards: Shards, machine: devices.Device) -> int:
    """Start a run in a folder, or check that the folder holds this very run; the number of steps."""
    if runs := folder.identities():
        return _same_run(folder, runs[-1], config, shards, machine)
    timed = parse_amount(config.train.budget, "train.budget", ("time", "steps", "tokens")).unit == "time"
    rate = measure(config, machine) if timed else None
    steps = folder.ranks.agree(steps_for(config, rate))
    if rate is not None:
        speed = config.batch_sequences * config.sequences.length / rate.mean_step_seconds
        log.info(f"{config.train.budget} on this machine is {steps:,} steps ({speed:,.0f} tokens/s), fixed from now on")
    if folder.ranks.main:
        shards.tokenizer.save(folder.path / "tokenizer")
        with atomic_write(folder.path / "recipe.json") as file:
            file.write(to_json(config).encode())
        folder.claim({
            "format": 1,
            "steps": steps,
            "data": str(shards.path),
            "data_fingerprint": shards.fingerprint,
            "tokenizer_fingerprint": shards.tokenizer.fingerprint,
            "unigram_entropy": shards.unigram_entropy,
            "machine": machine.describe(),
            "arithmetic": _arithmetic(machine),
            "seconds_per_step": None if rate is None else rate.mean_step_seconds,
        })  # fmt: skip
    if config.train.schedule.warmup >= max(steps, 2):
        log.warning(
            f"all {steps} steps lie within the warm-up of {config.train.schedule.warmup:g}, so the learning rate never "
            "reaches its peak; give a larger --budget, or a share such as --train.schedule.warmup 0.025"
        )
    return steps


def _arithmetic(machine: devices.Device) -> str:
    """What decides the last bits of a sum."""
    return f"{machine.device.type}, {machine.precision}, {torch.get_num_threads()} threads"


def _same_run(
    folder: RunFolder, run: Mapping[str, Any], config: Config, shards: Shards, machine: devices.Device
) -> int:
    """The steps of the run in the folder, which must be of this config and data."""
    recipe_file, now = folder.path / "recipe.json", _arithmetic(machine)
    try:
        there = from_dict(Config, read_json(recipe_file, RunError))
        steps, fingerprint = int(run["steps"]), run["data_fingerprint"]
    except ConfigError as error:
        raise RunError(f"{recipe_file} was changed ({error}); restore it or start another --out") from None
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{folder.identity_file} was changed ({error!r}); restore it or start another --out") from None
    if fingerprint != shards.fingerprint:
        raise RunError(f"{folder.path} was trained on other data than {shards.path}; give its data or another --out")
    folder.refuse_other(to_dict(there), to_dict(config), _FREE)
    if (was := run.get("arithmetic")) != now:
        log.warning(f"this run was computed with {was} and continues with {now}: its last bits will differ")
    return steps
