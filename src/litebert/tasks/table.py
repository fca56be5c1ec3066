"""Your own table: CSV, TSV, JSONL or Parquet with a text or a pair, and a label to learn, or text
files in a folder for each class. `target="auto"` decides from the training file:

- Lists, a separator, or several columns of 0 and 1 mean several labels.
- Numbers mean a number if at least one of them is not whole.
- Everything else means classes, whole numbers too.

A file is read twice, for its labels and for its examples, so that memory never holds all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from litebert.base.errors import ConfigError, DataError, ModelError, nearest
from litebert.tasks.label_cells import (
    count_flags,
    drop_fraction,
    format_label,
    is_amount,
    is_blank,
    list_lookalikes,
    parse_number,
    read_cell,
    split_labels,
)
from litebert.tasks.outputs import Output, restore_output
from litebert.tasks.splits import Source, SplitFiles, format_files, list_visible, take_layout
from litebert.tasks.task import Task
from litebert.tasks.text_outputs import Number, OneClass, SeveralLabels
from litebert.tasks.texts import (
    LARGEST,
    ColumnOptions,
    ColumnTask,
    Example,
    Label,
    TextFiles,
    check_label,
    hash_texts,
    list_columns,
    make_example,
    require_columns,
)
from litebert.text.lines import find_suffix
from litebert.text.records import IN_FOLDERS, Notes, Record, format_value, read_lines

Target = Literal["auto", "class", "labels", "number"]

_MANY = 20
"""More different whole numbers than this are perhaps amounts rather than classes."""


@dataclass(frozen=True, kw_only=True)
class TableOptions(ColumnOptions):
    """The options of a table."""

    label_column: tuple[str, ...] = ("label",)
    """Column of the label, or columns of 0 and 1, one a label."""
    target: Target = "auto"
    """Kind of label; auto decides by the training file."""
    separator: str | None = None
    """Separator of several labels in one cell."""
    metric: str | None = None
    """Score that chooses the best weights; by default accuracy, micro_f1 or r2."""


class TableFiles(TextFiles):
    """Files with named columns, or folders of texts whose names are the classes."""

    task: Table
    folders = True
    leaves_blank = False
    """True to leave out rows without a label, instead of refusing them."""
    blank: Sequence[Example] = ()
    """The rows that the last reading left out."""
    _survey_notes: Mapping[str, int] = MappingProxyType({})
    """What is said of the labels of the training files."""
    _names_rows = False
    """True to name the rows of one file by their line."""
    suffixes = tuple(suffix for suffix in IN_FOLDERS if suffix not in (".txt", ".conll"))

    @classmethod
    def of(
        cls,
        sources: Mapping[str, Source],
        *,
        labels: Sequence[str] | None = None,
        seed: int = 0,
        task_class: type[Task[Example]] | None = None,
        **options: Any,
    ) -> TableFiles:
        """Open the files of a table, and decide its task from them.

        Args:
            sources: a file, several files, a folder or a pattern for train, dev and test. Without
                dev, a share of the rows of train replaces it, drawn with `seed`. Without train the
                task cannot learn, but it can answer. A folder without tables is read as text files.
                The name of a subfolder is the label of the texts in it. If there is no subfolder,
                the folder's name is the label. A test file may lack labels; its labels choose
                nothing.
            labels: the classes in the order of the logits, as an earlier run saved them. By default
                those of the training file in sorted order (whole numbers by size).
            task_class: the class of the task, `Table` by default.
            options: as `TableOptions` has them. Columns have names, or numbers from 0.
        """
        layout = take_layout(options)
        given = TableOptions(**options)
        label = list_columns(given.label_column)
        texts = require_columns(given.text_column, given.pair_column)
        check_label(label, texts)
        if given.target not in get_args(Target):
            raise ConfigError(
                f"target is '{given.target}'; {nearest(given.target, get_args(Target))}"
            )
        if given.separator == "" or (
            given.separator is not None and given.target not in ("auto", "labels")
        ):
            raise ConfigError(
                f"separator is '{given.separator}' with target '{given.target}', but it divides "
                "several labels in one cell; leave it out, or set target=labels"
            )
        if len(label) > 1 and given.target not in ("auto", "labels"):
            raise ConfigError(
                f"target is '{given.target}', but several columns hold several labels; "
                "set target=labels"
            )
        if labels is not None and len(set(labels)) < len(labels):
            twice = next(name for name in labels if list(labels).count(name) > 1)
            raise ConfigError(f"labels holds '{twice}' twice; give each label once")
        make = task_class or Table
        assert issubclass(make, Table)
        task = make(
            # The files must be known before a survey of them decides the output.
            Number() if given.target == "number" else OneClass(tuple(labels or ())),
            pair=given.pair_column is not None,
            separator=given.separator,
            texts=texts,
            label=label,
            header=layout.header,
        )
        files = cls(task, sources, heldout=given.heldout, seed=seed, layout=layout)
        files.group_column, files.weight_column = given.group_column, given.weight_column
        target = given.target
        if "train" in sources and (target == "auto" or (target != "number" and labels is None)):
            target, found = files._survey(target)
            labels = found if labels is None else labels
        elif target == "auto":
            if labels is None:
                raise ConfigError(
                    "target=auto needs a training file to decide; name the file, or set "
                    "another target"
                )
            target = "class" if given.separator is None else "labels"
        names = tuple(labels or ())
        outputs = {"class": OneClass(names), "labels": SeveralLabels(names), "number": Number()}
        output: Output = outputs[target]
        # Checkpoints are chosen by the highest score, and a lower rmse is better.
        choices = [name for name in output.scores if name != "rmse"]
        if given.metric is not None and given.metric not in choices:
            raise ConfigError(
                f"metric is '{given.metric}', which cannot choose the best weights; "
                f"{nearest(given.metric, choices)}"
            )
        metric = given.metric or output.scores[0]
        files.task = replace(files.task, output=output, score_names=output.scores, metric=metric)
        return files

    @classmethod
    def list_folder(cls, folder: Path, task: str) -> list[Path]:
        """Return the tables of a folder; if it has none, its folders of texts, one a class."""
        has_table = any(find_suffix(path) in cls.suffixes for path in list_visible(folder))
        subfolders = [
            path for path in sorted(folder.iterdir()) if path.is_dir() and path.name[0] != "."
        ]
        classes = [path for path in (*subfolders, folder) if _list_texts(path)]
        if has_table or not classes:
            return super().list_folder(folder, task)
        return [path for path in classes if path != folder] or classes

    @classmethod
    def open_labeled(
        cls, task: Task[Example], source: Source, **options: Any
    ) -> SplitFiles[Example]:
        assert isinstance(task, Table)
        pair = options.get("pair_column", [*task.texts[1:], None][0])
        if task.pair and pair is None:
            raise ConfigError(
                "the model was fine-tuned on pairs of texts; name the second column with "
                "--pair-column"
            )
        if not task.pair and pair is not None:
            raise ConfigError(
                f"the model was fine-tuned on single texts; leave out --pair-column {pair}"
            )
        separator = options.pop("separator", task.separator)
        if separator is not None and not isinstance(task.output, SeveralLabels):
            raise ConfigError(
                f"separator is '{separator}', but the model was fine-tuned on one "
                "label per text; leave it out"
            )
        files = super().open_labeled(replace(task, separator=separator), source, **options)
        assert isinstance(files, TableFiles)
        files._names_rows = True
        return files

    def read(self, split: str, notes: Notes | None = None) -> list[Example]:
        """Read the examples of train, dev or test, in the order of their files."""
        notes = Notes() if notes is None else notes
        paths, test = self._find_files(split), split == "test"
        if split == "train":
            notes.update(self._survey_notes)
        parser = _LabelParser(self.task, notes, is_scored_only=test or "train" not in self._paths)
        several = len(paths) > 1 or paths[0].is_dir()
        parse = parser.parse_test if test else parser.parse
        texts = self.task.texts
        rows = self._read_rows(paths, texts, notes, optional=test)
        examples = []
        for row, source in rows:
            location = f"{source}:{row.line}"
            example = make_example(row.values[:-1], texts, location, notes)
            name = ""
            if several:
                name = location
            elif self._names_rows or (self._holds_out and not test):
                name = str(row.line)
            blank = self.leaves_blank and is_blank(row.values[-1])
            label = None if blank else parse(row.values[-1], location)
            examples.append(example._replace(label=label, name=name))
        classes = None
        if self.task.output.exclusive and not test:
            classes = [example.label for example in examples]
        keys = [hash_texts(example.text, example.pair) for example in examples]
        examples = self._select_rows(split, examples, keys, notes, classes)
        if self.leaves_blank and not test:
            labeled = [example for example in examples if example.label is not None]
            if len(labeled) < len(examples):
                notes["rows without a label are left out"] = len(examples) - len(labeled)
            self.blank = [example for example in examples if example.label is None]
            examples = labeled
        # If the model knows no label of the file, the file is of another task and is not scored.
        if parser.unknown and not parser.knows_any:
            first = format_value(next(iter(parser.unknown)))
            if not test:
                raise DataError(
                    f"{format_files(paths)} has no label that the model knows (the first is "
                    f"{first}); give files of its task, or another --label-column"
                )
            notes.pop(parser.UNKNOWN)
            notes[f"labels are unknown to the model (the first is {first}): nothing is scored"] = (
                len(examples)
            )
            examples = [example._replace(label=None) for example in examples]
        if split == "train":
            output = self.task.output
            counts = output.counts([example.label for example in examples])
            for unseen, count in zip(output.labels, counts, strict=True):
                if count == 0:
                    notes[f"the label '{unseen}' has no training example"] += 1
        return examples

    def read_column(self, split: str, column: str) -> list[str]:
        cells = self._read_cells(self._find_files(split), column)
        return ["" if cell is None else str(cell) for cell, _ in cells]

    def _read_rows(
        self, paths: Sequence[Path], columns: Sequence[str], notes: Notes, optional: bool = False
    ) -> Iterator[tuple[Record, Path]]:
        """Read the columns and the label of every row, with its file. Several columns of labels
        give an object of their cells. With `optional`, a file may lack the label.
        """
        labels = self.task.label
        wanted, others = (columns, labels) if optional else ([*columns, *labels], ())
        for path in paths:
            if path.is_dir():  # a folder of texts, whose name is their label
                if len(columns) > 1:
                    raise ConfigError(
                        f"{path} is a folder of texts, which have no pair; leave out "
                        f"--pair-column {columns[1]}"
                    )
                for file in _list_texts(path):
                    lines = read_lines(file, notes, self._layout.encoding)
                    text = "\n".join(line for _, line in lines)
                    yield Record(1, (*[text] * len(columns), path.name)), file
                continue
            for row in self._read_accepted(path, wanted, notes, others):
                cells = row.values[len(columns) :]
                value = dict(zip(labels, cells, strict=True)) if len(cells) > 1 else cells[0]
                if len(cells) > 1 and all(map(is_blank, cells)):
                    value = None
                elif optional and len(cells) > 1 and None in cells:
                    lacking = labels[cells.index(None)]
                    raise DataError(
                        f"{path}:{row.line} has no '{lacking}' beside its other labels; add it, or "
                        "leave out all columns of labels"
                    )
                yield row._replace(values=(*row.values[: len(columns)], value)), path

    def _survey(self, target: Target) -> tuple[Target, list[str]]:
        paths, column, separator = self._find_files("train"), self.task.label, self.task.separator
        source, shown = format_files(paths), self.task.label_name
        notes = self._survey_notes = Notes()
        names: set[str] = set()
        vectors: set[int] = set()  # the lengths of lists of 0 and 1; 0 of others, -1 of no lists
        rows = singles = words = amounts = 0
        first_word = first_amount = ""
        fractions = False
        for row, path in self._read_rows(paths, (), Notes()):
            value, location = row.values[0], f"{path}:{row.line}"
            if is_blank(value):
                continue
            if isinstance(value, dict) and "choices" not in value:
                names.update(map(str.strip, value))  # also the labels that no row has
            value = read_cell(value, location, shown)
            members = split_labels(value, separator)
            rows, singles = rows + 1, singles + (len(members or ()) == 1)
            vectors.add(-1 if members is None else count_flags(members))
            labels = [value] if members is None else members
            names.update(
                format_label(label, location, shown) for label in labels if not is_blank(label)
            )
            number = parse_number(value) if members is None else None
            if number is None:
                words, first_word = words + 1, first_word or location
                if members is None and is_amount(value):
                    amounts += 1
                    first_amount = first_amount or f"{format_value(value)} in {location}"
            fractions |= number is not None and not number.is_integer()
        if len(vectors) == 1 and min(vectors) > 1:
            raise DataError(
                f"'{shown}' of {source} holds vectors of 0 and 1; write the names "
                "of the labels that apply, or name a column for each label with --label-column"
            )
        if amounts == words > 0 and target == "auto":
            raise DataError(
                f"the label {first_amount} looks like a number; write it with a decimal point and "
                "without other signs, or set target=class"
            )
        if all(drop_fraction(name).removeprefix("-").isdecimal() for name in names):
            names = {drop_fraction(name) for name in names}
        if target == "auto":
            lists = vectors - {-1}
            target = "labels" if lists else "number" if fractions and not words else "class"
            notes[f"labels in the column '{shown}', read as target={target}"] = len(names)
            if target == "class" and not words and len(names) > _MANY:
                amount = "different whole numbers as classes; set target=number if they are amounts"
                notes[amount] = len(names)
            if target == "class" and fractions:
                notes[
                    f"labels are not numbers, the first in {first_word}, so the fractions "
                    "beside them are classes; correct them if all are amounts"
                ] = words
            if lists and singles == rows and len(column) == 1 and separator is None:
                notes["lists hold one label each; set target=class if texts have one"] = rows
        if amounts:
            notes[f"labels look like numbers, such as {first_amount}, and are names"] = amounts
        if names and all(re.fullmatch(r"([\"']).*\1", name) for name in names):
            quoted = f"labels have quotes, such as {min(names)}, which are a part of them"
            notes[quoted] = len(names)
        if target != "number" and (alike := list_lookalikes(names)):
            notes[
                "groups of labels differ only in case, spaces, invisible characters, Unicode form "
                f"or .0, such as {' and '.join(map(ascii, alike[0]))}; each is a label of its own"
            ] = len(alike)
        if target != "number" and not names:
            raise DataError(
                f"{source} has no label in '{shown}' on any row; fill it in, or name another column"
            )
        if target == "class" and len(names) == 1:
            raise DataError(
                f"{source} has the same label, {format_value(names.pop())}, on every row; give "
                "rows with other labels too"
            )
        whole = all(name.removeprefix("-").isdecimal() for name in names)
        return target, sorted(names, key=lambda name: (int(name) if whole else 0, name))


@dataclass(frozen=True)
class Table(ColumnTask):
    """A task over a text or a pair in named columns."""

    name, files, options = "table", TableFiles, TableOptions
    label: tuple[str, ...] = ("label",)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Table:
        output, pair = restore_output(settings), settings.get("pair")
        columns = settings.get("columns") or {}
        metric = settings.get("metric") or output.scores[0]
        if metric not in output.scores:
            raise ModelError(f"the model's metric is {metric!r}; {nearest(metric, output.scores)}")
        return cls(
            output,
            metric=metric,
            pair=pair,
            separator=settings.get("separator"),
            texts=require_columns(
                columns.get("text", "text"), columns.get("pair", "pair") if pair else None
            ),
            label=list_columns(columns.get("label")) or ("label",),
            header=settings.get("header", True),
        )

    @property
    def label_name(self) -> str:
        return "', '".join(self.label)

    def settings(self) -> dict[str, Any]:
        separator = {} if self.separator is None else {"separator": self.separator}
        return {**super().settings(), "metric": self.metric, **separator}


class _LabelParser:
    UNKNOWN = "labels are unknown to the model and count as missed"

    def __init__(self, task: Table, notes: Notes, is_scored_only: bool) -> None:
        self._output, self._column, self._notes = task.output, task.label_name, notes
        self._is_scored_only, self.knows_any = is_scored_only, False
        self.unknown: dict[str, int] = {}
        """The numbers of labels that the model does not know, where they are scored only."""
        self._separator = task.separator
        self._numbers = {name: number for number, name in enumerate(task.output.labels)}
        for name, number in [*self._numbers.items()]:  # of files that write 2.0 for 2
            self._numbers.setdefault(drop_fraction(name), number)

    def parse(self, value: Any, location: str) -> Label:
        value = read_cell(value, location, self._column)
        if isinstance(self._output, SeveralLabels):
            labels = split_labels(value, self._separator)
            if labels is None:
                raise DataError(
                    f"{location}: '{self._column}' is {format_value(value)}, not a list; "
                    "write a list, or name the separator"
                )
            filled = [label for label in labels if not is_blank(label)]
            if len(filled) < len(labels):
                blanks = len(labels) - len(filled)
                self._notes["blanks in lists of labels were skipped"] += blanks
            # Labels that the model does not know follow those that it knows.
            known = len(self._output.labels)
            numbers = {self._parse_class(label, location) for label in filled}
            numbers = {number if number >= 0 else known - 1 - number for number in numbers}
            width = max(known, max(numbers, default=0) + 1)
            return tuple(int(number in numbers) for number in range(width))
        if is_blank(value):
            raise DataError(
                f"{location} has no label in '{self._column}'; fill it in, or leave the row out"
            )
        if self._output.labels:
            return self._parse_class(value, location)
        number = parse_number(value)
        if number is None:
            raise DataError(
                f"{location}: '{self._column}' is {format_value(value)}, not a number; correct it "
                "(1.54, not 1,54), or set another target"
            )
        if abs(number) > LARGEST:
            raise DataError(
                f"{location}: '{self._column}' is {format_value(value)}, and numbers are learned "
                f"up to {LARGEST:g}; give them in a larger unit"
            )
        return number

    def parse_test(self, value: Any, location: str) -> Label | None:
        """Return the label of a test row; None if it has no label that can be scored."""
        if is_blank(value):
            return None
        try:
            return self.parse(value, location)
        except DataError:
            self._notes["labels are of another kind and are not scored"] += 1
            return None

    def _parse_class(self, value: Any, location: str) -> int:
        """Return the number of the class that a cell names. Each that the model does not know has
        one below 0, as scores of scikit-learn count it, in files that are scored only.
        """
        name = format_label(value, location, self._column)
        number = self._numbers.get(name, self._numbers.get(drop_fraction(name)))
        if number is not None:
            self.knows_any = True
        elif self._is_scored_only:
            self._notes[self.UNKNOWN] += 1
            return self.unknown.setdefault(drop_fraction(name), -1 - len(self.unknown))
        else:
            alike = [group for group in list_lookalikes({*self._numbers, name}) if name in group]
            remedy = "correct it, or add training rows of it"
            if alike:
                remedy = f"of {' and '.join(map(ascii, alike[0]))}, write one everywhere"
            raise DataError(
                f"{location} has the label {format_value(name)}, which the training files do not "
                f"have; {remedy}"
            )
        return number


def _list_texts(folder: Path) -> list[Path]:
    return [path for path in list_visible(folder) if find_suffix(path) == ".txt"]
