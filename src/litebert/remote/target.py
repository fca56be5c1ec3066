"""A folder that is written: here, or in a store.

A folder in a store is written through one here. Each file is sent when it is whole, and the index
or the marker last, after which the folder counts as finished:

    CACHE/.writing-4c.../files/    train-00007.arrow   index.json
                                          | sent, and      | sent last
                                          v deleted        v
    s3://bucket/data/              train-00007.arrow   index.json

Another machine continues where a killed one stopped. While one writes, `writer.json` there has its
name, so that another machine can warn.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from litebert.base import storage
from litebert.base.errors import ConfigError, DataError, LitebertError
from litebert.remote import cache, stores
from litebert.remote.names import as_url, join, require_local, shorten

log = logging.getLogger("litebert")

_WRITER = "writer.json"
"""Names the machine that writes; there from its first file to its end."""
_RECORDS = (".json", ".jsonl")
"""Suffixes of the small files that say what a folder holds."""
_FREQUENT = 64 << 10
"""Bytes of a growing file up to which every change of it is sent."""
_PAUSE = 30.0
"""Seconds between two times that a larger file is sent, at least."""
_PATIENCE = 20
"""The file is sent whole each time, so it may take a twentieth of the time."""


class FileEntry(Protocol):
    @property
    def file(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def sha256(self) -> str: ...


class FolderTarget:
    """A folder here, to which nothing has to be sent."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, str(folder)

    @contextmanager
    def open(self) -> Iterator[Path]:
        yield self.folder

    def list_names(self) -> list[str]:
        if not self.folder.exists():
            return []
        return [path.name for path in self.folder.iterdir() if path.name != storage.LOCK]

    def has_file(self, entry: FileEntry) -> bool:
        path = self.folder / entry.file
        return path.is_file() and storage.sha256_of(path) == entry.sha256

    def fetch(self, entry: FileEntry) -> Path:
        return self.folder / entry.file

    def send(self, name: str) -> None:
        """Bring a file that is written to the store."""

    def send_growing(self, name: str) -> None:
        """Bring a file to the store that grows further."""

    def finish(self, last: str) -> None:
        """Bring the files to the store that are left. The folder is finished."""

    def delete(self, name: str) -> None:
        # A finished folder may be read-only, so nothing is deleted that does not exist.
        if (self.folder / name).exists():
            (self.folder / name).unlink()

    def remove(self) -> None:
        storage.remove(self.folder)


class StoreTarget:
    """A folder in a store, written through a folder here."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self.name = shorten(self._url)
        digest = hashlib.sha256(self._url.encode()).hexdigest()[:32]
        self._base = cache.find_folder() / f".writing-{digest}"
        self.folder = self._base / "files"
        self._sizes: dict[str, int] = {}
        """The bytes of the files in the store, by their paths from the folder."""
        self._due = 0.0
        self._began: str | None = None
        """When this machine began to write, while the store names it as the writer."""

    @contextmanager
    def open(self) -> Iterator[Path]:
        """Give a folder here with the small files of the one in the store, which errors name."""
        try:
            with storage.lock_folder(self._base, DataError):
                stores.require_bucket(self._url)
                self._take_records()
                try:
                    yield self.folder
                except BaseException as error:
                    if not getattr(error, "is_of_store", False):  # a try may take half a minute
                        self._leave()
                    raise
                self._leave()
                storage.remove(self.folder)
        except (DataError, ConfigError) as error:
            text = str(error).replace(str(self.folder), self.name)
            raise type(error)(text.replace(str(self._base), self.name)) from None

    def _take_records(self) -> None:
        storage.remove(self.folder)
        self.folder.mkdir(parents=True)
        start = len(self._url) + 1
        entries = {entry.url[start:]: entry for entry in stores.list_below(self._url)}
        self._sizes = {name: entry.size for name, entry in entries.items()}
        if self._sizes.pop(_WRITER, None) is not None:
            self._take_name()
        for name in self._sizes:
            if storage.is_inside(name) and name.endswith(_RECORDS):
                (self.folder / name).write_bytes(stores.read_file(join(self._url, name)))

    def _read_writer(self) -> tuple[str, str] | None:
        """Read which machine writes here, and when it began. None if the store names none."""
        try:
            writer = json.loads(stores.read_file(join(self._url, _WRITER)))
            return str(writer["host"]), str(writer["began"])
        except (DataError, ValueError, KeyError, TypeError):  # it has ended by now
            return None

    def _take_name(self) -> None:
        """Take over the name that a killed process of this machine left, for the folder here is
        locked while one works. Warn of another machine that began to write here."""
        host, began = self._read_writer() or ("", "")
        if host == socket.gethostname():
            self._began = began
        elif host:
            log.warning(
                f"{host} began to write {self.name} at {began} and has not ended; if it still "
                "runs, stop one of the two"
            )

    def _leave(self) -> None:
        """Delete the name of this machine from the store, and leave that of another one."""
        if self._began is None:
            return
        name, self._began = (socket.gethostname(), self._began), None
        try:
            if self._read_writer() == name:
                stores.delete(join(self._url, _WRITER))
        except LitebertError as error:  # nothing else depends on it
            log.debug(f"the name of this machine stays in the store: {error}")

    def list_names(self) -> list[str]:
        return list(dict.fromkeys(name.partition("/")[0] for name in self._sizes))

    def has_file(self, entry: FileEntry) -> bool:
        """Return whether the store has a file of these bytes, whose checksum is checked when
        fetched.
        """
        return self._sizes.get(entry.file) == entry.bytes

    def fetch(self, entry: FileEntry) -> Path:
        return cache.fetch(join(self._url, entry.file), entry.bytes, entry.sha256)

    def send(self, name: str) -> None:
        """Send a file that is written, and delete it here if it is large."""
        path = self.folder / name
        self._write(name, path)
        if not name.endswith(_RECORDS):
            path.unlink()

    def send_growing(self, name: str) -> None:
        """Send a file that grows further: at once while it is small, seldom when it is large."""
        start = time.monotonic()
        if start >= self._due or (self.folder / name).stat().st_size <= _FREQUENT:
            self._write(name, self.folder / name)
            end = time.monotonic()
            self._due = end + max(_PAUSE, _PATIENCE * (end - start))

    def finish(self, last: str) -> None:
        """Send the files below folders, and then the file `last`, which finishes the folder."""
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and path.parent != self.folder:
                name = path.relative_to(self.folder).as_posix()
                self._write(name, path)
        self.send(last)

    def _write(self, name: str, path: Path) -> None:
        if self._began is None:
            began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            writer = {"host": socket.gethostname(), "began": began}
            stores.write_file(join(self._url, _WRITER), json.dumps(writer).encode())
            self._began = began
        stores.write_file(join(self._url, name), path)
        self._sizes[name] = path.stat().st_size

    def delete(self, name: str) -> None:
        storage.remove(self.folder / name)
        if self._sizes.pop(name, None) is not None:  # who only reads may not delete
            stores.delete(join(self._url, name))

    def remove(self) -> None:
        """Delete the folder in the store and all files in it, the records first."""
        start = len(self._url) + 1
        names = [entry.url[start:] for entry in stores.list_below(self._url)]
        for name in sorted(names, key=lambda name: not name.endswith(_RECORDS)):
            stores.delete(join(self._url, name))
        shutil.rmtree(self._base, ignore_errors=True)


Target = FolderTarget | StoreTarget


def open_target(folder: str | Path) -> Target:
    """Return the folder to write that a name or a URL stands for."""
    url = as_url(folder)
    if url is not None:
        return StoreTarget(url)
    require_local(folder)
    return FolderTarget(Path(folder))
