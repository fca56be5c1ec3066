"""The learning rate of a run, found by a few short runs on its own training part.

Each rate of `RATES` trains the network from the run's own start, on the same batches and with a schedule of its own
that ends at zero. The rate whose network has the lowest loss on training rows that none of them saw is taken. The idea
is that of the rate-range test (Smith 2017, "Cyclical Learning Rates for Training Neural Networks"), with separate runs
in place of one that rises, so that no rate inherits what another one spoiled.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from litebert import progress
from litebert.config.distillation import TaskDistillConfig
from litebert.data.random_keys import derive, permute
from litebert.errors import NonFiniteError
from litebert.finetuning.batches import TaskBatches, collate
from litebert.finetuning.defaults import settled
from litebert.finetuning.items import Item
from litebert.finetuning.rows import by_length
from litebert.finetuning.scoring import EVALUATION_TOKENS
from litebert.finetuning.start import PreparedTask, task_model
from litebert.finetuning.trainable import TrainableTaskModel
from litebert.train import device as devices
from litebert.train.loop import Loop
from litebert.train.ranks import Ranks
from litebert.train.run_folder import RunFolder

log = logging.getLogger("litebert")

RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
"""The rates that are tried."""
SHARE = 0.5
"""Of the steps of the run, how many the short runs take together, at most."""
FEWEST, MOST = 4, 100
"""Steps of a short run: with fewer nothing is tried, and more tell no more."""
_HELD, _MOST_HELD = 0.2, 512
"""Share and number of the training rows that are kept for the scores, at most."""
_ORDER = 51  # what the key of the held-out rows is for


@dataclass(frozen=True)
class Probe:
    """What the short runs found."""

    rate: float
    steps: int
    """Of each short run."""
    losses: dict[float, float]
    """Held-out loss by rate; infinite where a run was not finite."""
    held: int
    """Rows that the losses are of."""

    def __str__(self) -> str:
        """The choice and what it rests on, in one line."""
        tried = ", ".join(f"{rate:.0e} {loss:.3g}" for rate, loss in sorted(self.losses.items()))
        return (f"learning rate {self.rate:.0e}, which has the lowest loss on {self.held:,} held-out training rows "
                f"after {self.steps} steps ({tried})")  # fmt: skip


def held_apart(items: Sequence[Item], seed: int) -> tuple[list[Item], list[Item]]:
    """Training items to learn from and to score on, drawn by the seed."""
    count = min(int(_HELD * len(items)), _MOST_HELD)
    order = permute(np.arange(len(items), dtype=np.int64), len(items), derive(seed, _ORDER, 0)).tolist()
    return [items[i] for i in sorted(order[count:])], [items[i] for i in sorted(order[:count])]


def probe_rate(prepared: PreparedTask, folder: Path, machine: devices.Device) -> Probe | None:
    """Try the rates; None where the run is too short to spend steps on it."""
    steps = min(MOST, int(SHARE * prepared.steps / len(RATES)))
    learned, held = held_apart(prepared.train.items, prepared.config.train.seed)
    if steps < FEWEST or not held:
        return None
    losses: dict[float, float] = {}
    with progress.task("trying learning rates", total=steps * len(RATES), unit="steps") as bar:
        for rate in RATES:
            losses[rate] = _loss_after(prepared, rate, steps, learned, held, folder, machine, bar)
    best = min(losses, key=lambda rate: losses[rate])
    return Probe(best, steps, losses, len(held))


def _loss_after(
    prepared: PreparedTask, rate: float, steps: int, learned: list[Item], held: list[Item], folder: Path,
    machine: devices.Device, bar: progress.Task,
) -> float:  # fmt: skip
    """The mean held-out loss after a short run at a rate."""
    config = prepared.config
    train = replace(config.train, optimizer=replace(config.train.optimizer, learning_rate=rate))
    if train.micro_batch == "auto":  # how much fits is measured when the run starts
        train = replace(train, micro_batch=min(8, prepared.batch))
    if train.schedule.warmup >= 1:  # steps of the whole run
        share = train.schedule.warmup / prepared.steps
        train = replace(train, schedule=replace(train.schedule, warmup=share))
    config = replace(config, train=train, distill=TaskDistillConfig())
    alone = replace(prepared, config=config, teacher=None, unlabelled=None)
    task, start, seed = prepared.task, prepared.start, train.seed
    output, targets = task.output.fit([item.target for item in learned])
    items = [replace(item, target=target) for item, target in zip(learned, targets, strict=True)]
    model = task_model(start, task, config).to(machine.device)
    positions, pad, ranks = model.encoder.config.max_positions, start.tokenizer.pad_id, Ranks()
    batches = TaskBatches(items, output, pad, prepared.batch, steps, seed, positions, config.deletion)
    trainable = TrainableTaskModel(model, output, batches, alone, machine, folder / "probe", model, ranks)
    loop = Loop(trainable=trainable, config=train, steps=steps, batch_sequences=prepared.batch, device=machine,
                folder=folder / "probe", ranks=ranks)  # fmt: skip
    model.train()
    try:
        while loop.step < steps:
            loop.train_step()
            bar.advance(1)
    except NonFiniteError:
        bar.advance(steps - loop.step)
        return math.inf
    model.eval()
    total, count = 0.0, 0
    for places in by_length([item.length for item in held], EVALUATION_TOKENS, [len(item.rows) for item in held]):
        batch = collate([held[i] for i in places], output, pad, positions).to(machine.device)
        with torch.no_grad(), machine.autocast_context():
            losses = trainable.losses(batch, trainable.layers)
        total += sum(float(loss.total) for loss in losses.values())
        count += batch.predictions
    return total / max(1, count) if math.isfinite(total) else math.inf


def choose_rate(prepared: PreparedTask, place: RunFolder, device: str) -> PreparedTask:
    """The task with the rate that `probe_rate` finds, or with the one of its recipe where it finds none."""
    config = settled(prepared.config, "rate")
    machine, optimizer = devices.choose(config.train.precision, place.ranks.device(device)), config.train.optimizer
    if optimizer.name == "muon":  # whose matrices have a rate of their own
        return replace(prepared, config=config)
    plan = replace(prepared, config=config)
    probe = place.ranks.decide(lambda: probe_rate(plan, place.path, machine))
    rate = optimizer.learning_rate if probe is None else probe.rate
    told = f"learning rate {rate:.0e}: {plan.steps} steps are too few to try others" if probe is None else str(probe)
    log.info(told)
    optimizer = replace(optimizer, learning_rate=rate)
    config = replace(config, train=replace(config.train, optimizer=optimizer))
    return replace(prepared, config=config, chosen=(*prepared.chosen, told))
