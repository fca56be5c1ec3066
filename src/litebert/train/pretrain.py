"""Pretraining: a recipe, token shards and a run folder; `evaluate` for held-out scores afterwards.

A run folder is readable by a person:

    recipe.json     the config, its budget and vocabulary resolved
    run.json        the steps the budget bought, the data and the machine: what makes a resumed run the same run
    tokenizer/      opens with transformers.AutoTokenizer too
    metrics.jsonl   one row per window of steps, held-out scores and remarks
    checkpoints/    the newest valid ones
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import closing
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
from litebert.model.block import Block
from litebert.model.objectives import Loss
from litebert.model.pretrainer import Pretrainer
from litebert.storage import written_whole
from litebert.train import device as devices
from litebert.train.checkpoint import RunLock
from litebert.train.evaluate import evaluate_split
from litebert.train.loop import Loop, Outcome, Say
from litebert.train.measure import measure, steps_for
from litebert.train.metrics import read_json

PLATEAU_NATS = 0.15
"""A loss less than this below the unigram entropy has learned little but how frequent pieces are."""
PLATEAU_ROWS = 40
"""Rows of metrics, a fifth of a run, before that is called a plateau; and never before `PLATEAU_STEPS`."""
PLATEAU_STEPS = 300


_START = ("tokenizer", "recipe.json", "checkpoints")
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


class PretrainingWork:
    """A `Pretrainer` with its batches, as the loop sees it."""

    def __init__(self, config: Config, model: Pretrainer, shards: Shards, device: devices.Device) -> None:
        self.config, self.module, self.shards, self.device = config, model, shards, device
        self.layers = config.encoder.layers
        sentences = [objective.sentence for objective in model.named_objectives.values() if objective.sentence]
        self.batches = Batches(
            shards.train,
            shards.tokenizer,
            config.sequences,
            config.masking,
            sentences[0] if sentences else None,
            config.batch_sequences,
            config.train.seed,
        )
        self.memory: dict[str, Any] = {}

    def batch(self, step: int, rows: slice) -> Batch:
        """Rows of the batch of a step."""
        return self.batches(step, rows)

    def counts(self, batch: Batch) -> dict[str, int]:
        """Predictions per objective."""
        return {name: objective.count(batch) for name, objective in self.module.named_objectives.items()}

    def losses(self, batch: Batch, layers: int) -> dict[str, Loss]:
        """One loss per objective."""
        losses: dict[str, Loss] = self.module(batch, layers)
        return losses

    def weights(self) -> Mapping[str, float]:
        """Objective weights."""
        return {name: objective.weight for name, objective in self.module.named_objectives.items()}

    def rates(self) -> Mapping[str, float]:
        """One learning rate for all."""
        return {}

    def evaluate(self) -> dict[str, float]:
        """Held-out scores at fixed masks."""
        return evaluate_split(
            self.module,
            self.shards.heldout,
            self.shards.tokenizer,
            self.device,
            length=self.config.sequences.length,
            sequences=self.config.train.evaluate_sequences,
        )

    def remarks(self, step: int, row: Mapping[str, Any]) -> list[str]:
        """The plateau, in words."""
        remark = plateau_remark(self.memory, step, row.get("mlm_loss"), self.shards.unigram_entropy)
        return [remark] if remark else []


def plateau_remark(memory: dict[str, Any], step: int, loss: float | None, entropy: float) -> str | None:
    """Say when a run sits on the unigram entropy of its data, the loss of knowing only piece frequencies, and when
    it has left; `memory` smooths the loss and counts the rows between calls.
    """
    if loss is None:
        return None
    loss = memory["plateau_loss"] = 0.8 * memory.get("plateau_loss", loss) + 0.2 * loss  # small batches are noisy
    on_it = loss > entropy - PLATEAU_NATS
    memory["plateau_rows"] = memory.get("plateau_rows", 0) + 1 if on_it else 0
    if memory.get("plateau_said") and not on_it:
        memory["plateau_said"] = False
        return f"step {step}: the loss has left the plateau ({loss:.2f}; unigram entropy {entropy:.2f})"
    if memory["plateau_rows"] < PLATEAU_ROWS or step < PLATEAU_STEPS or memory.get("plateau_said"):
        return None
    memory["plateau_said"] = True
    where = "above" if loss > entropy + PLATEAU_NATS else "on"
    return (
        f"step {step}: the loss {loss:.2f} sits {where} the unigram entropy of this data ({entropy:.2f} nats): so far "
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
    say: Say | None = None,
    on_step: Callable[[Loop[Batch]], None] | None = None,
) -> Run:
    """Pretrain a config on token shards; the same call on the same folder continues, or returns what is finished.

    Args:
        recipe: the point of the space; its `train.budget` says how long.
        data: a folder written by `prepare`.
        out: the run folder.
        device: auto, cpu, cuda or cuda:N.
        say: receives remarks in words; None sends them to the `litebert` logger.
        on_step: called after every step.

    Raises:
        DataError: the data cannot be used, or holds nothing out.
        RunError: the folder is in use, or holds a run of another config or of other data.
        NonFiniteError: a loss or gradient was not finite; no step was taken from it.
    """
    say = say or logging.getLogger("litebert").info
    shards = Shards.open(data, verify=True)
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; give --out a folder")
    if not shards.heldout.tokens:
        raise DataError(f"{shards.path} holds out no text to evaluate on; prepare it with a --heldout above 0")
    config = resolve(recipe, shards, say)
    machine = devices.choose(config.train.precision, device)
    with RunLock(folder):
        steps = _open_folder(folder, config, shards, machine, say)
        model = build(config, machine)
        loop = Loop(
            work=PretrainingWork(config, model, shards, machine),
            config=config.train,
            steps=steps,
            batch_sequences=config.batch_sequences,
            device=machine,
            folder=folder,
            say=say,
            depth_schedule=config.train.depth_schedule,
            tensorboard=tensorboard,
            on_step=on_step or (lambda loop: None),
        )
        loop.resume()
        with closing(loop.log):
            outcome = loop.run()
    return Run(folder, config, steps, outcome)


def build(config: Config, machine: devices.Device) -> Pretrainer:
    """The untrained model, a function of the config and its seed."""
    torch.manual_seed(config.train.seed)
    model = Pretrainer(config).to(machine.device)
    if config.train.compile:
        for block in [module for module in model.modules() if isinstance(module, Block)]:
            block.compile()
    return model


def resolve(config: Config, shards: Shards, say: Say) -> Config:
    """The config on this data: the vocabulary is the tokenizer's."""
    size = shards.tokenizer.vocab_size
    if config.encoder.vocab_size != size:
        say(f"encoder.vocab_size is {size}, of the tokenizer in {shards.path} (recipe: {config.encoder.vocab_size})")
    return replace(config, encoder=replace(config.encoder, vocab_size=size))


def _open_folder(folder: Path, config: Config, shards: Shards, machine: devices.Device, say: Say) -> int:
    """Start a run folder, or check that it holds this very run; the number of steps."""
    run_file = folder / "run.json"
    if run_file.exists():
        return _same_run(folder, config, shards, machine, say)
    if any((folder / "checkpoints").glob("step-*")):
        raise RunError(f"{folder} holds checkpoints but no run.json; choose another --out or empty it")
    foreign = [path.name for path in folder.iterdir() if path.name[0] != "." and path.name not in _START]
    if foreign:
        raise RunError(f"{folder} is no run and holds other files ({foreign[0]}); give --out a new or empty folder")
    rate = None
    if parse_amount(config.train.budget, "train.budget", ("time", "steps", "tokens")).unit == "time":
        rate = measure(config, machine)
    steps = steps_for(config, rate)
    if rate is not None:
        tokens_per_second = config.batch_sequences * config.sequences.length / rate.mean_step_seconds
        say(f"{config.train.budget} on this machine is {steps} steps ({tokens_per_second:,.0f} tokens/s); now fixed")
    shards.tokenizer.save(folder / "tokenizer")
    with written_whole(folder / "recipe.json") as file:
        file.write(to_json(config).encode())
    run = {
        "format": 1,
        "steps": steps,
        "data": str(shards.path),
        "data_fingerprint": shards.fingerprint,
        "unigram_entropy": shards.unigram_entropy,
        "machine": machine.describe(),
        "arithmetic": _arithmetic(machine),
        "seconds_per_step": None if rate is None else rate.mean_step_seconds,
    }
    with written_whole(run_file) as file:  # last: a folder with it is a run
        file.write((json.dumps(run, indent=2) + "\n").encode())
    if config.train.schedule.warmup >= max(steps, 2):
        say(
            f"all {steps} steps lie within the warm-up of {config.train.schedule.warmup:g}, so the learning rate never "
            "reaches its peak; give a larger --budget, or a share such as --train.schedule.warmup 0.025"
        )
    return steps


def _arithmetic(machine: devices.Device) -> str:
    """What decides the last bits of a sum."""
    precision = "float32" if machine.autocast is None else str(machine.autocast).removeprefix("torch.")
    return f"{machine.device.type}, {precision}, {torch.get_num_threads()} threads"


def _same_run(folder: Path, config: Config, shards: Shards, machine: devices.Device, say: Say) -> int:
    """The steps of the run in the folder, which must be of this config and data."""
    recipe_file, run_file = folder / "recipe.json", folder / "run.json"
    try:
        there = from_dict(Config, read_json(recipe_file))
        run = read_json(run_file)
        steps, fingerprint = int(run["steps"]), run["data_fingerprint"]
    except ConfigError as error:
        raise RunError(f"{recipe_file} was changed ({error}); restore it or start another --out") from None
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{run_file} was changed ({error!r}); restore it or start another --out") from None
    if fingerprint != shards.fingerprint:
        raise RunError(f"{folder} was trained on other data than {shards.path}; give its data or another --out")
    differences = [
        f"{name} is {was} there and {now} here"
        for name, was, now in _differences(to_dict(there), to_dict(config))
        if name not in _FREE
    ]
    if differences:
        raise RunError(
            f"{folder} holds another run ({'; '.join(differences[:3])}); give the same fields or another --out"
        )
    was, now = run.get("arithmetic"), _arithmetic(machine)
    if was != now:
        say(f"this run was computed with {was} and continues with {now}: its last bits will differ")
    return steps


def _differences(there: Mapping[str, Any], here: Mapping[str, Any], path: str = "") -> list[tuple[str, Any, Any]]:
    found = []
    for key in here:
        if isinstance(here[key], dict):
            found += _differences(there[key], here[key], f"{path}{key}.")
        elif there[key] != here[key]:
            found.append((path + key, there[key], here[key]))
    return found
