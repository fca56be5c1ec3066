"""The files of each split of a task (train, dev, test), and a dev split held out of train.

A split may be a file, several files, a folder of them or a pattern.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import ConfigError, DataError
from litebert.data.random_keys import derive, permute
from litebert.remote.names import require_local
from litebert.tasks.task import Task, TaskFiles, TaskOptions
from litebert.text.files import list_files, refuse_duplicates
from litebert.text.lines import find_suffix
from litebert.text.records import (
    DEFAULT_LAYOUT,
    SUFFIXES,
    FileFormat,
    Layout,
    Notes,
    Record,
    read_records,
)

E = TypeVar("E")

Source: TypeAlias = "str | Path | Sequence[str | Path]"
"""A file, a folder, a pattern such as data/*.csv, or several of these."""

_NAMES = {
    "train": ("train", "training"),
    "dev": ("dev", "devel", "development", "valid", "validation", "testa"),
    "test": ("test", "testing", "testb"),
}
"""The words that name a split in the name of a file; a word may end in `set` or `data`."""
_FOLDERS = ("train", "dev", "valid", "validation", "testa", "test")
_REJECTED = ("reject", "ignore")
"""Prodigy's marks of a row that a person did not accept."""
_HELD_OUT = 43
"""The purpose of the random key, which no other random choice has."""


@dataclass(frozen=True, kw_only=True)
class HeldoutOptions(TaskOptions):
    """The option of a task that can hold out a dev split."""

    heldout: float = 0.1
    """Share of the training rows to hold out where --dev is not given."""


@dataclass(frozen=True, kw_only=True)
class SplitOptions(HeldoutOptions):
    """The options of a task whose splits are files."""

    dev: tuple[str, ...] = ()
    """Files that choose the best weights; by default --heldout."""
    test: tuple[str, ...] = ()
    """Files to predict, and to score where they have labels."""
    encoding: str = "utf-8"
    """Encoding of all files, such as latin-1."""


def take_layout(options: dict[str, Any]) -> Layout:
    return Layout(
        options.pop("input_format", None),
        options.pop("header", True),
        options.pop("encoding", "utf-8"),
        options.pop("delimiter", None),
    )


class SplitFiles(TaskFiles[E]):
    """Files of the splits of a task. A share of the train split replaces a missing dev split."""

    suffixes: ClassVar[tuple[str, ...]] = ()
    """The suffixes of the files that are read in a folder; () for all files."""
    folders: ClassVar[bool] = False
    """True if a split may be a folder of its name."""

    def __init__(
        self,
        task: Task[E],
        sources: Mapping[str, Source],
        *,
        heldout: float = 0.1,
        seed: int = 0,
        layout: Layout = DEFAULT_LAYOUT,
    ) -> None:
        """Find the files of each split."""
        if not 0 < heldout < 1:
            raise ConfigError(f"heldout is {heldout}; give a share between 0 and 1")
        self._paths: dict[str, tuple[Path, ...]] = {}
        for split, source in sources.items():
            names = [source] if isinstance(source, (str, Path)) else source
            refuse_duplicates(names)
            for name in names:
                require_local(name, any_bytes=True)
            found = list_files(names, lambda folder: self.list_folder(folder, task.name))
            if not found:
                raise DataError(f"{task.name} has no file to read; name one")
            self._paths[split] = tuple(map(Path, found))
        # True if the dev split is a share of the training files.
        self._holds_out = "train" in self._paths and "dev" not in self._paths
        self._heldout, self._seed, self._layout = heldout, seed, layout
        paths = [path for paths in self._paths.values() for path in paths]
        # There are no files if each class is a folder of texts, and a format that the suffix does
        # not tell is not known before the file is read.
        forms = [self._find_format(path) for path in paths if not path.is_dir()]
        if forms and None not in forms:
            layout.check_used([form for form in forms if form is not None], format_files(paths))
        self.task = replace(
            task,
            dev=("dev",) if "dev" in self._paths or self._holds_out else (),
            tests=("test",) if "test" in self._paths else (),
            sources=tuple(dict.fromkeys(path.name for path in paths)),
        )

    @classmethod
    def of(
        cls,
        sources: Mapping[str, Source],
        *,
        task_class: type[Task[Any]] | None = None,
        **options: Any,
    ) -> SplitFiles[E]:
        """Open the files of train, dev and test, with the options that `open_task` takes."""
        raise NotImplementedError

    @classmethod
    def open(
        cls, task_class: type[Task[E]], name: str, data: Source, **options: Any
    ) -> SplitFiles[E]:
        """Open a folder with the files of the splits, or training files, with `dev` and `test`."""
        if isinstance(data, (list, tuple)) and len(data) == 1:
            data = data[0]
        sources: dict[str, Source] = {}
        if isinstance(data, (str, Path)) and Path(data).is_dir():
            folder = Path(data)
            paths: dict[str, Path] = {}
            for path in sorted(folder.iterdir()):
                words = {
                    word.removesuffix("set").removesuffix("data")
                    for word in re.split(r"[\W\d_]+", path.name.lower())
                }
                split = next((s for s, names in _NAMES.items() if words & {*names}), None)
                # A folder whose name only contains such a word may hold anything.
                is_named = cls.folders and path.is_dir() and path.name.lower() in _FOLDERS
                if split is None or not (path.is_file() or is_named):
                    continue
                if split in paths:
                    raise DataError(
                        f"{paths[split]} and {path.name} could both be the {split} split; name the "
                        "files of the splits"
                    )
                paths[split] = path
            sources.update(paths)
        sources = sources or {"train": data}
        sources |= {split: options.pop(split) for split in ("dev", "test") if split in options}
        return cls.of(sources, task_class=task_class, **options)

    @classmethod
    def open_labeled(cls, task: Task[E], source: Source, **options: Any) -> SplitFiles[E]:
        """Open labeled files to score a task on; `options` are as in `open_task`."""
        for name, value in options.items():
            if name not in task.options.list_names():
                raise ConfigError(
                    f"{name} is '{value}', which {task.name} does not take; leave it out"
                )
        layout = take_layout(options)
        for name, value in options.items():
            raise ConfigError(f"{name} is '{value}', which no labeled file needs; leave it out")
        return cls(task, {"dev": source}, layout=layout)

    @classmethod
    def list_folder(cls, folder: Path, task: str) -> list[Path]:
        files = list_visible(folder)
        if cls.suffixes:
            files = [path for path in files if find_suffix(path) in cls.suffixes]
        if not files:
            wanted = f" with a name ending in {', '.join(cls.suffixes)}" if cls.suffixes else ""
            raise DataError(f"{folder} holds no file{wanted}; name the files of the {task} task")
        return files

    @property
    def file_names(self) -> dict[str, list[str]]:
        return {split: [path.name for path in paths] for split, paths in self._paths.items()}

    def _find_format(self, path: Path) -> FileFormat | None:
        return self._layout.form or SUFFIXES.get(find_suffix(path))

    def _find_files(self, split: str) -> tuple[Path, ...]:
        """Return the files of a split; for a dev split that is held out, the training files."""
        if split == "dev" and self._holds_out:
            split = "train"
        if split not in self._paths:
            splits = ", ".join(self._paths) or "none"
            raise DataError(
                f"{self.task.name} has no file for the split '{split}' (it has {splits}); name the "
                "file"
            )
        return self._paths[split]

    def _find_mark(self) -> list[str]:
        """Return the column of Prodigy's marks; none where that name is a column of the task."""
        return []

    def _read_accepted(
        self, path: Path, columns: Sequence[str], notes: Notes, optional: Sequence[str] = ()
    ) -> Iterator[Record]:
        mark = self._find_mark()
        wanted = [*optional, *mark]
        for row in read_records(path, columns, notes, optional=wanted, layout=self._layout):
            if mark and row.values[-1] in _REJECTED:
                notes["rows marked as rejected or ignored (answer) were left out"] += 1
            else:
                yield row._replace(values=row.values[: len(row.values) - len(mark)])

    def _read_cells(self, paths: Sequence[Path], column: str) -> Iterator[tuple[Any, str]]:
        for path in paths:
            if path.is_dir() or self._find_format(path) == "text":
                raise ConfigError(f"{path} holds texts alone, which have no column '{column}'")
            for row in self._read_accepted(path, [column], Notes()):
                yield row.values[0], f"{path}:{row.line}"

    def _read_groups(self, split: str, column: str | None) -> list[str | None]:
        """Read what each row of the training files belongs to; None of a blank cell. Empty where
        there is no such column, or the split is no part of these files.
        """
        if column is None or not (split == "train" or (split == "dev" and self._holds_out)):
            return []
        cells = (cell for cell, _ in self._read_cells(self._find_files(split), column))
        return [None if cell is None else str(cell).strip() or None for cell in cells]

    def _select_split(
        self,
        split: str,
        examples: list[E],
        groups: Sequence[Any],
        groups_name: str,
        notes: Notes,
        classes: Sequence[Any] | None = None,
    ) -> list[E]:
        if not self._holds_out or split == "test":
            return examples
        return select_split(
            split,
            examples,
            groups,
            share=self._heldout,
            seed=self._seed,
            groups_name=f"{groups_name} of {format_files(self._find_files('train'))}",
            notes=notes,
            classes=classes,
        )


def require_one(source: Source, task: str) -> str | Path:
    if isinstance(source, (str, Path)):
        return source
    if len(source) != 1:
        raise ConfigError(
            f"{task} is read from one folder or file, and {len(source)} are given; name one"
        )
    return source[0]


def format_files(paths: Sequence[Path]) -> str:
    """Name files in a message: the first, and the number of the others."""
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def list_visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name[0] != ".")


def join_groups(*columns: Sequence[Hashable | None]) -> list[int]:
    """Number the rows of the first column so that those that share a value in any column, directly
    or through other rows, have one number. None is shared with no row; a column may be empty.
    """
    joined = list(range(len(columns[0])))

    def find(row: int) -> int:
        while joined[row] != row:
            joined[row] = row = joined[joined[row]]
        return row

    for column in columns:
        first: dict[Hashable, int] = {}
        for row, value in enumerate(column):
            if value is not None:
                one, other = find(first.setdefault(value, row)), find(row)
                joined[max(one, other)] = min(one, other)
    return [find(row) for row in range(len(joined))]


def choose_held_out(
    sizes: Sequence[int], share: float, seed: int = 0, classes: Sequence[Any] | None = None
) -> NDArray[np.bool_]:
    """Choose which groups of `sizes` (G,) rows replace a dev split: a share of the rows as far as
    whole groups allow, at least one group, and never all. Every class of `classes` gives its share.
    """
    rows, count = np.asarray(sizes, np.int64), len(sizes)
    wanted = min(max(1, round(share * int(rows.sum()))), int(rows.sum()) - 1)
    places = permute(np.arange(count), count, np.repeat(derive(seed, _HELD_OUT), count))
    members = np.zeros(count, np.int64)
    if classes is not None:
        members = np.unique(classes, return_inverse=True)[1]
    # The groups of each class follow each other, in random order.
    order, counts = np.lexsort((places, members)), np.bincount(members)
    ranks = places[order[np.cumsum(counts) - counts]]
    class_rows = np.bincount(members, rows).astype(np.int64)
    left = _divide_by_class(class_rows, ranks, wanted).tolist()
    chosen = np.zeros(count, bool)
    for group in order.tolist():
        if rows[group] <= left[members[group]]:
            chosen[group] = True
            left[members[group]] -= rows[group]
    if not chosen.any():
        chosen[min(order.tolist(), key=lambda group: rows[group])] = True
    return chosen


def _divide_by_class(
    sizes: NDArray[np.int64], ranks: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Divide `count` rows to hold out among the classes, (C,).

    Each gives its share of its `sizes` rows, rounded down. The rows still missing come from classes
    that give none, the largest first, then by the largest remainders; `ranks` break ties. A class
    keeps its last row in training, except where no class has another to give.
    """
    counts: NDArray[np.int64] = count * sizes // sizes.sum()
    while missing := count - int(counts.sum()):
        spare = counts < sizes - 1
        if not spare.any():
            spare = counts < sizes
        remainders = count * sizes - counts * sizes.sum()
        order = np.lexsort((ranks, -remainders, counts > 0, ~spare))
        counts[order[: min(missing, int(spare.sum()))]] += 1
    return counts


def select_split(
    split: str,
    examples: list[E],
    groups: Sequence[Any],
    *,
    share: float,
    seed: int,
    groups_name: str,
    notes: Notes,
    classes: Sequence[Any] | None = None,
) -> list[E]:
    """Select the examples of a training file that belong to train, or to the held-out dev.

    A group, the plural of which is `groups_name`, is never divided. With `classes` every class
    gives its share; a group has the class of its first example.
    """
    sizes = Counter(groups)
    if len(sizes) < 2:
        raise DataError(
            f"there are fewer than two {groups_name}, so none can be held out; give more of them, "
            "or a dev file"
        )
    firsts: list[Any] | None = None
    if classes is not None:
        class_of = dict(zip(reversed(groups), reversed(classes), strict=True))
        firsts = [class_of[group] for group in sizes]
    is_held_out = choose_held_out([*sizes.values()], share, seed, firsts)
    held_out = {group for group, held in zip(sizes, is_held_out, strict=True) if held}
    if split == "dev":
        notes.clear()  # reported when the train split of the file was read
    else:
        notes[f"held out for dev, of the {len(sizes):,} {groups_name}"] = len(held_out)
        if classes is not None and (
            missing := set(classes)
            - {label for label, group in zip(classes, groups, strict=True) if group in held_out}
        ):
            notes["classes have no development row, because they have too few rows"] = len(missing)
    return [
        example
        for example, group in zip(examples, groups, strict=True)
        if (group in held_out) == (split == "dev")
    ]
