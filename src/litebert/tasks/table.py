"""Your own table: CSV, TSV, JSONL or Parquet with a text, perhaps a second one, and a label to
learn; or text files in a folder for each class.

The label is a class, several labels, or a number. `target="auto"` decides from the training file:
lists (or a given separator) mean several labels; numbers of which at least one is not whole mean a
number; everything else, whole numbers too, means classes. A file is read twice, once for its labels
and once for its examples, rather than held in memory as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from litebert.errors import ConfigError, DataError, ModelError, nearest
from litebert.finetuning.outputs import Output
from litebert.finetuning.text_outputs import Number, OneClass, SeveralLabels
from litebert.tasks.parts import Layout, Source, given_files, layout_of, named, visible
from litebert.tasks.texts import Example, Label, TextTask, columns
from litebert.text.lines import find_suffix
from litebert.text.records import SUFFIXES, Notes, Record, format_value, read_lines, read_records

Target = Literal["auto", "class", "labels", "number"]

_OUTPUTS: dict[str, type[Output]] = {"class": OneClass, "labels": SeveralLabels, "number": Number}
_MANY = 20
"""Whole numbers with more different values than this may have been meant as amounts."""
LARGEST = 1e30
"""Numbers of a larger amount are refused, because sums of them would overflow in float32."""
_UNKNOWN = -1
"""The class of a test row whose label the model does not know."""


class Table(TextTask):
    """A task from files with named columns, or from folders of texts that are named after their
    class.

    Args:
        train, dev, test: their files, each one file, several, a folder or a pattern. Without `dev`,
            a share `heldout` of the rows of `train` takes its place, drawn with `seed`. Without
            `train` nothing can be learned, but answers can be made. A folder without tables is read
            as text files of one class: those in its subfolders have the name of their subfolder for
            a label, those directly in it its own name.
        text, pair, label: names of the columns, or their numbers from 0; `pair` None for one text.
            A test file may lack the labels; those it has are scored and choose nothing.
        target: what the label is; see above for "auto".
        separator: what stands between several labels in one cell, where they are no lists.
        labels: the classes in the order of the logits, as an earlier run saved them. By default
            those of the training file in sorted order (whole numbers by size).
        metric: the score that chooses checkpoints, where it is not the first of accuracy, macro_f1,
            matthews (class); micro_f1, macro_f1, exact (labels); r2, pearson, spearman (number).
        layout: how the files are written.

    Raises:
        ConfigError: options that contradict each other.
        DataError: a training file that is missing or malformed; the message names the line.
    """

    name = "table"
    suffixes = tuple(
        suffix for suffix, form in SUFFIXES.items() if form in ("csv", "tsv", "jsonl", "parquet")
    )
    takes = (
        "dev",
        "test",
        "text",
        "pair",
        "label",
        "target",
        "separator",
        "metric",
        "heldout",
        "input_format",
        "header",
        "encoding",
    )

    def __init__(
        self,
        train: Source | None = None,
        dev: Source | None = None,
        test: Source | None = None,
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
        layout: Layout | None = None,
    ) -> None:
        if target not in get_args(Target):
            raise ConfigError(f"target is '{target}'; {nearest(target, get_args(Target))}")
        if separator == "" or (separator is not None and target not in ("auto", "labels")):
            raise ConfigError(
                f"separator is '{separator}' with target '{target}', but it divides "
                "several labels in one cell; leave "
                "it out, or set target=labels"
            )
        if label in (text, pair):
            raise ConfigError(
                f"label is '{label}', a column that the model reads; name the column to learn"
            )
        if labels is not None and len(set(labels)) < len(labels):
            twice = next(name for name in labels if list(labels).count(name) > 1)
            raise ConfigError(f"labels holds '{twice}' twice; give each label once")
        self._texts, self._label, self.separator = columns(text, pair), label, separator
        self._remarks = Notes()
        placeholder = Number() if target == "number" else OneClass(tuple(labels or ()))
        files = {"train": train, "dev": dev, "test": test}
        super().__init__(placeholder, files=files, heldout=heldout, seed=seed, layout=layout)
        if train is not None and (target == "auto" or (target != "number" and labels is None)):
            target, names = self._survey(target)
            labels = names if labels is None else labels
        elif target == "auto":
            if labels is None:
                raise ConfigError(
                    "target=auto is decided by the training file; give one, or set another target"
                )
            target = "class" if separator is None else "labels"
        output = _OUTPUTS[target]() if target == "number" else _OUTPUTS[target](tuple(labels or ()))
        choices = [name for name in output.scores if name != "rmse"]  # of which lower is better
        if metric is not None and metric not in choices:
            raise ConfigError(
                f"metric is '{metric}', which cannot choose the best weights; "
                f"{nearest(metric, choices)}"
            )
        self.output, self._score_names, self.metric = (
            output,
            output.scores,
            metric or output.scores[0],
        )
        self.pair = pair is not None

    @classmethod
    def from_data(cls, name: str, data: Source, **options: Any) -> Table:
        """Of a folder's files, or of training files with `dev` and `test` beside them."""
        options |= given_files(data, options, folders=True)
        if options.keys() & {
            "input_format",
            "header",
            "encoding",
        }:  # a task of one's own may have no layout
            options["layout"] = layout_of(options)
        return cls(**options)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Table:
        """With the model's output, columns and metric."""
        task = super().from_settings(settings)
        assert isinstance(task, Table)
        there = settings.get("columns") or {}
        task._texts = columns(
            there.get("text", "text"), there.get("pair", "pair") if task.pair else None
        )
        task._label, task._remarks = there.get("label", "label"), Notes()
        task.separator = settings.get("separator")
        task.metric = settings.get("metric") or task.metric
        if task.metric not in task.output.scores:
            raise ModelError(
                f"its metric is {task.metric!r}; {nearest(task.metric, task.output.scores)}"
            )
        task._layout = Layout(header=settings.get("header", True))
        return task

    def settings(self) -> dict[str, Any]:
        """Whether texts come in pairs, the columns and the metric; also the separator and `header`,
        where needed.
        """
        text, *pair = self._texts
        there = {"text": text, "pair": pair[0] if pair else None, "label": self._label}
        more: dict[str, Any] = {} if self.separator is None else {"separator": self.separator}
        more |= {} if self._layout.header else {"header": False}
        return {**super().settings(), "columns": there, "metric": self.metric, **more}

    @classmethod
    def inside(cls, folder: Path) -> list[Path]:
        """The tables of a folder; else its folders of texts, each of one class."""
        classes = [
            path for path in sorted(folder.iterdir()) if path.is_dir() and path.name[0] != "."
        ]
        classes = [path for path in (*classes, folder) if _texts_in(path)]
        if any(find_suffix(path) in cls.suffixes for path in visible(folder)) or not classes:
            return super().inside(folder)
        return [path for path in classes if path != folder] or classes

    def labelled(self, source: Source, **options: Any) -> list[Example]:
        """The rows of files with labels; without `text`, `pair` and `label` in the columns that
        were learned from.
        """
        text, *pair = self._texts
        options.setdefault(
            "header",
            self._layout.header or not options.keys().isdisjoint(("text", "pair", "label")),
        )
        given = options.pop("pair", pair[0] if pair else None)
        if (given is None) == bool(self.pair):
            fine = (
                "name the second column with --pair" if self.pair else f"leave out --pair {given}"
            )
            raise ConfigError(
                f"the model was fine-tuned on {'pairs of' if self.pair else 'single'} texts; {fine}"
            )
        self._texts, self._label = (
            columns(options.pop("text", text), given),
            options.pop("label", self._label),
        )
        if self._label in self._texts:
            raise ConfigError(
                f"label is '{self._label}', a column that the model reads; name the column "
                "of the labels"
            )
        self.separator = options.pop("separator", self.separator)
        if self.separator is not None and not isinstance(self.output, SeveralLabels):
            raise ConfigError(
                f"separator is '{self.separator}', but the model was fine-tuned on one "
                "label per text; leave it out"
            )
        return super().labelled(source, **options)

    def read(self, part: str) -> list[Example]:
        """The examples of train, dev or test, in the order of their files."""
        paths, test = self._of(part), part == "test"
        self._found = Notes(self._remarks) if part == "train" else Notes()
        several = len(paths) > 1 or paths[0].is_dir()
        label = self._known_label if test else self._target_of
        examples = []
        for row, source in self._rows(
            paths, [*self._texts], self._label, self._found, optional=test
        ):
            place = f"{source}:{row.line}"
            example = self._of_cells(row.values[:-1], self._texts, place)
            name = place if several else str(row.line) if self._splits and not test else ""
            examples.append(example._replace(label=label(row.values[-1], place), name=name))
        examples = self._own(part, examples, lambda i: i, "rows")
        if test and all(example.label in (None, _UNKNOWN) for example in examples):
            examples = [example._replace(label=None) for example in examples]
        if part == "train":
            counts = self.output.counts([example.label for example in examples])
            for name, count in zip(self.output.labels, counts, strict=True):
                if count == 0:
                    self._found[f"the label '{name}' has no training example"] += 1
        return examples

    def _rows(
        self,
        paths: Sequence[Path],
        wanted: list[str],
        label: str,
        found: Notes,
        optional: bool = False,
    ) -> Iterator[tuple[Record, Path]]:
        """The wanted columns and the label of every row, with the file it is from."""
        form, header, encoding = self._layout
        for path in paths:
            if not path.is_dir():
                several, maybe = (wanted, [label]) if optional else ([*wanted, label], [])
                reader = read_records(
                    path,
                    several,
                    found,
                    optional=maybe,
                    form=form,
                    header=header,
                    encoding=encoding,
                )
                yield from ((row, path) for row in reader)
                continue
            if len(wanted) > 1:
                raise ConfigError(
                    f"{path} is a folder of texts, which have no pair; leave out --pair {wanted[1]}"
                )
            for file in _texts_in(path):
                text = ["\n".join(line for _, line in read_lines(file, found, encoding))] * len(
                    wanted
                )
                yield Record(1, (*text, path.name)), file

    # --------------------------------------------------------------------------------------- labels

    def _survey(self, target: Target) -> tuple[Target, list[str]]:
        """What the labels of the training files are, and their sorted names."""
        names: set[str] = set()
        lists = fractions = False
        words, first_word = 0, ""
        paths = self._of("train")
        source = named(paths)
        for row, path in self._rows(paths, [], self._label, Notes()):
            value, place = row.values[0], f"{path}:{row.line}"
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
            self._remarks[f"labels in the column '{self._label}', read as target={target}"] = len(
                names
            )
            if target == "class" and not words and len(names) > _MANY:
                what = "different whole numbers as classes; set target=number if they are amounts"
                self._remarks[what] = len(names)
            if target == "class" and fractions:
                why = (
                    f"labels are not numbers, the first in {first_word}, so the fractions "
                    "beside them are classes"
                )
                self._remarks[f"{why}; correct them if all are amounts"] = words
        if target != "number" and not names:
            raise DataError(
                f"{source} has no label in '{self._label}' on any row; fill it in, or name "
                "another column"
            )
        if target == "class" and len(names) == 1:
            only = format_value(names.pop())
            raise DataError(
                f"{source} has the same label, {only}, on every row; give rows with other "
                "labels too"
            )
        whole = all(name.removeprefix("-").isdecimal() for name in names)
        return target, sorted(names, key=lambda name: (int(name) if whole else 0, name))

    def _parts(self, value: Any) -> list[Any] | None:
        """The labels of a cell with several, None for a cell with one."""
        if isinstance(value, list):
            return value
        if self.separator is not None and isinstance(value, str):
            return [part for part in value.split(self.separator) if not _blank(part)]
        return None

    def _target_of(self, value: Any, place: str) -> Label:
        if isinstance(self.output, SeveralLabels):
            parts = self._parts(value)
            if parts is None:
                raise DataError(
                    f"{place}: '{self._label}' is {format_value(value)}, not a list; write one, "
                    "or name the separator"
                )
            filled = [part for part in parts if not _blank(part)]
            if len(filled) < len(parts):
                self._found["blanks in lists of labels were passed over"] += len(parts) - len(
                    filled
                )
            chosen = {self._class(part, place) for part in filled}
            return tuple(int(number in chosen) for number in range(len(self.output.labels)))
        if _blank(value):
            raise DataError(
                f"{place} has no label in '{self._label}'; fill it in, or leave the row out"
            )
        if self.output.labels:
            return self._class(value, place)
        number = _number(value)
        if number is None:
            raise DataError(
                f"{place}: '{self._label}' is {format_value(value)}, not a number; correct it, or "
                "set another target"
            )
        if abs(number) > LARGEST:
            raise DataError(
                f"{place}: '{self._label}' is {format_value(value)}, and numbers are learned up to "
                f"{LARGEST:g}; give them in a larger unit"
            )
        return number

    def _known_label(self, value: Any, place: str) -> Label | None:
        """Of a test row: None where it has none."""
        if _blank(value):
            return None
        try:
            return self._target_of(value, place)
        except DataError:
            one = bool(self.output.labels) and not isinstance(self.output, SeveralLabels)
            self._found[
                "labels are unknown to the model and "
                f"{'count as missed' if one else 'are not scored'}"
            ] += 1
            return _UNKNOWN if one else None

    def _class(self, value: Any, place: str) -> int:
        name = _name(value, place, self._label)
        if name not in self._numbers:
            raise DataError(
                f"{place} has the label {format_value(name)}, which the training files do not "
                "have; correct it, or add "
                "training rows of it"
            )
        return self._numbers[name]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.output.labels)}


def _texts_in(folder: Path) -> list[Path]:
    """The text files of a folder."""
    return [path for path in visible(folder) if find_suffix(path) == ".txt"]


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
        raise DataError(
            f"{place}: '{column}' holds a {type(value).__name__}, not a label; write text, "
            "a number or a list"
        )
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
