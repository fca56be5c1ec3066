"""The start of a run: a linear head that is fitted on frozen states, and a learning rate that short
runs find, where the config asks for them.

A fitted head changes the states less than a drawn one (Kumar et al. 2022, "Fine-Tuning can Distort
Pretrained Features and Underperform Out-of-Distribution").

Each rate of `RATES` trains from the run's own start, on the same batches, down to zero, after the
rate-range test (Smith 2017, "Cyclical Learning Rates for Training Neural Networks"); separate runs,
so that no rate inherits what another spoiled. The lowest loss on held-out training rows wins, and
of rates that cannot be told apart the largest.

Where teachers answer, the short runs learn from these answers too: a few labels alone would be read
many times, and rates be judged by how they overfit.

Shapes: N items, H hidden size, P parts of the held-out rows.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from litebert.base import progress
from litebert.base.errors import NonFiniteError
from litebert.data.random_keys import derive, permute
from litebert.finetuning.batches import collate, collate_weights
from litebert.finetuning.heads import LinearHead, fit_head
from litebert.finetuning.initial import build_task_model
from litebert.finetuning.setup import Setup, set_rate
from litebert.finetuning.trainable import attach_answers, make_loop
from litebert.interop.files import read_tensors
from litebert.tasks.rows import PaddedRows, group_by_length, number_groups
from litebert.tasks.scoring import (
    EVALUATION_TOKENS,
    compute_network_logits,
    name_metric,
    score_parts,
)
from litebert.tasks.values import Item
from litebert.train import device as devices
from litebert.train.run_folder import ASIDE, RunFolder

log = logging.getLogger("litebert")

FITTED = "head.safetensors"
"""Name of the file of a fitted head in a run folder."""
MOST_ROWS = 10_000
"""Training rows that a head is fitted on, at most: its few weights learn little from more."""
RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
"""The rates that are tried."""
LONG_RUN, LARGEST_OF_LONG = 5000, 1e-3
"""Steps of a run in which larger rates than this one are not tried: a short run is ahead with them,
and a long one ends behind (docs/reports/results.md)."""
LEAST_UNTOLD = 1e-4
"""The least rate that is taken where no short run learns anything. The papers' rates are for
networks that were pretrained for days, and such a network seldom learns nothing.
"""
SHARE = 0.5
"""Share of the run's steps that the short runs take together, at most."""
FEWEST, MOST = 4, 100
"""Steps of a short run: with fewer nothing is tried, and more tell no more."""
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
    if (has_run or not config.fit_head) and not setup.tries_rates:
        return setup
    with first.lock():
        machine = devices.choose(config.train.precision, first.ranks.device(device))
        if setup.tries_rates:
            setup = decide(lambda: _choose_rate(setup, first.path, machine))
        if config.fit_head and not has_run:
            setup = decide(lambda: _fit_head(setup, machine))
    return setup


# ---------------------------------------------------------------------------------- the fitted head


def _fit_head(setup: Setup, machine: devices.Device) -> Setup:
    head = fit_frozen(setup, setup.train.items, machine)
    # A linear model on frozen states is a rival that needs no training.
    logits = {
        part.name: head.logits(read_frozen_states(setup, part.items, machine)) for part in setup.dev
    }
    metric = name_metric(setup.task)
    score = score_parts(setup.task, setup.dev, logits)[metric]
    rival = f"a linear model on frozen states scores {metric} {score:.4g} on {setup.task.dev[0]}"
    log.info(rival)
    return replace(setup, fitted=head.tensors(), chosen=(*setup.chosen, rival))


def fit_frozen(setup: Setup, items: Sequence[Item], machine: devices.Device) -> LinearHead:
    """Fit the last map of the head on what it reads of the items before any step."""
    items = items[:: -(-len(items) // MOST_ROWS)]
    states = read_frozen_states(setup, items, machine)
    if setup.task.apart or setup.config.head_reads == "unit":
        return fit_head(setup.task.output, states, items, apart=setup.task.apart)
    # The penalty is for vectors of about length 1, whose numbers weigh alike.
    mean, scale = states.mean(0, dtype=np.float64), states.std(0, dtype=np.float64)
    scale[scale < 1e-6] = 1.0  # a state that never changes tells nothing
    scale *= np.sqrt(states.shape[1])
    head = fit_head(setup.task.output, ((states - mean) / scale).astype(np.float32), items)
    weight = head.weight / scale
    bias = (head.bias - weight @ mean).astype(np.float32)
    return replace(head, weight=weight.astype(np.float32), bias=bias)


def read_frozen_states(
    setup: Setup, items: Sequence[Item], machine: devices.Device
) -> NDArray[np.float32]:
    """Read what the last map of the head reads of each item, before any step, (N, H), or (N, 4H) of
    pairs whose texts are encoded apart."""
    model = build_task_model(setup.start, setup.task, setup.config).to(machine.device).eval()
    positions, pad = model.encoder.config.max_positions, setup.start.tokenizer.pad_id
    read: list[torch.Tensor] = []
    states = np.zeros((len(items), model.head.classifier.in_features), np.float32)
    handle = model.head.classifier.register_forward_pre_hook(
        lambda _, inputs: read.append(inputs[0])
    )
    with progress.task("reading with the frozen encoder", total=len(items), unit="rows") as bar:
        for places in group_by_length([item.length for item in items], EVALUATION_TOKENS):
            rows = [row for i in places for row in items[i].rows]
            compute_network_logits(model, machine, PaddedRows(rows, pad, positions))
            states[places] = read.pop().float().cpu().numpy()
            bar.advance(len(places))
    handle.remove()
    return states


# -------------------------------------------------------------------------------- the learning rate


def _choose_rate(setup: Setup, folder: Path, machine: devices.Device) -> Setup:
    """Choose the rate by short runs, whose head has not seen the held-out rows."""
    config, optimizer = setup.config, setup.config.train.optimizer
    setup = replace(setup, tries_rates=False)
    if optimizer.name == "muon":  # whose matrices have a rate of their own
        return setup
    probe = probe_rate(setup, folder, machine)
    remark = str(probe)
    if probe is None:
        remark = (
            f"learning rate {optimizer.peak:.0e}: {setup.steps:,} steps on {len(setup.rows):,} "
            "rows are too few to try others"
        )
    log.info(remark)
    rate = optimizer.peak if probe is None else probe.rate
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
    """Try the rates, each in a short run; None where the run is too short to spend steps on it."""
    rates = list_rates(RATES, setup.steps)
    steps = min(MOST, int(SHARE * setup.steps / len(rates)))
    items, count = list(setup.train.items), len(setup.train.items)
    learned, held = split_held_out(items, setup.config.train.seed)
    if steps < FEWEST or not held:
        return None
    if setup.config.fit_head:
        setup = replace(setup, fitted=fit_frozen(setup, learned, machine).tensors())
    if _learns_answers(setup):
        items = attach_answers(setup, setup.rows, folder, machine)
        learned, held = split_held_out(items[:count], setup.config.train.seed)
    with progress.task("trying learning rates", total=steps * len(rates), unit="steps") as bar:
        losses = {
            rate: _train_shortly(
                _plan_short_run(setup, rate, steps),
                (learned, items[count:], held),
                folder / "probe",
                machine,
                bar,
            )
            for rate in rates
        }
    means = {rate: float(parts.mean()) for rate, parts in losses.items()}
    prior = None  # of answers that a teacher gives, it is not known
    if not _learns_answers(setup):
        prior = _compute_prior_losses(setup, learned, held)
    usual = max(setup.config.train.optimizer.peak, LEAST_UNTOLD)
    return Probe(choose_rate(losses, prior, usual), steps, means, len(held))


def _train_shortly(
    setup: Setup,
    rows: tuple[Sequence[Item], Sequence[Item], Sequence[Item]],
    folder: Path,
    machine: devices.Device,
    bar: progress.Task,
) -> NDArray[np.float64]:
    """(P,): the mean loss of each part of the held-out rows after a short run. The rows are those
    with a label to learn from, those that only teachers answer, and those held out."""
    learned, unlabeled, held = rows
    output, items = setup.fit_targets([*learned, *held])
    items, held = items[: len(learned)], items[len(learned) :]
    model = build_task_model(setup.start, setup.task, setup.config, setup.fitted)
    model = model.to(machine.device).train()
    trainable, loop = make_loop(setup, model, output, [*items, *unlabeled], folder, machine)
    try:
        while loop.step < setup.steps:
            loop.train_step()
            bar.advance(1)
    except NonFiniteError:
        bar.advance(setup.steps - loop.step)
        return np.full(1, np.inf)
    model.eval()
    parts, positions = [], model.encoder.config.max_positions
    for part in _split_by_length(held):
        batch = collate(part, output, setup.start.tokenizer.pad_id, positions)
        batch = batch.to(machine.device)
        with torch.no_grad(), machine.autocast_context():
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
    bias = fit_head(setup.task.output, np.zeros((len(learned), 1), np.float32), learned).bias
    output, items = setup.fit_targets([*learned, *held])
    losses = []
    for part in _split_by_length(items[len(learned) :]):
        right = torch.from_numpy(output.collate([item.target for item in part], 0))
        weights = collate_weights(part)
        same = torch.from_numpy(bias).expand(len(part), -1)
        total, _ = output.total(same, right, *(() if weights is None else (weights,)))
        losses.append(float(total) / len(part))
    return np.array(losses)
