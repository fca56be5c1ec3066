"""The start of a run: a linear head that is fitted on frozen states, and a learning rate that short
runs find, where the config asks for them.

A fitted head changes the states less than a drawn one (Kumar et al. 2022, "Fine-Tuning can Distort
Pretrained Features and Underperform Out-of-Distribution").

Each rate of `RATES` trains from the run's own start, on the same batches, down to zero, after the
rate-range test (Smith 2017, "Cyclical Learning Rates for Training Neural Networks"); separate runs,
so that no rate inherits what another spoiled. The lowest loss on held-out training rows wins, and
of rates that cannot be told apart the largest.

A fitted head is ahead of a drawn one in a short run, and may be behind at the end, since a small
network learns most with large rates. So where both are to be chosen, the best rate of each start
trains `LONGER` times as long, and one that overfits gives way to the next smaller.

Where teachers answer, the short runs learn from these answers too: a few labels alone would be read
many times, and rates be judged by how they overfit.

Shapes: N items, H hidden size, C numbers that the head gives, P parts of the held-out rows.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from litebert.base import progress
from litebert.base.errors import NonFiniteError
from litebert.data.random_keys import derive, permute
from litebert.finetuning.batches import collate, collate_weights
from litebert.finetuning.initial import build_task_model
from litebert.finetuning.setup import Setup, set_rate
from litebert.finetuning.trainable import attach_answers, make_loop
from litebert.interop.files import read_tensors
from litebert.tasks.outputs import Output
from litebert.tasks.rows import PaddedRows, group_by_length, number_groups
from litebert.tasks.scoring import (
    EVALUATION_TOKENS,
    compute_network_logits,
    name_metric,
    score_parts,
)
from litebert.tasks.text_outputs import Number, SeveralLabels
from litebert.tasks.values import Item
from litebert.train import device as devices
from litebert.train.run_folder import ASIDE, RunFolder

log = logging.getLogger("litebert")

FITTED = "head.safetensors"
"""Name of the file of a fitted head in a run folder."""
STRENGTHS = (1e-6, 1e-3, 1e-2, 1e-1, 1.0)
"""Inverse strengths of the L2 penalty (scikit-learn's `C`); the first gives no state any weight."""
FEW_HELD, FOLDS = 50, 5
"""Held-out rows below which a cross-validation judges the strengths, and the folds of it."""
MOST_ROWS = 10_000
"""Training rows that a head is fitted on, at most: its few weights learn little from more."""
RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
"""The rates that are tried from the only start there is."""
FITTED_RATES, DRAWN_RATES = RATES[:3], RATES[2:]
"""The rates that are tried from a fitted head, and from a drawn one, where one of them is taken."""
LONG_RUN, LARGEST_OF_LONG = 5000, 1e-3
"""Steps of a run in which larger rates than this one are not tried: a short run is ahead with them,
and a long one ends behind (docs/reports/results.md)."""
LEAST_UNTOLD = 1e-4
"""The least rate that is taken where no short run learns anything. The papers' rates are for
networks that were pretrained for days, and such a network seldom learns nothing.
"""
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
"""Parts of the held-out rows, of about one length, that tell how certain a difference is."""
_ORDER = 51  # what the key of the held-out rows is for


def choose_start(setup: Setup, folders: Sequence[RunFolder], device: str, overwrite: bool) -> Setup:
    """Complete the setup with a fitted head and a rate, of a run in one of the folders or new."""
    config, first = setup.config, folders[0]
    decide = first.ranks.decide
    has_run = decide(lambda: not overwrite and any(folder.read_identities() for folder in folders))
    if config.fit_head and has_run:
        files = [folder.path / sub / FITTED for folder in folders for sub in (".", ASIDE)]
        saved = decide(lambda: next((file for file in files if file.is_file()), None))
        fitted = decide(lambda: {} if saved is None else read_tensors(saved))
        setup = replace(setup, fitted=fitted)
    if (has_run or not config.fit_head) and "rate" not in setup.tries:
        return setup
    with first.lock():
        machine = devices.choose(config.train.precision, first.ranks.device(device))
        learned = setup
        if config.fit_head and not has_run:
            learned, setup = decide(lambda: _fit_heads(setup, machine))
        if "rate" in setup.tries:
            setup = decide(lambda: _choose_rate(setup, learned, first.path, machine))
    return setup


# ---------------------------------------------------------------------------------- the fitted head


def _fit_heads(setup: Setup, machine: devices.Device) -> tuple[Setup, Setup]:
    learned, judged = split_held_out(setup.train.items, setup.config.train.seed)
    apart = {id(item) for item in judged}
    used = {id(item) for item in learned[:: -(-len(learned) // (MOST_ROWS - len(judged)))]} | apart
    items = [item for item in setup.train.items if id(item) in used]
    held = np.array([id(item) in apart for item in items])
    if held.all() or len(items) < 2:
        return setup, setup
    output, targets = setup.task.output.fit([item.target for item in items])
    half, whole = fit_head(
        output, read_frozen_states(setup, items, machine), targets, held, number_groups(items)
    )
    folds = min(FOLDS, len(items))
    rows = f"training rows in {folds} folds" if whole.few else "held-out training rows"
    remark = (
        f"a linear head on frozen states has a loss of {whole.loss:.3g} on {whole.judged:,} {rows}"
    )
    if not whole.helps:
        remark += f", no less than without them ({whole.prior:.3g}): the head starts random"
        heads: tuple[dict[str, torch.Tensor], ...] = ({}, {})
    else:
        remark += f" ({whole.prior:.3g} without them)"
        heads = half.tensors(), whole.tensors()
    log.info(remark)
    # A linear model on frozen states is a rival that needs no training.
    logits = {}
    for part in setup.dev:
        numbers = read_frozen_states(setup, part.items, machine) @ whole.weight.T + whole.bias
        logits[part.name] = list(output.rescale(numbers) if isinstance(output, Number) else numbers)
    metric = name_metric(setup.task)
    score = score_parts(setup.task, setup.dev, logits)[metric]
    rival = f"a linear model on frozen states scores {metric} {score:.4g} on {setup.task.dev[0]}"
    log.info(rival)
    first, second = (
        replace(setup, fitted=head, chosen=(*setup.chosen, remark, rival)) for head in heads
    )
    return first, second


@dataclass(frozen=True, eq=False)
class FittedHead:
    """The last map of a head, and how good it is on rows that it was not fitted on."""

    weight: NDArray[np.float32]
    """(C, H)"""
    bias: NDArray[np.float32]
    """(C,)"""
    strength: float
    loss: float
    """Mean held-out loss, in the unit of the task's output."""
    prior: float
    """The same of answers that read no state."""
    judged: int
    """Rows that the loss is of."""
    few: bool
    """True if the loss is of a cross-validation, because few rows were held."""

    @property
    def helps(self) -> bool:
        """Return whether the states tell more than the shares of the classes; few rows cannot deny
        it.
        """
        return self.loss < self.prior or self.few

    def tensors(self) -> dict[str, torch.Tensor]:
        return {
            "classifier.weight": torch.from_numpy(self.weight.copy()),
            "classifier.bias": torch.from_numpy(self.bias.copy()),
        }


def read_frozen_states(
    setup: Setup, items: Sequence[Item], machine: devices.Device
) -> NDArray[np.float32]:
    """Read what the last map of the head reads of each item, before any step, (N, H)."""
    model = build_task_model(setup.start, setup.task, setup.config).to(machine.device).eval()
    positions, pad = model.encoder.config.max_positions, setup.start.tokenizer.pad_id
    read: list[torch.Tensor] = []
    states = np.zeros((len(items), model.encoder.config.hidden_size), np.float32)
    handle = model.head.classifier.register_forward_pre_hook(
        lambda _, inputs: read.append(inputs[0])
    )
    with progress.task("reading with the frozen encoder", total=len(items), unit="rows") as bar:
        for places in group_by_length([item.length for item in items], EVALUATION_TOKENS):
            compute_network_logits(
                model, machine, PaddedRows([items[i].rows[0] for i in places], pad, positions)
            )
            states[places] = read.pop().float().cpu().numpy()
            bar.advance(len(places))
    handle.remove()
    return states


def fit_head(
    output: Output,
    states: NDArray[np.float32],
    targets: Sequence[Any],
    held: NDArray[np.bool_],
    groups: NDArray[np.int64] | None = None,
) -> tuple[FittedHead, FittedHead]:
    """Fit the head to states (N, H) of the items that are not held (N,), and with the best strength
    to all.

    The best has the lowest loss on held items, or in a cross-validation, which divides no group
    (N,), where these are few.
    """
    groups = np.arange(len(targets)) if groups is None else groups
    learned = [target for target, apart in zip(targets, held, strict=True) if not apart]
    few = bool(held.sum() < FEW_HELD) and (
        len(targets) < FEW_HELD * FOLDS or not held.any()  # as where groups are large
    )
    count = len(targets) if few else int(held.sum())
    folds = held[None]
    if few:
        of_groups = int(groups.max()) + 1
        numbers = np.arange(min(FOLDS, of_groups))
        places = (np.random.default_rng(0).permutation(of_groups) % len(numbers))[groups]
        folds = places == numbers[:, None]
    losses = [_compute_held_loss(output, states, targets, folds, c) for c in STRENGTHS]
    first = 1 if few else 0  # a head without weights is no head
    place = min(range(first, len(STRENGTHS)), key=lambda i: losses[i])
    strength, loss = STRENGTHS[place], losses[place]
    half = _fit_folded(output, states[~held], learned, strength)
    whole = _fit_folded(output, states, targets, strength)
    return (
        FittedHead(*half, strength, loss, losses[0], count, few),
        FittedHead(*whole, strength, loss, losses[0], count, few),
    )


def _compute_held_loss(
    output: Output,
    states: NDArray[np.float32],
    targets: Sequence[Any],
    folds: NDArray[np.bool_],
    strength: float,
) -> float:
    total = 0.0
    for held in folds:
        learned, judged = (
            [target for target, apart in zip(targets, held, strict=True) if apart == side]
            for side in (False, True)
        )
        weight, bias = _fit_folded(output, states[~held], learned, strength)
        right = torch.from_numpy(output.collate(judged, 0))
        logits = states[held] @ weight.T + bias
        summed, _ = output.total(torch.from_numpy(logits.astype(np.float32)), right)
        total += float(summed) / len(judged) * int(held.sum())
    return total / int(folds.sum())


def _fit_folded(
    output: Output, states: NDArray[np.float32], targets: Sequence[Any], strength: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Fit a linear map on standardized states, with weights and biases for states as they are."""
    mean, std = states.mean(0, dtype=np.float64), states.std(0, dtype=np.float64)
    std[std < 1e-6] = 1.0  # a state that never changes tells nothing
    weight, bias = fit_linear(output, (states - mean) / std, targets, strength)
    weight = weight / std
    return weight.astype(np.float32), (bias - weight @ mean).astype(np.float32)


def fit_linear(
    output: Output, states: NDArray[np.float64], targets: Sequence[Any], strength: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Fit a linear map from standardized states (N, H) to the logits of an output of whole texts;
    return its weights (C, H) and biases (C,). `strength` is scikit-learn's `C`.

    A class without an example is given the odds of one among twice as many, and so is a label that
    all rows or none have.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, Ridge

    if isinstance(output, Number):
        ridge = Ridge(alpha=1 / strength).fit(states, np.array(targets, np.float64))
        return ridge.coef_[None], np.array([ridge.intercept_])

    def fit_logistic(classes: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        with warnings.catch_warnings():
            # The best of what was tried is judged on other rows.
            warnings.simplefilter("ignore", ConvergenceWarning)
            fit = LogisticRegression(C=strength, max_iter=200).fit(states, classes)
        return fit.coef_, fit.intercept_

    classes, count = np.array(targets, np.int64), len(output.labels)
    weight, bias = np.zeros((count, states.shape[1])), np.zeros(count)
    if isinstance(output, SeveralLabels):
        for label, column in enumerate(classes.T):
            if 0 < column.sum() < len(column):
                coefficients, intercepts = fit_logistic(column)
                weight[label], bias[label] = coefficients[0], intercepts[0]
            else:
                bias[label] = (1 if column.any() else -1) * np.log(2 * len(column))
        return weight, bias
    present = np.unique(classes)
    bias[:] = -np.log(2 * len(states))
    if len(present) == 1:
        bias[present] = 0.0
        return weight, bias
    coefficients, intercepts = fit_logistic(classes)
    if len(present) == 2:  # scikit-learn gives the difference of the two
        coefficients = np.concatenate((-coefficients, coefficients)) / 2
        intercepts = np.concatenate((-intercepts, intercepts)) / 2
    weight[present], bias[present] = coefficients, intercepts
    return weight, bias


# -------------------------------------------------------------------------------- the learning rate


def _choose_rate(setup: Setup, learned: Setup, folder: Path, machine: devices.Device) -> Setup:
    """Choose the rate by short runs on `learned`, whose head has not seen the held-out rows."""
    config, optimizer = setup.config, setup.config.train.optimizer
    two = bool("head" in setup.tries and learned.fitted)
    setup = replace(setup, tries=frozenset())
    if optimizer.name == "muon":  # whose matrices have a rate of their own
        return setup
    probe: Probe | TwoStartProbe | None
    probe = (probe_two_starts if two else probe_rate)(learned, folder, machine)
    if isinstance(probe, TwoStartProbe) and not probe.takes_fitted:
        setup = replace(setup, fitted={})
        config = replace(config, fit_head=False)
    rate = optimizer.peak if probe is None else probe.rate
    remark = str(probe)
    if probe is None:
        if setup.fitted:
            # A few steps at a large rate spoil what the head was fitted to, and teach nothing
            # instead.
            rate = min(rate, FITTED_RATES[0])
        remark = (
            f"learning rate {rate:.0e}: {setup.steps:,} steps on {len(setup.rows):,} rows "
            "are too few to try others"
        )
    log.info(remark)
    return replace(setup, config=set_rate(config, rate), chosen=(*setup.chosen, remark))


def list_rates(rates: Sequence[float], steps: int) -> list[float]:
    return [rate for rate in rates if steps < LONG_RUN or rate <= LARGEST_OF_LONG]


def choose_rate(
    losses: Mapping[float, NDArray[np.float64]], prior: NDArray[np.float64] | None, usual: float
) -> float:
    """Choose the rate to take, as `find_largest_good` says, where a short run learned more than
    `prior`, the losses (P,) of answers that read no text.

    Where none did, the lowest loss is that of the network that moved least. Then rates below the
    usual one are left out, and the lowest loss of the others counts.
    """
    best = min(losses.values(), key=lambda parts: float(parts.mean()))
    if (
        prior is None
        or not np.isfinite(best).all()
        or (prior - best).mean() > compute_standard_error(prior - best)
    ):
        return find_largest_good(losses)
    higher = [rate for rate in losses if rate >= usual] or [max(losses)]
    return min(higher, key=lambda rate: float(losses[rate].mean()))


def compute_standard_error(differences: NDArray[np.float64]) -> float:
    return (
        float(differences.std(ddof=1) / np.sqrt(len(differences))) if len(differences) > 1 else 0.0
    )


def find_largest_good(losses: Mapping[float, NDArray[np.float64]]) -> float:
    """Find the largest rate whose loss (P,) is not above the lowest by more than its standard
    error: a short run shows too little of what a small rate would still learn.
    """
    best = min(losses.values(), key=lambda parts: float(parts.mean()))
    good = []
    for rate, parts in losses.items():
        if np.isfinite(parts).all():
            good.append((rate, (parts - best).mean() <= compute_standard_error(parts - best)))
    return max((rate for rate, fits in good if fits), default=min(losses))


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
        return (
            f"learning rate {self.rate:.0e}, by the loss on {self.held_out:,} held-out training "
            f"rows after {self.steps} steps ({self.describe_losses()})"
        )

    def describe_losses(self) -> str:
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
        return self.fitted.rate if self.takes_fitted else self.drawn.rate

    def __str__(self) -> str:
        return (
            f"learning rate {self.rate:.0e} from a {'fitted' if self.takes_fitted else 'random'} "
            f"head, by the loss on {self.fitted.held_out:,} held-out training rows after "
            f"{self.steps} steps (fitted {self.fitted.rate:.0e} {self.fitted_loss:.3g}, random "
            f"{self.drawn.rate:.0e} {self.drawn_loss:.3g}); after {self.fitted.steps} steps: "
            f"fitted {self.fitted.describe_losses()}; random {self.drawn.describe_losses()}"
        )


def split_held_out(items: Sequence[Item], seed: int) -> tuple[list[Item], list[Item]]:
    """Split the training items into those to learn from and to score on; no example or group is
    divided.
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


def probe_rate(setup: Setup, folder: Path, machine: devices.Device) -> Probe | None:
    """Try the rates; None where the run is too short to spend steps on it."""
    rates = list_rates(RATES, setup.steps)
    steps = min(MOST, int(SHARE * setup.steps / len(rates)))
    trials = _Trials.of(setup, folder, machine)
    if steps < FEWEST or not trials.held_out:
        return None
    with progress.task("trying learning rates", total=steps * len(rates), unit="steps") as bar:
        return trials.probe(setup, rates, steps, bar)


def probe_two_starts(fitted: Setup, folder: Path, machine: devices.Device) -> TwoStartProbe | None:
    """Try rates from a fitted and from a drawn head, and the best of each for longer; None where
    the run is too short.

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
    learned: Sequence[Item]
    held_out: Sequence[Item]
    unlabeled: Sequence[Item]
    """Items that only teachers answer."""
    folder: Path
    machine: devices.Device

    @classmethod
    def of(cls, setup: Setup, folder: Path, machine: devices.Device) -> _Trials:
        items, count = list(setup.train.items), len(setup.train.items)
        if _learns_answers(setup):
            items = attach_answers(setup, setup.rows, folder, machine)
        learned, held = split_held_out(items[:count], setup.config.train.seed)
        return cls(learned, held, items[count:], folder / "probe", machine)

    def probe(self, setup: Setup, rates: Sequence[float], steps: int, bar: progress.Task) -> Probe:
        """One short run at each rate, and the rate to take."""
        losses = {rate: self.train_shortly(setup, rate, steps, bar) for rate in rates}
        prior = None  # of answers that a teacher gives, it is not known
        if not _learns_answers(setup):
            prior = _compute_prior_losses(setup, self.learned, self.held_out)
        usual = max(setup.config.train.optimizer.peak, LEAST_UNTOLD)
        means = {rate: float(parts.mean()) for rate, parts in losses.items()}
        return Probe(choose_rate(losses, prior, usual), steps, means, len(self.held_out))

    def train_longer(
        self, setup: Setup, probe: Probe, bar: progress.Task
    ) -> tuple[Probe, NDArray[np.float64]]:
        """Train `LONGER` times as long at a probe's rate; return the probe with the rate that is
        left, and its losses.

        Where the loss rises by a quarter, the rows are learned by heart: the next smaller rate is
        tried.
        """
        losses = self.train_shortly(setup, probe.rate, LONGER * probe.steps, bar)
        smaller = max((rate for rate in probe.losses if rate < probe.rate), default=None)
        if smaller is None or losses.mean() <= OVERFITTED * probe.losses[probe.rate]:
            return probe, losses
        return self.train_longer(setup, replace(probe, rate=smaller), bar)

    def train_shortly(
        self, setup: Setup, rate: float, steps: int, bar: progress.Task
    ) -> NDArray[np.float64]:
        """(P,): the mean loss of each part of the held-out rows after a short run at a rate."""
        alone = _plan_short_run(setup, rate, steps)
        output, items = setup.fit_targets([*self.learned, *self.held_out])
        items, held = items[: len(self.learned)], items[len(self.learned) :]
        model = build_task_model(setup.start, setup.task, alone.config, setup.fitted)
        model = model.to(self.machine.device).train()
        items += self.unlabeled
        trainable, loop = make_loop(alone, model, output, items, self.folder, self.machine)
        try:
            while loop.step < steps:
                loop.train_step()
                bar.advance(1)
        except NonFiniteError:
            bar.advance(steps - loop.step)
            return np.full(1, np.inf)
        model.eval()
        parts, positions = [], model.encoder.config.max_positions
        for part in _split_by_length(held):
            batch = collate(part, output, setup.start.tokenizer.pad_id, positions)
            batch = batch.to(self.machine.device)
            with torch.no_grad(), self.machine.autocast_context():
                losses = trainable.compute_losses(batch, trainable.layers)
            weights = trainable.get_weights()
            total = sum(weights[name] * float(loss.total) for name, loss in losses.items())
            parts.append(total / max(1, batch.predictions))
        return np.array(parts) if np.isfinite(parts).all() else np.full(1, np.inf)


def _learns_answers(setup: Setup) -> bool:
    """Vectors are not among them."""
    return setup.teachers is not None and not setup.teachers.vector_width


def _plan_short_run(setup: Setup, rate: float, steps: int) -> Setup:
    """Plan a short run at a rate. Its teachers show answers at most, and no layers."""
    config = set_rate(setup.config, rate)
    train = config.train
    if train.micro_batch == "auto":  # how much fits is measured when the run starts
        train = replace(train, micro_batch=min(8, setup.batch))
    if train.schedule.warmup >= 1:  # steps of the whole run
        share = train.schedule.warmup / setup.steps
        train = replace(train, schedule=replace(train.schedule, warmup=share))
    distill = replace(config.distill, states=0.0, relations=0.0)
    config = replace(config, train=train, distill=distill, steps=steps)
    teachers = setup.teachers if _learns_answers(setup) else None
    return replace(setup, config=config, teachers=teachers, unlabeled=None)


def _split_by_length(held: Sequence[Item]) -> list[list[Item]]:
    order = sorted(held, key=lambda item: item.length)
    return [
        [order[i] for i in places]
        for places in np.array_split(range(len(order)), min(_PARTS, len(order)))
    ]


def _compute_prior_losses(
    setup: Setup, learned: Sequence[Item], held: Sequence[Item]
) -> NDArray[np.float64] | None:
    """Compute the mean loss of each part, (P,), if the shares of the targets answer every row."""
    if not setup.task.output.linear:
        return None
    output, items = setup.fit_targets([*learned, *held])
    targets = [item.target for item in items[: len(learned)]]
    _, bias = fit_linear(output, np.zeros((len(learned), 1)), targets, 1.0)
    losses = []
    for part in _split_by_length(items[len(learned) :]):
        right = torch.from_numpy(output.collate([item.target for item in part], 0))
        same = torch.from_numpy(bias.astype(np.float32)).expand(len(part), -1)
        weights = collate_weights(part)
        total, _ = output.total(same, right, *(() if weights is None else (weights,)))
        losses.append(float(total) / len(part))
    return np.array(losses)
