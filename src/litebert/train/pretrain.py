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
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from litebert.base import launch
from litebert.base.progress import task
from litebert.base.storage import checkpoints
from litebert.config import Config, replace
from litebert.data.batches import Batch
from litebert.data.mixture import DataSource, TrainingData
from litebert.model.objectives import Loss
from litebert.model.pretrainer import Pretrainer, compile_parts
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
from litebert.train.ranks import ALONE, Ranks, join_group
from litebert.train.schedule import Plan
from litebert.train.start import (
    PretrainRequest,
    check_folder,
    continue_run,
    measure_work,
    open_training_data,
    record_plan,
    resolve_vocabulary,
    run_folder,
    settle_batch_sizes,
    start_run,
)
from litebert.train.supply import (
    NO_STEPS,
    PretrainingBatches,
    count_processes,
    count_steps_ahead,
    make_in_processes,
)
from litebert.train.teacher import open_teacher, refuse_other_teacher
from litebert.train.trackers import require_trackers

log = logging.getLogger("litebert")

UNLABELED_SHARE = 0.2
"""Above this share of pairs without a label, an objective of sentence order learns from few."""


@dataclass(frozen=True)
class Pretrained:
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
    teacher: str | Path | None = None,
    add_budget: str | Sequence[str] = (),
    overwrite: bool = False,
    device: str = "auto",
) -> Pretrained:
    """Pretrain a config on token shards. Called again, it continues, or returns the finished run.

    Args:
        recipe: the point of the space; its `train.budget` says how long, its `table.model` names a
            model whose token table a new run starts from, and `tracker` who also gets the metrics.
        shards: a folder written by `prepare`, or several by weight: {"books": 2, "web": 1}.
        out: the run folder.
        from_model: a model folder whose encoder, fitting objectives, and optimizer of the same name
            a new run starts from.
        teacher: a pretrained model (`recipe.distill`).
        add_budget: further budgets of a finished run, all of them: ("30m", "1h") (`train.start`).
        overwrite: delete the run in `out`, if there is one, and start again.
        device: auto, cpu, cuda, cuda:N, or mps on a Mac.

    Raises:
        ConfigError: the batch does not fit in memory, or the budget or the teacher do not suit.
        DataError: the data cannot be used, holds nothing out, or has another tokenizer.
        ModelError: the weights to start from do not fit, or the teacher lacks a head.
        RunError: the folder is in use, or holds another run.
        NonFiniteError: a loss or gradient was not finite; no step was taken from it.
    """
    began = time.monotonic()
    require_trackers(trackers := recipe.tracker)
    table_from = recipe.table.model
    # No part of the recipe that the run's folder and its models hold.
    recipe = replace(recipe, tracker=(), table=replace(recipe.table, model=None))
    # Processes that are started again after a failure continue what they began.
    overwrite = overwrite and not launch.restarts()
    remarks: list[str] = []
    with join_group() as ranks, metrics.collect_remarks(remarks):
        request = PretrainRequest(
            folder=replace(run_folder(out), ranks=ranks),
            from_model=from_model,
            table_from=table_from,
            teacher=teacher,
            extensions=(add_budget,) if isinstance(add_budget, str) else tuple(add_budget),
            overwrite=overwrite,
            began=began,
        )
        check_folder(request)
        folder = request.folder

        # The data and the teacher. The teacher moves to the device at once, so that memory which is
        # free from here on is free for the run.
        data = open_training_data(shards, ranks)
        machine = devices.choose(recipe.train.precision, ranks.device(device))
        config = resolve_vocabulary(recipe, data)
        config, taught_by = open_teacher(teacher, config, data)
        if taught_by is not None:
            taught_by.to(machine.device)
        teacher_shape = None if taught_by is None else taught_by.encoder.config

        # Sizes that are left open become numbers, and must fit in memory.
        config = settle_batch_sizes(request, config, machine, taught_by)
        require_memory(config, machine, ranks=ranks, teacher=teacher_shape)

        guard = explain_out_of_memory(machine, config.micro_sequences, config.train.recompute)
        with folder.lock(), guard:
            # The network, before the folder is this run: a request that cannot be served leaves no
            # run. Weights are read in the main process; `parallelize` sends them to the others.
            model = build_pretrainer(config, machine)
            model.teacher = taught_by
            saved = folder.path / "checkpoints"
            is_fresh = overwrite or not ranks.decide(lambda: checkpoints(saved))
            if from_model is not None and is_fresh:
                ranks.decide(lambda: load_weights(from_model, model, data))

            # What a new network takes from its text or from another model's table.
            if from_model is None and is_fresh:
                ranks.decide(lambda: start_table(model, data))
                if table_from is not None:
                    ranks.decide(lambda: take_table(model, data, table_from))

            # From here on the folder is this run, or was it already. A budget in time is measured.
            identities = ranks.decide(lambda: [] if overwrite else folder.read_identities())
            if identities:
                refuse_other_teacher(
                    folder.path, identities[0], teacher, taught_by and taught_by.fingerprint
                )
                record = continue_run(request, config, data, machine, taught_by, identities[0])
            else:
                record = start_run(request, config, data, machine, taught_by)
            config = record.config
            network = parallelize(model, ranks)
            trainable = TrainablePretrainer(
                config, model, data, machine, network, ranks, record.plan
            )
            if is_fresh and ranks.main:
                report_unlabeled_pairs(trainable.batch.measure_unlabeled_shares())

            def correct(plan: Plan) -> None:
                record_plan(folder, config, data, plan)
                trainable.batch = PretrainingBatches(config, data, plan)

            processes = count_processes(config, machine)
            loop = Loop(
                trainable=trainable,
                config=config.train,
                plan=record.plan,
                batch_sequences=config.batch_sequences,
                device=machine,
                folder=folder.path,
                depth_schedule=config.train.depth_schedule,
                time_budget=record.time_budget,
                correct=correct,
                # A correction is of the same step in all processes, whose GPUs may differ.
                ahead=1 + count_steps_ahead(max(ranks.gather(processes))),
                trackers=trackers,
                ranks=ranks,
                remarks=remarks,
                share_of_peak=build_share_of_peak(config, machine),
                work=measure_work(record, teacher_shape),
            )
            if from_model is not None and is_fresh:
                state = read_optimizer(from_model, config) if ranks.main else None
                if ranks.agree(state is not None):
                    tensors = loop.optimizers.start(state)
                    log.info(
                        f"the optimizer continues with its state from {from_model} "
                        f"({tensors} tensors)"
                    )
            if request.extensions and loop.step == loop.steps:
                budgets = shlex.join((*record.extensions, record.extensions[-1]))
                log.info(
                    "this extension is finished; to extend the run once more, give --add-budget "
                    f"{budgets}"
                )

            with make_in_processes(
                config,
                data.location,
                loop.rows,
                min(processes, loop.steps - loop.step),
                lambda step: trainable.batch.place(step),  # of a plan that may have changed
            ) as make:
                outcome = loop.run(make)
        if outcome.finished:
            loss = outcome.scores.get(f"{find_watched_objective(model)}_loss")
            if remark := remark_on_short_run(loss, loop.steps, data.unigram_entropy):
                log.info(remark)
        return Pretrained(folder.path, config, loop.steps, outcome)


# ------------------------------------------------------------------------------------------ network


class TrainablePretrainer:
    def __init__(
        self,
        config: Config,
        model: Pretrainer,
        shards: TrainingData,
        device: devices.Device,
        network: nn.Module | None = None,
        ranks: Ranks = ALONE,
        plan: Plan = NO_STEPS,
    ) -> None:
        """`plan` is that of the run, over which sequences grow (`PretrainingBatches`)."""
        self.config, self.module, self.shards, self.device = config, model, shards, device
        self.network, self.ranks = network or model, ranks
        self.layers, self.metric = config.encoder.layers, ""
        self.batch = PretrainingBatches(config, shards, plan)
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
    torch.manual_seed(config.train.seed)
    model = Pretrainer(config).to(machine.device)
    if config.train.compile:
        compile_parts(model)
    return model


def report_unlabeled_pairs(shares: Mapping[int, float]) -> None:
    """Log how many pairs of segments have no label, in [0, 1] by length, and warn of many."""
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
