"""Fine-tuning with several seeds: what a score is worth when chance has had its say."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litebert.config import replace
from litebert.data.shards import written_whole
from litebert.finetuning import FinetuneConfig
from litebert.tasks.batches import TaskBatch
from litebert.tasks.finetune import finetune
from litebert.tasks.judging import metric_name
from litebert.tasks.task import Task
from litebert.train.loop import Loop, Say


@dataclass(frozen=True)
class Seeds:
    """The outcome of runs that differ by their seed alone."""

    scores: list[dict[str, float]]
    """Of each run."""
    seeds: dict[str, dict[str, float]] = field(default_factory=dict)
    """By score: median, mean, deviation (of one run), lowest and highest."""
    noise: str = ""
    """In words: how large a difference must be to mean something."""
    interrupted: int | None = None
    """The signal that ended the work early."""


def finetune_seeds(
    model: str | Path,
    task: Task[Any],
    out: str | Path,
    config: FinetuneConfig,
    *,
    seeds: int = 1,
    tokenizer: str | Path | None = None,
    device: str = "auto",
    say: Say | None = None,
    on_step: Callable[[Loop[TaskBatch]], None] | None = None,
) -> Seeds:
    """`finetune` in `out`, or with several seeds in out/seed-0, out/seed-1, ..., counted on from the config's.

    A summary goes to out/seeds.json. Arguments and errors are those of `finetune`.
    """
    scores: list[dict[str, float]] = []
    for number in range(seeds):
        folder = Path(out) if seeds == 1 else Path(out) / f"seed-{number}"
        settings = replace(config, train=replace(config.train, seed=config.train.seed + number))
        if seeds > 1 and say is not None:
            say(f"seed {number + 1} of {seeds}")
        done = finetune(model, task, folder, settings, tokenizer=tokenizer, device=device, say=say, on_step=on_step)
        if not done.outcome.finished:
            return Seeds(scores, interrupted=done.outcome.signal or 0)
        scores.append(done.scores)
    summary = summarise(scores)
    if seeds > 1:
        with written_whole(Path(out) / "seeds.json") as file:
            file.write((json.dumps({"scores": scores, "summary": summary}, indent=2) + "\n").encode())
    return Seeds(scores, summary, noise_of(summary, metric_name(task), seeds))


def summarise(scores: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Median, mean, deviation of one run, lowest and highest of each score."""
    return {
        name: {
            "median": statistics.median(values),
            "mean": statistics.fmean(values),
            "deviation": statistics.stdev(values) if len(values) > 1 else 0.0,
            "lowest": min(values),
            "highest": max(values),
        }
        for name in scores[0]
        if (values := [one[name] for one in scores])
    }


def noise_of(summary: dict[str, dict[str, float]], metric: str, seeds: int) -> str:
    """What difference between two means of as many seeds is more than chance, in words.

    Twice the standard error of a difference of two means, deviation * sqrt(2 / seeds).
    """
    if seeds < 2:
        return ""
    deviation = summary[metric]["deviation"]
    least = 2 * deviation * (2 / seeds) ** 0.5
    return (
        f"{metric} differs from seed to seed by {deviation:.3g}: between two means of {seeds} seeds, a "
        f"difference below {least:.3g} is inside the noise"
    )
