"""Compare fine-tuned models, and fits, by the files in their folders: tasks as rows, models as
columns. Runs of a model with the same settings on different tasks share a column.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litebert.analysis.compare import find_differing, flatten, shorten_names
from litebert.analysis.report import Table
from litebert.base.errors import RunError
from litebert.base.json_reader import fault_of, read_json
from litebert.base.registry import TASKS
from litebert.base.storage import hash_fault, newest_whole
from litebert.interop.names import FIT
from litebert.judge.baselines import read_baseline, read_scores
from litebert.judge.seeds import judge
from litebert.recipes.files import is_recipe_name

RECOVERED, COLLAPSED = "†", "‡"
_FREE = ("config.train.save_every", "config.train.keep_checkpoints")
"""Settings that change no score."""


@dataclass(frozen=True)
class TaskRow:
    run: str
    task: str
    model: str
    """The name of the pretrained model; the name of a recipe for a network from scratch."""
    metric: str
    scores: tuple[float, ...]
    """The score of each finished seed, in percent; correlations and F1 times 100 too."""
    data: str
    restarted: int = 0
    """The seeds that ran a second time, because the first run gave the same answer to all."""
    collapsed: int = 0
    """The seeds that give the same answer to all in the end."""
    unfinished: int = 0
    """The seeds that have not ended; 1 if only the summary of all is missing."""
    files: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """The other settings of the run, by dotted names."""
    baseline: float | None = None
    """The baseline's score on the same rows, in percent; None if the run has no baseline."""
    rows: int = 0


def compare_tasks(runs: Iterable[str | Path]) -> list[TaskRow]:
    """Compare run folders, in the same order; an unfinished run has its finished seeds."""
    return [_read_run(Path(run)) for run in runs]


Column = list[TaskRow]


def group_columns(rows: Sequence[TaskRow]) -> dict[str, Column]:
    differing = _find_differing_settings(rows)
    columns: dict[tuple[Any, ...], Column] = {}
    for row in rows:
        key = (row.model, *(row.settings.get(name) for name in differing[row.model]))
        if _question_of(row) in [_question_of(other) for other in columns.get(key, [])]:
            key = (*key, row.run)  # the same run again, or a run with the same settings
        columns.setdefault(key, []).append(row)
    models = [column[0].model for column in columns.values()]
    distinct = list(dict.fromkeys(models))
    names = dict(zip(distinct, _name_models(distinct), strict=True))
    paths = [row.run for row in rows]
    folders = dict(zip(paths, shorten_names(paths), strict=True))
    headings: dict[str, Column] = {}
    for number, (model, column) in enumerate(zip(models, columns.values(), strict=True), start=1):
        heading = names[model]
        if models.count(model) > 1 and len(column) == 1:
            heading = folders[column[0].run]
        headings[f"{heading} #{number}" if heading in headings else heading] = column
    return headings


def _find_differing_settings(rows: Sequence[TaskRow]) -> dict[str, list[str]]:
    groups: dict[tuple[str, ...], Column] = {}
    for row in rows:
        groups.setdefault((*_question_of(row), row.model), []).append(row)
    settings: dict[str, dict[str, None]] = {}
    for (*_, model), group in groups.items():
        names = find_differing([row.settings for row in group])
        settings.setdefault(model, {}).update(dict.fromkeys(names))
    return {model: list(names) for model, names in settings.items()}


def make_task_table(rows: Sequence[TaskRow]) -> Table:
    columns = group_columns(rows)
    has_baseline = any(row.baseline is not None for row in rows)
    lines = []
    for question in dict.fromkeys(_question_of(row) for row in rows):
        row_of = {
            name: row
            for name, column in columns.items()
            for row in column
            if _question_of(row) == question
        }
        finished = [
            row for row in row_of.values() if not row.unfinished and math.isfinite(sum(row.scores))
        ]
        best = max(finished, key=lambda row: statistics.fmean(row.scores), default=None)
        cells = [
            _format_scores(row_of[name], best, len(finished)) if name in row_of else "-"
            for name in columns
        ]
        if has_baseline:
            cells.append(_format_baselines(row_of.values()))
        first = next(iter(row_of.values()))
        files_of_data = {other.data: other.files for other in rows if other.task == first.task}
        is_named = len(files_of_data) > 1 and first.files
        name = f"{first.task}: {', '.join(first.files)}" if is_named else first.task
        lines.append((name, question[1], *cells))
    names = ("task", "score", *columns, *(["baseline"] if has_baseline else []))
    has_star = any("*" in cell for line in lines for cell in line[2:])
    return Table("Fine-tuned", names, tuple(lines), _write_note(rows, has_star))


def _format_baselines(rows: Iterable[TaskRow]) -> str:
    baselines = [row.baseline for row in rows if row.baseline is not None]
    if not baselines:
        return "-"
    return " to ".join(dict.fromkeys(f"{end:.1f}" for end in (min(baselines), max(baselines))))


def _write_note(rows: Sequence[TaskRow], has_star: bool) -> str:
    seeds = sorted({len(row.scores) for row in rows if row.scores}) or [0]
    note = "Scores times 100."
    if seeds[-1] > 1:
        note = (
            f"Scores times 100: median of {' or '.join(map(str, seeds))} seeds (lowest to highest)."
        )
    if has_star:
        note += (
            " * the highest mean of a row, or level with it: the difference is inside the noise of "
            "the seeds and of the rows (95%)."
        )
    if any(row.restarted for row in rows):
        note += (
            f" {RECOVERED} started a second time at a third of the rate: the first run gave the "
            "same answer to all."
        )
    if any(row.collapsed for row in rows):
        note += f" {COLLAPSED} gives the same answer to all: its score is that of guessing."
    if any(row.baseline is not None for row in rows):
        note += " baseline: a TF-IDF model of words and characters, fitted on the rows of the run."
    return note


def make_differences_table(rows: Sequence[TaskRow]) -> Table:
    columns = group_columns(rows)
    # Every heading is the name of a model if no two columns have the same model.
    has_model_headings = len({column[0].model for column in columns.values()}) == len(columns)
    merged_columns = []
    for column in columns.values():
        merged: dict[str, str] = {} if has_model_headings else {"model": column[0].model}
        for name in dict.fromkeys(name for row in column for name in row.settings):
            values = {row.settings.get(name, "-") for row in column}
            merged[name] = values.pop() if len(values) == 1 else "varies"
        merged_columns.append(merged)
    names = find_differing(merged_columns)
    # A fingerprint tells nothing more if names or settings already tell two columns apart.
    are_models_told = has_model_headings or "model" in names
    if are_models_told or "config.length" in names or "training files" in names:
        names = [name for name in names if name != "data fingerprint"]
    if are_models_told:
        names = [name for name in names if name != "model fingerprint"]
    lines = [
        (name.removeprefix("config."), *(merged.get(name, "-") for merged in merged_columns))
        for name in names
    ]
    return Table("What differs", ("setting", *columns), tuple(lines))


def _question_of(row: TaskRow) -> tuple[str, str, str]:
    return row.task, row.metric, row.data


def _format_scores(row: TaskRow, best: TaskRow | None, rivals: int) -> str:
    marks = RECOVERED * (row.restarted > row.collapsed) + COLLAPSED * (row.collapsed > 0)
    marks = f" {marks}" if marks else ""
    if not row.scores:
        return f"unfinished{marks}"
    text = f"{statistics.median(row.scores):.1f}"
    if len(row.scores) > 1:
        text += f" ({min(row.scores):.1f} to {max(row.scores):.1f})"
    if row.unfinished:
        return f"{text}{marks} unfinished"
    if best is None or rivals == 1 or not math.isfinite(sum(row.scores)):
        return f"{text}{marks}"
    verdict = judge(row.scores, best.scores, row.rows, 100.0)
    return f"{text}{marks} *" if verdict == "level" else f"{text}{marks}"


def _name_models(models: Sequence[str]) -> list[str]:
    names = [Path(model).name or model for model in models]
    are_recipes = [is_recipe_name(model) for model in models]
    if len(set(zip(names, are_recipes, strict=True))) < len(models):
        names = list(models)
    return [
        f"{name}, from scratch" if is_recipe else name
        for name, is_recipe in zip(names, are_recipes, strict=True)
    ]


# --------------------------------------------------------------------------------- reading a folder


def find_finetunings(folder: Path) -> list[Path]:
    single = folder / "finetune.json"
    if single.is_file():
        return [single]
    seeds = [
        path for path in folder.glob("seed-*/finetune.json") if path.parent.name[5:].isdecimal()
    ]
    return sorted(seeds, key=lambda path: int(path.parent.name[5:]))


def is_percent(task: str) -> bool:
    """Return True if the scores of a task are percentages, as in some official scripts. A task of
    several versions is named with its version, as in squad2.
    """
    name = task if task in TASKS else task.rstrip("0123456789")
    return name in TASKS and bool(TASKS[name].percent)


def is_task_run(folder: Path) -> bool:
    return bool(find_finetunings(folder)) or (folder / FIT).is_file()


def _read_fit(folder: Path) -> TaskRow:
    record = read_json(folder / FIT, RunError)
    try:
        question, method = record["question"], record.get("method")
        data = question["data"]
        judged = next((each for each in record.get("judged", ()) if each["method"] == method), None)
        if method is not None and judged is None:
            raise RunError(f"no row judged the fit in {folder}, which has no labels; leave it out")
        return TaskRow(
            run=str(folder),
            task="table",
            model=str(method),
            metric=str(record.get("metric")),
            scores=() if judged is None else (100.0 * float(judged["score"]),),
            data=str(question["digest"]),
            unfinished=int(judged is None),
            files=tuple(map(os.path.basename, [data] if isinstance(data, str) else data)),
            settings={name: str(question[name]) for name in ("model", "budget", "prefer", "seed")},
            rows=0 if judged is None else int(judged["rows"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{folder / FIT} was changed ({fault_of(error)}); restore it") from None


def _read_run(folder: Path) -> TaskRow:
    if (folder / FIT).is_file():
        return _read_fit(folder)
    files = find_finetunings(folder)
    if not files:
        raise RunError(
            f"{folder} is not a fine-tuning run; name only folders of litebert finetune and fit, "
            "or only of litebert pretrain"
        )
    summary, missing = folder / "seeds.json", 0
    if files[0].parent != folder:
        if summary.is_file():
            seeds = read_json(summary, RunError).get("scores")
            if not isinstance(seeds, list) or not seeds:
                raise RunError(
                    f"{summary} has no list of scores; give the run's command again to write it"
                )
            files = files[: len(seeds)]  # a later command may have run fewer of them
        else:
            missing = 1
    runs = [read_json(file, RunError) for file in files]
    finished = [file for file in files if file.with_name("scores.json").is_file()]
    scores = [read_scores(file.with_name("scores.json")) for file in finished]
    baseline = read_baseline(finished[0].with_name("scores.json")) if finished else None
    try:
        (task, model, metric), *others = {
            (str(run["task"]), str(run["model"]), str(run["metric"])) for run in runs
        }
        if others:
            raise RunError(
                f"the seeds in {folder} are of different tasks or models; name them one by one"
            )
        scale = 1.0 if is_percent(task) else 100.0
        has_baseline = baseline is not None and metric in baseline.scores
        named = {
            split: [os.path.basename(str(name)) for name in names]
            for split, names in runs[0]["files"].items()
        }
        # A dev split that was held out has no file.
        dev = [name for split in named if split not in ("train", "test") for name in named[split]]
        settings = flatten({"config": runs[0]["config"]})
        settings = {name: value for name, value in settings.items() if name not in _FREE}
        if len(files) > 1:
            settings["seeds"] = str(len(files))
        if named.get("train"):
            settings["training files"] = ", ".join(named["train"])
        for key in ("model_fingerprint", "data_fingerprint"):
            settings[key.replace("_", " ")] = str(runs[0][key])[:8]
        return TaskRow(
            run=str(folder),
            task=task,
            model=model,
            metric=metric,
            scores=tuple(scale * float(seed_scores[metric]) for seed_scores in scores),
            data=str(runs[0]["dev_fingerprint"]),
            restarted=sum((file.parent / "collapsed").is_dir() for file in files),
            collapsed=sum(_is_collapsed(file.parent) for file in finished),
            unfinished=len(files) - len(finished) or missing,
            files=tuple(dev or named.get("train", ())),
            settings=settings,
            baseline=scale * baseline.scores[metric] if baseline and has_baseline else None,
            rows=int(runs[0].get("dev_rows", 0)),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise RunError(
            f"finetune.json or scores.json in {folder} was changed ({fault_of(error)}); restore it"
        ) from None


def _is_collapsed(folder: Path) -> bool:
    """Return True if a finished run gives the same answer to all, by its newest checkpoint."""
    newest, _ = newest_whole(folder / "checkpoints", lambda path: hash_fault(path, "state.json"))
    state = read_json(newest / "state.json", RunError).get("diagnostic_state") if newest else None
    return isinstance(state, dict) and state.get("one_answer") is True
