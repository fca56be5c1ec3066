"""Settings that a run chooses when it starts: `FinetuneConfig.choose` names them, the model and the
training rows decide them, and the run records them.

A choice is made once. The record of a run holds the chosen values and nothing left to choose, and a
run that continues takes them from there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from litebert.config import FinetuneConfig
from litebert.config.serialization import from_dict
from litebert.finetuning.task import Task, TaskFiles
from litebert.tokenizer import Tokenizer

log = logging.getLogger("litebert")

SHORTEST, LONGEST = 128, 512
"""Tokens of a row, between which the length is chosen. A shorter one saves nothing, because a batch
is padded to its own longest row. With a longer one a row costs more than four of `SHORTEST`.
"""
SHARE_READ = 0.95
"""Share of the training texts that are read whole, where `LONGEST` and the positions of the model
allow.
"""
_SAMPLE = 10_000
"""Texts whose lengths are counted, at most."""


def take_recorded_choices(config: FinetuneConfig, record: Mapping[str, Any]) -> FinetuneConfig:
    """Fill the choices that a config leaves open with those that a run's finetune.json records."""
    run = from_dict(FinetuneConfig, record)
    chosen, train = set(config.choose), config.train
    optimizer, schedule = train.optimizer, train.schedule
    if "length" in chosen:
        config = replace(config, length=run.length)
    if "batch" in chosen:
        train = replace(train, batch=run.train.batch)
    if "epochs" in chosen:
        config = replace(config, epochs=run.epochs, steps=run.steps)
        schedule = replace(schedule, warmup=run.train.schedule.warmup)
    if "rate" in chosen:
        optimizer = replace(optimizer, learning_rate=run.train.optimizer.learning_rate)
    if "head" in chosen:
        config = replace(config, head_reads=run.head_reads, fit_head=run.fit_head)
    train = replace(train, optimizer=optimizer, schedule=schedule)
    return replace(config, choose=(), train=train)


Chosen = tuple[FinetuneConfig, list[str]]
"""A config with a choice made, and what a person should know of it."""


def choose_length(
    config: FinetuneConfig, files: TaskFiles[Any], tokenizer: Tokenizer, positions: int
) -> Chosen:
    """Choose the length that reads `SHARE_READ` of the training texts whole, where it is to be
    chosen.

    It is a multiple of eight between `SHORTEST` and `LONGEST`, and at most the positions of the
    model.
    """
    if "length" not in config.choose:
        return config, []
    config = mark_chosen(config, "length")
    examples = files.read("train")
    lengths = files.task.lengths(examples[:: 1 + len(examples) // _SAMPLE], tokenizer)
    if lengths is None or not len(lengths):
        return config, []
    whole = 8 * int(np.ceil(np.quantile(lengths, SHARE_READ) / 8))
    length = min(positions, max(SHORTEST, min(LONGEST, whole)))
    share = float((lengths <= length).mean())
    return replace(config, length=length), [
        f"length {length} tokens, enough for {share:.1%} of the training texts"
    ]


def choose_head(
    config: FinetuneConfig, task: Task[Any], pretrained: bool, vectors: str | None
) -> Chosen:
    """Choose what the head reads and whether it is fitted before training, if `config.choose` names
    the head.

    Args:
        pretrained: whether the encoder has weights of its own.
        vectors: how the model was trained to pool its states, where it says so.
    """
    if "head" not in config.choose:
        return config, []
    if not (task.output.linear and pretrained and "rate" in config.choose):
        config = mark_chosen(config, "head")  # else the short runs that choose the rate settle it
    if not task.output.linear:
        return config, []
    reads: Literal["paper", "mean"] = "mean" if vectors == "mean" else "paper"
    remarks = (
        ["the head reads the mean of the states, which the model was trained for"]
        if reads == "mean"
        else []
    )
    return replace(config, head_reads=reads, fit_head=pretrained), remarks


def choose_amount(config: FinetuneConfig, task: Task[Any], rows: int) -> Chosen:
    """Choose the batch and the epochs that so many training rows need, where they are to be chosen.

    Few rows are read more often, and in smaller batches, so that a run has steps enough to learn.
    Epochs fall with the fourth root of the rows, from 10 at 500 rows to 3 at 67,000. Tasks other
    than those of whole texts keep the numbers of their recipe.
    """
    wanted = [choice for choice in ("batch", "epochs") if choice in config.choose]
    config = mark_chosen(config, *wanted)
    if not wanted or task.output.head != "sequence":
        return config, []
    train, schedule = config.train, config.train.schedule
    if "batch" in wanted:
        train = replace(train, batch=f"{16 if rows < FEW_ROWS else 32} sequences")
    if "epochs" in wanted:
        if config.steps and schedule.warmup >= 1:  # the paper's share of the paper's steps
            train = replace(
                train, schedule=replace(schedule, warmup=schedule.warmup / config.steps)
            )
        config = replace(
            config, steps=0, epochs=float(np.clip(round(10 * (500 / rows) ** 0.25), 1, 15))
        )
    config = replace(config, train=train)
    amounts = {"batch": f"batches of {train.batch}", "epochs": f"{config.epochs:g} epochs"}
    return config, [
        f"{' and '.join(amounts[choice] for choice in wanted)}, for {rows:,} training rows"
    ]


FEW_ROWS = 2000
"""Training rows below which a batch has 16 sequences instead of 32."""


def mark_chosen(config: FinetuneConfig, *choices: str) -> FinetuneConfig:
    """Return the config with choices that are made."""
    return replace(config, choose=tuple(name for name in config.choose if name not in choices))
