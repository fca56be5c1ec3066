"""The phases of a fine-tuning run of one seed, from a prepared task to its scores (`train.run`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from litebert.config import LoopConfig, replace
from litebert.config.finetuning import FinetuneConfig
from litebert.errors import ConfigError
from litebert.finetuning.baselines import read_scores
from litebert.finetuning.batches import TaskBatch, TaskBatches
from litebert.finetuning.examples import FILE as EXAMPLES
from litebert.finetuning.identity import claim_folder
from litebert.finetuning.initial import build_task_model
from litebert.finetuning.items import Item
from litebert.finetuning.mislabeled import MISLABELED, keep_mislabeled
from litebert.finetuning.outputs import Output
from litebert.finetuning.prepared import FinetuneRequest, PreparedTask
from litebert.finetuning.reliability import forget_texts
from litebert.finetuning.results import Finetuned, require_calibrated, write_results
from litebert.finetuning.scoring import Logits, name_metric, score_parts
from litebert.finetuning.start import FITTED
from litebert.finetuning.task import Task
from litebert.finetuning.taught_table import start_table
from litebert.finetuning.teachers import compute_teacher_logits
from litebert.finetuning.trainable import TrainableTaskModel
from litebert.interop.files import read_weights, write_tensors
from litebert.model.task_model import TaskModel
from litebert.storage import write_whole
from litebert.train import checkpoint
from litebert.train import device as devices
from litebert.train.loop import Loop, Outcome
from litebert.train.memory import (
    explain_out_of_memory,
    fit_micro_batch,
    require_memory,
)
from litebert.train.parallel import load_state, parallelize
from litebert.train.run import Run
from litebert.train.run_folder import ASIDE, RunFolder

log = logging.getLogger("litebert")


@dataclass(frozen=True)
class SizedTask:
    """A prepared task whose sizes are numbers, and fit in memory."""

    prepared: PreparedTask
    output: Output
    """The output as it learns: it knows the scale of the training targets."""
    items: list[Item]
    """The training rows with the targets that are learned, then the unlabeled ones."""


@dataclass(frozen=True)
class BuiltTaskModel:
    """The network of a run, whose folder may still hold another run."""

    sized: SizedTask
    model: TaskModel


@dataclass(frozen=True)
class ClaimedTaskRun:
    """The network of the run that the folder holds."""

    sized: SizedTask
    model: TaskModel


@dataclass(frozen=True)
class TrainedTaskModel:
    """The end of the loop."""

    prepared: PreparedTask
    outcome: Outcome
    trainable: TrainableTaskModel | None
    """None for a finished run without checkpoints, which cannot be trained or scored again."""


class FinetuningRun(Run[SizedTask, BuiltTaskModel, ClaimedTaskRun, TrainedTaskModel, Finetuned]):
    """A fine-tuning run of one seed."""

    def __init__(
        self,
        request: FinetuneRequest,
        prepared: PreparedTask,
        folder: RunFolder,
        machine: devices.Device,
        remarks: list[str],
    ) -> None:
        """Begin in a folder whose lock the caller holds.

        Args:
            remarks: the warnings so far, and those that are collected meanwhile.
        """
        self.request, self.prepared, self.folder = request, prepared, folder
        self.machine, self.remarks, self.ranks = machine, remarks, folder.ranks
        self.is_restarted = (
            self.ranks.decide(lambda: folder.has_predecessor) and not request.overwrite
        )
        """True if a run that collapsed went before, in this folder."""
        self._scores_file = folder.path / "scores.json"  # the last to be written

    # ------------------------------------------------------------------------------------- sizes

    def settle_sizes(self) -> SizedTask:
        prepared, config = self.prepared, self.prepared.config
        warmup = config.train.schedule.warmup
        if 1 <= warmup >= prepared.steps:
            raise ConfigError(
                f"train.schedule.warmup is {warmup:g} steps of a run of {prepared.steps}; give a "
                "share of the run, such as 0.1"
            )
        output, items = _fit_targets(prepared)
        rows = max(len(item.rows) for item in items)  # a choice among four texts has four
        compared = prepared.compared_teacher
        if compared is not None:  # before the free memory is measured
            compared.layers.to(self.machine.device)
        if config.train.micro_batch == "auto":
            config = self._choose_micro_batch(rows)
            prepared = replace(prepared, config=config)
        planned = prepared.as_pretraining()
        require_memory(planned, self.machine, rows, self.ranks, prepared.computing_teacher)
        return SizedTask(prepared, output, items)

    def _choose_micro_batch(self, rows: int) -> FinetuneConfig:
        """Put the micro-batch of the run in the folder into the config; for a new run, one that
        fits.

        Args:
            rows: the most rows of an item.
        """
        config, folder = self.prepared.config, self.folder
        identities = self.ranks.decide(
            lambda: [] if self.request.overwrite else folder.read_identities()
        )
        if identities:  # first that of a run that was set aside, which the restarted run follows
            recorded = identities[0].get("config", {}).get("train", {})
            micro_batch = recorded.get("micro_batch", 1)
        else:
            planned, teacher = self.prepared.as_pretraining(), self.prepared.computing_teacher
            micro_batch = self.ranks.agree(fit_micro_batch(planned, self.machine, rows, teacher))
        return replace(config, train=replace(config.train, micro_batch=micro_batch))

    # -------------------------------------------------------------------------------- the network

    def build(self, sized: SizedTask) -> BuiltTaskModel:
        prepared = sized.prepared
        model = build_task_model(prepared.start, prepared.task, prepared.config, prepared.fitted)
        return BuiltTaskModel(sized, model.to(self.machine.device))

    def claim(self, built: BuiltTaskModel) -> ClaimedTaskRun:
        folder, sized, prepared = self.folder, built.sized, built.sized.prepared
        if self.request.overwrite:
            folder.clear()
        # For a new run only: one that is in the folder already keeps its fitted head, or has none.
        if self.ranks.main and not folder.identity_file.exists():
            self._write_fitted()
        self.ranks.decide(lambda: claim_folder(folder, prepared, sized.items))
        return ClaimedTaskRun(sized, built.model)

    def _write_fitted(self) -> None:
        """Write the fitted head of a new run, or delete that of a run that was killed before it had
        an identity."""
        file = self.folder.path / FITTED
        if not self.prepared.fitted:
            file.unlink(missing_ok=True)
            return
        with write_whole(file) as aside:
            write_tensors(aside, self.prepared.fitted)

    # ----------------------------------------------------------------------------------- training

    def train(self, claimed: ClaimedTaskRun) -> TrainedTaskModel:
        prepared, run_path = claimed.sized.prepared, self.folder.path
        settings = self._settle_rates(prepared)
        # The folder may hold a finished run, with examples in its model, and with exits that were
        # calibrated for another drop.
        if not prepared.config.examples and self.ranks.main:
            (run_path / "model" / EXAMPLES).unlink(missing_ok=True)
            forget_texts(run_path)
            (run_path / MISLABELED).unlink(missing_ok=True)  # written anew below, without texts
        if self.request.mislabeled:
            most, examples = self.request.mislabeled, prepared.train.examples
            shows = prepared.config.examples
            self.ranks.decide(
                lambda: keep_mislabeled(run_path, prepared.task, examples, most, shows)
            )
        if prepared.config.early_exits:
            self.ranks.decide(
                lambda: require_calibrated(run_path, prepared.config.early_exits_max_drop)
            )
        if self.ranks.decide(
            lambda: self._scores_file.exists() and not (run_path / "checkpoints").exists()
        ):
            # Finished, and cleaned of its checkpoints: there is nothing to train.
            outcome = Outcome(prepared.steps, True, None, {}, 0, 0.0)
            return TrainedTaskModel(prepared, outcome, None)
        baseline = prepared.baseline
        if baseline is not None and not self.ranks.decide(self._scores_file.exists):
            self.ranks.decide(lambda: baseline.keep(run_path))
        trainable = self._make_trainable(claimed)
        loop: Loop[TaskBatch] = Loop(
            trainable=trainable,
            config=settings,
            steps=prepared.steps,
            batch_sequences=prepared.batch,
            device=self.machine,
            folder=run_path,
            trackers=self.request.trackers,
            on_step=self.request.on_step,
            ranks=self.ranks,
            remarks=self.remarks,
            scores_start=bool(prepared.fitted),
        )
        sequences, recompute = settings.at_once or prepared.batch, settings.recompute
        with explain_out_of_memory(self.machine, sequences, recompute):
            outcome = loop.run()
        return TrainedTaskModel(prepared, outcome, trainable)

    def _settle_rates(self, prepared: PreparedTask) -> LoopConfig:
        """Return the settings of the loop, with a third of the rates after a run that collapsed."""
        settings, optimizer = prepared.config.train, prepared.config.train.optimizer
        if not self.is_restarted:
            return settings
        rate, muon_rate = optimizer.learning_rate / 3, optimizer.muon_learning_rate / 3
        optimizer = replace(optimizer, learning_rate=rate, muon_learning_rate=muon_rate)
        # Logged here and not where the run is set aside, so that a command that was killed in
        # between reports it too.
        log.warning(
            f"the model gave one and the same answer for all examples of {prepared.dev[0].name}; "
            f"this run restarts with a learning rate of {rate:.1e} (the first try is in {ASIDE}/)"
        )
        return replace(settings, optimizer=optimizer)

    def _make_trainable(self, claimed: ClaimedTaskRun) -> TrainableTaskModel:
        """Join the network to its batches, with the logits of its teachers for their rows."""
        sized, model, run_path = claimed.sized, claimed.model, self.folder.path
        prepared, config, items = sized.prepared, sized.prepared.config, sized.items
        teachers, positions = prepared.teachers, model.encoder.config.max_positions
        if teachers is not None:
            device = str(self.machine.device)
            logits = self.ranks.decide(
                lambda: compute_teacher_logits(teachers, prepared, run_path, device)
            )
            items = [
                replace(item, teacher_logits=row_logits)
                for item, row_logits in zip(items, logits, strict=True)
            ]
            if (shape := prepared.computing_teacher) is not None:
                positions = min(positions, shape.max_positions)
            self._start_table(sized, model, items)
        batches = TaskBatches(
            items,
            sized.output,
            prepared.start.tokenizer.pad_id,
            prepared.batch,
            prepared.steps,
            config.train.seed,
            positions=positions,
            deletion=config.deletion,
        )
        network = parallelize(model, self.ranks)
        best_file = run_path / "best.safetensors"
        return TrainableTaskModel(
            model,
            sized.output,
            batches,
            prepared,
            self.machine,
            best_file,
            network=network,
            ranks=self.ranks,
        )

    def _start_table(self, sized: SizedTask, model: TaskModel, items: list[Item]) -> None:
        """Start the token table of an untrained student of vectors, where no checkpoint has one."""
        folder = self.folder.path / "checkpoints"
        is_new = self.ranks.decide(lambda: checkpoint.find_newest(folder) is None)
        if is_new and sized.output.learns_map and sized.prepared.start.state is None:
            start_table(model, items)

    # ------------------------------------------------------------------------------------ results

    def finish(self, trained: TrainedTaskModel) -> Finetuned:
        prepared, outcome, trainable = trained.prepared, trained.outcome, trained.trainable
        run_path, steps = self.folder.path, prepared.steps
        if not outcome.finished:
            return Finetuned(run_path, steps, outcome, {})
        if trainable is not None and not self.ranks.decide(self._scores_file.exists):
            self._score_best(prepared, trainable)
        collapsed = trainable is not None and trainable.diagnostic_state["one_answer"]
        scores = self.ranks.decide(lambda: read_scores(self._scores_file))
        return Finetuned(run_path, steps, outcome, scores, collapsed, self.is_restarted)

    def _score_best(self, prepared: PreparedTask, trainable: TrainableTaskModel) -> None:
        """Score the best weights on every part, and write the results."""
        config = prepared.config
        weights = read_weights(trainable.best) if self.ranks.main else None
        load_state(trainable.module, weights, self.ranks)
        # Results are computed in float32, as `predict` and other programs compute. Logits of the
        # development parts may be there already, if training was in float32 too.
        logits = trainable.best_logits if self.machine.autocast is None else {}
        trainable.device = replace(self.machine, autocast=None)
        parts = (*prepared.dev, *prepared.tests)
        logits = logits | {
            part.name: trainable.logits(part) for part in parts if part.name not in logits
        }
        task = _close_task(prepared, trainable, logits)
        exit_logits = trainable.logits(parts[0], every=True) if config.early_exits else None
        if self.ranks.main:
            closed = replace(prepared, task=task)
            write_results(self.folder, closed, trainable, logits, exit_logits, self.is_restarted)


def _close_task(
    prepared: PreparedTask, trainable: TrainableTaskModel, logits: Mapping[str, Logits]
) -> Task[Any]:
    """Return the task with what is computed when training has ended, such as a map of vectors: of
    several, that with the highest score on the first development part.

    Args:
        logits: those of the best weights, by part.
    """
    items, dev = trainable.batch.items, prepared.dev[0]
    endings = trainable.task.closing(items, trainable.logits_of_items, prepared.config.train.seed)
    if len(endings) == 1:
        return next(iter(endings.values()))
    metric = name_metric(prepared.task)
    scores = {
        name: score_parts(task, (dev,), {dev.name: logits[dev.name]})[metric]
        for name, task in endings.items()
    }
    best = max(scores, key=lambda name: scores[name])
    shown = ", ".join(f"{name} {score:.4g}" for name, score in scores.items())
    log.info(f"the vectors use the map {best} ({metric} on {dev.name}: {shown})")
    return endings[best]


def _fit_targets(prepared: PreparedTask) -> tuple[Output, list[Item]]:
    """Fit the output to the training targets; return it, and all rows with the targets that are
    learned.
    """
    train = prepared.train.items
    output, targets = prepared.task.output.fit([item.target for item in train])
    output = output.weigh(prepared.config, targets)
    items = [replace(item, target=target) for item, target in zip(train, targets, strict=True)]
    return output, items + prepared.rows[len(train) :]
