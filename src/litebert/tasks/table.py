"""Your own table: CSV, TSV, JSONL or Parquet with a text, perhaps a second one, and a label to learn.

The label is a class, several labels, or a number. `target="auto"` decides from the training file: lists (or a given
separator) mean several labels; numbers of which at least one is not whole mean a number; everything else, whole
numbers too, means classes. A file is read twice, once for its labels and once for its examples, rather than held in
memory as it was written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from litebert.errors import ConfigError, DataError, nearest
from litebert.finetuning.outputs import Number, OneClass, Output, SeveralLabels
from litebert.tasks.parts import split
from litebert.tasks.texts import Example, Label, TextTask, columns
from litebert.text.records import Notes, Record, records, shown

Target = Literal["auto", "class", "labels", "number"]

_OUTPUTS: dict[str, type[Output]] = {"class": OneClass, "labels": SeveralLabels, "number": Number}
_MANY = 20
"""Whole numbers with more different values than this may have been meant as amounts."""


class Table(TextTask):
    """A task from files with named columns.

    Args:
        train, dev, test: their files. Without `dev`, a share `heldout` of the rows of `train` takes its place, drawn
            with `seed`. Without `train` nothing can be learned, but answers can be made.
        text, pair, label: names of the columns; `pair` None for one text. The labels of the test file are not read.
        target: what the label is; see above for "auto".
        separator: what stands between several labels in one cell, where they are no lists.
        labels: the classes in the order of the logits, as an earlier run saved them. By default those of the training
            file in sorted order (whole numbers by size).
        metric: the score that chooses checkpoints, where it is not the first of accuracy, macro_f1, matthews (class);
            micro_f1, macro_f1, exact (labels); r2, pearson, spearman (number).

    Raises:
        ConfigError: options that contradict each other.
        DataError: a training file that is missing or malformed; the message names the line.
    """

    name = "table"
    takes = ("dev", "test", "text", "pair", "label", "target", "separator", "metric")

    def __init__(
        self,
        train: str | Path | None = None,
        dev: str | Path | None = None,
        test: str | Path | None = None,
        *,
        text: str = "text",
        pair: str | None = None,
        label: str = "label",
        target: Target = "auto",
        separator: str | None = None,
        labels: Sequence[str] | None = None,
        heldout: float = 0.1,
        seed: int = 0,
        metric: str | None = None,
    ) -> None:
        if target not in get_args(Target):
            raise ConfigError(f"target is '{target}'; {nearest(target, get_args(Target))}")
        if separator == "" or (separator is not None and target not in ("auto", "labels")):
            raise ConfigError("separator is what stands between several labels; leave it out, or set target=labels")
        if not 0 < heldout < 1:
            raise ConfigError(f"heldout is {heldout}; give a share between 0 and 1")
        if labels is not None and len(set(labels)) < len(labels):
            raise ConfigError("labels holds a name twice; give each once")
        self._texts, self._label, self.separator = columns(text, pair), label, separator
        self._heldout, self._seed = heldout, seed
        self._remarks = Notes()
        if train is not None and (target == "auto" or (target != "number" and labels is None)):
            target, names = self._survey(train, target)
            labels = names if labels is None else labels
        elif target == "auto":
            if labels is None:
                raise ConfigError("target=auto is decided from the training file; give one, or say what target is")
            target = "class" if separator is None else "labels"
        output = _OUTPUTS[target]() if target == "number" else _OUTPUTS[target](tuple(labels or ()))
        self._target = target
        choices = [name for name in output.scores if name != "rmse"]  # of which lower is better
        if metric is not None and metric not in choices:
            raise ConfigError(f"metric is '{metric}', which cannot choose here; {nearest(metric, choices)}")
        super().__init__(output, metric=metric, train=train, dev=dev, test=test)
        self.pair = pair is not None
        self._numbers = {name: number for number, name in enumerate(output.labels)}
        self._splits = train is not None and dev is None
        self.dev = ("dev",) if self._splits else self.dev

    def settings(self) -> dict[str, Any]:
        """Whether texts come in pairs, and the columns."""
        if not hasattr(self, "_texts"):  # restored without them
            return super().settings()
        text, *pair = self._texts
        return {
            **super().settings(),
            "columns": {"text": text, "pair": pair[0] if pair else None, "label": self._label},
        }

    def read(self, part: str) -> list[Example]:
        """The examples of train, dev or test, in the order of their file."""
        splits = self._splits and part != "test"
        source = self._file("train" if splits else part)
        self._found = Notes(self._remarks) if part == "train" else Notes()
        label = [] if part == "test" else [self._label]
        rows = records(source, [*self._texts, *label], self._found)
        examples = [self._example(row, source)._replace(name=str(row.line) if splits else "") for row in rows]
        if splits:
            groups = range(len(examples))
            examples = split(part, examples, groups, self._heldout, self._seed, f"rows of {source}", self._found)
        if part == "train":
            counts = self.output.counts([example.label for example in examples])
            for name, count in zip(self.output.labels, counts, strict=True):
                if count == 0:
                    self._found[f"there is no training example of the label '{name}'"] += 1
        return examples

    # ---- labels ----------------------------------------------------------------------------------------------------

    def _survey(self, source: str | Path, target: Target) -> tuple[Target, list[str]]:
        """What the labels of a file are, and their sorted names."""
        names: set[str] = set()
        lists = fractions = False
        words, first_word = 0, ""
        for row in records(source, [self._label], Notes()):
            value, place = row.values[0], f"{source}:{row.line}"
            if _blank(value):
                continue
            parts = self._parts(value)
            lists |= parts is not None
            several = [value] if parts is None else parts
            names.update(_name(part, place, self._label) for part in several if not _blank(part))
            number = _number(value) if parts is None else None
            if number is None:
                words, first_word = words + 1, first_word or place
            fractions |= number is not None and not number.is_integer()
        if target == "auto":
            target = "labels" if lists else "number" if fractions and not words else "class"
            self._remarks[f"{source}: different labels, taken for target={target}"] = len(names)
            if target == "class" and not words and len(names) > _MANY:
                self._remarks["different whole numbers as classes; set target=number if they are amounts"] = len(names)
            if target == "class" and fractions:
                why = f"labels are no numbers, the first in {first_word}, so the fractions beside them are classes"
                self._remarks[f"{why}; mend them if all are amounts"] = words
        if target != "number" and not names:
            raise DataError(f"{source} has no label in '{self._label}' on any row; fill it in, or name another column")
        if target == "class" and len(names) == 1:
            only = shown(names.pop())
            raise DataError(f"{source} has the one label {only} on every row; give rows of other labels too")
        whole = all(name.removeprefix("-").isdecimal() for name in names)
        return target, sorted(names, key=lambda name: (int(name) if whole else 0, name))

    def _parts(self, value: Any) -> list[Any] | None:
        """The labels of a cell with several, None for a cell with one."""
        if isinstance(value, list):
            return value
        if self.separator is not None and isinstance(value, str):
            return [part for part in value.split(self.separator) if not _blank(part)]
        return None

    def _example(self, row: Record, source: str | Path) -> Example:
        """With its label, where the row has a cell more than there are texts."""
        place, count = f"{source}:{row.line}", len(self._texts)
        example = self._of_cells(row.values[:count], self._texts, place)
        return example._replace(label=self._as_target(row.values[count], place)) if row.values[count:] else example

    def _as_target(self, value: Any, place: str) -> Label:
        if self._target == "labels":
            parts = self._parts(value)
            if parts is None:
                raise DataError(
                    f"{place}: '{self._label}' is {shown(value)}, no list; write one, or name the separator"
                )
            named = [part for part in parts if not _blank(part)]
            if len(named) < len(parts):
                self._found["blanks in lists of labels were passed over"] += len(parts) - len(named)
            chosen = {self._class(part, place) for part in named}
            return tuple(int(number in chosen) for number in range(len(self.output.labels)))
        if _blank(value):
            raise DataError(f"{place} has no label in '{self._label}'; fill it in, or leave the row out")
        if self._target == "class":
            return self._class(value, place)
        number = _number(value)
        if number is None:
            raise DataError(f"{place}: '{self._label}' is {shown(value)}, no number; mend it, or set another target")
        return number

    def _class(self, value: Any, place: str) -> int:
        name = _name(value, place, self._label)
        if name not in self._numbers:
            raise DataError(
                f"{place} has the label {shown(name)}, new since training; mend it, or add training rows of it"
            )
        return self._numbers[name]


def _blank(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def _name(value: Any, place: str, column: str) -> str:
    """A label as text: whole numbers without a fraction, true and false as JSON writes them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, (str, int, float)):
        raise DataError(f"{place}: '{column}' holds {type(value).__name__}, no label; write text, a number or a list")
    return str(value).strip()


def _number(value: Any) -> float | None:
    """The finite number that a cell holds or spells."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
