"""Fine-tuned models side by side: a row for each task, a column for each model, from what their folders hold.

A folder is one of `litebert finetune`, with several seeds or with one. As in `compare.py` nothing is computed again and
torch is not loaded.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from litebert.analysis.report import Table
from litebert.errors import RunError
from litebert.finetuning.spread import confidence_halfwidth
from litebert.recipes.files import names_recipe
from litebert.registry import TASKS
from litebert.storage import numbers, read_json


@dataclass(frozen=True)
class TaskRow:
    """One model on one task."""

    run: str
    """Its folder."""
    task: str
    model: str
    """What was fine-tuned, as it was named; a recipe is an untrained network."""
    metric: str
    """The score that chose the weights."""
    scores: tuple[float, ...]
    """Of each seed, in percent; correlations and F1 times 100 too."""
    data: str
    """Fingerprint of what was scored."""
    restarted: int = 0
    """How many seeds were started once more because the first run gave one answer to everything."""


def compare_tasks(runs: Iterable[str | Path]) -> list[TaskRow]:
    """One row per folder, in the order given.

    Raises:
        RunError: a folder is no fine-tuning run, or not finished.
    """
    return [_row(Path(run)) for run in runs]


def task_table(rows: Sequence[TaskRow]) -> Table:
    """The rows for people: medians, and lowest and highest where there are several seeds.

    Raises:
        RunError: two folders hold the same task for the same model.
    """
    models = list(dict.fromkeys(row.model for row in rows))
    found: dict[tuple[str, str, str], dict[str, TaskRow]] = {}  # what was scored alike is one row
    for row in rows:
        here = found.setdefault((row.task, row.metric, row.data), {})
        if row.model in here:
            raise RunError(f"{here[row.model].run} and {row.run} hold the same task for {row.model}; name one of them")
        here[row.model] = row
    lines = []
    for (task, metric, _), here in found.items():
        best = max(here.values(), key=lambda row: statistics.fmean(row.scores))
        cells = [_cell(here[model], best, len(here)) if model in here else "-" for model in models]
        lines.append((task, metric, *cells))
    note = "Scores times 100."
    seeds = sorted({len(row.scores) for row in rows})
    if seeds[-1] > 1:
        note = f"Scores times 100: median of {' or '.join(map(str, seeds))} seeds (lowest to highest)."
        if any(cell.endswith("*") for line in lines for cell in line):
            note += " * the highest mean of a row, or not told apart from it (Welch's t, 95 %)."
    if again := sum(row.restarted for row in rows):
        note += f" {again} of the runs gave one answer to everything and were started once more at a third of the rate."
    return Table("Fine-tuned", ("task", "score", *_names(models)), tuple(lines), note)


def _cell(row: TaskRow, best: TaskRow, rivals: int) -> str:
    median = f"{statistics.median(row.scores):.1f}"
    if len(row.scores) == 1:
        return median
    text = f"{median} ({min(row.scores):.1f} to {max(row.scores):.1f})"
    if rivals == 1 or len(best.scores) == 1:
        return text
    near = statistics.fmean(best.scores) - statistics.fmean(row.scores) <= confidence_halfwidth(row.scores, best.scores)
    return f"{text} *" if near else text


def _names(models: Sequence[str]) -> list[str]:
    names = [Path(model).name for model in models]
    kinds = [names_recipe(model) for model in models]
    if len(set(zip(names, kinds, strict=True))) < len(models):
        names = list(models)
    return [f"{name}, untrained" if recipe else name for name, recipe in zip(names, kinds, strict=True)]


def finetunings(folder: Path) -> list[Path]:
    """The finetune.json of each seed; none where the folder is not of `litebert finetune`."""
    alone = folder / "finetune.json"
    if alone.is_file():
        return [alone]
    seeds = [path for path in folder.glob("seed-*/finetune.json") if path.parent.name[5:].isdecimal()]
    return sorted(seeds, key=lambda path: int(path.parent.name[5:]))


def _percent(task: str) -> bool:
    """Whether the scores of a task are percentages already, as in some official scripts.

    A task of several versions is named with its version, as in squad2.
    """
    name = task if task in TASKS else task.rstrip("0123456789")
    return name in TASKS and bool(TASKS[name].percent)


def _row(folder: Path) -> TaskRow:
    files = finetunings(folder)
    if not files:
        raise RunError(
            f"{folder} is no fine-tuning run; name folders of litebert finetune, or of litebert pretrain only"
        )
    summary = folder / "seeds.json"
    if files[0].parent != folder:
        if not summary.is_file():
            raise RunError(f"{folder} is not finished; give its command again")
        asked = read_json(summary, RunError).get("scores", [])  # a later command may have asked for fewer
        files = files[: len(asked)]
    settings = [read_json(file, RunError) for file in files]
    scores = []
    for file in files:
        if not (kept := file.with_name("scores.json")).is_file():
            raise RunError(f"{file.parent} is not finished; give its command again")
        scores.append(numbers(read_json(kept, RunError)))
    try:
        (task, model, metric), *others = {(str(one["task"]), str(one["model"]), str(one["metric"])) for one in settings}
        if others:
            raise RunError(f"the seeds in {folder} are of different tasks or models; name them one by one")
        scale = 1.0 if _percent(task) else 100.0
        restarted = sum((file.parent / "collapsed").is_dir() for file in files)
        values = tuple(scale * float(one[metric]) for one in scores)
        return TaskRow(str(folder), task, model, metric, values, str(settings[0]["dev_fingerprint"]), restarted)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"finetune.json or scores.json in {folder} was changed ({error!r}); restore it") from None
