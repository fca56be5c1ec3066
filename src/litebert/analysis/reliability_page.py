"""The part of a fine-tuning run's report that says how far its answers can be relied on."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from litebert.analysis.report import Chart, Section, Series, Table
from litebert.base.errors import RunError
from litebert.base.json_reader import read_json
from litebert.finetuning.calibration import compute_lower_bound
from litebert.finetuning.reliability import MISLABELED, RELIABILITY, list_confusions

_SHOWN_POINTS = 12
_MOST_COLUMNS = 10
_MOST_SUSPECTS = 20


def make_reliability_sections(folder: Path) -> list[Section]:
    """Make the reliability diagram and the tables of a run; none without reliability.json."""
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
    for point in points[::step]:
        lowest, answers = "-", "-"
        if "answers" in point:
            count = int(point["answers"])
            lowest, answers = f"{compute_lower_bound(point['precision'], count):.3f}", f"{count:,}"
        cells = (f"{point['precision']:.3f}", lowest, answers, f"{point['threshold']:.3f}")
        rows.append((*cells, f"{point['coverage']:.1%}"))
    note = (
        "litebert predict --min-precision P takes the first row with a precision of P or more. "
        "The 95 % interval of the precision (Wilson) begins at its lower end."
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
    """List the training rows whose label is likely wrong, if the run looked for them."""
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
