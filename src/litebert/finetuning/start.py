"""The start of a run: a fitted head and a learning rate, where the config asks for them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from litebert.finetuning.defaults import mark_chosen
from litebert.finetuning.items import number_groups
from litebert.finetuning.linear import (
    FOLDS,
    MOST_ROWS,
    FittedHead,
    fit_head,
    read_frozen_states,
)
from litebert.finetuning.outputs import Output
from litebert.finetuning.prepared import PreparedTask
from litebert.finetuning.probe import (
    Probe,
    TwoStartProbe,
    probe_rate,
    probe_two_starts,
    split_held_out,
)
from litebert.finetuning.rates import FITTED_RATES
from litebert.finetuning.scoring import name_metric, score_parts
from litebert.interop.files import read_tensors
from litebert.train import device as devices
from litebert.train.run_folder import ASIDE, RunFolder

log = logging.getLogger("litebert")

FITTED = "head.safetensors"
"""Name of the file of a fitted head in a run folder."""


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
    learned, judged = split_held_out(prepared.train.items, prepared.config.train.seed)
    apart = {id(item) for item in judged}
    used = {id(item) for item in learned[:: -(-len(learned) // (MOST_ROWS - len(judged)))]} | apart
    items = [item for item in prepared.train.items if id(item) in used]
    held = np.array([id(item) in apart for item in items])
    if held.all() or len(items) < 2:
        return prepared, prepared
    output, targets = prepared.task.output.fit([item.target for item in items])
    half, whole = fit_head(
        output, read_frozen_states(prepared, items, machine), targets, held, number_groups(items)
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
    rival = _describe_linear_score(prepared, output, whole, machine)
    log.info(rival)
    first, second = (
        replace(prepared, fitted=head, chosen=(*prepared.chosen, remark, rival)) for head in heads
    )
    return first, second


def _describe_linear_score(
    prepared: PreparedTask, output: Output, head: FittedHead, machine: devices.Device
) -> str:
    """Describe how a linear model on frozen states scores, a rival that needs no training."""
    task = prepared.task
    logits = {}
    for part in prepared.dev:
        numbers = read_frozen_states(prepared, part.items, machine) @ head.weight.T + head.bias
        logits[part.name] = list(output.rescale(numbers))
    metric = name_metric(task)
    score = score_parts(task, prepared.dev, logits)[metric]
    return f"a linear model on frozen states scores {metric} {score:.4g} on {task.dev[0]}"


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
    if probe is None and prepared.fitted:
        # A few steps at a large rate spoil what the head was fitted to, and teach nothing instead.
        rate = min(rate, FITTED_RATES[0])
    remark = str(probe)
    if probe is None:
        remark = (
            f"learning rate {rate:.0e}: {prepared.steps:,} steps on {len(prepared.rows):,} rows "
            "are too few to try others"
        )
    log.info(remark)
    optimizer = replace(optimizer, learning_rate=rate)
    config = replace(config, train=replace(config.train, optimizer=optimizer))
    return replace(prepared, config=config, chosen=(*prepared.chosen, remark))
