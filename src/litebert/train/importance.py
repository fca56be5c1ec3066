"""The importance of the parts of a pretrained network, on prepared text (change/narrowing.py)."""

from __future__ import annotations

from pathlib import Path

import torch

from litebert.base import progress
from litebert.change.narrowing import Importance, importance_of
from litebert.config import replace
from litebert.train.device import choose
from litebert.train.evaluate import open_pretrained
from litebert.train.schedule import Plan
from litebert.train.supply import PretrainingBatches

BATCHES, SEQUENCES = 128, 4
"""Batches and sequences of each: few enough for any memory, and for signs not to cancel."""


def measure_importance(
    model: str | Path, data: str | Path, batches: int = BATCHES, tokenizer: str | Path | None = None
) -> Importance:
    """Measure how much each feature, head and inner unit matters to the losses of a pretrained
    model, on training text masked as in its training; equal arguments give equal numbers.
    """
    loaded, network, shards = open_pretrained(model, data, tokenizer)
    config = loaded.config.without_its_run()
    config = replace(config, train=replace(config.train, batch=f"{SEQUENCES} sequences", seed=0))
    make = PretrainingBatches(config, shards, plan=Plan((batches,)))
    machine = choose("auto")
    importance = None
    trained = [
        name
        for name, objective in config.build_objectives().items()
        if not {name, *objective.needs} & set(loaded.untrained)
    ]
    network.to(machine.device)
    with progress.task("measuring what matters", batches, "batches") as bar:
        for step in range(batches):
            network.zero_grad()
            with torch.enable_grad():
                losses = network(make(step, slice(0, SEQUENCES)).to(machine.device))
                total = torch.stack(
                    [losses[name].total / losses[name].count.clamp(min=1) for name in trained]
                ).sum()
                total.backward()  # type: ignore[no-untyped-call]
            batch_importance = importance_of(network.encoder)
            importance = batch_importance if importance is None else importance + batch_importance
            bar.advance(1)
    assert importance is not None
    return importance
