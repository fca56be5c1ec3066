"""The base of tasks over one or two texts (GLUE, pairs, your own table), answered by a class,
several labels or a number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import ConfigError, DataError
from litebert.base.storage import atomic_text
from litebert.tasks.label_cells import is_amount, parse_number
from litebert.tasks.outputs import restore_output
from litebert.tasks.predictions import list_texts, write_records
from litebert.tasks.rows import build_row, build_single_rows
from litebert.tasks.scores import compute_class_scores, compute_scores
from litebert.tasks.splits import (
    Source,
    SplitFiles,
    SplitOptions,
    format_files,
    join_groups,
)
from litebert.tasks.task import Row, Task
from litebert.tasks.values import Answer, Item, ModelExample, PlainItem
from litebert.text.records import (
    Notes,
    RowSource,
    TableFormat,
    find_parts,
    format_value,
    read_records,
)
from litebert.tokenizer import Tokenizer

Label: TypeAlias = "int | float | tuple[int, ...]"
"""The label of an example, as the output's target: the class, the number, or C zeros and ones."""


LARGEST = 1e30
"""Numbers of a larger amount are refused, because sums of them would overflow in float32."""


@dataclass(frozen=True, kw_only=True)
class ColumnOptions(SplitOptions):
    """The options of a task over texts in named columns."""

    text_column: str = "text"
    """Column of the text, by name or number from 0; title + text joins two."""
    pair_column: str | None = None
    """Column of a second text."""
    header: bool = True
    """The first line of CSV names the columns."""
    delimiter: str | None = None
    """Delimiter of CSV, such as ; or tab; by default found."""
    input_format: TableFormat | None = None
    """Format of the files; by default the suffix decides."""
    group_column: str | None = None
    """Column of what rows belong to, such as a customer; development rows never share it."""
    weight_column: str | None = None
    """Column of the weight of a training row in the loss."""


class Example(NamedTuple):
    """One or two texts with their label."""

    text: str
    pair: str | None = None
    label: Label | None = None
    """None if it is not known."""
    name: str = ""
    """Its name in a predictions file: its location, LINE or FILE:LINE, or its name in the
    benchmark.
    """
    group: int | None = None
    """The number of the training rows that it belongs to; None where it is alone."""
    weight: float = 1.0
    """Its weight in the loss; the mean of the training rows is 1."""

    def __repr__(self) -> str:
        """Leave out what scores do not depend on, because runs are told apart by it."""
        return "Example(text={!r}, pair={!r}, label={!r}, name={!r})".format(*self)


@dataclass(frozen=True)
class TextTask(Task[Example]):
    """A task over texts. Its files give labels as targets of the output."""

    name = "texts"
    suffix = ".csv"
    pair: bool | None = None
    separator: str | None = None
    """The separator of several labels in one cell; None for the separator of the output."""
    score_names: tuple[str, ...] = ()
    """The names of its scores; by default those of the output."""

    def __post_init__(self) -> None:
        if not self.score_names:
            object.__setattr__(self, "score_names", tuple(self.output.scores))
        if not self.metric:
            object.__setattr__(self, "metric", self.score_names[0])

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> TextTask:
        return cls(restore_output(settings), pair=settings.get("pair"))

    def settings(self) -> dict[str, Any]:
        return {} if self.pair is None else {"pair": self.pair}

    @property
    def inputs(self) -> str:
        if self.pair is None:
            return "give a text or a pair of texts"
        if self.pair:
            return "the model was fine-tuned on pairs, give (first text, second text)"
        return "the model was fine-tuned on single texts, give a text"

    def example(self, value: Any, name: str) -> Example:
        if isinstance(value, str) and not self.pair:
            return Example(value)
        counts = (1, 2) if self.pair is None else (1 + self.pair,)
        texts = list_texts([value] if isinstance(value, str) else value, *counts)
        return Example(texts[0], texts[1] if len(texts) > 1 else None)

    def show_example(self, example: Example) -> ModelExample:
        pair = {} if example.pair is None else {"pair": example.pair}
        return ModelExample({"text": example.text, **pair}, self._format_label(example.label))

    def _format_label(self, label: Label | None) -> str | None:
        names = self.output.labels
        if label is None:
            return None
        if isinstance(label, tuple):
            unknown = ["unknown to the model"] * (len(label) - len(names))
            applying = zip((*names, *unknown), label, strict=True)
            return ", ".join(dict.fromkeys(name for name, applies in applying if applies)) or "none"
        if names:
            return names[int(label)] if label >= 0 else "unknown to the model"
        return f"{label:g}"

    def encode(
        self, examples: Sequence[Example], tokenizer: Tokenizer, length: int, notes: Notes
    ) -> list[Item]:
        if self.apart:
            texts = [text for example in examples for text in (example.text, example.pair or "")]
            rows, cut = build_single_rows(tokenizer, texts, length)
        elif all(example.pair is None for example in examples):
            rows, cut = build_single_rows(tokenizer, [example.text for example in examples], length)
        else:
            firsts = tokenizer.encode([example.text for example in examples])
            pairs = [example.pair for example in examples if example.pair is not None]
            seconds, rows, cut = iter(tokenizer.encode(pairs)), [], 0
            for example, first in zip(examples, firsts, strict=True):
                second = None if example.pair is None else next(seconds)
                specials = 2 if second is None else 2 + tokenizer.pair_separators
                cut += len(first) + len(second or ()) + specials > length
                rows.append(build_row(tokenizer, first, second, length))
        notes.add_cut(cut, len(rows), length)
        each = 2 if self.apart else 1
        return [
            Item(
                i,
                tuple(rows[each * i : each * (i + 1)]),
                example.label,
                group=example.group,
                weight=example.weight,
            )
            for i, example in enumerate(examples)
        ]

    def plain_items(self, examples: Sequence[Example]) -> list[PlainItem]:
        return [
            PlainItem(
                i,
                (),
                example.label,
                group=example.group,
                weight=example.weight,
                texts=(example.text,) if example.pair is None else (example.text, example.pair),
            )
            for i, example in enumerate(examples)
        ]

    def lengths(self, examples: Sequence[Example], tokenizer: Tokenizer) -> NDArray[np.int64]:
        _, firsts = tokenizer.encode_flat([example.text for example in examples])
        _, seconds = tokenizer.encode_flat([example.pair or "" for example in examples])
        if self.apart:
            longest: NDArray[np.int64] = np.maximum(firsts, seconds) + 2
            return longest
        paired = np.array([example.pair is not None for example in examples])
        whole: NDArray[np.int64] = (
            firsts + seconds + np.where(paired, 2 + tokenizer.pair_separators, 2)
        )
        return whole

    def write(self, examples: Sequence[Example], answers: Sequence[Answer], path: Path) -> None:
        """Write JSON Lines or CSV. Rows held out or of several files have their place."""
        with atomic_text(path) as file:
            write_records(
                map(self._make_record, examples, answers),
                file,
                "jsonl" if path.suffix in (".jsonl", ".ndjson") else "csv",
                self.separator or self.output.separator,
            )

    def _make_record(self, example: Example, answer: Answer) -> dict[str, Any]:
        file, _, line = example.name.rpartition(":")
        record: dict[str, Any] = {}
        if file:
            record["file"] = file
        if line:
            record["line"] = int(line)
        record |= self.record(example, answer)
        if isinstance(answer.value, float):
            record["prediction"] = shorten_number(answer.value)
        return record

    def score(self, examples: Sequence[Example], answers: Sequence[Answer]) -> dict[str, float]:
        return compute_scores(self.score_names, *self._align(examples, answers))

    def by_class(
        self, examples: Sequence[Example], answers: Sequence[Answer]
    ) -> dict[str, dict[str, float]]:
        if not self.output.labels:
            return {}
        return compute_class_scores(self.output.labels, *self._align(examples, answers))

    def _align(
        self, examples: Sequence[Example], answers: Sequence[Answer]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        examples, answers = self._select_labeled(examples, answers)
        labels: list[Any] = [example.label for example in examples]
        predictions = [self.output.as_target(answer.value) for answer in answers]
        if isinstance(labels[0], tuple):  # which is longer where the model does not know a label
            width = max(map(len, labels))
            labels, predictions = (
                [(*row, *[0] * (width - len(row))) for row in rows]
                for rows in (labels, predictions)
            )
        return np.array(labels), np.array(predictions)


@dataclass(frozen=True)
class ColumnTask(TextTask):
    """A task over one or two texts in named columns."""

    texts: tuple[str, ...] = ("text",)
    """The columns of the one or two texts."""
    label: tuple[str, ...] = ()
    """The column of the label, or the columns of 0 and 1 for each label; () without labels."""
    header: bool = True
    """True if the training files have a header line."""

    def settings(self) -> dict[str, Any]:
        text, *pair = self.texts
        label = self.label if len(self.label) > 1 else next(iter(self.label), None)
        columns = {"text": text, "pair": pair[0] if pair else None, "label": label}
        header = {} if self.header else {"header": False}
        return {**super().settings(), "columns": columns, **header}


def shorten_number(number: float) -> float:
    """Return the number of the fewest digits that is the same in float32, if this is a float32."""
    with np.errstate(over="ignore"):
        single = np.float32(number)
    return float(str(single)) if float(single) == number else number


def hash_texts(*texts: str | None) -> int:
    """Return a number that is the same for texts that differ in case and spaces only."""
    return hash(tuple(" ".join((text or "").casefold().split()) for text in texts))


def parse_finite(value: Any, location: str, column: str) -> float:
    number = parse_number(value)
    if number is None:
        remedy = "correct it, or leave the row out"
        if is_amount(value):
            remedy = "write it with a decimal point and without other signs"
        raise DataError(
            f"{location}: '{column}' is {format_value(value)}, not a finite number; {remedy}"
        )
    return number


def require_columns(text: str, pair: str | None) -> tuple[str, ...]:
    if pair == text:
        raise ConfigError(
            f"text and pair are both the column '{text}'; name two columns, or leave pair out"
        )
    return (text,) if pair is None else (text, pair)


def list_columns(label: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if label is None else (label,) if isinstance(label, str) else tuple(label)


def check_label(label: Sequence[str], texts: Sequence[str]) -> None:
    for name in label:
        if any(name in find_parts(text, ()) for text in texts):
            raise ConfigError(
                f"label is '{name}', a column that the model reads; name the column of the labels"
            )


def make_example(
    cells: Sequence[Any], names: Sequence[str], location: str, notes: Notes
) -> Example:
    """Make an example from a row's cells in the columns `names`. Empty texts are counted."""
    for value, name in zip(cells, names, strict=True):
        if isinstance(value, float) and math.isnan(value):
            value = None  # as pandas writes a missing text
        if value is not None and not isinstance(value, str):
            raise DataError(
                f"{location}: '{name}' is {format_value(value)} ({type(value).__name__}), not a "
                "text; correct the row, or name another column"
            )
        if not (value or "").strip():
            notes["texts are empty"] += 1
    texts = [value if isinstance(value, str) else "" for value in cells]
    return Example(texts[0], texts[1] if len(texts) > 1 else None)


def stream_texts(
    source: RowSource, notes: Notes, *, text: str = "text", pair: str | None = None
) -> Iterator[Row[Example]]:
    """Yield the texts in one or two columns of a file; plain text has a text on each line."""
    names = require_columns(text, pair)
    for record in read_records(source, names, notes):
        example = make_example(record.values, names, f"{source}:{record.line}", notes)
        yield Row(example, record.extras, str(source), record.line)


class TextFiles(SplitFiles[Example]):
    stream = staticmethod(stream_texts)
    group_column: str | None = None
    weight_column: str | None = None

    @classmethod
    def open_labeled(
        cls, task: Task[Example], source: Source, **options: Any
    ) -> SplitFiles[Example]:
        """Open labeled files to score a model on, by default with the training files' columns."""
        assert isinstance(task, ColumnTask)
        names = ("text_column", "pair_column", "label_column")
        # Naming columns implies a header, even if the training files had none.
        options.setdefault("header", task.header or not options.keys().isdisjoint(names))
        text, *pair = task.texts
        texts = require_columns(
            options.pop("text_column", text), options.pop("pair_column", pair[0] if pair else None)
        )
        label = list_columns(options.pop("label_column", task.label))
        check_label(label, texts)
        return super().open_labeled(replace(task, texts=texts, label=label), source, **options)

    def _find_mark(self) -> list[str]:
        assert isinstance(self.task, ColumnTask)
        own = (*self.task.texts, *self.task.label)
        return [] if "answer" in own else ["answer"]

    def _select_rows(
        self,
        split: str,
        examples: list[Example],
        keys: Sequence[int],
        notes: Notes,
        classes: Sequence[Any] | None = None,
    ) -> list[Example]:
        """Select the rows of a split. Rows with an equal key, or of one group, stay together, in
        short runs and the folds of a baseline too. Groups by a column have no class.
        """
        if not examples:
            raise DataError(
                f"{format_files(self._find_files(split))} has only rows marked as rejected or "
                "ignored (answer); give others"
            )
        if split == "test" or (split == "dev" and not self._holds_out):
            return examples
        groups = self._read_groups(split, self.group_column)
        units = join_groups(keys, groups)
        sizes = Counter(units)
        name = "rows" if len(sizes) == len(units) else "different texts"
        if groups:
            name, classes = f"groups by '{self.group_column}'", None
        weights = [1.0] * len(examples)
        if self.weight_column is not None:
            cells = self._read_cells(self._find_files(split), self.weight_column)
            weights = []
            for cell, location in cells:
                weights.append(parse_finite(cell, location, self.weight_column))
                if not 0 <= weights[-1] <= LARGEST:
                    raise DataError(
                        f"{location}: '{self.weight_column}' is {format_value(cell)}; give weights "
                        f"from 0 to {LARGEST:g}"
                    )
        kept = [i for i, weight in enumerate(weights) if weight]
        if not kept:
            raise DataError(
                f"'{self.weight_column}' is 0 on every training row; give rows that weigh more"
            )
        if len(kept) < len(examples):
            notes["rows weigh 0 and are left out"] = len(examples) - len(kept)
        examples = [
            examples[i]._replace(group=units[i] if sizes[units[i]] > 1 else None, weight=weights[i])
            for i in kept
        ]
        classes = None if classes is None else [classes[i] for i in kept]
        kept_units = [units[i] for i in kept]
        examples = self._select_split(split, examples, kept_units, name, notes, classes)
        mean = fmean(example.weight for example in examples)
        return [example._replace(weight=example.weight / mean) for example in examples]
