"""Training rows whose label is likely wrong: those that the baseline, fitted on the other rows,
answers otherwise and surely.

The margin of a row is the probability of its label less that of the likeliest other label, both
from a model that did not learn from the row (Northcutt et al. 2021, "Confident Learning"). Sorted
by it, wrong labels come first, and after them rows that are hard.
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert import progress
from litebert.errors import ConfigError
from litebert.finetuning.baselines.fitted import fitting
from litebert.finetuning.baselines.models import LinearClasses
from litebert.finetuning.mistakes import shorten
from litebert.finetuning.outputs import Output, softmax
from litebert.finetuning.task import Task
from litebert.storage import atomic_text

log = logging.getLogger("litebert")

MISLABELED = "mislabeled.csv"
"""The file of a run folder."""


@dataclass(frozen=True)
class Suspect:
    """A row whose label is likely wrong."""

    place: int
    """Its index among the examples."""
    location: str
    """The line of its row, with the file where there are several; else its number among the
    training rows, from 1.
    """
    label: str
    likely_label: str
    margin: float
    """From -1, where the likely label is sure, to 0."""
    inputs: Mapping[str, str]
    """The texts, cut."""


def require_mislabeled(task: Task[Any], most: int = 1) -> None:
    """Refuse a task without a baseline of classes or labels, and a number of rows that cannot be.

    Raises:
        ConfigError: it has none, or the number is below 0.
    """
    if not isinstance(most, int) or most < 0:
        raise ConfigError(f"mislabeled is {most}; give 0 or more rows")
    if not isinstance(task.output.baseline(), LinearClasses):
        raise ConfigError(
            "mislabeled ranks rows by classes or labels of whole texts, and this task answers with "
            f"{task.output.name}; leave it out"
        )


def rank_mislabeled(task: Task[Any], examples: Sequence[Any]) -> list[Suspect]:
    """Rank the examples that the baseline, fitted on others, answers otherwise, the surest first.

    Of more text than the baseline affords, a random part of the rows is ranked.

    Args:
        examples: those of the training part; without a label they are passed over.

    Raises:
        ConfigError: the task has no classes.
        DataError: no text has a word.
    """
    require_mislabeled(task)
    model = task.output.baseline()
    assert isinstance(model, LinearClasses)
    items = [item for item in task.plain_items(examples) if item.target is not None]
    with fitting():
        places, logits = model.compute_held_out_logits(items, task.output.width)
    suspects = []
    for place, row_logits in zip(places, logits, strict=True):
        item = items[place]
        margin, likely = _compare_label(task.output, row_logits, item.target)
        if margin < 0:
            suspects.append(_describe(task, examples[item.example], item.example, margin, likely))
    return sorted(suspects, key=lambda suspect: suspect.margin)


def _compare_label(output: Output, logits: NDArray[np.float64], target: Any) -> tuple[float, str]:
    """Return the margin of a label, and the label that is likelier where it is below 0."""
    names = output.labels
    if isinstance(target, tuple):
        present = np.array(target, bool)
        margins = np.tanh(logits / 2) * np.where(present, 1, -1)
        worst = int(margins.argmin())
        flipped = [name for i, name in enumerate(names) if present[i] != (i == worst)]
        return float(margins[worst]), ", ".join(flipped) or "none"
    likely = softmax(logits)
    others = np.delete(likely, target)
    best = int(likely.argmax())
    return float(likely[target] - others.max()), names[best]


def _describe(task: Task[Any], example: Any, place: int, margin: float, likely: str) -> Suspect:
    shown = task.show_example(example)
    assert shown is not None
    inputs = {name: shorten(str(text)) for name, text in shown.inputs.items()}
    location = getattr(example, "name", "") or f"row {place + 1}"
    return Suspect(place, location, shown.label or "", likely, margin, inputs)


@progress.task("looking for wrong labels")
def keep_mislabeled(
    folder: Path, task: Task[Any], examples: Sequence[Any], most: int, shows_texts: bool
) -> None:
    """Write the first of the ranked training rows into mislabeled.csv of a run folder, and log how
    many there are, unless the folder has as many rows.

    Args:
        most: how many rows to write, at most.
        shows_texts: whether the texts are written too.
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
