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
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from litebert import progress
from litebert.data.random_keys import derive, permute
from litebert.errors import NonFiniteError
from litebert.finetuning.batches import TaskBatches, collate
from litebert.finetuning.defaults import mark_chosen
from litebert.finetuning.initial import build_task_model
from litebert.finetuning.items import Item
from litebert.finetuning.linear import MOST_ROWS, fit_head, read_frozen_states
from litebert.finetuning.outputs import Output
from litebert.finetuning.prepared import PreparedTask
from litebert.finetuning.teachers import compute_teacher_logits
from litebert.finetuning.trainable import TrainableTaskModel
from litebert.interop.files import read_tensors
from litebert.train import device as devices
from litebert.train.loop import Loop
from litebert.train.ranks import Ranks
from litebert.train.run_folder import ASIDE, RunFolder

log = logging.getLogger("litebert")

FITTED = "head.safetensors"
"""Name of the file of a fitted head in a run folder."""
RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
"""The rates that are tried from the only start there is."""
FITTED_RATES, DRAWN_RATES = RATES[:3], RATES[2:]
"""The rates that are tried from a fitted head, and from a drawn one, where one of them is taken."""
LONG_RUN, LARGEST_OF_LONG = 5000, 1e-3
"""Steps of a run in which larger rates than this one are not tried: a short run is ahead with them,
and a long one ends behind (docs/reports/results.md)."""
LONGER = 4
"""How many times as long as the others the short runs are that decide between the two starts."""
OVERFITTED = 1.25
"""How much higher than after the short run the loss of a longer run may be."""
LEAST_UNTOLD = 1e-4
"""The least rate that is taken where no short run learns anything. The papers' rates are for
networks that were pretrained for days, and such a network seldom learns nothing.
"""
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

    All items of an example, such as the overlapping windows of a question, stand on one side.
    """
    most = min(int(_HELD * len(items)), _MOST_HELD)
    sizes = Counter(item.example for item in items)
    examples, held, count = list(sizes), set(), 0
    for place in permute(np.arange(len(examples)), len(examples), derive(seed, _ORDER, 0)).tolist():
        example = examples[place]
        if count + sizes[example] <= most:
            held.add(example)
            count += sizes[example]
    learned = [item for item in items if item.example not in held]
    return learned, [item for item in items if item.example in held]


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

    The drawn head is taken where the two cannot be told apart: a short run shows too little of what
    it would still learn.
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
    behind = drawn_losses - fitted_losses
    return TwoStartProbe(
        fitted=first,
        drawn=second,
        steps=LONGER * steps,
        fitted_loss=float(fitted_losses.mean()),
        drawn_loss=float(drawn_losses.mean()),
        takes_fitted=bool(
            not np.isfinite(drawn_losses).all() or behind.mean() > _compute_standard_error(behind)
        ),
    )


def list_rates(rates: Sequence[float], steps: int) -> list[float]:
    """List the rates that are tried for a run of some steps."""
    return [rate for rate in rates if steps < LONG_RUN or rate <= LARGEST_OF_LONG]


def choose_rate(
    losses: Mapping[float, NDArray[np.float64]], prior: NDArray[np.float64] | None, usual: float
) -> float:
    """Choose the rate to take, as `find_largest_good` says, where a short run learned something.

    Where none did, the lowest loss is that of the network that moved least. Then rates below the
    usual one are left out, and the lowest loss of the others counts.

    Args:
        losses: by rate, (P,): the mean loss of each of P parts of the held-out rows.
        prior: the same of answers that read no text; None where they are not known.
        usual: the rate of the recipe.
    """
    best = min(losses.values(), key=lambda parts: float(parts.mean()))
    if (
        prior is None
        or not np.isfinite(best).all()
        or (prior - best).mean() > _compute_standard_error(prior - best)
    ):
        return find_largest_good(losses)
    higher = [rate for rate in losses if rate >= usual] or [max(losses)]
    return min(higher, key=lambda rate: float(losses[rate].mean()))


def _compute_standard_error(differences: NDArray[np.float64]) -> float:
    """Compute the standard error of the mean of differences; none of a single one."""
    return (
        float(differences.std(ddof=1) / np.sqrt(len(differences))) if len(differences) > 1 else 0.0
    )


def find_largest_good(losses: Mapping[float, NDArray[np.float64]]) -> float:
    """Find the largest rate whose loss is not above the lowest by more than its standard error.

    A short run shows too little of what a small rate would still learn. So of rates that cannot be
    told apart the largest is the safest.

    Args:
        losses: by rate, (P,): the mean loss of each of P parts of the held-out rows.
    """
    best = min(losses.values(), key=lambda parts: float(parts.mean()))
    good = []
    for rate, parts in losses.items():
        if np.isfinite(parts).all():
            good.append((rate, (parts - best).mean() <= _compute_standard_error(parts - best)))
    return max((rate for rate, fits in good if fits), default=min(losses))


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
        total, _ = output.total(
            torch.from_numpy(bias.astype(np.float32)).expand(len(part), -1), right
        )
        losses.append(float(total) / len(part))
    return np.array(losses)


def choose_start(
    prepared: PreparedTask, folders: Sequence[RunFolder], device: str, overwrite: bool
) -> PreparedTask:
    """Complete the task with a fitted head and a rate, where the config asks for them. They are
    those of a run in one of the folders, or are computed now.

    Args:
        overwrite: whether those runs are about to be deleted.
    """
    config, first = prepared.config, folders[0]
    decide = first.ranks.decide
    has_run = decide(lambda: not overwrite and any(folder.read_identities() for folder in folders))
    files = [folder.path / sub / FITTED for folder in folders for sub in (".", ASIDE)]
    if config.fit_head and has_run:
        saved = decide(lambda: next((file for file in files if file.is_file()), None))
        fitted = decide(lambda: {} if saved is None else read_tensors(saved))
        prepared = replace(prepared, fitted=fitted)
    if (has_run or not config.fit_head) and "rate" not in config.choose:
        return prepared
    with first.lock():
        machine = devices.choose(config.train.precision, first.ranks.device(device))
        learned = prepared
        if config.fit_head and not has_run:
            learned, prepared = decide(lambda: _fit_heads(prepared, machine))
        if "rate" in config.choose:
            prepared = decide(lambda: _choose_rate(prepared, learned, first.path, machine))
    return prepared


def _fit_heads(
    prepared: PreparedTask, machine: devices.Device
) -> tuple[PreparedTask, PreparedTask]:
    """Fit the head of a task on the rows that `split_held_out` leaves, and on all training rows."""
    items = prepared.train.items
    if len(items) > MOST_ROWS:
        items = items[:: -(-len(items) // MOST_ROWS)]
    apart = {
        id(item) for item in split_held_out(prepared.train.items, prepared.config.train.seed)[1]
    }
    held = np.array([id(item) in apart for item in items])
    if held.all() or not held.any():
        return prepared, prepared
    output, targets = prepared.task.output.fit([item.target for item in items])
    half, whole = fit_head(output, read_frozen_states(prepared, items, machine), targets, held)
    remark = (
        f"a linear head on frozen states has the loss {whole.loss:.3g} on {held.sum():,} "
        "held-out training rows"
    )
    if whole.loss >= whole.prior:
        remark += f", no less than without them ({whole.prior:.3g}): the head starts random"
        heads: tuple[dict[str, torch.Tensor], ...] = ({}, {})
    else:
        remark += f" ({whole.prior:.3g} without them)"
        heads = half.tensors(), whole.tensors()
    log.info(remark)
    first, second = (
        replace(prepared, fitted=head, chosen=(*prepared.chosen, remark)) for head in heads
    )
    return first, second


def _choose_rate(
    prepared: PreparedTask, learned: PreparedTask, folder: Path, machine: devices.Device
) -> PreparedTask:
    """Choose the rate of a task by `probe_rate` on `learned`, or keep that of its recipe.

    `learned` is the same task, whose fitted head has not seen the held-out rows.
    """
    config = mark_chosen(prepared.config, "rate")
    optimizer = config.train.optimizer
    if optimizer.name == "muon":  # whose matrices have a rate of their own
        return replace(prepared, config=mark_chosen(config, "head"))
    two = bool("head" in config.choose and learned.fitted)
    config = mark_chosen(config, "head")
    probe: Probe | TwoStartProbe | None = (probe_two_starts if two else probe_rate)(
        replace(learned, config=config), folder, machine
    )
    if isinstance(probe, TwoStartProbe) and not probe.takes_fitted:
        prepared = replace(prepared, fitted={})
        config = replace(config, fit_head=False)
    rate = optimizer.learning_rate if probe is None else probe.rate
    remark = (
        f"learning rate {rate:.0e}: {prepared.steps} steps are too few to try others"
        if probe is None
        else str(probe)
    )
    log.info(remark)
    optimizer = replace(optimizer, learning_rate=rate)
    config = replace(config, train=replace(config.train, optimizer=optimizer))
    return replace(prepared, config=config, chosen=(*prepared.chosen, remark))
