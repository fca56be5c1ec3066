"""Checkpoints that survive a crash at any instant, and the lock that keeps a second process out of a run.

    RUN/checkpoints/step-00001200/
        model.safetensors  optimizer.safetensors  state.json
        index.json         format version, bytes and sha256 of the three; written last

A checkpoint is written under a temporary name, every file and then the folder flushed to the disk, and renamed; so
what bears a step's name is whole unless the disk damaged it later, and then the hashes tell. Reading everything back
to hash it costs about a second per gigabyte; in return a run never continues from damaged weights.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from litebert.errors import RunError

FORMAT = 1
_MODEL, _OPTIMIZER, _STATE, _INDEX = "model.safetensors", "optimizer.safetensors", "state.json", "index.json"
_NAME = re.compile(r"step-(\d{8,})(\.old)?")


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint on disk; the tensors are read when asked for."""

    path: Path
    step: int
    state: dict[str, Any]
    """What `save` was given, and the step."""
    damaged: tuple[tuple[Path, str], ...] = ()
    """Newer checkpoints that were passed over, newest first, and what is wrong with each."""

    def model(self) -> dict[str, Tensor]:
        return load_file(self.path / _MODEL)

    def optimizer(self) -> dict[str, Tensor]:
        return load_file(self.path / _OPTIMIZER)


def save(
    folder: str | Path, step: int, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], state: dict[str, Any]
) -> Path:
    """Write `folder`/step-N and return its path; a checkpoint of the same step is replaced.

    Each tensor must have a storage of its own, and `state` must be JSON.

    Raises:
        RunError: it cannot be written, on a full disk for one; what was there before is untouched.
    """
    _assert_unshared(model)
    _assert_unshared(optimizer)
    parent = Path(folder)
    final = parent / f"step-{step:08d}"
    temporary, old = parent / f".tmp-{final.name}", parent / f"{final.name}.old"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        save_file({name: _plain(tensor) for name, tensor in model.items()}, temporary / _MODEL)
        save_file({name: _plain(tensor) for name, tensor in optimizer.items()}, temporary / _OPTIMIZER)
        (temporary / _STATE).write_text(json.dumps({**state, "step": step}, indent=2) + "\n", encoding="utf-8")
        files = {name: _fingerprint(temporary / name, sync=True) for name in (_MODEL, _OPTIMIZER, _STATE)}
        (temporary / _INDEX).write_text(_index_text(files), encoding="utf-8")
        _fingerprint(temporary / _INDEX, sync=True)
        _sync_folder(temporary)
        if final.exists():  # kept findable under another name until the new one is in place
            shutil.rmtree(old, ignore_errors=True)
            os.rename(final, old)
        os.rename(temporary, final)
        _sync_folder(parent)
        _sync_folder(parent.parent)
        shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        amount = sum(tensor.nbytes for tensor in (*model.values(), *optimizer.values()))
        raise RunError(
            f"cannot write the checkpoint of step {step} ({amount:,} bytes) into {parent}: {_reason(error)}, and run "
            "the same command again to continue from the one before"
        ) from error
    return final


def newest(folder: str | Path) -> Checkpoint | None:
    """The newest checkpoint in `folder` whose files are all as they were written; None where there is none yet.

    Raises:
        RunError: there are checkpoints, and every one is damaged.
    """
    damaged: list[tuple[Path, str]] = []
    for step, path in _present(folder):
        problem = _damage(path)
        if problem is None:
            state = json.loads((path / _STATE).read_text(encoding="utf-8"))
            return Checkpoint(path, step, state, tuple(damaged))
        damaged.append((path, problem))
    if damaged:
        listed = "; ".join(f"{path.name}: {problem}" for path, problem in damaged)
        raise RunError(
            f"every checkpoint in {folder} is damaged ({listed}); restore one from a backup, "
            "or delete that folder to start from the beginning"
        )
    return None


def prune(folder: str | Path, keep: int) -> None:
    """Delete every checkpoint older than the newest `keep` whole ones."""
    whole = 0
    for _, path in _present(folder):
        if whole >= keep:
            shutil.rmtree(path, ignore_errors=True)
        elif _damage(path) is None:
            whole += 1


def _present(folder: str | Path) -> list[tuple[int, Path]]:
    """Checkpoints by step, newest first; one set aside comes after the one that replaces it."""
    parent = Path(folder)
    paths = [path for path in parent.iterdir() if _NAME.fullmatch(path.name)] if parent.is_dir() else []
    steps = [(int(path.name[5:].removesuffix(".old")), path) for path in paths]
    return sorted(steps, key=lambda item: (-item[0], item[1].name))


def _damage(path: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        text = (path / _INDEX).read_text(encoding="utf-8")
        index = json.loads(text)
    except (OSError, ValueError):
        return f"{_INDEX} is missing or unreadable"
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        return f"{_INDEX} is not of format {FORMAT}"
    files = index.get("files")
    # Comparing the text too leaves no byte of the index that could change unseen.
    if not isinstance(files, dict) or set(files) != {_MODEL, _OPTIMIZER, _STATE} or text != _index_text(files):
        return f"{_INDEX} was changed"
    for name, written in files.items():
        try:
            if _fingerprint(path / name) != written:
                return f"{name} does not match {_INDEX}"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
    return None


def _index_text(files: dict[str, Any]) -> str:
    return json.dumps({"format": FORMAT, "files": files}, indent=2) + "\n"


def _fingerprint(path: Path, sync: bool = False) -> dict[str, int | str]:
    """Bytes and sha256 of a file; with `sync`, once it is on the disk."""
    digest, size = hashlib.sha256(), 0
    with open(path, "rb+" if sync else "rb") as file:
        if sync:
            os.fsync(file.fileno())
        while block := file.read(1 << 20):
            digest.update(block)
            size += len(block)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _sync_folder(path: Path) -> None:
    """Make the names in a folder durable; Windows has no such call and does it by itself."""
    if sys.platform == "win32":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous()


def _assert_unshared(tensors: Mapping[str, Tensor]) -> None:
    seen: dict[int, str] = {}
    for name, tensor in tensors.items():
        if tensor.numel():
            other = seen.setdefault(tensor.untyped_storage().data_ptr(), name)
            assert other == name, f"{name} and {other} share memory; give tied tensors once"


def _reason(error: OSError | SafetensorError) -> str:
    # safetensors reports the system's error in words only.
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or f"(os error {errno.ENOSPC})" in str(error)
    return "the disk is full; free at least that much" if full else f"{error}; make the folder writable"


class RunLock:
    """The right to write into a run folder, as a context manager; the system drops it when the process dies.

    It is an advisory lock on `RUN/.lock` (flock; on Windows a byte-range lock), which holds the owner's process id.
    On entering, what a killed process left half-written in `checkpoints/` is removed.
    """

    _open: set[int] = set()  # noqa: RUF012 - shared by design: descriptors that a forked child must not keep

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def __enter__(self) -> RunLock:
        """Take the lock.

        Raises:
            RunError: another process holds it, or the folder's file system has no locks.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise RunError(f"cannot open the run folder {self._folder}: {error.strerror}; choose another one") from None
        try:
            _lock(self._file)
        except OSError as error:
            owner = os.read(self._file, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                message = f"is in use by process {owner}; wait until it ends, or choose another folder"
            else:
                message = f"is on a file system without locks ({error.strerror}); choose a folder on another one"
            raise RunError(f"the run folder {self._folder} {message}") from None
        RunLock._open.add(self._file)
        os.truncate(self._file, 0)
        os.write(self._file, f"{os.getpid()}\n".encode())
        self._tidy()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file in RunLock._open:  # a forked child has closed it already
            RunLock._open.remove(self._file)
            os.close(self._file)  # which drops the lock

    def _tidy(self) -> None:
        """Finish what a killed process was replacing, and remove what it was writing."""
        parent = self._folder / "checkpoints"
        for path in sorted(parent.iterdir()) if parent.is_dir() else ():
            final = path.with_name(path.name.removesuffix(".old"))
            if path.name.startswith(".tmp-step-") or (path != final and final.exists()):
                shutil.rmtree(path, ignore_errors=True)
            elif path != final and _NAME.fullmatch(path.name):
                os.rename(path, final)


if sys.platform == "win32":  # pragma: no cover

    def _lock(file: int) -> None:
        import msvcrt

        os.lseek(file, 1 << 30, os.SEEK_SET)  # locked bytes cannot be read, so lock one far behind the process id
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(file, 0, os.SEEK_SET)

else:

    def _lock(file: int) -> None:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _close_in_child() -> None:
        for file in RunLock._open:
            os.close(file)
        RunLock._open.clear()

    # A forked worker that outlives a killed run would otherwise hold its lock.
    os.register_at_fork(after_in_child=_close_in_child)
