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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from litebert.base.errors import RunError
from litebert.base.json_reader import read_json
from litebert.base.storage import (
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

_HASHED = _MODEL, _OPTIMIZER, _STATE = "model.safetensors", "optimizer.safetensors", "state.json"
_INDEX = "index.json"


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint on disk; the tensors are read when asked for."""

    path: Path
    step: int
    state: dict[str, Any]
    damaged: tuple[tuple[Path, str], ...] = ()
    """Newer checkpoints that were passed over, newest first, and what is wrong with each."""

    def load_model(self) -> Mapping[str, Tensor]:
        return load_file(self.path / _MODEL)

    def load_optimizer(self) -> Mapping[str, Tensor]:
        return load_file(self.path / _OPTIMIZER)


def save(
    folder: Path,
    step: int,
    model: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    state: dict[str, Any],
) -> Path:
    """Write `folder`/step-N and return its path; a checkpoint of the same step is replaced.

    No two tensors may share memory, and `state` must be JSON.
    """
    final, old = folder / f"step-{step:08d}", folder / f"step-{step:08d}.old"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with write_whole(final) as aside:
            aside.mkdir()
            for file, tensors in ((_MODEL, model), (_OPTIMIZER, optimizer)):
                whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
                save_file(whole, aside / file)
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
        amount = sum(tensor.nbytes for tensor in (*model.values(), *optimizer.values()))
        full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or (
            f"(os error {errno.ENOSPC})" in str(error)  # safetensors reports it in words only
        )
        fix = (
            "the disk is full; free at least that much"
            if full
            else f"{error}; make the folder writable"
        )
        raise RunError(
            f"cannot write the checkpoint of step {step} ({amount:,} bytes) into {folder}: {fix}, "
            "and run the same command again to continue from the one before"
        ) from error
    return final


def find_newest(folder: Path) -> Checkpoint | None:
    """Find the newest checkpoint whose files are as they were written; None if there is none."""
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
    """Finish and remove what a killed process left; the caller holds the run's lock."""
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
