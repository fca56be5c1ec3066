"""What the answers of a task can be relied on: the classes that a model confuses, its surest
mistakes, and training rows whose label is likely wrong.

The margin of such a row is the probability of its label less that of the likeliest other label,
both from a model that did not learn from the row (Northcutt et al. 2021, "Confident Learning").
Shapes: C classes.
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from litebert.base import progress
from litebert.base.errors import ConfigError, RunError
from litebert.base.json_reader import read_json
from litebert.base.storage import atomic_text, write_json
from litebert.config.finetuning import FinetuneConfig
from litebert.judge.baselines import fitting
from litebert.judge.baselines.models import LinearClasses, make_baseline
from litebert.judge.calibration import Calibration, PrecisionPoint
from litebert.tasks.outputs import Output, softmax
from litebert.tasks.task import Task
from litebert.tasks.text_outputs import SeveralLabels
from litebert.tasks.values import Answer, EncodedPart

log = logging.getLogger("litebert")

RELIABILITY, MISLABELED = "reliability.json", "mislabeled.csv"
MOST_MISTAKES = 10
MOST_LETTERS = 300
MOST_EXPLAINED = 3
"""Mistakes whose words are looked for: each takes a pass for every word."""


@dataclass(frozen=True)
class Mistake:
    location: str
    """The line of its row, with the file where there are several."""
    label: str
    prediction: str
    probability: float
    inputs: Mapping[str, str]
    words: str = ""
    """The words that speak most for the prediction or against it, where they are known."""


def count_confusions(
    labels: Sequence[str], targets: Sequence[int | None], answers: Sequence[Any]
) -> list[list[int]]:
    """Count the rows of each label (rows) that were answered with each class (columns), (C, C).

    Rows of an unknown class (None or below 0) or without an answer are left out.
    """
    matrix = [[0] * len(labels) for _ in labels]
    for target, answer in zip(targets, answers, strict=True):
        if target is not None and target >= 0 and answer.value is not None:
            matrix[target][labels.index(answer.value)] += 1
    return matrix


def list_confusions(
    labels: Sequence[str], matrix: Sequence[Sequence[int]], most: int
) -> list[tuple[str, str, int]]:
    pairs = [
        (labels[right], labels[predicted], count)
        for right, row in enumerate(matrix)
        for predicted, count in enumerate(row)
        if right != predicted and count
    ]
    return sorted(pairs, key=lambda pair: -pair[2])[:most]


def find_mistakes(
    task: Task[Any],
    examples: Sequence[Any],
    targets: Sequence[Any],
    answers: Sequence[Any],
    most: int,
    shows_texts: bool = True,
    explain: Callable[[Any], str] | None = None,
) -> list[Mistake]:
    """Find the wrong answers of the highest probability, the surest first; none without classes.

    `targets` are None where unknown; `explain` names the words that decided an answer.
    """
    if not task.output.calibrates:
        return []
    wrong = [
        (likely, place)
        for place, (target, answer) in enumerate(zip(targets, answers, strict=True))
        if target is not None
        and (likely := _weigh_mistake(task.output, target, answer)) is not None
    ]
    wrong.sort(key=lambda pair: -pair[0])
    mistakes = []
    for rank, (likely, place) in enumerate(wrong[:most]):
        example, value = examples[place], answers[place].value
        shown = task.show_example(example)
        if isinstance(value, tuple):
            value = ", ".join(value) or "none"
        mistake = Mistake(
            getattr(example, "name", ""),
            "" if shown is None or shown.label is None else shown.label,
            "no answer" if value is None else str(value),
            round(likely, 6),
            _shorten(shown.inputs) if shown is not None and shows_texts else {},
        )
        if explain is not None and shows_texts and rank < MOST_EXPLAINED:
            mistake = replace(mistake, words=explain(example))
        mistakes.append(mistake)
    return mistakes


def _weigh_mistake(output: Output, target: Any, answer: Answer) -> float | None:
    """Return the probability of the wrong decision in an answer, None if it is right; of several
    labels the highest.
    """
    if not isinstance(output, SeveralLabels):
        best = int(answer.probabilities.argmax())
        return None if best == target else float(answer.probabilities[best])
    known = target[: len(output.labels)]  # scored files may have others
    wrong = (answer.probabilities > 0.5) != np.array(known, bool)
    if not wrong.any():
        return None
    return float(np.abs(answer.probabilities[wrong] - 0.5).max() + 0.5)


def _shorten(inputs: Mapping[str, Any]) -> dict[str, str]:
    texts = {name: str(text) for name, text in inputs.items()}
    return {
        name: text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 3]}..."
        for name, text in texts.items()
    }


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
    """Write reliability.json: the answers to a part, its calibration and its precision by
    threshold.
    """
    targets, shows = [item.target for item in part.items], config.examples
    mistakes = find_mistakes(
        task, part.examples, targets, answers, MOST_MISTAKES, shows_texts=shows, explain=explain
    )
    record: dict[str, Any] = {
        "part": part.name,
        "calibrated": config.calibrate,
        "calibration": asdict(calibration),
        "precision": [asdict(point) for point in precision],
        "mistakes": [asdict(mistake) for mistake in mistakes],
    }
    if task.output.exclusive:
        labels = task.output.labels
        rows = count_confusions(labels, targets, answers)
        record["confusion"] = {"labels": list(labels), "rows": rows}
    write_json(folder / RELIABILITY, record)


def forget_texts(folder: Path) -> None:
    file = folder / RELIABILITY
    if not file.is_file():
        return
    record = read_json(file, RunError)
    if any(mistake["inputs"] for mistake in record["mistakes"]):
        mistakes = [{**mistake, "inputs": {}, "words": ""} for mistake in record["mistakes"]]
        write_json(file, {**record, "mistakes": mistakes})


@dataclass(frozen=True)
class Suspect:
    place: int
    """Its index among the examples."""
    location: str
    """The line of its row, with its file if there are several; else its number from 1."""
    label: str
    likely_label: str
    margin: float
    """From -1, where the likely label is sure, to 0."""
    inputs: Mapping[str, str]


def require_mislabeled(task: Task[Any]) -> None:
    if not isinstance(make_baseline(task.output), LinearClasses):
        raise ConfigError(
            "mislabeled ranks rows by classes or labels of whole texts, and this task answers with "
            f"{task.output.name}; leave it out"
        )


def rank_mislabeled(task: Task[Any], examples: Sequence[Any]) -> list[Suspect]:
    """Rank the training examples with a label that the baseline, fitted on others, answers
    otherwise, the surest first; of more text than it affords, a random part.
    """
    require_mislabeled(task)
    model = make_baseline(task.output)
    assert isinstance(model, LinearClasses)
    items = [item for item in task.plain_items(examples) if item.target is not None]
    with fitting():
        places, logits = model.compute_held_out_logits(items, task.output.width)
    names, suspects = task.output.labels, []
    for place, row_logits in zip(places, logits, strict=True):
        item = items[place]
        if isinstance(item.target, tuple):
            present = np.array(item.target, bool)
            margins = np.tanh(row_logits / 2) * np.where(present, 1, -1)
            worst = int(margins.argmin())
            flipped = [name for i, name in enumerate(names) if present[i] != (i == worst)]
            margin, likely_label = float(margins[worst]), ", ".join(flipped) or "none"
        else:
            likely = softmax(row_logits)
            others = np.delete(likely, item.target)
            margin = float(likely[item.target] - others.max())
            likely_label = names[int(likely.argmax())]
        if margin >= 0:
            continue
        example = examples[item.example]
        shown = task.show_example(example)
        assert shown is not None
        location = getattr(example, "name", "") or f"row {item.example + 1}"
        inputs = _shorten(shown.inputs)
        suspects.append(
            Suspect(item.example, location, shown.label or "", likely_label, margin, inputs)
        )
    return sorted(suspects, key=lambda suspect: suspect.margin)


@progress.task("looking for wrong labels")
def keep_mislabeled(
    folder: Path, task: Task[Any], examples: Sequence[Any], most: int, shows_texts: bool
) -> None:
    """Write at most `most` ranked training rows into mislabeled.csv and log how many there are,
    unless the file has as many.
    """
    file_name = folder / MISLABELED
    if file_name.exists():
        with file_name.open(encoding="utf-8", newline="") as written:
            if sum(1 for _ in csv.reader(written)) == 1 + most:
                return
    suspects = rank_mislabeled(task, examples)
    log.info(
        f"the baseline, fitted on other rows, disagrees with {len(suspects):,} of "
        f"{len(examples):,} training labels; the surest are in {file_name}"
    )
    texts = tuple(suspects[0].inputs) if suspects and shows_texts else ()
    with atomic_text(file_name) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("location", "label", "likely_label", "margin", *texts))
        for suspect in suspects[:most]:
            cells = (suspect.location, suspect.label, suspect.likely_label)
            table.writerow((*cells, f"{suspect.margin:.4f}", *(suspect.inputs[n] for n in texts)))
