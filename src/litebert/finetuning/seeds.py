"""Fine-tuning with several seeds: what a score is worth when chance has had its say."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litebert.config.finetuning import FinetuneConfig
from litebert.errors import RunError
from litebert.finetuning.batches import TaskBatch
from litebert.finetuning.identity import IDENTITY
from litebert.finetuning.run import Finetuned, finetune_prepared, prepare_task
from litebert.finetuning.scoring import metric_name
from litebert.finetuning.spread import noise_of, summarise
from litebert.finetuning.start import InitialModel
from litebert.finetuning.task import Task
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
    start: InitialModel | None = None,
    device: str = "auto",
    on_step: Callable[[Loop[TaskBatch]], None] | None = None,
) -> Seeds:
    """`finetune` in `out`, or with several seeds in out/seed-0, out/seed-1, ..., counted on from the config's.

    A summary goes to out/seeds.json. Arguments and errors are those of `finetune` and `prepare_task`.
    """
    folders = [Path(out)] if seeds == 1 else [Path(out) / f"seed-{number}" for number in range(seeds)]
    if seeds > 1 and (Path(out) / IDENTITY).exists():
        raise RunError(f"{out} holds a run of one seed; give another --out for {seeds}")
    for folder in folders:
        RunFolder(folder, IDENTITY).check()
    prepared = prepare_task(model, task, config, tokenizer=tokenizer, start=start)
    runs: list[Finetuned] = []
    for number, folder in enumerate(folders):
        if seeds > 1:
            log.info(f"seed {number + 1} of {seeds}")
        seed = config.train.seed + number
        done = finetune_prepared(prepared, task, folder, seed, device=device, on_step=on_step)
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
