"""Checkpoints that survive a crash at any instant.

    RUN/checkpoints/step-00001200/
        model.safetensors  optimizer.safetensors  state.json
        index.json         format version, bytes and sha256 of the three; written last

A checkpoint is written under a temporary name, flushed to the disk and renamed. So a folder with a
step's name is whole, unless the disk damaged it later, which the hashes reveal. Reading everything
back to hash it costs about a second per gigabyte; in return a run never continues from damaged
weights.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from litebert.errors import RunError
from litebert.json_reader import read_json
from litebert.storage import (
    CHECKPOINT,
    INDEX_FORMAT,
    UNFINISHED,
    checkpoints,
    file_record,
    index_text,
    json_text,
    newest_whole,
    remove,
    sync,
    write_whole,
)
from litebert.train.parallel import TensorsOnDemand, describe

_HASHED = _MODEL, _OPTIMIZER, _STATE = "model.safetensors", "optimizer.safetensors", "state.json"
_INDEX = "index.json"


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint on disk; the tensors are read when asked for."""

    path: Path
    step: int
    state: dict[str, Any]
    """The state that `save` wrote, and the step."""
    damaged: tuple[tuple[Path, str], ...] = ()
    """Newer checkpoints that were passed over, newest first, and what is wrong with each."""

    def load_model(self) -> Mapping[str, Tensor]:
        return SavedTensors(self.path / _MODEL)

    def load_optimizer(self) -> Mapping[str, Tensor]:
        return SavedTensors(self.path / _OPTIMIZER)


class SavedTensors(TensorsOnDemand):
    """Tensors of a safetensors file, read one at a time: where processes split a network, the main
    one never holds more than one whole tensor.
    """

    def __init__(self, file: Path) -> None:
        opened: Any = safe_open(file, "pt")  # a class without types
        self._file, self._names = opened, tuple(opened.keys())

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        tensor: Tensor = self._file.get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def describe(self, name: str) -> tuple[torch.dtype, torch.Size]:
        part = self._file.get_slice(name)
        return _TYPES[part.get_dtype()], torch.Size(part.get_shape())


def save(
    folder: Path,
    step: int,
    model: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    state: dict[str, Any],
) -> Path:
    """Write `folder`/step-N and return its path; a checkpoint of the same step is replaced.

    No two tensors may share memory, and `state` must be JSON. Each tensor is read once, in the
    order of `read_in_order`, and not kept.

    Raises:
        RunError: it cannot be written, on a full disk for one; what was there before is untouched.
    """
    final, old = folder / f"step-{step:08d}", folder / f"step-{step:08d}.old"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with write_whole(final) as aside:
            aside.mkdir()
            for file, tensors in ((_MODEL, model), (_OPTIMIZER, optimizer)):
                _write_tensors(aside / file, tensors)
            (aside / _STATE).write_text(json_text({**state, "step": step}), "utf-8")
            (aside / _INDEX).write_text(
                index_text({name: file_record(aside / name) for name in _HASHED}), "utf-8"
            )
            if final.exists():  # kept findable under another name until the new one is in place
                remove(old)
                os.rename(final, old)
        sync(folder.parent)
        remove(old)
    except (OSError, SafetensorError) as error:
        amount = sum(
            shape.numel() * dtype.itemsize
            for tensors in (model, optimizer)
            for dtype, shape in (describe(tensors, name) for name in tensors)
        )
        raise RunError(
            f"cannot write the checkpoint of step {step} ({amount:,} bytes) into {folder}: "
            f"{_describe_failure(error)}, and run the same command again to continue from the one "
            "before"
        ) from error
    return final


def read_in_order(tensors: Mapping[str, Tensor]) -> None:
    """Read every tensor as `save` does, in a process beside the one that saves."""
    for name in _order(tensors):
        tensors[name]


_DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.int64: "I64",
}
"""The names of types in a safetensors file, in the order of its library."""
_TYPES = {name: dtype for dtype, name in _DTYPES.items()}


def _order(tensors: Mapping[str, Tensor]) -> list[str]:
    """Put names into the order in which the safetensors library writes them: wide types first."""
    ranks = {dtype: rank for rank, dtype in enumerate(_DTYPES)}
    return sorted(tensors, key=lambda name: (-ranks[describe(tensors, name)[0]], name))


def _write_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file, byte for byte as its library does, from one tensor at a time.

    The library takes all tensors at once, so the process that saves would hold the whole of what is
    split over processes.
    """
    header: dict[str, Any] = {}
    end = 0
    names = _order(tensors)
    for name in names:
        dtype, shape = describe(tensors, name)
        start, end = end, end + shape.numel() * dtype.itemsize
        header[name] = {"dtype": _DTYPES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(file, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            tensor = tensors[name].detach().contiguous().cpu()
            out.write(tensor.reshape(-1).view(torch.uint8).numpy().data)


def find_newest(folder: Path) -> Checkpoint | None:
    """Find the newest checkpoint in `folder` whose files are all as they were written; None where
    there is none yet.

    Raises:
        RunError: there are checkpoints, and every one is damaged.
    """
    path, damaged = newest_whole(folder, _find_damage)
    if path is not None:
        state = read_json(path / _STATE, RunError)
        return Checkpoint(path, state["step"], state, tuple(damaged))
    if damaged:
        listed = "; ".join(f"{path.name}: {problem}" for path, problem in damaged)
        raise RunError(
            f"every checkpoint in {folder} is damaged ({listed}); restore one from a backup, "
            "or delete that folder to start from the beginning"
        )
    return None


def tidy(folder: Path) -> None:
    """Finish what a killed process was replacing, and remove what it was writing; the caller holds
    the run's lock.
    """
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        final = path.with_name(path.name.removesuffix(".old"))
        if path.name.startswith(f"{UNFINISHED}step-") or (path != final and final.exists()):
            remove(path)
        elif path != final and CHECKPOINT.fullmatch(path.name):
            os.rename(path, final)


def prune(folder: Path, keep: int) -> None:
    """Delete every checkpoint older than the newest `keep` whole ones."""
    paths, whole = checkpoints(folder), 0
    for path in paths if len(paths) > keep else ():  # else none is read to be hashed
        if whole >= keep:
            remove(path)
        elif _find_damage(path) is None:
            whole += 1


def _find_damage(path: Path) -> str | None:
    """Say what is wrong with a checkpoint; None if nothing is."""
    name = _INDEX
    try:
        text = (path / _INDEX).read_text("utf-8")
        files = json.loads(text)["files"]
        for name in _HASHED:
            if files[name] != file_record(path / name):
                return f"{name} does not match {_INDEX}"
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"
    except (ValueError, TypeError, KeyError, RecursionError):
        return f"{_INDEX} was changed"
    # Comparing the text leaves no byte of the index that could change unseen.
    whole = index_text({name: files[name] for name in _HASHED})
    return None if text == whole else f"{_INDEX} was changed or is not of format {INDEX_FORMAT}"


def _describe_failure(error: OSError | SafetensorError) -> str:
    # safetensors reports the system's error in words only.
    full = getattr(error, "errno", None) in (
        errno.ENOSPC,
        errno.EDQUOT,
    ) or f"(os error {errno.ENOSPC})" in str(error)
    return (
        "the disk is full; free at least that much"
        if full
        else f"{error}; make the folder writable"
    )
