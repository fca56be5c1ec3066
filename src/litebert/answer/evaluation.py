"""The scores of any model: a pretrained one on held-out text, a fine-tuned one on labeled files, by
its own answers or by those that `predict` wrote of them before.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from litebert.answer.engines.exits import EarlyExit
from litebert.answer.model import Model, load
from litebert.answer.predicting import Predictor
from litebert.base import progress
from litebert.base.errors import ConfigError, DataError, ModelError
from litebert.judge.reliability import Mistake, count_confusions, find_mistakes
from litebert.remote.names import shorten
from litebert.tasks.similarity import Similarity
from litebert.tasks.splits import Source
from litebert.tasks.task import Task
from litebert.text.records import Notes, detect_format, list_values, read_records
from litebert.text.tally import format_count
from litebert.tokenizer.coverage import Coverage

log = logging.getLogger("litebert")

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
    """Rows of each label (rows) by the class that answers them (columns), both in `classes`."""
    mistakes: list[Mistake] = field(default_factory=list)
    """The wrong answers of the highest probability, where they are asked for."""
    slices: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    """The scores of the rows with each value of each column, and their `count`."""


def evaluate(
    model: str | Path | Model,
    *,
    shards: str | Path | None = None,
    data: Source | None = None,
    predictions: str | Path | None = None,
    mistakes: int = 0,
    slice_columns: Sequence[str] = (),
    device: str = "auto",
    **options: Any,
) -> Scored:
    """Score a run folder, a litebert or Hugging Face folder, or a model on the Hub.

    Args:
        model: its name; or a model that `load` opened, which says the engine, when texts exit, and
            which answers are left out.
        shards: for a pretrained model: a folder of `prepare`, whose held-out part is scored.
        data: for a fine-tuned model: labeled files of its task, scored in float32. A file, several
            files, a folder of them or a pattern; of GLUE and RACE also the benchmark's folder.
        predictions: with `data`, the answers that `predict` wrote of the same rows as CSV or JSON
            Lines. The model computes nothing then.
        mistakes: with `data`, how many of the surest mistakes to list.
        slice_columns: with `data`, columns of a table whose values divide the rows into slices.
        device: auto, cpu, cuda, cuda:N, or mps on a Mac; an opened model has its own.
        options: with `data`, options of the task that say how files are read: text, pair, label,
            separator, input_format, header and encoding. Columns are those of training by default.
            With `shards`, `sequences`, the most to score (2,048); `length`, tokens of each, by
            default the length of training; and `tokenizer`, for a folder without a readable one.

    Raises:
        ConfigError: neither `shards` nor `data` is given, or the wrong one for this model, or a
            size or an option that cannot be.
        ModelError: the model cannot be opened, or has nothing to score.
        DataError: the shards or the files cannot be used.
    """
    if shards is not None and data is None:
        if isinstance(model, Model):
            device, model = model.device, model.path
        from litebert.train.evaluate import evaluate_pretrained  # which needs torch

        return Scored(None, evaluate_pretrained(model, shards, device=device, **options), {})
    if not isinstance(model, Model):
        model = load(model, device=device)
    is_pretrained = not model.task_record
    if shards is not None:
        wrong, right = ("--data", "--shards") if is_pretrained else ("--shards", "--data")
        kind = "pretrained" if is_pretrained else "fine-tuned"
        raise ConfigError(f"{model.path} is {kind}; leave {wrong} out, and give {right} alone")
    if is_pretrained and data is None:
        raise ConfigError(
            f"{model.path} is pretrained; name prepared text with --shards, or sentence pairs "
            "with --blimp"
        )
    if is_pretrained:
        raise ModelError(
            f"{model.path} is pretrained, and --data scores fine-tuned models; name prepared text "
            "with --shards, or fine-tune the model first"
        )
    if data is None:
        raise ConfigError(f"{model.path} is fine-tuned; name labeled files with --data")
    return score_predictor(
        model.predictor,
        data,
        predictions=predictions,
        mistakes=mistakes,
        slice_columns=slice_columns,
        **options,
    )


def score_predictor(
    predictor: Predictor,
    source: Source,
    *,
    predictions: str | Path | None = None,
    mistakes: int = 0,
    slice_columns: Sequence[str] = (),
    **options: Any,
) -> Scored:
    """Score any predictor on labeled files of its task; arguments as in `evaluate`."""
    files = [source] if isinstance(source, (str, Path)) else list(list_values(source, "data"))
    label = str(files[0]) if len(files) == 1 else f"{len(files)} files"
    notes = Notes()
    with progress.task("reading and tokenizing"):
        opened = predictor.task.files.open_labeled(predictor.task, source, **options)
        task = opened.task
        examples = opened.read(task.dev[0], notes)
        items = task.encode(examples, predictor.tokenizer, predictor.length, notes)
    for note in notes.notes():
        log.info(f"{label}: {note}")
    if not items:
        raise DataError(f"{label} has no examples to score; give a file that has some")
    columns = {name: opened.read_column(task.dev[0], name) for name in slice_columns}
    share = None
    if predictions is not None:
        answers = _read_answers(predictions, task, examples)
    else:
        coverage = Coverage(predictor.tokenizer)
        coverage.add(row.ids for item in items for row in item.rows)
        coverage.warn()
        predictor = replace(predictor, task=task)
        predictor.compare(examples, items)
        logits, layers = predictor.logits(items)
        if isinstance(predictor.runtime, EarlyExit):
            share = sum(layers) / (len(layers) * predictor.runtime.layers)
        answers = task.answers(examples, items, logits)
    count, covered, confusion = len(examples), None, None
    targets = [item.target for item in items]
    if getattr(task.output, "threshold", 0) or any(answer.value is None for answer in answers):
        places = [place for place, answer in enumerate(answers) if answer.value is not None]
        if not places:
            raise DataError(
                f"no answer to {label} reaches the threshold of --min-precision, so there is "
                "nothing to score; give a lower precision"
            )
        covered = len(places) / count
        examples, targets, answers = (
            [values[place] for place in places] for values in (examples, targets, answers)
        )
        columns = {name: [cells[place] for place in places] for name, cells in columns.items()}
    if task.output.exclusive:
        confusion = count_confusions(task.output.labels, targets, answers)
    slices: dict[str, dict[str, dict[str, float]]] = {name: {} for name in columns}
    for name, cells in columns.items():
        counts = Counter(cells)
        if len(counts) > MOST_SLICES:
            raise ConfigError(
                f"the column '{name}' has {len(counts):,} values, and slices have at most "
                f"{MOST_SLICES}; name a column with fewer"
            )
        for value, rows in counts.most_common():
            places = [place for place, cell in enumerate(cells) if cell == value]
            slices[name][value] = {"count": rows}
            with suppress(DataError):  # no row of it has a label
                slices[name][value] |= task.score(
                    [examples[place] for place in places], [answers[place] for place in places]
                )
    return Scored(
        examples=count,
        scores=task.score(examples, answers),
        classes=task.by_class(examples, answers),
        share=share,
        coverage=covered,
        confusion=confusion,
        mistakes=find_mistakes(task, examples, targets, answers, mistakes) if mistakes else [],
        slices=slices,
    )


def _read_answers(path: str | Path, task: Task[Any], examples: Sequence[Any]) -> list[Any]:
    name = shorten(path)
    remedy = "give the file that litebert predict wrote of --data, as .csv or .jsonl"
    if isinstance(task.output, Similarity) and not getattr(task, "label", None):
        raise ConfigError(
            f"{name} has cosines, and pairs without labels are scored by their vectors; leave "
            "--predictions out"
        )
    form = detect_format(path)
    if form not in ("csv", "jsonl"):
        raise DataError(f"{name} is neither CSV nor JSON Lines; {remedy}")
    labels = task.output.labels
    shares = [f"p_{label}" for label in labels] if form == "csv" else []
    names = ("prediction", "probabilities", "no_answer_odds", *shares)
    rows = list(read_records(path, names[:1], Notes(), optional=names[1:]))
    if len(rows) != len(examples):
        raise DataError(
            f"{name} has {format_count(len(rows), 'answer')}, and --data has "
            f"{format_count(len(examples), 'row')}; {remedy}"
        )
    answers = []
    for row, example in zip(rows, examples, strict=True):
        cells = dict(zip(names, row.values, strict=True))
        try:
            if form == "csv" and shares and not cells["probabilities"] and cells[shares[0]]:
                cells["probabilities"] = {label: cells[f"p_{label}"] for label in labels}
            answers.append(task.read_record(example, cells))
        except (ValueError, TypeError, KeyError):
            raise DataError(
                f"{name}:{row.line} has no answer of this model's task to its row of --data; "
                f"{remedy}"
            ) from None
    return answers
