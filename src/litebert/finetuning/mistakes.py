"""Mistakes of a classifier: which classes it confuses, and of which wrong answers it is surest.

Shapes: C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from litebert.finetuning.task import Task

MOST_LETTERS = 300
"""Characters of a text that are shown."""
MOST_EXPLAINED = 3
"""Mistakes whose words are looked for: each takes a pass for every word."""


@dataclass(frozen=True)
class Mistake:
    """An answer that is not the label."""

    location: str
    """The line of its row, with the file where there are several."""
    label: str
    prediction: str
    probability: float
    """The probability of the wrong decision."""
    inputs: Mapping[str, str]
    """The texts, cut; empty where texts are not to be kept."""
    words: str = ""
    """The words that speak most for the prediction or against it, where they are known."""


def count_confusions(
    labels: Sequence[str], targets: Sequence[int], answers: Sequence[Any]
) -> list[list[int]]:
    """Count the rows of each label that were answered with each class, (C, C): rows are labels,
    columns are answers.

    Args:
        targets: the classes that are right. Rows of an unknown class, below 0, are left out.
        answers: of `OneClass`; rows without an answer are left out.
    """
    from sklearn.metrics import confusion_matrix

    rows = [
        (target, labels.index(answer.value))
        for target, answer in zip(targets, answers, strict=True)
        if target >= 0 and answer.value is not None
    ]
    if not rows:
        return [[0] * len(labels) for _ in labels]
    right, predicted = zip(*rows, strict=True)
    matrix: list[list[int]] = confusion_matrix(
        right, predicted, labels=np.arange(len(labels))
    ).tolist()
    return matrix


def list_confusions(
    labels: Sequence[str], matrix: Sequence[Sequence[int]], most: int
) -> list[tuple[str, str, int]]:
    """List the commonest confusions: the label, the answer, and how many rows."""
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
    """Find the wrong answers of the highest probability, the surest first; none of an output
    without probabilities of classes.

    Args:
        targets: the label of each example, in the form of the task's output; None where it is not
            known.
        explain: names the words that decided the answer to an example; of few mistakes only.
    """
    if not task.output.calibrates:
        return []
    wrong = [
        (likely, place)
        for place, (target, answer) in enumerate(zip(targets, answers, strict=True))
        if target is not None and (likely := task.output.mistake(target, answer)) is not None
    ]
    wrong.sort(key=lambda pair: -pair[0])
    mistakes = [
        _describe_mistake(task, examples[place], answers[place], likely, shows_texts)
        for likely, place in wrong[:most]
    ]
    if explain is not None and shows_texts:
        for rank, (_, place) in enumerate(wrong[: min(most, MOST_EXPLAINED)]):
            mistakes[rank] = replace(mistakes[rank], words=explain(examples[place]))
    return mistakes


def _describe_mistake(
    task: Task[Any], example: Any, answer: Any, likely: float, shows_texts: bool
) -> Mistake:
    shown = task.show_example(example)
    inputs = {} if shown is None or not shows_texts else shown.inputs
    value = answer.value
    if isinstance(value, tuple):
        value = ", ".join(value) or "none"
    return Mistake(
        getattr(example, "name", ""),
        "" if shown is None or shown.label is None else shown.label,
        "no answer" if value is None else str(value),
        round(likely, 6),
        {name: shorten(str(text)) for name, text in inputs.items()},
    )


def shorten(text: str) -> str:
    """Cut a text to `MOST_LETTERS` characters."""
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 3]}..."
