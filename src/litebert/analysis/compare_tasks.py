"""Fine-tuned models side by side: a row for each task, a column for each run, from what their
folders hold.

A folder is one of `litebert finetune`, with several seeds or with one. Runs of one model with the
same settings on different tasks share a column; runs that differ in anything have their own, and
what differs is named. As in `compare.py` nothing is computed again and torch is not loaded.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litebert.analysis.differences import differing, flat, short_names
from litebert.analysis.report import Table
from litebert.errors import RunError
from litebert.finetuning.baselines import read_baseline, read_scores
from litebert.finetuning.spread import confidence_halfwidth
from litebert.json_reader import fault_of, read_json
from litebert.recipes.files import is_recipe_name
from litebert.registry import TASKS
from litebert.storage import hash_fault, newest_whole

RECOVERED, COLLAPSED = "†", "‡"
_FREE = ("config.train.save_every", "config.train.keep_checkpoints")
"""Settings that change no score."""


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
    """Of each finished seed, in percent; correlations and F1 times 100 too."""
    data: str
    """Fingerprint of what was scored."""
    restarted: int = 0
    """How many seeds were started once more because the first run gave one answer to everything."""
    collapsed: int = 0
    """How many seeds give one answer to everything in the end, restarted or not."""
    unfinished: int = 0
    """How many seeds, or the summary of all, are still to come."""
    files: tuple[str, ...] = ()
    """The names of the files that were scored, where the run recorded them."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What else made the run, by dotted name."""
    baseline: float | None = None
    """What counting words and characters scores on the same rows, in percent; None where the run
    has no baseline.
    """


def compare_tasks(runs: Iterable[str | Path]) -> list[TaskRow]:
    """One row per folder, in the order given; a run that is not finished has the scores of its
    finished seeds.

    Raises:
        RunError: a folder is no fine-tuning run, or was changed.
    """
    return [_row(Path(run)) for run in runs]


Column = list[TaskRow]
"""The runs of one column, each on another task."""


def task_columns(rows: Sequence[TaskRow]) -> dict[str, Column]:
    """The runs of each column, by its heading."""
    cells: dict[tuple[str, ...], Column] = {}
    for row in rows:
        cells.setdefault((*_question(row), row.model), []).append(row)
    split: dict[
        str, dict[str, None]
    ] = {}  # by model, the settings in which two of its runs on one task differ
    for (*_, model), alike in cells.items():
        split.setdefault(model, {}).update(
            dict.fromkeys(differing([row.settings for row in alike]))
        )
    columns: dict[tuple[Any, ...], Column] = {}
    for row in rows:
        key = (row.model, *(row.settings.get(name) for name in split[row.model]))
        questions = [_question(other) for other in columns.get(key, [])]
        columns.setdefault((*key, row.run) if _question(row) in questions else key, []).append(row)
    models = [column[0].model for column in columns.values()]
    names = dict(zip(dict.fromkeys(models), _model_names(list(dict.fromkeys(models))), strict=True))
    folders = dict(
        zip((row.run for row in rows), short_names([row.run for row in rows]), strict=True)
    )
    headings: dict[str, Column] = {}
    for number, (model, column) in enumerate(zip(models, columns.values(), strict=True), start=1):
        heading = (
            folders[column[0].run] if models.count(model) > 1 and len(column) == 1 else names[model]
        )
        headings[f"{heading} #{number}" if heading in headings else heading] = column
    return headings


def task_table(rows: Sequence[TaskRow]) -> Table:
    """The rows for people: medians, and lowest and highest where there are several seeds."""
    columns = task_columns(rows)
    questions = dict.fromkeys(_question(row) for row in rows)
    with_baseline = any(row.baseline is not None for row in rows)
    lines = []
    for question in questions:
        here = {
            name: row
            for name, column in columns.items()
            for row in column
            if _question(row) == question
        }
        done = [
            row for row in here.values() if not row.unfinished and math.isfinite(sum(row.scores))
        ]
        best = max(done, key=lambda row: statistics.fmean(row.scores), default=None)
        cells = [_cell(here[name], best, len(done)) if name in here else "-" for name in columns]
        counted = [row.baseline for row in here.values() if row.baseline is not None]
        # Runs with other training rows have baselines of their own.
        ends = (
            dict.fromkeys(f"{end:.1f}" for end in (min(counted), max(counted)))
            if counted
            else ("-",)
        )
        last = (" to ".join(ends),) if with_baseline else ()
        lines.append((_task_name(next(iter(here.values())), rows), question[1], *cells, *last))
    seeds = sorted({len(row.scores) for row in rows if row.scores}) or [0]
    note = "Scores times 100."
    if seeds[-1] > 1:
        note = (
            f"Scores times 100: median of {' or '.join(map(str, seeds))} seeds (lowest to highest)."
        )
        if any("*" in cell for line in lines for cell in line[2:]):
            note += (
                " * the highest mean of a row, or not distinguishable from it (Welch's t, 95 %)."
            )
    if any(row.restarted for row in rows):
        note += (
            f" {RECOVERED} started once more at a third of the rate: the first run gave one "
            "answer to everything."
        )
    if any(row.collapsed for row in rows):
        note += f" {COLLAPSED} gives one answer to everything: its score is that of guessing."
    if with_baseline:
        note += (
            " baseline: a model that counts words and characters, fitted on the rows of the run."
        )
    last = ("baseline",) if with_baseline else ()
    return Table("Fine-tuned", ("task", "score", *columns, *last), tuple(lines), note)


def task_differences(rows: Sequence[TaskRow]) -> Table:
    """A row for each setting in which the columns of `task_table` differ; no rows where they differ
    in none.
    """
    columns = task_columns(rows)
    by_name = len({column[0].model for column in columns.values()}) == len(
        columns
    )  # the headings say it then
    shown = []
    for column in columns.values():
        merged: dict[str, str] = {} if by_name else {"model": column[0].model}
        for name in dict.fromkeys(name for row in column for name in row.settings):
            values = {row.settings.get(name, "-") for row in column}
            merged[name] = values.pop() if len(values) == 1 else "varies"
        shown.append(merged)
    # Fingerprints of what has names say nothing; of what has the same name, they are all there is
    # to say.
    fields = differing(shown)
    if by_name or "model" in fields or "config.length" in fields or "training files" in fields:
        fields = [name for name in fields if name != "data fingerprint"]
    if by_name or "model" in fields:
        fields = [name for name in fields if name != "model fingerprint"]
    lines = [
        (name.removeprefix("config."), *(one.get(name, "-") for one in shown)) for name in fields
    ]
    return Table("What differs", ("setting", *columns), tuple(lines))


def _question(row: TaskRow) -> tuple[str, str, str]:
    """Runs with the same one were scored alike."""
    return row.task, row.metric, row.data


def _task_name(row: TaskRow, rows: Sequence[TaskRow]) -> str:
    """The task, with its files where other rows of that task are about others."""
    same = {other.data: other.files for other in rows if other.task == row.task}
    return f"{row.task}: {', '.join(row.files)}" if len(same) > 1 and row.files else row.task


def _cell(row: TaskRow, best: TaskRow | None, rivals: int) -> str:
    marks = RECOVERED * (row.restarted > row.collapsed) + COLLAPSED * (row.collapsed > 0)
    marks = f" {marks}" if marks else ""
    if not row.scores:
        return f"unfinished{marks}"
    text = f"{statistics.median(row.scores):.1f}"
    if len(row.scores) > 1:
        text += f" ({min(row.scores):.1f} to {max(row.scores):.1f})"
    if row.unfinished:
        return f"{text}{marks} unfinished"
    if (
        best is None
        or rivals == 1
        or 1 in (len(best.scores), len(row.scores))
        or not math.isfinite(sum(row.scores))
    ):
        return f"{text}{marks}"
    near = statistics.fmean(best.scores) - statistics.fmean(row.scores) <= confidence_halfwidth(
        row.scores, best.scores
    )
    return f"{text}{marks} *" if near else f"{text}{marks}"


def _model_names(models: Sequence[str]) -> list[str]:
    names = [Path(model).name or model for model in models]
    kinds = [is_recipe_name(model) for model in models]
    if len(set(zip(names, kinds, strict=True))) < len(models):
        names = list(models)
    return [
        f"{name}, untrained" if recipe else name for name, recipe in zip(names, kinds, strict=True)
    ]


# ------------------------------------------------------------------------------ what a folder holds


def finetunings(folder: Path) -> list[Path]:
    """The finetune.json of each seed; none where the folder is not of `litebert finetune`."""
    alone = folder / "finetune.json"
    if alone.is_file():
        return [alone]
    seeds = [
        path for path in folder.glob("seed-*/finetune.json") if path.parent.name[5:].isdecimal()
    ]
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
            f"{folder} is not a fine-tuning run; name only folders of litebert finetune, or only "
            "of litebert pretrain"
        )
    summary, missing = folder / "seeds.json", 0
    if files[0].parent != folder:
        if summary.is_file():
            asked = read_json(summary, RunError).get(
                "scores"
            )  # a later command may have asked for fewer
            if not isinstance(asked, list) or not asked:
                raise RunError(
                    f"{summary} has no list of scores; give the run's command again to write it"
                )
            files = files[: len(asked)]
        else:
            missing = 1
    settings = [read_json(file, RunError) for file in files]
    done = [file for file in files if file.with_name("scores.json").is_file()]
    scores = [read_scores(file.with_name("scores.json")) for file in done]
    counted = read_baseline(done[0].with_name("scores.json")) if done else None
    try:
        (task, model, metric), *others = {
            (str(one["task"]), str(one["model"]), str(one["metric"])) for one in settings
        }
        if others:
            raise RunError(
                f"the seeds in {folder} are of different tasks or models; name them one by one"
            )
        scale = 1.0 if _percent(task) else 100.0
        values = tuple(scale * float(one[metric]) for one in scores)
        return TaskRow(
            run=str(folder),
            task=task,
            model=model,
            metric=metric,
            scores=values,
            data=str(settings[0]["dev_fingerprint"]),
            restarted=sum((file.parent / "collapsed").is_dir() for file in files),
            collapsed=sum(_one_answer(file.parent) for file in done),
            unfinished=len(files) - len(done) or missing,
            files=_scored_files(settings[0]),
            settings=_settings(settings[0], len(files)),
            baseline=None
            if counted is None or metric not in counted.scores
            else scale * counted.scores[metric],
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise RunError(
            f"finetune.json or scores.json in {folder} was changed ({fault_of(error)}); restore it"
        ) from None


def _one_answer(folder: Path) -> bool:
    """Whether a finished run gives one answer to everything, as its newest checkpoint knows."""
    newest, _ = newest_whole(folder / "checkpoints", lambda path: hash_fault(path, "state.json"))
    found = read_json(newest / "state.json", RunError).get("diagnostic_state") if newest else None
    return isinstance(found, dict) and found.get("one_answer") is True


def _files(about: Mapping[str, Any]) -> dict[str, list[str]]:
    """The names of the files of each part."""
    return {
        part: [os.path.basename(str(name)) for name in names]
        for part, names in about["files"].items()
    }


def _scored_files(about: Mapping[str, Any]) -> tuple[str, ...]:
    """Those of the development parts, or of the training part a share of which was held out."""
    files = _files(about)
    dev = [name for part, names in files.items() if part not in ("train", "test") for name in names]
    return tuple(dev or files.get("train", ()))


def _settings(about: Mapping[str, Any], seeds: int) -> dict[str, str]:
    """What made a run, beside its model and what it was scored on."""
    found = {
        name: value
        for name, value in flat({"config": about["config"]}).items()
        if name not in _FREE
    }
    if seeds > 1:
        found["seeds"] = str(seeds)
    if train := _files(about).get("train"):
        found["training files"] = ", ".join(train)
    for key in ("model_fingerprint", "data_fingerprint"):
        found[key.replace("_", " ")] = str(about[key])[:8]
    return found
