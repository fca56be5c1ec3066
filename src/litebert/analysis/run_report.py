"""Write `report.html` of a pretraining or fine-tuning run, from the files that the run wrote."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from litebert.analysis.charts import format_with_error
from litebert.analysis.compare_tasks import is_percent
from litebert.analysis.report import (
    Chart,
    Headline,
    HeadlineScore,
    Section,
    Series,
    Table,
    run_sections,
    write,
)
from litebert.base.errors import RunError
from litebert.base.json_reader import read_json
from litebert.base.progress import task
from litebert.judge.baselines import advise, read_baseline
from litebert.judge.calibration import PrecisionPoint
from litebert.judge.reliability import MISLABELED, RELIABILITY, list_confusions
from litebert.judge.seeds import compute_share_error
from litebert.model.objectives import ShownScore, list_shown_scores
from litebert.tasks.scores import score_title
from litebert.train import metrics

MOST_HEADLINES = 4


@task("writing the report")
def write_run(folder: Path) -> Path:
    rows = read_metrics(folder)
    is_finetuning = (folder / "finetune.json").is_file()
    describe = _describe_finetuning if is_finetuning else _describe_pretraining
    lead, sections = describe(folder, rows)
    path = folder / "report.html"
    write(path, folder.resolve().name, lead, sections)
    return path


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    return metrics.read(folder / "metrics.jsonl") + metrics.read(folder / "speed.jsonl")


def _describe_pretraining(folder: Path, rows: list[dict[str, Any]]) -> tuple[str, list[Section]]:
    facts = read_json(folder / "run.json", RunError)
    recipe = read_json(folder / "recipe.json", RunError)
    shape = recipe["encoder"]
    lead = (
        f"{recipe['name']}: {shape['layers']} layers, hidden size {shape['hidden_size']}; "
        f"{_format_steps(rows)} of {facts['steps']:,} steps on {facts['machine']}."
    )
    tables: list[Table] = []
    headlines: list[Section] = []
    if heldout := [row for row in rows if row["kind"] == "heldout"]:
        numbers = {key: value for key, value in heldout[-1].items() if isinstance(value, float)}
        shown = list_shown_scores(numbers)
        when = f"at step {heldout[-1]['step']:,}"
        note = "litebert evaluate scores more sequences by default, so its numbers differ a little."
        headlines = [make_pretraining_headline(f"Held-out scores {when}", shown, note)]
        if len(shown) > MOST_HEADLINES:
            tables = [make_score_table(f"All held-out scores {when}", shown)]
    if sets := facts.get("sets"):
        cells = []
        for entry in sets:
            share, epochs = f"{entry['share']:.1%}", f"{entry['epochs']:,.2f}"
            cells.append((str(entry["data"]), str(entry["weight"]), share, epochs))
        columns = ("data", "weight", "share of the sequences", "epochs in the whole run")
        tables.append(Table("Data by weight", columns, tuple(cells)))
    curves = run_sections(rows, facts.get("unigram_entropy"))
    return lead, arrange_sections(headlines, curves, tables)


def arrange_sections(
    headlines: list[Section], curves: list[Section], tables: list[Table]
) -> list[Section]:
    charts = [section for section in curves if not isinstance(section, Table)]
    events = [section for section in curves if isinstance(section, Table)]
    return [*headlines, *charts, *tables, *events]


def make_pretraining_headline(title: str, shown: list[ShownScore], note: str = "") -> Headline:
    """Show the held-out scores as large numbers; of too many, those that runs are compared by."""
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


ERROR_NOTE = "± is the standard error."


def make_score_table(title: str, shown: list[ShownScore], note: str = "") -> Table:
    rows = []
    for score in shown:
        value = f"{score.value} ± {score.error}" if score.error else score.value
        baseline = f"{score.baseline} ({score.remark})" if score.baseline else score.remark
        rows.append((score.title, value, baseline, score.size))
    return Table(title, ("score", "model", "without learning", "measured on"), tuple(rows), note)


def _describe_finetuning(folder: Path, rows: list[dict[str, Any]]) -> tuple[str, list[Section]]:
    facts = read_json(folder / "finetune.json", RunError)
    metric, file = facts["metric"], folder / "scores.json"
    saved = read_json(file, RunError) if file.is_file() else {}
    scores = {name: value for name, value in saved.items() if isinstance(value, (int, float))}
    names = sorted(scores, key=lambda name: name != metric)  # the metric comes first
    counts = {name: count for name in names if (count := _count_rows(folder, name))}
    baseline = read_baseline(file) if file.is_file() else None
    baseline_scores = {} if baseline is None else baseline.scores
    headlines: list[Section] = []
    tables: list[Table] = []
    if scores:
        large = tuple(
            _make_task_score(name, scores[name], counts.get(name, 0), baseline_scores.get(name))
            for name in names[:MOST_HEADLINES]
        )
        notes = [ERROR_NOTE] if any(score.error for score in large) else []
        if baseline is not None:
            notes.append(f"The baseline counts on the same rows: {baseline.note}.")
        rows_of_dev, full = facts.get("dev_rows", 0), 100.0 if is_percent(facts["task"]) else 1.0
        advice = advise(
            *(metric, [scores.get(metric, math.nan)], baseline),
            *(rows_of_dev, full, facts["model"]),
        )
        if advice is not None:
            notes.append(f"{advice[0].upper()}{advice[1:]}.")
        headlines = [Headline("Scores of the best weights", large, " ".join(notes))]
    if len(names) > MOST_HEADLINES:
        columns: tuple[str, ...] = ("score", "value")
        cells: list[tuple[str, ...]]
        cells = [(score_title(name), f"{scores[name]:.4g}") for name in names]
        if baseline_scores:
            columns = (*columns, "baseline")
            values = (baseline_scores.get(name) for name in names)
            texts = ("-" if value is None else f"{value:.4g}" for value in values)
            cells = [(*row, text) for row, text in zip(cells, texts, strict=True)]
        tables.append(Table("All scores of the best weights", columns, tuple(cells)))
    tables += [Table(*table, _EXITS_NOTE) for table in make_exit_tables(folder)]
    lead = (
        f"{facts['model']}, fine-tuned on the task {facts['task']}: {_format_steps(rows)} of "
        f"{facts['steps']:,} steps. The best weights are those with the highest "
        f"{score_title(metric)} on the development split."
    )
    reliability = make_reliability_sections(folder)
    charts = [section for section in reliability if not isinstance(section, Table)]
    tables += [section for section in reliability if isinstance(section, Table)]
    curves = [*run_sections(rows, dev_rows=counts), *charts]
    return lead, arrange_sections(headlines, curves, tables)


def _make_task_score(name: str, value: float, count: int, baseline: float | None) -> HeadlineScore:
    """Make a large number of a score, a share of `count` rows; 0 if it is no share."""
    notes: tuple[str, ...] = ()
    if baseline is not None:
        notes = (f"baseline: {baseline:.3f}" if count else f"baseline: {baseline:.4g}",)
    if not count:
        return HeadlineScore(score_title(name), f"{value:.4g}", notes=notes)
    text, error = format_with_error(value, compute_share_error(value, count)).split(" ", 1)
    return HeadlineScore(score_title(name), text, error, (*notes, f"on {count:,} rows"))


_SHARES = ("accuracy", "exact")


def _count_rows(folder: Path, name: str) -> int:
    """Count the rows that a score is a share of, in the predictions of its split; 0 for others."""
    split, _, score = name.rpartition("_")
    if score not in _SHARES:
        return 0
    files = sorted(folder.glob(f"predictions/{split or 'dev'}.*"))
    if not files:
        return 0
    suffix = files[0].suffix
    with files[0].open(encoding="utf-8", errors="replace", newline="") as file:
        if suffix == ".csv":
            return sum(1 for _ in csv.reader(file)) - 1
        return sum(1 for _ in file) if suffix == ".jsonl" else 0


_EXITS_NOTE = (
    "litebert predict and evaluate follow the chosen threshold; --exit-confidence takes another, "
    "and --exit-confidence off none."
)


def make_exit_tables(
    folder: Path,
) -> list[tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]]:
    """Return the tables of a fine-tuning run with early exits, as title, columns and rows: what
    each threshold saves and costs, and the scores of each layer.
    """
    file = folder / "exits.json"
    if not file.is_file():
        return []
    exits = read_json(file, RunError)
    name, depth = score_title(exits["metric"]), len(exits["layers"])
    rows = [
        (
            "off" if point["share"] == 1 else f"{point['threshold']:.6g}",
            "chosen" if point["threshold"] == exits["threshold"] else "",
            f"{point['share']:.3f}",
            f"{point['share'] * depth:.1f} of {depth}",
            f"{1 / point['share']:.2f}",
            f"{point['score']:.4g}",
        )
        for point in exits["curve"]
    ]
    rule = "its certainty reaches the threshold"
    if exits["patience"] != 1:
        rule = (
            f"{exits['patience']} layers in a row agree and their certainty reaches the threshold"
        )
    title = f"Early exits on {exits['part']}: a text exits when {rule}"
    columns = ("threshold", "", "share of layers", "layers used", "fewer by a factor of", name)
    layers = tuple((str(layer), f"{score:.4g}") for layer, score in enumerate(exits["layers"], 1))
    return [
        (title, columns, tuple(rows)),
        (f"Answers of each layer on {exits['part']}", ("layer", name), layers),
    ]


def _format_steps(rows: list[dict[str, Any]]) -> str:
    return f"{max((row['step'] for row in rows), default=0):,}"


# -------------------------------------------------------------------------------------- reliability


_SHOWN_POINTS = 12
_MOST_COLUMNS = 10
_MOST_SUSPECTS = 20


def make_reliability_sections(folder: Path) -> list[Section]:
    file = folder / RELIABILITY
    if not file.is_file():
        return _list_mislabeled(folder)
    record = read_json(file, RunError)
    return [
        _draw_diagram(record),
        *_list_precision(record),
        *_list_confusions(record),
        *_list_mistakes(record),
        *_list_mislabeled(folder),
    ]


def _draw_diagram(record: Mapping[str, Any]) -> Chart:
    calibration, part = record["calibration"], record["part"]
    temperature = calibration["temperature"]
    lines = [_draw_line("as trained", calibration["bins_before"])]
    note = (
        f"On the {calibration['rows']:,} rows of {part}. The expected calibration error is "
        f"{calibration['error_before']:.3f}"
    )
    if temperature == 1:
        note += "; no temperature is better by more than chance."
    else:
        lines.append(_draw_line("with a temperature", calibration["bins_after"]))
        note += (
            f", and {calibration['error_after']:.3f} with a temperature of {temperature:.3g} that "
            "was fitted on other rows. "
        )
        note += (
            "The model has this temperature."
            if record["calibrated"]
            else "The model does not have it (--no-calibrate)."
        )
    level = Series("as sure as right", (0.0, 1.0), (0.0, 1.0), dashed=True)
    return Chart("Reliability", (*lines, level), "probability", "share that is right", note)


def _draw_line(name: str, bins: Sequence[Mapping[str, float]]) -> Series:
    confidences, shares = (
        tuple(float(part[key]) for part in bins) for key in ("confidence", "share")
    )
    return Series(name, confidences, shares)


def _list_precision(record: Mapping[str, Any]) -> list[Section]:
    points = record["precision"]
    if not points:
        return []
    step = max(1, -(-len(points) // _SHOWN_POINTS))
    rows = []
    for fields in points[::step]:
        point, lowest, answers = PrecisionPoint(**fields), "-", "-"
        if point.answers:
            lowest, answers = f"{point.lower_bound:.3f}", f"{point.answers:,}"
        cells = (f"{point.precision:.3f}", lowest, answers, f"{point.threshold:.3f}")
        rows.append((*cells, f"{point.coverage:.1%}"))
    note = (
        "litebert predict --min-precision P takes the first row with a precision of P or more. "
        "The 95% interval of the precision (Wilson) begins at its lower end."
    )
    columns = ("precision", "lower end", "answers", "threshold", "share answered")
    title = f"Precision of the surest answers on {record['part']}"
    return [Table(title, columns, tuple(rows), note)]


def _list_confusions(record: Mapping[str, Any]) -> list[Section]:
    if "confusion" not in record:
        return []
    labels, matrix = record["confusion"]["labels"], record["confusion"]["rows"]
    title = f"Confusions on {record['part']}"
    if len(labels) <= _MOST_COLUMNS:
        rows = tuple(
            (label, *(f"{count:,}" for count in row))
            for label, row in zip(labels, matrix, strict=True)
        )
        note = "Rows of each label, by the class that they were answered with."
        return [Table(title, ("label, answered as", *labels), rows, note)]
    pairs = list_confusions(labels, matrix, _MOST_COLUMNS)
    cells = tuple((label, answer, f"{count:,}") for label, answer, count in pairs)
    return [Table(title, ("label", "answered as", "rows"), cells)] if cells else []


def _list_mistakes(record: Mapping[str, Any]) -> list[Section]:
    mistakes = record["mistakes"]
    if not mistakes:
        return []
    texts = tuple(mistakes[0]["inputs"])
    explains = any(row["words"] for row in mistakes)
    rows = []
    for row in mistakes:
        answer = (row["location"], row["label"], row["prediction"], f"{row['probability']:.3f}")
        rows.append((*answer, *row["inputs"].values(), *([row["words"]] if explains else [])))
    note = "Look at these first: some labels may be wrong."
    if explains:
        note += (
            " A word's number is by how much the log-odds of the prediction fall without it, for "
            "the words of the largest numbers in the first rows."
        )
    columns = ("line", "label", "prediction", "probability", *texts, *["words"] * explains)
    return [Table(f"The surest mistakes on {record['part']}", columns, tuple(rows), note)]


def _list_mislabeled(folder: Path) -> list[Section]:
    file = folder / MISLABELED
    if not file.is_file():
        return []
    with file.open(encoding="utf-8", newline="") as opened:
        columns, *rows = csv.reader(opened)
    shown = tuple(tuple(row) for row in rows[:_MOST_SUSPECTS])
    note = (
        "Rows that the baseline, fitted on the other rows, surely answers otherwise. More of them "
        f"are in {MISLABELED}."
    )
    names = tuple(name.replace("_", " ") for name in columns)
    return [Table("Training labels that are likely wrong", names, shown, note)] if shown else []
