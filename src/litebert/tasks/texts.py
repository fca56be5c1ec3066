"""The base of tasks over one or two texts: GLUE, pairs, and your own table.

Their answer is a class, several labels or a number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from litebert.errors import ConfigError, DataError
from litebert.finetuning.outputs import restore_output
from litebert.finetuning.rows import build_row, build_single_rows
from litebert.finetuning.task import Row, Task
from litebert.finetuning.values import Answer, Item, ModelExample, PlainItem
from litebert.storage import atomic_text
from litebert.tasks.predictions import list_texts, write_records
from litebert.tasks.scores import compute_class_scores, compute_scores
from litebert.tasks.splits import SplitFiles, SplitOptions, TableFormat, join_groups
from litebert.text.records import Notes, RowSource, format_value, read_records
from litebert.tokenizer import Tokenizer

Label: TypeAlias = "int | float | tuple[int, ...]"
"""The label of an example, as the output's target: the class, the number, or C zeros and ones."""


LARGEST = 1e30
"""Numbers of a larger amount are refused, because sums of them would overflow in float32."""
COLUMN_OPTIONS = ("text_column", "pair_column", "label_column")
"""The options that name the columns of a table."""


@dataclass(frozen=True, kw_only=True)
class ColumnOptions(SplitOptions):
    """The options of a task over texts in named columns."""

    text_column: str = "text"
    """Column that holds the text, by name or by number from 0."""
    pair_column: str | None = None
    """Column that holds a second text."""
    header: bool = True
    """Read the names of the columns in the first line of CSV and TSV files."""
    delimiter: str | None = None
    """The delimiter of CSV and TSV, such as ; or tab; by default each file tells it."""
    input_format: TableFormat | None = None
    """Format of the files; by default the suffix decides."""
    group_column: str | None = None
    """Column of what rows belong to, such as a customer; a group is never divided between training
    and development rows."""
    weight_column: str | None = None
    """Column with the weight of each training row in the loss."""


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

    name: ClassVar[str] = "texts"
    suffix: ClassVar[str] = ".csv"
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
        """Return the task with the model's output; a subclass adds its settings."""
        return cls(restore_output(settings), pair=settings.get("pair"))

    def settings(self) -> dict[str, Any]:
        """Return `pair`, if it is known whether texts come in pairs."""
        return {} if self.pair is None else {"pair": self.pair}

    @property
    def inputs(self) -> str:
        """An instruction to give a text, or a pair, as the model was fine-tuned on."""
        if self.pair is None:
            return "give a text or a pair of texts"
        if self.pair:
            return "the model was fine-tuned on pairs, give (first text, second text)"
        return "the model was fine-tuned on single texts, give a text"

    def example(self, value: Any, name: str) -> Example:
        """Return the example of a text, or of a list of one text or two."""
        counts = (1, 2) if self.pair is None else (1 + self.pair,)
        texts = list_texts([value] if isinstance(value, str) else value, *counts)
        return Example(texts[0], texts[1] if len(texts) > 1 else None)

    def show_example(self, example: Example) -> ModelExample:
        """Show the text or the pair, with the names of its labels or its number."""
        pair = {} if example.pair is None else {"pair": example.pair}
        return ModelExample({"text": example.text, **pair}, self._format_label(example.label))

    def _format_label(self, label: Label | None) -> str | None:
        names = self.output.labels
        if label is None:
            return None
        if isinstance(label, tuple):
            applying = [name for name, applies in zip(names, label, strict=False) if applies]
            return ", ".join(applying) or "none"
        if names:
            return names[int(label)] if label >= 0 else "unknown to the model"
        return f"{label:g}"

    def encode(
        self,
        examples: Sequence[Example],
        tokenizer: Tokenizer,
        length: int,
        notes: Notes | None = None,
    ) -> list[Item]:
        """Encode each example as a sequence of at most `length` tokens, and note what is cut."""
        notes = Notes() if notes is None else notes
        if all(example.pair is None for example in examples):
            rows, cut = build_single_rows(tokenizer, [example.text for example in examples], length)
            notes.add_cut(cut, len(rows), length)
            return [
                Item(i, (row,), example.label, group=example.group, weight=example.weight)
                for i, (row, example) in enumerate(zip(rows, examples, strict=True))
            ]
        firsts = tokenizer.encode([example.text for example in examples])
        seconds = iter(
            tokenizer.encode([example.pair for example in examples if example.pair is not None])
        )
        items, cut = [], 0
        for i, (example, first) in enumerate(zip(examples, firsts, strict=True)):
            second = None if example.pair is None else next(seconds)
            specials = 2 if second is None else 2 + tokenizer.pair_separators
            cut += len(first) + len(second or ()) + specials > length
            row = build_row(tokenizer, first, second, length)
            items.append(Item(i, (row,), example.label, group=example.group, weight=example.weight))
        notes.add_cut(cut, len(items), length)
        return items

    def plain_items(self, examples: Sequence[Example]) -> list[PlainItem]:
        """Return the one or two texts of each example."""
        items = []
        for i, example in enumerate(examples):
            pair = () if example.pair is None else (example.pair,)
            items.append(
                PlainItem(
                    *(i, (), example.label),
                    group=example.group,
                    weight=example.weight,
                    texts=(example.text, *pair),
                )
            )
        return items

    def lengths(self, examples: Sequence[Example], tokenizer: Tokenizer) -> NDArray[np.int64]:
        """Count the tokens of each example that is read whole, with special tokens."""
        _, firsts = tokenizer.encode_flat([example.text for example in examples])
        _, seconds = tokenizer.encode_flat([example.pair or "" for example in examples])
        paired = np.array([example.pair is not None for example in examples])
        whole: NDArray[np.int64] = (
            firsts + seconds + np.where(paired, 2 + tokenizer.pair_separators, 2)
        )
        return whole

    def write(self, examples: Sequence[Example], answers: Sequence[Answer], path: Path) -> None:
        """Write JSON Lines or CSV, by the suffix.

        CSV has the columns `prediction` and, for each label, `p_LABEL`. Rows that were held out, or
        that are from several files, have `file` and `line` too.
        """
        with atomic_text(path) as file:
            write_records(
                map(self._make_record, examples, answers),
                file,
                "jsonl" if path.suffix in (".jsonl", ".ndjson") else "csv",
                self.separator or self.output.separator,
            )

    def _make_record(self, example: Example, answer: Answer) -> dict[str, Any]:
        """Return the fields of an answer in the predictions file."""
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
        """Compute the scores of the task over the examples with a label."""
        return compute_scores(self.score_names, *self._align(examples, answers))

    def by_class(
        self, examples: Sequence[Example], answers: Sequence[Answer]
    ) -> dict[str, dict[str, float]]:
        """Compute the scores of each label; there are none for numbers."""
        if not self.output.labels:
            return {}
        return compute_class_scores(self.output.labels, *self._align(examples, answers))

    def _align(
        self, examples: Sequence[Example], answers: Sequence[Answer]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return labels and predictions of the examples with a label, in the form of targets."""
        examples, answers = self._select_labeled(
            examples, answers, lambda example: example.label is not None
        )
        labels: list[Any] = [example.label for example in examples]
        predictions = [self.output.as_target(answer.value) for answer in answers]
        if isinstance(labels[0], tuple):  # which is longer where the model does not know a label
            width = max(map(len, labels))
            labels, predictions = (
                [(*row, *[0] * (width - len(row))) for row in rows]
                for rows in (labels, predictions)
            )
        return np.array(labels), np.array(predictions)


def shorten_number(number: float) -> float:
    """Return the number of the fewest digits that is the same in float32, if this is a float32."""
    with np.errstate(over="ignore"):
        single = np.float32(number)
    return float(str(single)) if float(single) == number else number


def hash_texts(*texts: str | None) -> int:
    """Return a number that is the same for texts that differ in case and spaces only."""
    return hash(tuple(" ".join((text or "").casefold().split()) for text in texts))


def parse_finite(value: Any, location: str, column: str | None) -> float:
    """Return the finite number of a cell.

    Raises:
        DataError: it holds none.
    """
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise DataError(
            f"{location}: '{column}' is {format_value(value)}, not a finite number; correct it, or "
            "leave the row out"
        )
    return number


def require_columns(text: str, pair: str | None) -> tuple[str, ...]:
    """Return the names of one or two columns.

    Raises:
        ConfigError: the two names are the same.
    """
    if pair == text:
        raise ConfigError(
            f"text and pair are both the column '{text}'; name two columns, or leave pair out"
        )
    return (text,) if pair is None else (text, pair)


def make_example(
    cells: Sequence[Any], names: Sequence[str], location: str, notes: Notes
) -> Example:
    """Make an example from a row's cells in the columns `names`.

    An empty cell becomes an empty text, which is counted in the notes.

    Raises:
        DataError: a cell is no text.
    """
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
    """The files of a task over texts in named columns."""

    group_column: str | None = None
    weight_column: str | None = None

    def _select_rows(
        self,
        split: str,
        examples: list[Example],
        keys: Sequence[int],
        notes: Notes,
        classes: Sequence[Any] | None = None,
    ) -> list[Example]:
        """Select the rows of a split. Rows with an equal key, or of one group, stay together; so
        they do in the short runs and the folds of a baseline, by `Example.group`.

        Args:
            classes: as in `select_split`; groups by a column have no class.

        Raises:
            DataError: a weight is none, or all are 0.
        """
        if split == "test" or (split == "dev" and not self._holds_out):
            return examples
        groups = self._read_groups(split, self.group_column)
        units = join_groups(keys, *([groups] if groups else []))
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
        examples = self._select_split(
            split, examples, lambda i: units[kept[i]], name, notes, classes
        )
        mean = fmean(example.weight for example in examples)
        return [example._replace(weight=example.weight / mean) for example in examples]

    @classmethod
    def stream(
        cls, source: RowSource, notes: Notes, *, text: str = "text", pair: str | None = None
    ) -> Iterator[Row[Example]]:
        return stream_texts(source, notes, text=text, pair=pair)
