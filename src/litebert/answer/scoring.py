"""The scores of a fine-tuned model on labeled files."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from litebert import progress
from litebert.answer.exits import EarlyExit
from litebert.answer.model import Model
from litebert.answer.predicting import Predictor
from litebert.errors import ConfigError, DataError
from litebert.finetuning.reliability import Mistake, count_confusions, find_mistakes
from litebert.finetuning.task import Task
from litebert.tasks.splits import Source
from litebert.text.records import Notes, list_values
from litebert.tokenizer.coverage import Coverage
from litebert.train.ranks import Ranks

log = logging.getLogger("litebert")

_ALONE = Ranks()

MOST_SLICES = 50
"""Values of a column that divides rows into slices, at most."""


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
    confusion: list[list[int]] | None = None
    """Rows of each label (rows) that were answered with each class (columns), in the order of
    `classes`; None where answers are no classes.
    """
    mistakes: list[Mistake] = field(default_factory=list)
    """The wrong answers of the highest probability, where they are asked for."""
    slices: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    """The scores of the rows with each value of each column, and their `count`."""


def score_file(
    model: Model,
    source: Source,
    *,
    mistakes: int = 0,
    slice_columns: Sequence[str] = (),
    **options: Any,
) -> Scored:
    """Score a fine-tuned model on labeled files of its own task, in float32, as `predict`
    computes.

    Args:
        source: a file, several files, a folder of them or a pattern; of GLUE and RACE also the
            benchmark's folder.
        mistakes: how many of the surest mistakes to list.
        slice_columns: columns of a table whose values divide the rows into slices.
        options: options of the task that say how files are read: text, pair, label, separator,
            input_format, header and encoding. Columns are those of training by default.

    Raises:
        ModelError: the model is not fine-tuned.
        ConfigError: the task does not take an option.
        DataError: a file is missing or malformed, or no example in it has an answer; the message
            names the line.
    """
    return score_predictor(
        model.predictor, source, mistakes=mistakes, slice_columns=slice_columns, **options
    )


def score_predictor(
    predictor: Predictor,
    source: Source,
    *,
    mistakes: int = 0,
    slice_columns: Sequence[str] = (),
    ranks: Ranks = _ALONE,
    **options: Any,
) -> Scored:
    """Score any predictor on labeled files of its task, as `score_file` does.

    Args:
        ranks: what shares the computation, as in `compute_logits`.
    """
    files = [source] if isinstance(source, (str, Path)) else list(list_values(source, "data"))
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
    columns = {name: opened.read_column(task.dev[0], name) for name in slice_columns}
    predictor.compare(examples, items)
    logits, layers = predictor.logits(items, ranks)
    share = None
    if isinstance(predictor.runtime, EarlyExit):
        share = sum(layers) / (len(layers) * predictor.runtime.layers)
    rows = _Rows(
        examples,
        [item.target for item in items],
        task.answers(examples, items, logits),
        columns,
    )
    return _score_rows(task, rows, label, share, mistakes)


@dataclass(frozen=True)
class _Rows:
    """Examples with what is scored of them."""

    examples: list[Any]
    targets: list[Any]
    answers: list[Any]
    columns: dict[str, list[str]]
    """The cells of each column that makes slices."""

    def select(self, places: Sequence[int]) -> _Rows:
        """Return the rows at some places."""
        examples, targets, answers = (
            [values[place] for place in places]
            for values in (self.examples, self.targets, self.answers)
        )
        cells = {name: [column[i] for i in places] for name, column in self.columns.items()}
        return _Rows(examples, targets, answers, cells)


def _score_rows(
    task: Task[Any], rows: _Rows, label: str, share: float | None, mistakes: int
) -> Scored:
    """Score the rows that are answered.

    Args:
        label: the files in messages.
        share, mistakes: as in `Scored` and `score_file`.
    """
    count, answered, confusion = len(rows.examples), None, None
    if getattr(task.output, "threshold", 0):
        rows = rows.select(_list_answered(rows.answers, label))
        answered = len(rows.answers) / count
    examples, answers = rows.examples, rows.answers
    if task.output.exclusive:
        labeled = rows.select([i for i, target in enumerate(rows.targets) if target is not None])
        confusion = count_confusions(task.output.labels, labeled.targets, labeled.answers)
    return Scored(
        count,
        task.score(examples, answers),
        task.by_class(examples, answers),
        share,
        answered,
        confusion,
        find_mistakes(task, examples, rows.targets, answers, mistakes) if mistakes else [],
        {
            name: score_slices(task, examples, answers, name, cells)
            for name, cells in rows.columns.items()
        },
    )


def score_slices(
    task: Task[Any],
    examples: Sequence[Any],
    answers: Sequence[Any],
    column: str,
    cells: Sequence[str],
) -> dict[str, dict[str, float]]:
    """Compute the scores of the rows with each value of a column, and their `count`, the commonest
    value first. A slice without a label has no scores.

    Args:
        cells: the value of each example.

    Raises:
        ConfigError: the column has too many values for slices.
    """
    counts = Counter(cells)
    if len(counts) > MOST_SLICES:
        raise ConfigError(
            f"the column '{column}' has {len(counts):,} values, and slices have at most "
            f"{MOST_SLICES}; name a column with fewer"
        )
    slices: dict[str, dict[str, float]] = {}
    for value, count in counts.most_common():
        places = [place for place, cell in enumerate(cells) if cell == value]
        slices[value] = {"count": count}
        with suppress(DataError):  # no row of it has a label
            slices[value] |= task.score(
                [examples[place] for place in places], [answers[place] for place in places]
            )
    return slices


def _list_answered(answers: Sequence[Any], label: str) -> list[int]:
    """List the places of the examples that are answered.

    Raises:
        DataError: none is.
    """
    places = [place for place, answer in enumerate(answers) if answer.value is not None]
    if not places:
        raise DataError(
            f"no answer to {label} reaches the threshold of --min-precision, so there is nothing "
            "to score; give a lower precision"
        )
    return places
