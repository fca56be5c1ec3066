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
from litebert.recipe_files import names_recipe
from litebert.train.metrics import read_json

_PERCENT = ("squad",)
"""Tasks whose scores are percentages already, as in their official scripts."""


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

    @property
    def median(self) -> float:
        """Of the seeds."""
        return statistics.median(self.scores)


def is_finetuned(folder: str | Path) -> bool:
    """Whether a folder is of `litebert finetune`."""
    return bool(_settings(Path(folder)))


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
    tasks = list(dict.fromkeys((row.task, row.metric) for row in rows))
    found: dict[tuple[str, str, str], TaskRow] = {}
    for row in rows:
        key = (row.task, row.metric, row.model)
        if key in found:
            raise RunError(f"{found[key].run} and {row.run} hold the same task for {row.model}; name one of them")
        found[key] = row
    lines = []
    for task, metric in tasks:
        here = {model: found[task, metric, model] for model in models if (task, metric, model) in found}
        best = max(here.values(), key=lambda row: statistics.fmean(row.scores))
        cells = [_cell(here[model], best, len(here)) if model in here else "-" for model in models]
        lines.append((task, metric, *cells))
    note = "Scores times 100."
    seeds = sorted({len(row.scores) for row in rows})
    if seeds[-1] > 1:
        many = " or ".join(map(str, seeds))
        note = f"Scores times 100: median of {many} seeds (lowest to highest)."
        if seeds[0] > 1 and len(models) > 1:
            note += (
                " * the highest mean of a row, or no further from it than twice the standard error of the difference."
            )
    return Table("Fine-tuned", ("task", "score", *_names(models)), tuple(lines), note)


def _cell(row: TaskRow, best: TaskRow, rivals: int) -> str:
    if len(row.scores) == 1:
        return f"{row.median:.1f}"
    text = f"{row.median:.1f} ({min(row.scores):.1f} to {max(row.scores):.1f})"
    if rivals == 1 or len(best.scores) == 1:
        return text
    error = sum(statistics.variance(one.scores) / len(one.scores) for one in (row, best)) ** 0.5
    near = statistics.fmean(best.scores) - statistics.fmean(row.scores) <= 2 * error
    return f"{text} *" if near else text


def _names(models: Sequence[str]) -> list[str]:
    names = [Path(model).name for model in models]
    kinds = [names_recipe(model) for model in models]
    if len(set(zip(names, kinds, strict=True))) < len(models):
        names = list(models)
    return [f"{name}, untrained" if recipe else name for name, recipe in zip(names, kinds, strict=True)]


def _settings(folder: Path) -> list[Path]:
    """The finetune.json of each seed."""
    alone = folder / "finetune.json"
    if alone.is_file():
        return [alone]
    seeds = [path for path in folder.glob("seed-*/finetune.json") if path.parent.name[5:].isdecimal()]
    return sorted(seeds, key=lambda path: int(path.parent.name[5:]))


def _row(folder: Path) -> TaskRow:
    files = _settings(folder)
    if not files:
        raise RunError(
            f"{folder} is no fine-tuning run; name folders of litebert finetune, or of litebert pretrain only"
        )
    settings = [read_json(file) for file in files]
    scores = []
    for file in files:
        if not (kept := file.with_name("scores.json")).is_file():
            raise RunError(f"{file.parent} is not finished; give its command again")
        scores.append(read_json(kept))
    try:
        (task, model, metric), *others = {
            tuple(str(one[key]) for key in ("task", "model", "metric")) for one in settings
        }
        if others:
            raise RunError(f"the seeds in {folder} are of different tasks or models; name them one by one")
        scale = 1.0 if task in _PERCENT else 100.0
        return TaskRow(str(folder), task, model, metric, tuple(scale * float(one[metric]) for one in scores))
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"finetune.json or scores.json in {folder} was changed ({error!r}); restore it") from None
