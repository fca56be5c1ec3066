"""The part of a fine-tuning run's report that shows the search for its hyper-parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from litebert.analysis.report import Section, Table
from litebert.errors import RunError
from litebert.finetuning.search import SEARCH
from litebert.json_reader import read_json
from litebert.tasks.scores import score_title

_MOST_TRIALS = 30


def make_search_sections(folder: Path) -> list[Section]:
    """Make the table of the trials, the best first; none for a run without a search.

    Args:
        folder: that of the run; of several seeds, the search lies in the folder above.
    """
    files = (folder / SEARCH, folder.resolve().parent / SEARCH)
    file = next((path for path in files if path.is_file()), None)
    if file is None:
        return []
    record = read_json(file, RunError)
    names = list(record["best"]["values"])
    trials = sorted(record["trials"], key=_rank_trial)
    rows = tuple(
        (
            str(trial["number"]),
            trial["state"],
            "-" if trial["score"] is None else f"{trial['score']:.4f}",
            *(_format_value(trial["values"].get(name)) for name in names),
            f"{trial['seconds']:.0f} s",
        )
        for trial in trials[:_MOST_TRIALS]
    )
    title = score_title(record["metric"])
    note = (
        f"{len(trials)} trials in {record['budget']}, each trained on two thirds of the training "
        f"rows and scored on the others, {len(record['folds'])} times. Trial 0 has the values "
        "that the run would have without a search. Stopped trials fell behind the median."
    )
    columns = ("trial", "state", title, *(name.replace("_", " ") for name in names), "time")
    return [Table("Search", columns, rows, note)]


def _rank_trial(trial: dict[str, Any]) -> tuple[bool, float]:
    """Rank finished trials before others, the highest score first."""
    return trial["state"] != "finished", -(trial["score"] if trial["score"] is not None else 0.0)


def _format_value(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
