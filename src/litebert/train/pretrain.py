"""Pretraining: a recipe, token shards and a run folder; `evaluate` for held-out scores afterwards.

A run folder is readable by a person:

    recipe.json     the config, its budget and vocabulary resolved
    run.json        the steps the budget bought, the data and the machine, the weights it started from and each
                    extension: what makes a resumed run the same run
    tokenizer/      opens with transformers.AutoTokenizer too
    metrics.jsonl   one row per window of steps, held-out scores and remarks
    checkpoints/    the newest valid ones
"""

from __future__ import annotations

import logging
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from litebert.config import Config
from litebert.config.amounts import BUDGET_UNITS, parse_amount
from litebert.data.batches import Batch, Batches
from litebert.data.shards import Shards
from litebert.errors import ConfigError, DataError, RunError
from litebert.model.blocks import Block
from litebert.model.objectives import Loss
from litebert.model.pretrainer import Pretrainer
from litebert.train import device as devices
from litebert.train.evaluate import evaluate_split
from litebert.train.loop import Loop, Outcome
from litebert.train.memory import memory_explained, require_memory
from litebert.train.run_folder import RunFolder
from litebert.train.start import CONTENTS, LEFTOVERS, earlier_ends, new_run, resolve, same_run, start_from

log = logging.getLogger("litebert")

IDENTITY = "run.json"
PLATEAU_NATS = 0.15
"""A loss less than this below the unigram entropy has learned little but how frequent pieces are."""
PLATEAU_ROWS = 40
"""Rows of metrics, a fifth of a run, before that is called a plateau; and never before `PLATEAU_STEPS`."""
PLATEAU_STEPS = 300
DIVERGED_ROWS = 10
"""Rows of metrics with a loss worse than guessing at random before a run is said to have diverged."""


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
        loss, random = row.get("mlm_loss"), math.log(self.config.encoder.vocab_size)
        warning = plateau_warning(self.diagnostic_state, step, loss, self.shards.unigram_entropy, random)
        return [warning] if warning else []


def plateau_warning(
    state: dict[str, Any], step: int, loss: float | None, entropy: float, random: float = math.inf
) -> str | None:
    """What to say of a loss that does not fall: it sits on the unigram entropy of the data, which is the loss of a
    model that knows how frequent pieces are and nothing else; it has left that plateau; or it is worse than guessing.

    Args:
        state: smooths the loss and counts the rows between calls.
        random: the loss of guessing every piece with the same probability.
    """
    if loss is None:
        return None
    loss = state["plateau_loss"] = 0.8 * state.get("plateau_loss", loss) + 0.2 * loss  # small batches are noisy
    if loss > random + PLATEAU_NATS or "diverged_rows" in state:
        state["diverged_rows"] = state.get("diverged_rows", 0) + 1 if loss > random + PLATEAU_NATS else 0
        if state["diverged_rows"]:
            return _diverged(step, loss, random) if state["diverged_rows"] == DIVERGED_ROWS else None
    on_it = loss > entropy - PLATEAU_NATS
    state["plateau_rows"] = state.get("plateau_rows", 0) + 1 if on_it else 0
    if state.get("plateau_said") and not on_it:
        state["plateau_said"] = False
        return f"step {step}: the loss has left the plateau ({loss:.2f}; unigram entropy {entropy:.2f})"
    if state["plateau_rows"] < PLATEAU_ROWS or step < PLATEAU_STEPS or state.get("plateau_said"):
        return None
    state["plateau_said"] = True
    where = "above" if loss > entropy + PLATEAU_NATS else "on"
    return (
        f"step {step}: the loss ({loss:.2f}) has long been {where} the unigram entropy of this data ({entropy:.2f} "
        "nats): the model knows how frequent each piece is, and nothing else yet. Some runs get past this late and by "
        "themselves. To get past it sooner, start a run with train.optimizer.name=muon, encoder.norm=pre, fewer layers "
        "at first (train.depth_schedule), shorter sequences, or another train.optimizer.learning_rate"
    )


def _diverged(step: int, loss: float, random: float) -> str:
    return (
        f"step {step}: the loss ({loss:.2f}) is worse than that of guessing at random ({random:.2f} nats): the run has "
        "diverged, and more steps will hardly help. Start another --out with a lower train.optimizer.learning_rate or "
        "a longer train.schedule.warmup"
    )


def pretrain(
    recipe: Config,
    data: str | Path,
    out: str | Path,
    *,
    from_model: str | Path | None = None,
    extend: str | Sequence[str] = (),
    overwrite: bool = False,
    device: str = "auto",
    tensorboard: bool = False,
    on_step: Callable[[Loop[Batch]], None] | None = None,
) -> Run:
    """Pretrain a config on token shards; the same call on the same folder continues, or returns what is finished.

    An extension gives a finished run a further budget. The learning rate goes, within its first twentieth, from where
    the run ended to the schedule of a run that was as long from the start, and follows it; the optimizer's state and
    the order of the data go on. The same call again continues the extension and does not begin another.

    Args:
        recipe: the point of the space; its `train.budget` says how long.
        data: a folder written by `prepare`.
        out: the run folder.
        from_model: a model folder whose weights a new run starts from: the encoder, and each objective that fits.
        extend: a budget, such as "30m". To extend a run again, all of them: ("30m", "1h").
        overwrite: delete the run in `out`, if there is one, and start anew.
        device: auto, cpu, cuda or cuda:N.
        on_step: called after every step.

    Raises:
        ConfigError: the batch does not fit in memory, or a budget in time is too short.
        DataError: the data cannot be used, or holds nothing out.
        ModelError: the weights to start from do not fit.
        RunError: the folder is in use, or holds a run of another config or of other data.
        NonFiniteError: a loss or gradient was not finite; no step was taken from it.
    """
    extensions = (extend,) if isinstance(extend, str) else tuple(extend)
    for amount in extensions:
        parse_amount(amount, "--extend", BUDGET_UNITS)
    if overwrite and extensions:
        raise ConfigError("--extend continues a run and --overwrite deletes it; give one of them")
    folder = run_folder(out)
    folder.check()
    if overwrite:
        folder.removable()
    if extensions and not folder.identity_file.exists():
        raise RunError(f"{folder.path} holds no run to extend; leave --extend out to start one")
    shards = Shards.open(data, verify=True)
    if not shards.heldout.tokens:
        raise DataError(f"{shards.path} holds out no text to evaluate on; prepare it with a --heldout above 0")
    config = resolve(recipe, shards)
    machine = devices.choose(config.train.precision, device)
    require_memory(config, machine)
    with folder.owned(), memory_explained(machine, config.micro_sequences):
        identities = [] if overwrite else folder.identities()
        model = build(config, machine)
        if from_model is not None and (overwrite or not (folder.path / "checkpoints").is_dir()):
            start_from(from_model, model, shards)
        if identities:
            run, config = same_run(folder, identities[-1], config, shards, machine, from_model, extensions)
        else:
            run = new_run(folder, config, shards, machine, from_model, overwrite)
        loop = Loop(
            trainable=TrainablePretrainer(config, model, shards, machine),
            config=config.train,
            steps=run["steps"],
            batch_sequences=config.batch_sequences,
            device=machine,
            folder=folder.path,
            depth_schedule=config.train.depth_schedule,
            earlier_ends=earlier_ends(run),
            tensorboard=tensorboard,
            on_step=on_step,
            ranks=folder.ranks,
        )
        if extensions and loop.step == loop.steps:
            again = " ".join(shlex.quote(one["budget"]) for one in (*run["extensions"], run["extensions"][-1]))
            log.info(f"this extension is finished; to extend the run once more, give --extend {again}")
        return Run(folder.path, config, run["steps"], loop.run())


def run_folder(out: str | Path) -> RunFolder:
    """The folder of a pretraining run."""
    return RunFolder(Path(out), IDENTITY, LEFTOVERS, CONTENTS)


def build(config: Config, machine: devices.Device) -> Pretrainer:
    """The untrained model, a function of the config and its seed."""
    torch.manual_seed(config.train.seed)
    model = Pretrainer(config).to(machine.device)
    if config.train.compile:
        for module in model.modules():
            if isinstance(module, Block):
                module.compile()
    return model
