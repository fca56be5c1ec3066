"""Fine-tuning with several seeds: what a score is worth when chance has had its say."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litebert.config.finetuning import FinetuneConfig
from litebert.errors import RunError
from litebert.finetune.batches import TaskBatch
from litebert.finetune.identity import IDENTITY
from litebert.finetune.run import Finetuned, finetune_ready, make_ready
from litebert.finetune.scoring import metric_name
from litebert.finetune.significance import margin
from litebert.finetune.start import Start
from litebert.finetune.task import Task
from litebert.storage import write_json
from litebert.train.loop import Loop
from litebert.train.run_folder import RunFolder

log = logging.getLogger("litebert")


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
    restarted: list[int] = field(default_factory=list)
    """Which runs, from 0, were started once more at a third of the rate, after one that collapsed."""
    collapsed: list[int] = field(default_factory=list)
    """Which give one answer to everything nevertheless."""


def finetune_seeds(
    model: str | Path,
    task: Task[Any],
    out: str | Path,
    config: FinetuneConfig,
    *,
    seeds: int = 1,
    tokenizer: str | Path | None = None,
    start: Start | None = None,
    device: str = "auto",
    on_step: Callable[[Loop[TaskBatch]], None] | None = None,
) -> Seeds:
    """`finetune` in `out`, or with several seeds in out/seed-0, out/seed-1, ..., counted on from the config's.

    A summary goes to out/seeds.json. Arguments and errors are those of `finetune` and `make_ready`.
    """
    folders = [Path(out)] if seeds == 1 else [Path(out) / f"seed-{number}" for number in range(seeds)]
    if seeds > 1 and (Path(out) / IDENTITY).exists():
        raise RunError(f"{out} holds a run of one seed; give another --out for {seeds}")
    for folder in folders:
        RunFolder(folder, IDENTITY).check()
    ready = make_ready(model, task, config, tokenizer=tokenizer, start=start)
    runs: list[Finetuned] = []
    for number, folder in enumerate(folders):
        if seeds > 1:
            log.info(f"seed {number + 1} of {seeds}")
        seed = config.train.seed + number
        done = finetune_ready(ready, task, folder, seed, device=device, on_step=on_step)
        if done.outcome.finished:
            runs.append(done)
        if not done.outcome.finished or (done.outcome.signal is not None and len(runs) < seeds):
            return Seeds([run.scores for run in runs], interrupted=done.outcome.signal or 0)
    scores = [run.scores for run in runs]
    summary = summarise(scores)
    if seeds > 1:
        write_json(Path(out) / "seeds.json", {"scores": scores, "summary": summary})
    return Seeds(
        scores, summary, noise_of(metric_name(task), [run.scores[metric_name(task)] for run in runs]),
        restarted=[i for i, run in enumerate(runs) if run.restarted],
        collapsed=[i for i, run in enumerate(runs) if run.collapsed],
    )  # fmt: skip


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


def noise_of(name: str, values: list[float]) -> str:
    """What difference between two means of as many seeds is more than chance, in words; empty for one seed."""
    if len(values) < 2:
        return ""
    if not statistics.stdev(values):
        return f"{name} is the same for all {len(values)} seeds, which does not tell what chance does to it"
    return (
        f"{name} differs from seed to seed by {statistics.stdev(values):.3g}: between two means of {len(values)} "
        f"seeds, a difference below {margin(values, values):.3g} is inside the noise"
    )
