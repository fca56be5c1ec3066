"""The learning rate of a run, and whether its head is fitted before training, found by a few short
runs on its own training part.

Each rate of `RATES` trains the network from the run's own start, on the same batches. Its schedule
ends at zero. The rate is taken whose network has the lowest loss on training rows that none of them
saw. Of rates that cannot be told apart it is the largest. The idea is that of the rate-range test
(Smith 2017, "Cyclical Learning Rates for Training Neural Networks"). There are separate runs in
place of one that rises, so that no rate inherits what another one spoiled.

A fitted head is ahead of a drawn one in a short run, and may be behind it at the end: small rates
keep what it starts with, and a small network learns most with large ones. Where both are to be
chosen, each start is therefore tried at rates of its own. The best rate of each start then trains
`LONGER` times as long. A rate that overfits there gives way to the next smaller one.

Where teachers answer, the short runs learn from these answers as the run does, to unlabeled texts
too. A few labels alone would be read many times, and rates would be judged by how they overfit.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from litebert import progress
from litebert.data.random_keys import derive, permute
from litebert.errors import NonFiniteError
from litebert.finetuning.batches import TaskBatches, collate, collate_weights
from litebert.finetuning.initial import build_task_model
from litebert.finetuning.items import Item, number_groups
from litebert.finetuning.outputs import Output
from litebert.finetuning.prepared import PreparedTask
from litebert.finetuning.rates import (
    DRAWN_RATES,
    FITTED_RATES,
    LEAST_UNTOLD,
    RATES,
    choose_rate,
    list_rates,
)
from litebert.finetuning.teachers import compute_teacher_logits
from litebert.finetuning.trainable import TrainableTaskModel
from litebert.train import device as devices
from litebert.train.loop import Loop
from litebert.train.ranks import Ranks

log = logging.getLogger("litebert")

LONGER = 4
"""How many times as long as the others the short runs are that decide between the two starts."""
OVERFITTED = 1.25
"""How much higher than after the short run the loss of a longer run may be."""
SHARE, SHARE_OF_TWO = 0.5, 0.75
"""Share of the run's steps that the short runs take together, at most: from one start, and from
two."""
FEWEST, MOST, MOST_OF_TWO = 4, 100, 50
"""Steps of a short run: with fewer nothing is tried, and more tell no more. Where there are two
starts, longer runs follow."""
_HELD, _MOST_HELD = 0.2, 512
"""Share and number of the training rows that are kept for the scores, at most."""
_PARTS = 16
"""Parts of the held-out rows, of about one length each, whose losses tell how certain a difference
is.
"""
_ORDER = 51  # what the key of the held-out rows is for


@dataclass(frozen=True)
class Probe:
    """The result of the short runs from one start."""

    rate: float
    steps: int
    """Steps of each short run."""
    losses: dict[float, float]
    """Held-out loss by rate; infinite where a run was not finite."""
    held_out: int
    """Rows that the losses are of."""

    def __str__(self) -> str:
        """Return the choice and what it rests on, in one line."""
        return (
            f"learning rate {self.rate:.0e}, by the loss on {self.held_out:,} held-out training "
            f"rows after {self.steps} steps ({self.describe_losses()})"
        )

    def describe_losses(self) -> str:
        """Return every rate with its loss."""
        return ", ".join(f"{rate:.0e} {loss:.3g}" for rate, loss in sorted(self.losses.items()))


@dataclass(frozen=True)
class TwoStartProbe:
    """The result of the short runs from a fitted head and from a drawn one."""

    fitted: Probe
    drawn: Probe
    steps: int
    """Steps of the longer runs, one from each start."""
    fitted_loss: float
    drawn_loss: float
    takes_fitted: bool

    @property
    def rate(self) -> float:
        """The rate of the start that is taken."""
        return self.fitted.rate if self.takes_fitted else self.drawn.rate

    def __str__(self) -> str:
        """Return the choice and what it rests on, in one line."""
        return (
            f"learning rate {self.rate:.0e} from a {'fitted' if self.takes_fitted else 'random'} "
            f"head, by the loss on {self.fitted.held_out:,} held-out training rows after "
            f"{self.steps} steps (fitted {self.fitted.rate:.0e} {self.fitted_loss:.3g}, "
            f"random {self.drawn.rate:.0e} {self.drawn_loss:.3g}); "
            f"after {self.fitted.steps} steps: fitted {self.fitted.describe_losses()}; "
            f"random {self.drawn.describe_losses()}"
        )


def split_held_out(items: Sequence[Item], seed: int) -> tuple[list[Item], list[Item]]:
    """Split the training items into those to learn from and those to score on, drawn by the seed.

    All items of an example, such as the overlapping windows of a question, stand on one side, and
    so do those of a group.
    """
    most = min(int(_HELD * len(items)), _MOST_HELD)
    groups = number_groups(items)
    sizes, held, count = np.bincount(groups).tolist(), set(), 0
    for group in permute(np.arange(len(sizes)), len(sizes), derive(seed, _ORDER, 0)).tolist():
        if count + sizes[group] <= most:
            held.add(group)
            count += sizes[group]
    smallest = int(np.argmin(sizes))
    if not held and 2 * sizes[smallest] <= len(items):
        held.add(smallest)
    sides: tuple[list[Item], list[Item]] = ([], [])
    for item, group in zip(items, groups.tolist(), strict=True):
        sides[group in held].append(item)
    return sides


def probe_rate(prepared: PreparedTask, folder: Path, machine: devices.Device) -> Probe | None:
    """Try the rates; None where the run is too short to spend steps on it."""
    rates = list_rates(RATES, prepared.steps)
    steps = min(MOST, int(SHARE * prepared.steps / len(rates)))
    trials = _Trials.of(prepared, folder, machine)
    if steps < FEWEST or not trials.held_out:
        return None
    with progress.task("trying learning rates", total=steps * len(rates), unit="steps") as bar:
        return trials.probe(prepared, rates, steps, bar)


def probe_two_starts(
    fitted: PreparedTask, folder: Path, machine: devices.Device
) -> TwoStartProbe | None:
    """Try rates from a fitted head and from a drawn one, and the best of each for longer.

    None where the run is too short to spend steps on it.

    The lower loss decides. Where the two cannot be told apart, either start may be a little better,
    and taking the drawn head costs up to five points (docs/reports/results.md).
    """
    drawn_rates = list_rates(DRAWN_RATES, fitted.steps)
    count = len(FITTED_RATES) + len(drawn_rates) + 2 * LONGER
    steps = min(MOST_OF_TWO, int(SHARE_OF_TWO * fitted.steps / count))
    trials = _Trials.of(fitted, folder, machine)
    if steps < FEWEST or not trials.held_out:
        return None
    drawn = replace(fitted, fitted={})
    with progress.task("trying learning rates", total=steps * count, unit="steps") as bar:
        first = trials.probe(fitted, FITTED_RATES, steps, bar)
        second = trials.probe(drawn, drawn_rates, steps, bar)
        first, fitted_losses = trials.train_longer(fitted, first, bar)
        second, drawn_losses = trials.train_longer(drawn, second, bar)
    return TwoStartProbe(
        fitted=first,
        drawn=second,
        steps=LONGER * steps,
        fitted_loss=float(fitted_losses.mean()),
        drawn_loss=float(drawn_losses.mean()),
        takes_fitted=bool(
            not np.isfinite(drawn_losses).all() or drawn_losses.mean() > fitted_losses.mean()
        ),
    )


@dataclass(frozen=True)
class _Trials:
    """Short runs on the same rows, scored on the same held-out rows."""

    learned: Sequence[Item]
    held_out: Sequence[Item]
    unlabeled: Sequence[Item]
    """Items that only teachers answer."""
    folder: Path
    machine: devices.Device

    @classmethod
    def of(cls, prepared: PreparedTask, folder: Path, machine: devices.Device) -> _Trials:
        """The training rows of a task, divided by its seed, with the answers of its teachers."""
        items, count = list(prepared.train.items), len(prepared.train.items)
        if _learns_answers(prepared):
            items = prepared.rows
            assert prepared.teachers is not None
            device = str(machine.device)
            logits = compute_teacher_logits(prepared.teachers, prepared, folder, device)
            items = [
                replace(item, teacher_logits=row_logits)
                for item, row_logits in zip(items, logits, strict=True)
            ]
        learned, held = split_held_out(items[:count], prepared.config.train.seed)
        return cls(learned, held, items[count:], folder / "probe", machine)

    def probe(
        self, prepared: PreparedTask, rates: Sequence[float], steps: int, bar: progress.Task
    ) -> Probe:
        """One short run at each rate, and the rate to take."""
        losses = {rate: self.train_shortly(prepared, rate, steps, bar) for rate in rates}
        prior = None  # of answers that a teacher gives, it is not known
        if not _learns_answers(prepared):
            prior = _compute_prior_losses(prepared, self.learned, self.held_out)
        usual = max(prepared.config.train.optimizer.learning_rate, LEAST_UNTOLD)
        means = {rate: float(parts.mean()) for rate, parts in losses.items()}
        return Probe(choose_rate(losses, prior, usual), steps, means, len(self.held_out))

    def train_longer(
        self, prepared: PreparedTask, probe: Probe, bar: progress.Task
    ) -> tuple[Probe, NDArray[np.float64]]:
        """Train `LONGER` times as long at the rate of a probe. Where the loss rises above that of
        the short run by a quarter, the network has begun to learn its rows by heart, and the next
        smaller rate of the probe is tried.

        Returns:
            The probe with the rate that is left, and the losses of that rate.
        """
        losses = self.train_shortly(prepared, probe.rate, LONGER * probe.steps, bar)
        smaller = max((rate for rate in probe.losses if rate < probe.rate), default=None)
        if smaller is None or losses.mean() <= OVERFITTED * probe.losses[probe.rate]:
            return probe, losses
        return self.train_longer(prepared, replace(probe, rate=smaller), bar)

    def train_shortly(
        self, prepared: PreparedTask, rate: float, steps: int, bar: progress.Task
    ) -> NDArray[np.float64]:
        """(P,): the mean loss of each part of the held-out rows after a short run at a rate."""
        alone = _plan_short_run(prepared, rate)
        config = alone.config
        task, start, ranks = prepared.task, prepared.start, Ranks()
        items, held, output = self._fit_targets(prepared)
        model = build_task_model(start, task, config, prepared.fitted).to(self.machine.device)
        positions, pad = model.encoder.config.max_positions, start.tokenizer.pad_id
        batches = TaskBatches(
            items,
            output,
            pad,
            prepared.batch,
            steps,
            config.train.seed,
            positions=positions,
            deletion=config.deletion,
        )
        trainable = TrainableTaskModel(
            model, output, batches, alone, self.machine, self.folder, network=model, ranks=ranks
        )
        loop = Loop(
            trainable=trainable,
            config=config.train,
            steps=steps,
            batch_sequences=prepared.batch,
            device=self.machine,
            folder=self.folder,
            ranks=ranks,
        )
        model.train()
        try:
            while loop.step < steps:
                loop.train_step()
                bar.advance(1)
        except NonFiniteError:
            bar.advance(steps - loop.step)
            return np.full(1, np.inf)
        model.eval()
        parts = []
        for part in _split_by_length(held):
            batch = collate(part, output, pad, positions).to(self.machine.device)
            with torch.no_grad(), self.machine.autocast_context():
                losses = trainable.compute_losses(batch, trainable.layers)
            weights = trainable.get_weights()
            total = sum(weights[name] * float(loss.total) for name, loss in losses.items())
            parts.append(total / max(1, batch.predictions))
        return np.array(parts) if np.isfinite(parts).all() else np.full(1, np.inf)

    def _fit_targets(self, prepared: PreparedTask) -> tuple[list[Item], list[Item], Output]:
        """The rows with their targets as the output learns them, and the output."""
        rows = (*self.learned, *self.held_out)
        output, targets = prepared.task.output.fit([item.target for item in rows])
        output = output.weigh(prepared.config, targets)
        items = [replace(item, target=target) for item, target in zip(rows, targets, strict=True)]
        learned = [*items[: len(self.learned)], *self.unlabeled]
        return learned, items[len(self.learned) :], output


def _learns_answers(prepared: PreparedTask) -> bool:
    """Return whether the task is learned from the answers of teachers, not from vectors."""
    return prepared.teachers is not None and not prepared.teachers.vector_width


def _plan_short_run(prepared: PreparedTask, rate: float) -> PreparedTask:
    """Return the task with a config that suits a short run at a rate. Its teachers show answers at
    most, and no layers.
    """
    config = prepared.config
    train = replace(config.train, optimizer=replace(config.train.optimizer, learning_rate=rate))
    if train.micro_batch == "auto":  # how much fits is measured when the run starts
        train = replace(train, micro_batch=min(8, prepared.batch))
    if train.schedule.warmup >= 1:  # steps of the whole run
        share = train.schedule.warmup / prepared.steps
        train = replace(train, schedule=replace(train.schedule, warmup=share))
    distill = replace(config.distill, states=0.0, relations=0.0)
    config = replace(config, train=train, distill=distill)
    teachers = prepared.teachers if _learns_answers(prepared) else None
    return replace(prepared, config=config, teachers=teachers, unlabeled=None)


def _split_by_length(held: Sequence[Item]) -> list[list[Item]]:
    """Split the held-out rows by length, in `_PARTS` parts."""
    order = sorted(held, key=lambda item: item.length)
    return [
        [order[i] for i in places]
        for places in np.array_split(range(len(order)), min(_PARTS, len(order)))
    ]


def _compute_prior_losses(
    prepared: PreparedTask, learned: Sequence[Item], held: Sequence[Item]
) -> NDArray[np.float64] | None:
    """Compute the mean loss of each part if every row is answered alike, by the shares of the
    learned targets, (P,).
    """
    if not prepared.task.output.linear:
        return None
    output, targets = prepared.task.output.fit([item.target for item in (*learned, *held)])
    output = output.weigh(prepared.config, targets)
    _, bias = output.fit_linear(np.zeros((len(learned), 1)), targets[: len(learned)], 1.0)
    judged = [
        replace(item, target=target)
        for item, target in zip(held, targets[len(learned) :], strict=True)
    ]
    losses = []
    for part in _split_by_length(judged):
        right = torch.from_numpy(output.collate([item.target for item in part], 0))
        same = torch.from_numpy(bias.astype(np.float32)).expand(len(part), -1)
        weights = collate_weights(part)
        total, _ = output.total(same, right, *(() if weights is None else (weights,)))
        losses.append(float(total) / len(part))
    return np.array(losses)
