"""`report.html` of a run folder, of pretraining or fine-tuning, from the files that the run
wrote."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from litebert.analysis.chart import value_with_error
from litebert.analysis.report import (
    Headline,
    HeadlineScore,
    Section,
    Table,
    run_sections,
    share_error,
    write,
)
from litebert.errors import RunError
from litebert.finetuning.baselines import advise, read_baseline
from litebert.json_reader import read_json
from litebert.model.objectives import ShownScore, score_rows, shown_scores
from litebert.progress import task
from litebert.tasks.scores import score_title
from litebert.train import metrics

MOST_HEADLINES = 4
"""Large numbers that a reader takes in at a glance."""


@task("writing the report")
def write_run(folder: Path) -> Path:
    """Write `folder`/report.html: the newest held-out scores, the curves and the events of the run
    so far.
    """
    rows = recorded(folder)
    write_parts = _finetuning if (folder / "finetune.json").is_file() else _pretraining
    lead, sections = write_parts(folder, rows)
    path = folder / "report.html"
    write(path, folder.resolve().name, lead, sections)
    return path


def recorded(folder: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl and speed.jsonl."""
    return metrics.read(folder / "metrics.jsonl") + metrics.read(folder / "speed.jsonl")


def _pretraining(folder: Path, rows: list[dict[str, Any]]) -> tuple[str, list[Section]]:
    """The lead and the sections of a pretraining run: what it reached, how it got there, and the
    details.
    """
    facts, recipe = (
        read_json(folder / "run.json", RunError),
        read_json(folder / "recipe.json", RunError),
    )
    shape = recipe["encoder"]
    lead = (
        f"{recipe['name']}: {shape['layers']} layers, hidden size {shape['hidden_size']}; "
        f"{_steps(rows)} of "
        f"{facts['steps']:,} steps on {facts['machine']}."
    )
    tables: list[Table] = []
    headlines: list[Section] = []
    if heldout := [row for row in rows if row["kind"] == "heldout"]:
        shown = shown_scores(_numbers(heldout[-1]))
        when = f"at step {heldout[-1]['step']:,}"
        note = "litebert evaluate scores more sequences by default, so its numbers differ a little."
        headlines = [pretraining_headline(f"Held-out scores {when}", shown, note)]
        if len(shown) > MOST_HEADLINES:
            tables = [score_table(f"All held-out scores {when}", shown)]
    if watched := watched_table(rows):
        note = (
            "Scores on the held-out part of the data given with --watch, before the first step "
            "and now."
        )
        tables.append(Table("Watched text", *watched, note))
    return lead, arranged(headlines, run_sections(rows, facts.get("unigram_entropy")), tables)


def arranged(headlines: list[Section], curves: list[Section], tables: list[Table]) -> list[Section]:
    """What a run reached, then its curves, then the tables that few read, its events last."""
    charts = [section for section in curves if not isinstance(section, Table)]
    events = [section for section in curves if isinstance(section, Table)]
    return [*headlines, *charts, *tables, *events]


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    return {key: value for key, value in row.items() if isinstance(value, float)}


def pretraining_headline(title: str, shown: list[ShownScore], note: str = "") -> Headline:
    """The held-out scores as large numbers: all of them if they are few, else those that runs are
    compared by.
    """
    if len(shown) > MOST_HEADLINES:
        shown = [score for score in shown if score.is_compared]
    scores = []
    for score in shown:
        baseline = f"{score.remark}: {score.baseline}" if score.baseline else score.remark
        notes = tuple(note for note in (baseline, score.size and f"on {score.size}") if note)
        error = f"± {score.error}" if score.error else ""
        scores.append(HeadlineScore(score.title, score.value, error, notes))
    has_errors = any(score.error for score in scores)
    remark = f"{ERROR_NOTE} " if has_errors and "standard error" not in note else ""
    return Headline(title, tuple(scores), (remark + note).strip())


ERROR_NOTE = "± is one standard error."


def score_table(title: str, shown: list[ShownScore], note: str = "") -> Table:
    """A row for each held-out score, with its error, what it is compared with, and what it was
    measured on.
    """
    rows = []
    for score in shown:
        value = f"{score.value} ± {score.error}" if score.error else score.value
        baseline = f"{score.baseline} ({score.remark})" if score.baseline else score.remark
        rows.append((score.title, value, baseline, score.size))
    return Table(title, ("score", "model", "without learning", "measured on"), tuple(rows), note)


def watched_table(
    rows: list[dict[str, Any]],
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]] | None:
    """Columns and rows of the scores on watched text (`--watch`), at first and at last; None where
    none was watched.
    """
    watched = [
        {key: value for key, value in row.items() if key != "kind"}
        for row in rows
        if row["kind"] == "watch"
    ]
    if not watched:
        return None
    first, last = watched[0], watched[-1]
    before, after = (dict(score_rows(_numbers(row))) for row in (first, last))
    columns = ("watched text", f"step {first['step']:,}", f"step {last['step']:,}")
    return columns, tuple((name, before.get(name, ""), text) for name, text in after.items())


def _finetuning(folder: Path, rows: list[dict[str, Any]]) -> tuple[str, list[Section]]:
    """The lead and the sections of a fine-tuning run."""
    facts = read_json(folder / "finetune.json", RunError)
    metric, file = facts["metric"], folder / "scores.json"
    listed = read_json(file, RunError).items() if file.is_file() else ()
    scores = {name: value for name, value in listed if isinstance(value, (int, float))}
    names = sorted(
        scores, key=lambda name: name != metric
    )  # the metric first, the others as they are
    counts = {name: count for name in names if (count := _rows_behind(folder, name))}
    headlines: list[Section] = []
    tables: list[Table] = []
    baseline = read_baseline(file) if file.is_file() else None
    counted = {} if baseline is None else baseline.scores
    if scores:
        large = tuple(
            _task_score(name, scores[name], counts.get(name, 0), counted.get(name))
            for name in names[:MOST_HEADLINES]
        )
        notes = [ERROR_NOTE] if any(score.error for score in large) else []
        if baseline is not None:
            notes.append(f"The baseline counts on the same rows: {baseline.note}.")
        if metric in scores and (advice := advise(metric, scores[metric], baseline)):
            notes.append(f"{advice[0].upper()}{advice[1:]}.")
        headlines = [Headline("Scores of the best weights", large, " ".join(notes))]
    if len(names) > MOST_HEADLINES:
        cells = tuple(
            (score_title(name), f"{scores[name]:.4g}", _cell(counted.get(name))) for name in names
        )
        columns = ("score", "value", "baseline")
        shown = 3 if counted else 2  # without a baseline there is no column for it
        tables = [
            Table(
                "All scores of the best weights",
                columns[:shown],
                tuple(row[:shown] for row in cells),
            )
        ]
    tables += [
        Table(title, columns, cells, _EXITS_NOTE) for title, columns, cells in exit_tables(folder)
    ]
    lead = (
        f"{facts['model']}, fine-tuned on the task {facts['task']}: {_steps(rows)} of "
        f"{facts['steps']:,} steps. The "
        f"best weights are those with the highest {score_title(metric)} on the development part."
    )
    return lead, arranged(headlines, run_sections(rows, dev_rows=counts), tables)


def _task_score(name: str, value: float, count: int, baseline: float | None) -> HeadlineScore:
    """A score of a task; `count` is how many rows it is a share of, or 0."""
    beside = (
        ()
        if baseline is None
        else (f"baseline: {baseline:.3f}" if count else f"baseline: {baseline:.4g}",)
    )
    if not count:
        return HeadlineScore(score_title(name), f"{value:.4g}", notes=beside)
    shown, error = value_with_error(value, share_error(value, count)).split(" ", 1)
    return HeadlineScore(score_title(name), shown, error, (*beside, f"on {count:,} rows"))


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


_SHARES = ("accuracy", "exact")
"""Scores that are the share of the rows answered right."""


def _rows_behind(folder: Path, name: str) -> int:
    """How many rows a score is a share of, from the answers of its part; 0 where it is no share of
    rows.
    """
    part, _, score = name.rpartition("_")
    if score not in _SHARES:
        return 0
    files = sorted(folder.glob(f"predictions/{part or 'dev'}.*"))
    if not files:
        return 0
    suffix = files[0].suffix
    with files[0].open(encoding="utf-8", errors="replace", newline="") as file:
        if suffix == ".csv":
            return sum(1 for _ in csv.reader(file)) - 1
        return sum(1 for _ in file) if suffix == ".jsonl" else 0


_EXITS_NOTE = (
    "litebert predict and score follow the chosen threshold; --exit takes another, and "
    "--exit off none."
)


def exit_tables(folder: Path) -> list[tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]]:
    """Of a fine-tuning run with early exits: what each threshold saves and costs, as title, columns
    and rows.
    """
    file = folder / "exits.json"
    if not file.is_file():
        return []
    found = read_json(file, RunError)
    name, depth = score_title(found["metric"]), len(found["layers"])
    rows = [
        (
            "off" if one["share"] == 1 else f"{one['threshold']:.6g}",
            "chosen" if one["threshold"] == found["threshold"] else "",
            f"{one['share']:.3f}",
            f"{one['share'] * depth:.1f} of {depth}",
            f"{1 / one['share']:.2f}",
            f"{one['score']:.4g}",
        )
        for one in found["curve"]
    ]
    patience = (
        "the answer"
        if found["patience"] == 1
        else f"the same answer of {found['patience']} layers in a row"
    )
    title = f"Early exits on {found['part']}, as soon as {patience} is as certain as the threshold"
    return [
        (
            title,
            ("threshold", "", "share of layers", "layers used", "fewer by a factor of", name),
            tuple(rows),
        ),
        (
            f"Answers of each layer on {found['part']}",
            ("layer", name),
            tuple((str(layer), f"{one:.4g}") for layer, one in enumerate(found["layers"], 1)),
        ),
    ]


def _steps(rows: list[dict[str, Any]]) -> str:
    return f"{max((row['step'] for row in rows), default=0):,}"
