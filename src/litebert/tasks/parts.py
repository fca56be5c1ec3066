"""Which files hold which part of a task (train, dev, test), how they are written, and a dev part
held out of train.

A part may be a file, several files, a folder of them or a pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from litebert.data.random_keys import derive, permute
from litebert.errors import ConfigError, DataError
from litebert.finetuning.outputs import Output
from litebert.finetuning.task import Task
from litebert.text import encodings
from litebert.text.files import list_files, refuse_duplicates
from litebert.text.lines import find_suffix
from litebert.text.records import SUFFIXES, FileFormat, Notes

E = TypeVar("E")

Source: TypeAlias = "str | Path | Sequence[str | Path]"
"""A file, a folder, a pattern such as data/*.csv, or several of these."""
Data: TypeAlias = "str | Path | Mapping[str, Source]"
"""A folder whose files say in their names which part they are, or the files of each part by
name."""

_NAMES = {"train": ("train",), "dev": ("dev", "valid", "testa"), "test": ("test",)}


class Layout(NamedTuple):
    """How the files of a task are written."""

    form: FileFormat | None = None
    """What they are; by their suffixes where None."""
    header: bool = True
    """Whether the first line of CSV and TSV names the columns."""
    encoding: str = "utf-8"


def layout_of(options: dict[str, Any]) -> Layout:
    """The layout that options of `task_of` ask for, taken out of them.

    Raises:
        ConfigError: there is no such encoding.
    """
    encoding = options.pop("encoding", "utf-8")
    encodings.check(encoding, error=ConfigError)
    return Layout(options.pop("input_format", None), options.pop("header", True), encoding)


class FileTask(Task[E]):
    """A task whose parts are files. Without a dev part, a share of the training examples takes its
    place.
    """

    suffixes: ClassVar[tuple[str, ...]] = ()
    """Of the files that are taken from a folder; all files where there are none."""

    def __init__(
        self,
        output: Output,
        metric: str | None = None,
        files: Mapping[str, Source | None] | None = None,
        *,
        heldout: float = 0.1,
        seed: int = 0,
        layout: Layout | None = None,
    ) -> None:
        """`files`: those of each part, None where there are none; the rest as in `Table`."""
        if not 0 < heldout < 1:
            raise ConfigError(f"heldout is {heldout}; give a share between 0 and 1")
        super().__init__(output, metric)
        self._paths = {
            part: self.expand(source)
            for part, source in (files or {}).items()
            if source is not None
        }
        self._splits = "train" in self._paths and "dev" not in self._paths
        self.dev = ("dev",) if "dev" in self._paths or self._splits else ()
        self.tests = ("test",) if "test" in self._paths else ()
        self._heldout, self._seed, self._layout = heldout, seed, layout or Layout()
        self._check_layout()

    @classmethod
    def expand(cls, source: Source) -> tuple[Path, ...]:
        """The files that a source stands for, those of folders and patterns sorted.

        Raises:
            DataError: a folder or a pattern holds none, or a file is given twice.
        """
        sources = [source] if isinstance(source, (str, Path)) else source
        refuse_duplicates(sources)
        return tuple(map(Path, list_files(sources, cls.inside)))

    @classmethod
    def inside(cls, folder: Path) -> list[Path]:
        """The files of a folder, sorted."""
        files = visible(folder)
        found = [path for path in files if not cls.suffixes or find_suffix(path) in cls.suffixes]
        if not found:
            wanted = f" with a name ending in {', '.join(cls.suffixes)}" if cls.suffixes else ""
            raise DataError(
                f"{folder} holds no file{wanted}; name the files of the {cls.name} task"
            )
        return found

    @property
    def file_names(self) -> dict[str, list[str]]:
        """The names of the files of each part."""
        return {part: [path.name for path in paths] for part, paths in self._paths.items()}

    def labelled(self, source: Source, **options: Any) -> list[E]:
        """The examples of files with answers, to be scored; `options` as in `task_of`."""
        for name, value in options.items():
            if name not in self.takes:
                raise ConfigError(
                    f"{name} is '{value}', which {self.name} does not take; leave it out"
                )
        self._layout, self._splits = layout_of(options), False
        self._paths = {"dev": self.expand(source)}
        self.dev = ("dev",)
        for name, value in options.items():
            raise ConfigError(f"{name} is '{value}', which no labelled file needs; leave it out")
        self._check_layout()
        return self.read("dev")

    def _check_layout(self) -> None:
        """Refuse what is said of a layout that none of the files has.

        Raises:
            ConfigError: there is no header to lack, or no text to decode.
        """
        paths = [path for paths in self._paths.values() for path in paths]
        forms = {
            self._layout.form or SUFFIXES.get(find_suffix(path))
            for path in paths
            if not path.is_dir()
        }
        if not forms or None in forms:  # texts in folders, or files that are read by their content
            return
        if not self._layout.header and forms.isdisjoint(("csv", "tsv")):
            raise ConfigError(
                f"{named(paths)} has no header line to lack; leave out header (--no-header)"
            )
        if self._layout.encoding != "utf-8" and forms == {"parquet"}:
            raise ConfigError(
                f"{named(paths)} is Parquet, which is always UTF-8; leave out encoding (--encoding)"
            )

    def _of(self, part: str) -> tuple[Path, ...]:
        """The files of a part, of the training part where dev is held out of it.

        Raises:
            DataError: the task was given none.
        """
        part = "train" if part == "dev" and self._splits else part
        if part not in self._paths:
            known = ", ".join(self._paths) or "none"
            raise DataError(
                f"{self.name} has no file for the part '{part}' (it has {known}); give one"
            )
        return self._paths[part]

    def _own(self, part: str, examples: list[E], group: Callable[[int], Any], what: str) -> list[E]:
        """Those examples of a file that belong to a part: a share of the training file's groups is
        held out for dev.

        Args:
            group: of the example at a place; no group is divided.
            what: the groups, in words.
        """
        if not self._splits or part == "test":
            return examples
        groups = [group(i) for i in range(len(examples))]
        of = f"{what} of {named(self._of('train'))}"
        return split(part, examples, groups, self._heldout, self._seed, of, self._found)


def named(paths: Sequence[Path]) -> str:
    """Files in a message."""
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"


def visible(folder: Path) -> list[Path]:
    """The files of a folder that are not hidden, sorted."""
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name[0] != ".")


def part_files(data: Data, folders: bool = False) -> dict[str, Source]:
    """The files of each part. In a folder a name with `train`, with `dev`, `valid` or `testa`, or
    with `test`.

    Args:
        folders: whether a folder of such a name may be a part too.

    Raises:
        DataError: no folder, a folder without such files, or one where two files would be the same
            part.
    """
    if isinstance(data, Mapping):
        return dict(data)
    folder = Path(data)
    if not folder.is_dir():
        raise DataError(
            f"{folder} is not a folder; give a folder with a train and a dev file, or name "
            "the files"
        )
    found = _parts_in(folder, folders)
    if not found:
        raise DataError(
            f"{folder} holds no file with train, dev or test in its name; name the files "
            "of the parts"
        )
    return dict(found)


def _parts_in(folder: Path, folders: bool) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in sorted(
        path for path in folder.iterdir() if path.is_file() or (folders and path.is_dir())
    ):
        name = path.name.lower()
        part = next(
            (part for part, names in _NAMES.items() if any(word in name for word in names)), None
        )
        if part is None or (path.is_dir() and name not in (*_NAMES[part], "validation")):
            continue
        if part in found:
            raise DataError(
                f"{found[part]} and {path.name} could both be the {part} part; name the "
                "files of the parts"
            )
        found[part] = path
    return found


def given_files(data: Source, options: dict[str, Any], folders: bool = False) -> dict[str, Source]:
    """The files of a folder, or `data` as the training files; those of `dev` and `test`, taken out
    of the options.
    """
    one = data[0] if isinstance(data, (list, tuple)) and len(data) == 1 else data
    files: dict[str, Source] = {}
    if isinstance(one, (str, Path)) and Path(one).is_dir():
        files.update(_parts_in(Path(one), folders))
    files = files or {"train": one}
    return files | {part: options.pop(part) for part in ("dev", "test") if part in options}


_HELD_OUT = 43  # what a key is for


def held_out(size: int, share: float, seed: int = 0) -> NDArray[np.bool_]:
    """(size,): which of some things take the place of a dev part: a share of them, but at least one
    and never all.
    """
    held = min(max(1, round(share * size)), size - 1)
    return (
        permute(np.arange(size, dtype=np.int64), size, np.repeat(derive(seed, _HELD_OUT), size))
        < held
    )


def split(
    part: str,
    examples: list[E],
    groups: Iterable[Any],
    share: float,
    seed: int,
    of: str,
    found: Notes,
) -> list[E]:
    """Those of the examples of a training file that are the part train or dev, where groups are
    held out for dev.

    Args:
        groups: of each example; none is divided.
        of: what the groups are, and the file: rows of train.csv.

    Raises:
        DataError: there is one group only.
    """
    groups = list(groups)
    every = list(dict.fromkeys(groups))
    if len(every) < 2:
        raise DataError(
            f"there are fewer than two {of}, so none can be held out; give more of them, "
            "or a dev file"
        )
    apart = {
        group for group, held in zip(every, held_out(len(every), share, seed), strict=True) if held
    }
    if part == "dev":
        found.clear()  # reported when the train part of the file was read
    else:
        found[f"held out for dev, of the {len(every):,} {of}"] = len(apart)
    return [
        example
        for example, group in zip(examples, groups, strict=True)
        if (group in apart) == (part == "dev")
    ]
