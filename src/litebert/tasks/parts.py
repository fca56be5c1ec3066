"""Which file holds which part of a task (train, dev, test), from names or from the files of a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.data.random_keys import derive, permute
from litebert.errors import DataError

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


def part_file(files: Mapping[str, Path], part: str, task: str) -> Path:
    """The file of a part.

    Raises:
        DataError: the task was given none.
    """
    if part not in files:
        raise DataError(f"{task} was given no {part} file, only {', '.join(files)}; give one")
    return files[part]


def scored_parts(files: Mapping[str, Path]) -> tuple[str, ...]:
    """The parts that a model is chosen by: all but train and test."""
    return tuple(part for part in files if part not in ("train", "test"))


def unscored_parts(files: Mapping[str, Path]) -> tuple[str, ...]:
    """The parts to be answered only."""
    return ("test",) if "test" in files else ()


_HELD_OUT = 43  # what a key is for


def held_out(size: int, share: float, seed: int = 0) -> NDArray[np.bool_]:
    """(size,): which of some things take the place of a dev part: a share of them, but at least one and never all."""
    held = min(max(1, round(share * size)), size - 1)
    return permute(np.arange(size, dtype=np.int64), size, np.repeat(derive(seed, _HELD_OUT), size)) < held
