"""Facts about the answers of a finished run to its first development part: reliability.json, which
the report draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from litebert.config.finetuning import FinetuneConfig
from litebert.errors import RunError
from litebert.finetuning.calibration import Calibration, PrecisionPoint, record_points
from litebert.finetuning.items import EncodedPart
from litebert.finetuning.mistakes import count_confusions, find_mistakes
from litebert.finetuning.task import Task
from litebert.json_reader import read_json
from litebert.storage import write_json

RELIABILITY = "reliability.json"
"""The file of a run folder."""
MOST_MISTAKES = 10
"""Mistakes that the report lists."""


def write_reliability(
    folder: Path,
    task: Task[Any],
    part: EncodedPart,
    answers: Sequence[Any],
    calibration: Calibration,
    precision: Sequence[PrecisionPoint],
    config: FinetuneConfig,
    explain: Callable[[Any], str] | None,
) -> None:
    """Write reliability.json into a run folder.

    Args:
        answers: those of the task to the examples of the part.
        calibration: that of the part.
        precision: by threshold, of the probabilities as the model gives them.
        config: says whether the model has the temperature, and whether texts may be kept.
        explain: as in `find_mistakes`.
    """
    targets, shows = [item.target for item in part.items], config.examples
    mistakes = find_mistakes(
        task, part.examples, targets, answers, MOST_MISTAKES, shows_texts=shows, explain=explain
    )
    record: dict[str, Any] = {
        "part": part.name,
        "calibrated": config.calibrate,
        "calibration": asdict(calibration),
        "precision": record_points(precision),
        "mistakes": [asdict(mistake) for mistake in mistakes],
    }
    if task.output.exclusive:
        labeled = [place for place, target in enumerate(targets) if target is not None]
        labels = task.output.labels
        record["confusion"] = {
            "labels": list(labels),
            "rows": count_confusions(
                labels, [targets[place] for place in labeled], [answers[place] for place in labeled]
            ),
        }
    write_json(folder / RELIABILITY, record)


def forget_texts(folder: Path) -> None:
    """Drop the texts of mistakes from the reliability.json of a finished run, if it has one."""
    file = folder / RELIABILITY
    if not file.is_file():
        return
    record = read_json(file, RunError)
    if any(mistake["inputs"] for mistake in record["mistakes"]):
        mistakes = [{**mistake, "inputs": {}, "words": ""} for mistake in record["mistakes"]]
        write_json(file, {**record, "mistakes": mistakes})
