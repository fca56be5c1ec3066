"""What tasks over one or two texts share (GLUE, your own table), be the answer a class, several
labels or a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from litebert.errors import ConfigError, DataError
from litebert.finetuning.examples import ModelExample
from litebert.finetuning.items import Item, PlainItem, build_row, single_rows
from litebert.finetuning.outputs import Answer, Output, saved_output
from litebert.storage import atomic_text
from litebert.tasks.parts import FileTask, Source
from litebert.tasks.predictions import texts, write_records
from litebert.tasks.scores import class_scores, scores
from litebert.text.records import FileFormat, Notes, read_records
from litebert.tokenizer import Tokenizer

Label: TypeAlias = "int | float | tuple[int, ...]"
"""In the form of the output's target: the class, the number, or C zeros and ones."""


class Example(NamedTuple):
    """One or two texts and the right answer for them."""

    text: str
    pair: str | None = None
    label: Label | None = None
    """None where it is not known."""
    name: str = ""
    """What it is called in a predictions file: its place, LINE or FILE:LINE, or its name in the
    benchmark.
    """


class TextTask(FileTask[Example]):
    """A task over texts, but for its files: a subclass has a `name` and reads them, with labels as
    targets.
    """

    name, suffix = "texts", ".csv"
    pair: bool | None = None
    separator: str | None = None
    """What stands between several labels in one cell, where it is not the one of the output."""

    def __init__(
        self,
        output: Output,
        score_names: Sequence[str] = (),
        metric: str | None = None,
        files: Mapping[str, Source | None] | None = None,
        **options: Any,
    ) -> None:
        """`files` and `options` as `FileTask` takes them."""
        self._score_names = score_names or output.scores
        super().__init__(output, metric or self._score_names[0], files, **options)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> TextTask:
        """With the model's output, and the settings that a subclass adds."""
        task = cls.__new__(cls)
        TextTask.__init__(task, saved_output(settings))
        task.pair = settings.get("pair")
        return task

    def settings(self) -> dict[str, Any]:
        """Whether texts come in pairs."""
        return {} if self.pair is None else {"pair": self.pair}

    @property
    def inputs(self) -> str:
        """A text or a pair of them, or the one of these that the model was fine-tuned on."""
        if self.pair is None:
            return "give a text or a pair of texts"
        if self.pair:
            return "the model was fine-tuned on pairs, give (first text, second text)"
        return "the model was fine-tuned on single texts, give a text"

    def example(self, value: Any, name: str) -> Example:
        """Of a text, or of a list of one or two."""
        counts = (1, 2) if self.pair is None else (1 + self.pair,)
        found = texts([value] if isinstance(value, str) else value, *counts)
        return Example(found[0], found[1] if len(found) > 1 else None)

    def show_example(self, example: Example) -> ModelExample:
        """The text or the pair, with the names of its labels or its number."""
        pair = {} if example.pair is None else {"pair": example.pair}
        return ModelExample({"text": example.text, **pair}, self._label_name(example.label))

    def _label_name(self, label: Label | None) -> str | None:
        names = self.output.labels
        if isinstance(label, tuple):
            return (
                ", ".join(name for name, applies in zip(names, label, strict=True) if applies)
                or "none"
            )
        if label is None or not names:
            return None if label is None else f"{label:g}"
        return names[int(label)]

    def stream(
        self,
        source: str | Path,
        *,
        text: str = "text",
        pair: str | None = None,
        form: FileFormat | None = None,
    ) -> Iterator[Example]:
        """The texts in one or two columns of a file; plain text has one on each line."""
        self._found = Notes()
        names = columns(text, pair)
        for row in read_records(source, names, self._found, form=form):
            yield self._of_cells(row.values, names, f"{source}:{row.line}")

    def _of_cells(self, cells: Sequence[Any], names: Sequence[str], place: str) -> Example:
        """The example of a row's cells in the columns `names`; an empty cell is an empty text, and
        counted.
        """
        for value, name in zip(cells, names, strict=True):
            if value is not None and not isinstance(value, str):
                raise DataError(
                    f"{place}: '{name}' is {type(value).__name__}, not text; name another column"
                )
            if not (value or "").strip():
                self._found["texts are empty"] += 1
        return Example(cells[0] or "", (cells[1] or "") if len(cells) > 1 else None)

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, length: int) -> list[Item]:
        """One row per example, of at most `length` tokens; what is longer is truncated, counted and
        noted.
        """
        if all(example.pair is None for example in examples):
            rows, cut = single_rows(tokenizer, [example.text for example in examples], length)
            self._found.add_cut(cut, len(rows), length)
            return [Item(i, (row,), examples[i].label) for i, row in enumerate(rows)]
        firsts = tokenizer.encode([example.text for example in examples])
        seconds = iter(
            tokenizer.encode([example.pair for example in examples if example.pair is not None])
        )
        items, cut = [], 0
        for i, (example, first) in enumerate(zip(examples, firsts, strict=True)):
            second = None if example.pair is None else next(seconds)
            specials = 2 if second is None else 2 + tokenizer.pair_separators
            cut += len(first) + len(second or ()) + specials > length
            items.append(Item(i, (build_row(tokenizer, first, second, length),), example.label))
        self._found.add_cut(cut, len(items), length)
        return items

    def plain_items(self, examples: Sequence[Example]) -> list[PlainItem]:
        """The one or two texts of each example."""
        return [
            PlainItem(
                i, (), one.label, texts=(one.text,) if one.pair is None else (one.text, one.pair)
            )
            for i, one in enumerate(examples)
        ]

    def lengths(self, examples: Sequence[Example], tokenizer: Tokenizer) -> NDArray[np.int64]:
        """Tokens of each example that is read whole, special ones included."""
        _, firsts = tokenizer.encode_flat([example.text for example in examples])
        _, seconds = tokenizer.encode_flat([example.pair or "" for example in examples])
        paired = np.array([example.pair is not None for example in examples])
        whole: NDArray[np.int64] = (
            firsts + seconds + np.where(paired, 2 + tokenizer.pair_separators, 2)
        )
        return whole

    def write(self, examples: Sequence[Example], answers: Sequence[Answer], path: Path) -> None:
        """JSON Lines by the suffix, else CSV with the columns `prediction` and, for each label,
        `p_LABEL`.

        Of rows that were held out, or are from several files, `file` and `line` say where they
        start. Numbers have seven digits.
        """
        with atomic_text(path) as file:
            write_records(
                map(self._written, examples, answers),
                file,
                "jsonl" if path.suffix in (".jsonl", ".ndjson") else "csv",
                self.separator or self.output.separator,
            )

    def _written(self, example: Example, answer: Answer) -> dict[str, Any]:
        """What is written of an answer."""
        file, _, line = example.name.rpartition(":")
        row: dict[str, Any] = ({"file": file} if file else {}) | (
            {"line": int(line)} if line else {}
        )
        row |= self.record(example, answer)
        return (
            row | {"prediction": float(f"{answer.value:.7g}")}
            if isinstance(answer.value, float)
            else row
        )

    def score(self, examples: Sequence[Example], answers: Sequence[Answer]) -> dict[str, float]:
        """Those of `score_names`."""
        examples, answers = self._known(
            examples, answers, lambda example: example.label is not None
        )
        guess = [self.output.as_target(answer.value) for answer in answers]
        return scores(
            self._score_names, np.array([example.label for example in examples]), np.array(guess)
        )

    def by_class(
        self, examples: Sequence[Example], answers: Sequence[Answer]
    ) -> dict[str, dict[str, float]]:
        """Of each label; none of numbers."""
        if not self.output.labels:
            return {}
        examples, answers = self._known(
            examples, answers, lambda example: example.label is not None
        )
        guess = [self.output.as_target(answer.value) for answer in answers]
        return class_scores(
            self.output.labels, np.array([example.label for example in examples]), np.array(guess)
        )


def columns(text: str, pair: str | None) -> tuple[str, ...]:
    """The names of one or two columns.

    Raises:
        ConfigError: they are the same.
    """
    if pair == text:
        raise ConfigError(
            f"text and pair are both the column '{text}'; name two columns, or leave pair out"
        )
    return (text,) if pair is None else (text, pair)
