"""Which file holds which part of a task (train, dev, test), and a dev part held out of the training file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from litebert.data.random_keys import derive, permute
from litebert.errors import DataError
from litebert.text.records import Notes

E = TypeVar("E")

_NAMES = {"train": ("train",), "dev": ("dev", "valid", "testa"), "test": ("test",)}

Data = str | Path | Mapping[str, str | Path]
"""A folder whose files say in their names which part they are, or the file of each part by name."""


def part_files(data: Data) -> dict[str, Path]:
    """The file of each part. In a folder a name with `train`, with `dev`, `valid` or `testa`, or with `test`.

    Raises:
        DataError: no folder, a folder without such files, or one where two files would be the same part.
    """
    if isinstance(data, Mapping):
        return {part: Path(file) for part, file in data.items()}
    folder = Path(data)
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder; give a folder with a train and a dev file, or name the files")
    found: dict[str, Path] = {}
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        part = next((part for part, names in _NAMES.items() if any(name in path.name.lower() for name in names)), None)
        if part in found:
            raise DataError(f"{found[part]} and {path.name} could both be the {part} part; name the files of the parts")
        if part is not None:
            found[part] = path
    if not found:
        raise DataError(f"{folder} holds no file with train, dev or test in its name; name the files of the parts")
    return found


def given_files(data: str | Path, options: dict[str, Any]) -> dict[str, Path]:
    """The files of a folder, or `data` as the training file; those of `dev` and `test`, taken out of the options."""
    files = part_files(data) if Path(data).is_dir() else {"train": Path(data)}
    return files | {part: Path(options.pop(part)) for part in ("dev", "test") if part in options}


_HELD_OUT = 43  # what a key is for


def held_out(size: int, share: float, seed: int = 0) -> NDArray[np.bool_]:
    """(size,): which of some things take the place of a dev part: a share of them, but at least one and never all."""
    held = min(max(1, round(share * size)), size - 1)
    return permute(np.arange(size, dtype=np.int64), size, np.repeat(derive(seed, _HELD_OUT), size)) < held


def split(
    part: str, examples: list[E], groups: Sequence[int], share: float, seed: int, of: str, found: Notes
) -> list[E]:
    """Those of the examples of a training file that are the part train or dev, where groups are held out for dev.

    Args:
        groups: of each example; none is cut in two.
        of: what the groups are, and the file: rows of train.csv.

    Raises:
        DataError: there is one group only.
    """
    every = list(dict.fromkeys(groups))
    if len(every) < 2:
        raise DataError(f"{len(every)} {of} are too few to hold some out; give more, or a dev file")
    apart = {group for group, held in zip(every, held_out(len(every), share, seed), strict=True) if held}
    if part == "dev":
        found.clear()  # said of the file when its train part was read
    else:
        found[f"of the {len(every)} {of} some are held out for dev"] = len(apart)
    return [example for example, group in zip(examples, groups, strict=True) if (group in apart) == (part == "dev")]
