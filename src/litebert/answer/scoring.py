"""The scores of a fine-tuned model on labeled files."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from litebert import progress
from litebert.answer.exits import EarlyExit
from litebert.answer.model import Model
from litebert.answer.predicting import Predictor
from litebert.errors import DataError
from litebert.tasks.splits import Source
from litebert.text.records import Notes
from litebert.tokenizer.coverage import Coverage

log = logging.getLogger("litebert")


@dataclass(frozen=True)
class Scored:
    """The scores of a model, on labeled files or on held-out text."""

    examples: int | None
    """Examples that were read; those without an answer are not scored. None for held-out text."""
    scores: dict[str, float]
    """The scores by name, as scores.json of a run has them."""
    classes: dict[str, dict[str, float]]
    """`precision`, `recall`, `f1` and `count` of each class; empty where the task has none."""
    share: float | None = None
    """Mean share of the layers that was used, where texts leave early."""
    coverage: float | None = None
    """The share of the examples that are answered, and scored, where a precision is asked for."""


def score_file(model: Model, source: Source, **options: Any) -> Scored:
    """Score a fine-tuned model on labeled files of its own task, in float32, as `predict`
    computes.

    Args:
        source: a file, several files, a folder of them or a pattern; of GLUE and RACE also the
            benchmark's folder.
        options: options of the task that say how files are read: text, pair, label, separator,
            input_format, header and encoding. Columns are those of training by default.

    Raises:
        ModelError: the model is not fine-tuned.
        ConfigError: the task does not take an option.
        DataError: a file is missing or malformed, or no example in it has an answer; the message
            names the line.
    """
    return score_predictor(model.predictor, source, **options)


def score_predictor(predictor: Predictor, source: Source, **options: Any) -> Scored:
    """Score any predictor on labeled files of its task."""
    files = [source] if isinstance(source, (str, Path)) else source
    label = str(files[0]) if len(files) == 1 else f"{len(files)} files"
    with progress.task("reading and tokenizing"):
        opened, notes = (
            predictor.task.files.open_labeled(predictor.task, source, **options),
            Notes(),
        )
        task = opened.task
        examples = opened.read(task.dev[0], notes)
        items = task.encode(examples, predictor.tokenizer, predictor.length, notes)
    predictor = replace(predictor, task=task)
    for note in notes.notes():
        log.info(f"{label}: {note}")
    coverage = Coverage(predictor.tokenizer)
    coverage.add(row.ids for item in items for row in item.rows)
    coverage.warn()
    if not items:
        raise DataError(f"{label} has no examples to score; give a file that has some")
    predictor.compare(examples, items)
    logits, _ = predictor.logits(items)
    answers = task.answers(examples, items, logits)
    share = predictor.runtime.share if isinstance(predictor.runtime, EarlyExit) else None
    count, answered = len(examples), None
    if getattr(task.output, "threshold", 0):
        examples, answers = _select_answered(examples, answers, label)
        answered = len(answers) / count
    return Scored(
        count, task.score(examples, answers), task.by_class(examples, answers), share, answered
    )


def _select_answered(
    examples: list[Any], answers: list[Any], label: str
) -> tuple[list[Any], list[Any]]:
    """Select the examples that are answered, and their answers.

    Raises:
        DataError: none is.
    """
    places = [place for place, answer in enumerate(answers) if answer.value is not None]
    if not places:
        raise DataError(
            f"no answer to {label} reaches the threshold of --min-precision, so there is nothing "
            "to score; give a lower precision"
        )
    return [examples[place] for place in places], [answers[place] for place in places]
