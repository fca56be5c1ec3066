"""The local cache of files from stores. Its names are checksums, so equal files are kept once,
whatever their URLs.

    CACHE/6b3a...e1.arrow    a file, by its sha256
    CACHE/set-0f9c...77/     the index and the tokenizer of a set, by the sha256 of the index
    CACHE/.lock-6b, ...      locks: processes that want the same file fetch it once

A process that has mapped a deleted file still reads it; the disk space is free when it is closed.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from litebert.base import storage
from litebert.base.errors import ConfigError, DataError
from litebert.remote import stores
from litebert.remote.names import path_of, shorten
from litebert.remote.reading import BLOCK

FOLDER_VARIABLE = "LITEBERT_CACHE"
SIZE_VARIABLE = "LITEBERT_CACHE_GB"
DEFAULT_GB = 100.0
_SET = "set-"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_TRIES = 2


def find_folder() -> Path:
    """Return LITEBERT_CACHE, or `stores` in the user's cache of litebert."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    return Path(chosen) if chosen else storage.cache_folder() / "stores"


def read_limit() -> int:
    """Return the bytes that the cache may have: LITEBERT_CACHE_GB, or 100 GB."""
    text = os.environ.get(SIZE_VARIABLE, "") or str(DEFAULT_GB)
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not 0 < size < math.inf:
        raise ConfigError(f"{SIZE_VARIABLE} is '{text}'; give gigabytes, such as 20")
    return int(size * 1e9)


def fetch(url: str, size: int, sha256: str, *, verify: bool = False) -> Path:
    """Return the path of a copy of a file of `size` bytes, which is fetched if the cache lacks it.
    `verify` checks the checksum of a copy that the cache has too.
    """
    folder = find_folder()
    path = folder / f"{sha256}{path_of(url).suffix}"
    if not (_DIGEST.fullmatch(sha256) and storage.is_inside(path.name)):
        raise DataError(
            f"the sha256 of {shorten(url)} is {sha256!r}, which is none; write it again"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder, sha256[:2]):
            is_there = _touch(path) and path.stat().st_size == size
            if is_there and not (verify and storage.sha256_of(path) != sha256):
                return path
            make_room(size)
            if any(_download(url, path, size, sha256) for _ in range(_TRIES)):
                return path
    except OSError as error:
        raise _make_disk_error(folder, error) from error
    raise DataError(f"{shorten(url)} has changed since it was written (sha256); write it again")


def copy_records(url: str, names: list[str], index: bytes, index_name: str) -> Path:
    """Return a local folder with small files of the folder `url`: its index of this content, and
    those named.
    """
    for name in names:
        if not storage.is_inside(name, below=True):
            raise DataError(
                f"{shorten(url)} holds {name!r}, which is not the name of a file in this folder; "
                "delete it"
            )
    folder = find_folder()
    path = folder / f"{_SET}{hashlib.sha256(index).hexdigest()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder, "set"):
            if not _touch(path):
                with storage.write_whole(path) as aside:
                    aside.mkdir()
                    for name in names:
                        target = aside / name
                        target.parent.mkdir(parents=True, exist_ok=True)
                        target.write_bytes(stores.read_file(f"{url}/{name}"))
                    (aside / index_name).write_bytes(index)
    except OSError as error:
        raise _make_disk_error(folder, error) from error
    return path


def make_room(size: int) -> None:
    """Delete what was not used for the longest time, until `size` more bytes fit in the cache."""
    folder, limit = find_folder(), read_limit()
    with _lock(folder, "room"):
        entries = []
        for path in folder.iterdir():
            # The tokenizer and index of a set are small, and perhaps in use. They do not count.
            if not path.name.startswith(".") and not path.is_dir():
                with suppress(OSError):  # another process deletes it
                    about = path.stat()
                    entries.append((about.st_mtime, about.st_size, path))
        total = sum(entry_size for _, entry_size, _ in entries)
        for _, entry_size, path in sorted(entries):
            if total + size <= limit:
                return
            storage.remove(path)
            total -= entry_size


def _touch(path: Path) -> bool:
    """Note that a file or a set is used; False where there is none."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _download(url: str, path: Path, size: int, sha256: str) -> bool:
    digest = hashlib.sha256()
    entry = stores.look_at_file(url)
    if entry.size != size:
        raise DataError(
            f"{shorten(url)} has {entry.size} bytes, not {size}; it was changed, so write it again"
        )
    with suppress(_Wrong), storage.write_whole(path) as aside:
        with open(aside, "wb") as file:
            for start in range(0, size, BLOCK):
                block = stores.read_range(url, start, min(start + BLOCK, size))
                digest.update(block)
                file.write(block)
        if digest.hexdigest() != sha256:
            raise _Wrong
        return True
    return False


class _Wrong(Exception):
    """A file with another checksum arrived."""


@contextmanager
def _lock(folder: Path, name: str) -> Iterator[None]:
    from filelock import FileLock  # late, as in storage.py

    with FileLock(folder / f".lock-{name}", preserve_lock_file=True):
        yield


def _make_disk_error(folder: Path, error: OSError) -> DataError:
    if error.errno in storage.FULL:
        return DataError(
            f"the cache {folder} is on a full disk; free some space, set {SIZE_VARIABLE} to less, "
            f"or {FOLDER_VARIABLE} to another folder"
        )
    return DataError(
        f"the cache {folder} cannot be written ({error.strerror or error}); set {FOLDER_VARIABLE} "
        "to another folder"
    )
