"""Pretraining: a recipe, token shards and a run folder; `evaluate` for held-out scores afterwards.

A run folder is readable by a person:

    recipe.json     the config, its budget and vocabulary resolved
    run.json        what makes a resumed run the same run: the steps the budget bought, the data,
                    the machine, the weights it started from, and each extension
    tokenizer/      opens with transformers.AutoTokenizer too
    metrics.jsonl   one row per window of steps, held-out scores and remarks
    speed.jsonl     seconds and tokens per second, one row per window of steps
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
from torch import nn

from litebert import launch
from litebert.config import Config
from litebert.cost import training_flops
from litebert.data.batches import Batch
from litebert.data.mixture import DataSource, TrainingData
from litebert.model.blocks import compile_blocks
from litebert.model.objectives import Loss
from litebert.model.pretrainer import Pretrainer
from litebert.progress import task
from litebert.storage import checkpoints
from litebert.train import device as devices
from litebert.train import metrics
from litebert.train.evaluate import evaluate_split
from litebert.train.initial_weights import (
    load_weights,
    read_optimizer,
    start_table,
    take_table,
)
from litebert.train.loop import Loop, Outcome
from litebert.train.measure import build_share_of_peak
from litebert.train.memory import explain_out_of_memory, require_memory
from litebert.train.parallel import parallelize
from litebert.train.plateau import find_watched_objective, remark_on_short_run, watch_plateau
from litebert.train.pretrain_inputs import Inputs, PretrainRequest, check_folder, open_inputs
from litebert.train.ranks import Ranks, join_group
from litebert.train.run import Run
from litebert.train.start import RunRecord, continue_run, settle_batch_sizes, start_run
from litebert.train.supply import PretrainingBatches, count_processes, make_in_processes
from litebert.train.teacher import refuse_other_teacher
from litebert.train.trackers import require_trackers

log = logging.getLogger("litebert")

UNLABELED_SHARE = 0.2
"""Above this share of segment pairs without a label, an objective about the order of sentences
learns from few.
"""


@dataclass(frozen=True)
class Pretrained:
    """A pretraining run as it stands in its folder."""

    folder: Path
    config: Config
    steps: int
    outcome: Outcome


def pretrain(
    recipe: Config,
    shards: DataSource,
    out: str | Path,
    *,
    from_model: str | Path | None = None,
    table_from: str | Path | None = None,
    teacher: str | Path | None = None,
    add_budget: str | Sequence[str] = (),
    overwrite: bool = False,
    device: str = "auto",
    trackers: Sequence[str] = (),
    on_step: Callable[[Loop[Batch]], None] | None = None,
) -> Pretrained:
    """Pretrain a config on token shards. Called again, it continues, or returns the finished run.

    Args:
        recipe: the point of the space; its `train.budget` says how long.
        shards: a folder written by `prepare`, or several by weight: {"books": 2, "web": 1}.
        out: the run folder.
        from_model: a model folder whose encoder, fitting objectives, and optimizer of the same name
            a new run starts from.
        table_from: a model folder, of any tokenizer, whose token table a new run starts from.
        teacher: a pretrained model (`recipe.distill`).
        add_budget: further budgets of a finished run, all of them: ("30m", "1h") (`train.start`).
        overwrite: delete the run in `out`, if there is one, and start again.
        device: auto, cpu, cuda, cuda:N, or mps on a Mac.
        trackers: tensorboard, wandb, mlflow or trackio, which also get the metrics.
        on_step: called after every step.

    Raises:
        ConfigError: the batch does not fit in memory, or the budget or the teacher do not suit.
        DataError: the data cannot be used, holds nothing out, or has another tokenizer.
        ModelError: the weights to start from do not fit, or the teacher lacks a head.
        RunError: the folder is in use, or holds another run.
        NonFiniteError: a loss or gradient was not finite; no step was taken from it.
    """
    request = PretrainRequest(
        recipe=recipe,
        data=shards,
        out=Path(out),
        from_model=from_model,
        table_from=table_from,
        teacher=teacher,
        extensions=(add_budget,) if isinstance(add_budget, str) else tuple(add_budget),
        # Processes that are started again after a failure continue what they began.
        overwrite=overwrite and not launch.restarts(),
        device=device,
        trackers=tuple(trackers),
        on_step=on_step,
    )
    with join_group() as ranks:
        return _run_phases(request, ranks)


def _run_phases(request: PretrainRequest, ranks: Ranks) -> Pretrained:
    """Go through the phases of a run (`train.run`), in a locked folder from `build` on."""
    require_trackers(request.trackers)
    remarks: list[str] = []
    with metrics.collect_remarks(remarks):
        folder = check_folder(request, ranks)
        inputs = open_inputs(request, folder)
        run = PretrainingRun(request, inputs, remarks)
        sized = run.settle_sizes()
        train, sequences = sized.config.train, sized.config.micro_sequences
        with folder.lock(), explain_out_of_memory(inputs.machine, sequences, train.recompute):
            return run.execute(sized)


# ------------------------------------------------------------------------------------------- phases


@dataclass(frozen=True)
class SizedConfig:
    """A config whose sizes are numbers, and fit in memory."""

    config: Config


@dataclass(frozen=True)
class BuiltModel:
    """The network of a run, whose folder may still hold another run."""

    config: Config
    model: Pretrainer
    is_fresh: bool
    """True if the folder has no checkpoint: training begins with these weights."""


@dataclass(frozen=True)
class ClaimedRun:
    """The network of the run that the folder holds."""

    config: Config
    model: Pretrainer
    is_fresh: bool
    record: RunRecord


@dataclass(frozen=True)
class TrainedModel:
    """The network when the loop has ended."""

    config: Config
    model: Pretrainer
    record: RunRecord
    outcome: Outcome


class PretrainingRun(Run[SizedConfig, BuiltModel, ClaimedRun, TrainedModel, Pretrained]):
    """A pretraining run from opened inputs to its result."""

    def __init__(self, request: PretrainRequest, inputs: Inputs, remarks: list[str]) -> None:
        """`remarks` holds the warnings so far, and gets those of the phases."""
        self.request, self.inputs, self.remarks = request, inputs, remarks
        self.ranks = inputs.folder.ranks

    def settle_sizes(self) -> SizedConfig:
        config, machine = settle_batch_sizes(self.request, self.inputs), self.inputs.machine
        require_memory(config, machine, ranks=self.ranks, teacher=self.inputs.teacher_shape)
        return SizedConfig(config)

    def build(self, sized: SizedConfig) -> BuiltModel:
        request, inputs = self.request, self.inputs
        model = build_pretrainer(sized.config, inputs.machine)
        checkpoints_path = inputs.folder.path / "checkpoints"
        is_fresh = request.overwrite or not self.ranks.decide(lambda: checkpoints(checkpoints_path))
        # Read in the main process; `parallelize` sends them to the others.
        if (source := request.from_model) is not None and is_fresh:
            self.ranks.decide(lambda: load_weights(source, model, inputs.shards))
        if inputs.teacher is not None:
            model.teacher = inputs.teacher
        return BuiltModel(sized.config, model, is_fresh)

    def claim(self, built: BuiltModel) -> ClaimedRun:
        request, inputs, folder = self.request, self.inputs, self.inputs.folder
        identities = self.ranks.decide(
            lambda: [] if request.overwrite else folder.read_identities()
        )
        config = built.config
        if identities:
            identity = identities[-1]  # the only one: no pretraining run is set aside
            fingerprint = inputs.teacher_fingerprint
            refuse_other_teacher(folder.path, identity, request.teacher, fingerprint)
            record, config = continue_run(request, inputs, config, identity)
        else:
            # A budget in time is measured here, before the folder is this run.
            record = start_run(request, inputs, config)
        return ClaimedRun(config, built.model, built.is_fresh, record)

    def train(self, claimed: ClaimedRun) -> TrainedModel:
        """Train to the end of the run, or until a signal.

        A new run first gets what `build` has left: the table that is computed from its text, or the
        state of the optimizer that it starts from.
        """
        request, inputs, ranks = self.request, self.inputs, self.ranks
        config, model, record = claimed.config, claimed.model, claimed.record
        if request.from_model is None and claimed.is_fresh:
            ranks.decide(lambda: self._start_tables(model))
        loop = self._make_loop(claimed)
        if request.from_model is not None and claimed.is_fresh:
            state = read_optimizer(request.from_model, config) if ranks.main else None
            if ranks.agree(state is not None):
                tensors = loop.optimizers.start(state)
                source = request.from_model
                log.info(
                    f"the optimizer continues with its state from {source} ({tensors} tensors)"
                )
        if request.extensions and loop.step == loop.steps:
            budgets = " ".join(map(shlex.quote, (*record.extensions, record.extensions[-1])))
            log.info(
                "this extension is finished; to extend the run once more, give --add-budget "
                f"{budgets}"
            )
        steps, processes = range(loop.step, loop.steps), count_processes(config, inputs.machine)
        data, first_steps = inputs.shards.location, record.first_steps
        with make_in_processes(config, data, loop.rows, steps, processes, first_steps) as make:
            outcome = loop.run(make)
        return TrainedModel(config, model, record, outcome)

    def _start_tables(self, model: Pretrainer) -> None:
        """Start the tables of a new run from its text, or from another model."""
        start_table(model, self.inputs.shards)
        if self.request.table_from is not None:
            take_table(model, self.inputs.shards, self.request.table_from)

    def _make_loop(self, claimed: ClaimedRun) -> Loop[Batch]:
        request, inputs, ranks = self.request, self.inputs, self.ranks
        config, model, record = claimed.config, claimed.model, claimed.record
        machine = inputs.machine
        network = parallelize(model, ranks)
        trainable = TrainablePretrainer(
            config, model, inputs.shards, machine, network, ranks, record.first_steps
        )
        if claimed.is_fresh and ranks.main:
            report_unlabeled_pairs(trainable.batch.measure_unlabeled_shares())
        return Loop(
            trainable=trainable,
            config=config.train,
            steps=record.steps,
            batch_sequences=config.batch_sequences,
            device=machine,
            folder=inputs.folder.path,
            depth_schedule=config.train.depth_schedule,
            earlier_ends=record.earlier_ends,
            trackers=request.trackers,
            on_step=request.on_step,
            ranks=ranks,
            remarks=self.remarks,
            share_of_peak=build_share_of_peak(config, machine),
            work=training_flops(config, record.first_steps, inputs.teacher_shape),
        )

    def finish(self, trained: TrainedModel) -> Pretrained:
        inputs, outcome, steps = self.inputs, trained.outcome, trained.record.steps
        if outcome.finished:
            loss = outcome.scores.get(f"{find_watched_objective(trained.model)}_loss")
            if remark := remark_on_short_run(loss, steps, inputs.shards.unigram_entropy):
                log.info(remark)
        return Pretrained(inputs.folder.path, trained.config, steps, outcome)


# ------------------------------------------------------------------------------------------ network


class TrainablePretrainer:
    """A `Pretrainer` with its batches, as the loop sees it (`train.trainable`)."""

    def __init__(
        self,
        config: Config,
        model: Pretrainer,
        shards: TrainingData,
        device: devices.Device,
        network: nn.Module | None = None,
        ranks: Ranks | None = None,
        steps: int = 0,
    ) -> None:
        """`steps` are those of the run, over which sequences grow (`PretrainingBatches`)."""
        self.config, self.module, self.shards, self.device = config, model, shards, device
        self.network, self.ranks = network or model, ranks or Ranks()
        self.layers, self.metric = config.encoder.layers, ""
        self.batch = PretrainingBatches(config, shards, steps)
        self.diagnostic_state: dict[str, Any] = {}

    def count_predictions(self, batch: Batch) -> dict[str, int]:
        return {
            name: objective.count(batch) for name, objective in self.module.named_objectives.items()
        }

    def compute_losses(self, batch: Batch, layers: int) -> dict[str, Loss]:
        losses: dict[str, Loss] = self.network(batch, layers)
        return losses

    def get_weights(self) -> Mapping[str, float]:
        return {name: objective.weight for name, objective in self.module.named_objectives.items()}

    def get_rate_scales(self) -> Mapping[str, float]:
        return {}

    def evaluate(self) -> dict[str, float]:
        """Compute scores on the held-out part of the run's data."""
        # Compiling once more, for these shapes, would take longer than it saves.
        with torch.compiler.set_stance("force_eager"):
            return evaluate_split(
                self.module,
                self.shards.heldout,
                self.shards.tokenizer,
                self.device,
                length=self.config.sequences.length,
                sequences=self.config.train.evaluate_sequences,
                ranks=self.ranks,
            )

    def diagnose(self, step: int, row: Mapping[str, Any]) -> list[str]:
        loss = row.get(f"{find_watched_objective(self.module)}_loss")
        random_loss = math.log(self.config.encoder.vocab_size)  # of a guess among all tokens
        warning = watch_plateau(
            self.diagnostic_state, step, loss, self.shards.unigram_entropy, random_loss
        )
        return [warning] if warning else []


@task("building the network")
def build_pretrainer(config: Config, machine: devices.Device) -> Pretrainer:
    """Build the untrained model, a function of the config and its seed."""
    torch.manual_seed(config.train.seed)
    model = Pretrainer(config).to(machine.device)
    if config.train.compile:
        compile_blocks(model)
    return model


def report_unlabeled_pairs(shares: Mapping[int, float]) -> None:
    """Log how many pairs of segments have no label, and warn where they are many.

    Args:
        shares: the share, from 0 to 1, at each length of the run
            (`PretrainingBatches.measure_unlabeled_shares`).
    """
    if not shares:
        return
    listed = ", ".join(f"{share:.0%} at length {length}" for length, share in shares.items())
    log.info(f"pairs of segments without a label for the sentence objective: {listed}")
    length, share = max(shares.items())  # most training is at the longest
    if share > UNLABELED_SHARE:
        log.warning(
            f"{share:.0%} of the pairs of segments have no label at length {length}: few sentences "
            "of this text fit in it; raise --sequences.length, or leave the sentence objective out "
            "with --objectives mlm"
        )
