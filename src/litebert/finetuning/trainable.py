"""A model with its task in the loop of training: what a step learns from, and the best weights."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor, nn

from litebert.base import progress
from litebert.base.errors import RunError
from litebert.base.storage import write_whole
from litebert.finetuning.batches import TaskBatches
from litebert.finetuning.setup import Setup
from litebert.interop.files import write_tensors
from litebert.interop.loaded import VectorMap
from litebert.judge.exits import average_layer_losses
from litebert.model.objectives import Loss
from litebert.model.task_model import TaskModel
from litebert.model.teacher import Lesson, mean_over_pairs, relation_distance, state_distance
from litebert.model.unpadded import is_faster_unpadded
from litebert.tasks.outputs import Output
from litebert.tasks.rows import PaddedRows
from litebert.tasks.scoring import (
    compute_logits,
    compute_network_logits,
    has_one_answer,
    name_metric,
    score_parts,
)
from litebert.tasks.similarity import Similarity, learns_map
from litebert.tasks.task import Task
from litebert.tasks.values import EncodedPart, Item, Logits, TaskBatch
from litebert.train import device as devices
from litebert.train.loop import Loop
from litebert.train.parallel import parallelize
from litebert.train.ranks import Ranks
from litebert.train.schedule import Plan

_HEAD, _TEACHER, _STATES, _RELATIONS = "task", "teacher", "states", "relations"
"""Names of the losses: of the labels, and of a teacher's answers, states and relations."""
FEWEST = 10
"""Development rows below which the same answer to all of them may be right."""


def compute_layer_rates(model: TaskModel, decay: float) -> dict[str, float]:
    """Compute a factor of the learning rate by parameter name: 1 for the head, less by `decay` for
    every layer below it.

    A shared block has the rate of its highest layer. (ELECTRA's code scales the top layer by decay
    squared.)
    """
    depths, top = model.encoder.depths(), model.encoder.config.layers + 1
    return {
        name: decay ** (top - depths.get(parameter, top))
        for name, parameter in model.named_parameters()
    }


class TrainableTaskModel:
    """A `TaskModel` with its task, as a `Trainable` of the loop."""

    def __init__(
        self,
        model: TaskModel,
        output: Output,
        batch: TaskBatches,
        setup: Setup,
        device: devices.Device,
        best: Path,
        *,
        network: nn.Module,
        ranks: Ranks,
    ) -> None:
        """`best` is the file of the best weights so far; `network` is the model, or its replica."""
        self.module, self.output, self.batch, self.setup = model, output, batch, setup
        self.device, self.best, self.network, self.ranks = device, best, network, ranks
        self.layers, self.metric = model.encoder.config.layers, name_metric(setup.task)
        model.encoder.unpadded = is_faster_unpadded(
            model.encoder.config, device.device, device.autocast
        )
        self.diagnostic_state: dict[str, Any] = {}
        self.best_logits: dict[str, Logits] = {}
        """Logits of the best weights for each development part, if computed in this process."""

    def count_predictions(self, batch: TaskBatch) -> dict[str, int]:
        counts = {_HEAD: batch.predictions}
        if batch.teacher_logits is not None:
            counts[_TEACHER] = batch.lessons
        return counts | dict.fromkeys(self._compared, batch.tokens)

    @property
    def _compared(self) -> dict[str, float]:
        return {} if self.setup.teachers is None else self.setup.config.distill.compared

    def compute_losses(self, batch: TaskBatch, layers: int) -> dict[str, Loss]:
        assert layers == self.layers  # a task is learned at full depth
        inputs = (batch.input_ids, batch.token_type_ids, batch.attention_mask)
        config = self.setup.config
        compares = bool(self._compared)
        outputs = self.network(*inputs, every=config.early_exits, states=compares)
        logits, states = outputs if compares else (outputs, [])
        laws: dict[str, Callable[[Tensor], Loss]] = {
            _HEAD: lambda values: self._compute_task_loss(values, batch)
        }
        if batch.teacher_logits is not None:
            laws[_TEACHER] = lambda values: self.output.distill_loss(
                values, batch, config.distill.temperature, self.module.state_map
            )
        losses = {
            name: average_layer_losses(loss, logits) if config.early_exits else loss(logits)
            for name, loss in laws.items()
        }
        return losses | self._compute_lessons(batch, states)

    def _compute_lessons(self, batch: TaskBatch, states: Sequence[Tensor]) -> dict[str, Loss]:
        """Compute how far the layers are from the teacher's at every real token."""
        teacher, distill = self.setup.compared_teacher, self.setup.config.distill
        encoder = self.module.encoder
        if teacher is None or not self._compared:
            return {}
        mask, map_ = batch.attention_mask, self.module.state_map
        lesson = Lesson(teacher.layers, batch)

        def compare_states(student_layer: int, teacher_layer: int) -> Tensor:
            assert map_ is not None
            return state_distance(states[student_layer], lesson.states[teacher_layer], map_)

        def compare_relations(student_layer: int, teacher_layer: int) -> Tensor:
            projections = encoder.projections(student_layer - 1, states[student_layer - 1])
            return relation_distance(
                projections, lesson.projections(teacher_layer), distill.relation_heads, mask
            )

        laws = {
            _STATES: (distill.state_layers, compare_states),
            _RELATIONS: (distill.relation_layers, compare_relations),
        }
        return {
            name: Loss(mean_over_pairs(*laws[name], mask), mask.sum(), None)
            for name in self._compared
        }

    def _compute_task_loss(self, logits: Tensor, batch: TaskBatch) -> Loss:
        if batch.labeled is None:
            return self.output.loss(logits, batch)
        if batch.predictions:
            choices = torch.tensor(batch.choices, device=batch.labeled.device)
            rows = batch.labeled.repeat_interleave(choices)
            return self.output.loss(logits[rows], batch.select_rows(rows))
        zero = logits.sum() * 0
        return Loss(zero, zero.detach(), zero.detach())

    def get_weights(self) -> Mapping[str, float]:
        if self.setup.teachers is None:
            return {_HEAD: 1.0}
        weight = self.setup.config.distill.weight
        return {_HEAD: 1.0 - weight, _TEACHER: weight, **self._compared}

    def get_rate_scales(self) -> Mapping[str, float]:
        return compute_layer_rates(self.module, self.setup.config.layer_decay)

    def diagnose(self, step: int, row: Mapping[str, Any]) -> list[str]:
        return []

    def logits(self, part: EncodedPart, every: bool = False) -> Logits:
        """Compute the logits for a part now; with `every`, (L, C) of each item, a row a layer."""
        return self._compute_logits(part.items, f"scoring {part.name}", every)

    def logits_of_items(self, items: Sequence[Item]) -> Logits:
        return self._compute_logits(items, "reading training texts")

    def _compute_logits(self, items: Sequence[Item], doing: str, every: bool = False) -> Logits:
        self.module.eval()
        with progress.task(doing, total=sum(len(item.rows) for item in items), unit="rows") as bar:

            def compute(rows: PaddedRows) -> NDArray[np.float32]:
                logits_now = compute_network_logits(self.module, self.device, rows, every)
                bar.advance(len(logits_now))
                return logits_now

            pad = self.setup.start.tokenizer.pad_id
            positions = self.module.encoder.config.max_positions
            logits = compute_logits(compute, items, self.output, pad, positions, self.ranks)
        self.module.train()
        return logits

    @property
    def task(self) -> Task[Any]:
        """The task, with the map to a teacher's vectors as it is learned so far."""
        task, map_ = self.setup.task, self.module.state_map
        output = task.output
        if map_ is None or not isinstance(output, Similarity) or not output.taught:
            return task
        weight, bias = (
            tensor.detach().float().cpu().numpy().copy() for tensor in (map_.weight, map_.bias)
        )
        return replace(task, output=replace(output, map=VectorMap(weight, bias)))

    def evaluate(self) -> dict[str, float]:
        """Compute the development scores, and write the best weights by the first part's metric."""
        task, dev = self.task, self.setup.dev
        logits = {part.name: self.logits(part) for part in dev}
        scores = score_parts(task, dev, logits)
        decisive = scores[self.metric]
        if not math.isfinite(decisive):  # as a score of one's own may be
            decisive = -sys.float_info.max
        state, patience = self.diagnostic_state, self.setup.config.patience
        is_higher = "best" not in state or decisive > state["best"]
        state["stale"] = 0 if is_higher else state.get("stale", 0) + 1
        # From a fitted head on, the weights that learned longest are taken of those that few rows
        # cannot tell apart: two standard errors of a share of one half, at most.
        noise = (100.0 if task.percent else 1.0) / math.sqrt(len(dev[0].items))
        is_best = is_higher or (bool(self.setup.fitted) and decisive >= state["best"] - noise)
        state["stopped"] = 0 < patience <= state["stale"]
        if is_best:
            state["best"] = decisive if is_higher else state["best"]
            self.best_logits = logits
            self.diagnostic_state["one_answer"] = len(dev[0].items) >= FEWEST and has_one_answer(
                task.output if learns_map(self.output) else self.output,
                dev[0],
                logits[dev[0].name],
            )
            if not self.ranks.main:
                return scores
            try:
                with write_whole(self.best) as aside:
                    write_tensors(aside, self.module.state_dict(), {})
            except (OSError, SafetensorError) as error:
                raise RunError(
                    f"cannot write the best weights to {self.best} ({error}); free the disk, and "
                    "run the same command again"
                ) from error
        return scores


def attach_answers(
    setup: Setup,
    items: Sequence[Item],
    folder: Path,
    machine: devices.Device,
    ranks: Ranks | None = None,
) -> list[Item]:
    """Return the rows of a setup with the answers of its teachers, which are kept in a folder."""
    teachers = setup.teachers
    assert teachers is not None
    parts = [setup.train, *([setup.unlabeled] if setup.unlabeled else [])]
    answers = (ranks or Ranks()).decide(
        lambda: teachers.answer(setup.student, parts, setup.dev[0], folder, str(machine.device))
    )
    return [
        replace(item, teacher_logits=row_logits)
        for item, row_logits in zip(items, answers, strict=True)
    ]


def make_loop(
    setup: Setup,
    model: TaskModel,
    output: Output,
    items: Sequence[Item],
    folder: Path,
    machine: devices.Device,
    ranks: Ranks | None = None,
    remarks: list[str] | None = None,
) -> tuple[TrainableTaskModel, Loop[TaskBatch]]:
    """Make the loop that trains a model on items; `folder` gets checkpoints and the best weights,
    and `remarks` of the caller go into the metrics.
    """
    config, ranks = setup.config, ranks or Ranks()
    # A batch reads few of the words, and a CPU would write zeros for the others. DDP sums no sparse
    # gradients.
    model.encoder.embedding.word.sparse = machine.device.type == "cpu" and ranks.size == 1
    positions = model.encoder.config.max_positions
    if (shape := setup.computing_teacher) is not None:
        positions = min(positions, shape.max_positions)
    batches = TaskBatches(
        items,
        output,
        setup.start.tokenizer.pad_id,
        setup.batch,
        setup.steps,
        config.train.seed,
        positions=positions,
        deletion=config.deletion,
    )
    trainable = TrainableTaskModel(
        model,
        output,
        batches,
        setup,
        machine,
        folder / "best.safetensors",
        network=parallelize(model, ranks),
        ranks=ranks,
    )
    loop = Loop(
        trainable=trainable,
        config=config.train,
        plan=Plan((setup.steps,)),
        batch_sequences=setup.batch,
        device=machine,
        folder=folder,
        trackers=config.tracker,
        ranks=ranks,
        remarks=[] if remarks is None else remarks,
        scores_start=bool(setup.fitted),
    )
    return trainable, loop
