"""A file here or in a store, opened for reading. A file of a store is read in blocks:

    block      0    1    2    3 ...
    read       |====|
    fetched         |====|            in a thread

Memory is two blocks, whatever the size of the file.
"""

from __future__ import annotations

import io
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, cast

from litebert.base.errors import DataError
from litebert.remote import stores
from litebert.remote.names import as_url, shorten
from litebert.remote.stores import Entry

BLOCK = 4 << 20

_entries: dict[str, Entry] = {}
"""The files of stores that were listed: a listing tells of a thousand files in one request."""


def list_source(url: str) -> tuple[list[Entry], bool]:
    """Describe the files that a source is, or stands for, and remember them; and whether they were
    chosen by a folder, so that others there are skipped.
    """
    has_marks = any(mark in url for mark in "*?[") and not url.startswith(("http:", "https:"))
    entry = stores.look(url)  # first, for a file may have such marks in its name
    if entry is None and has_marks:
        matches = stores.list_matches(url)
        if "/." not in url:  # as patterns here match no hidden files
            matches = [match for match in matches if "/." not in match.url]
        if not matches:
            raise DataError(f"no file matches {shorten(url)}; check the pattern and its quotes")
        files = [
            file
            for match in matches
            for file in (stores.list_below(match.url) if match.is_folder else [match])
        ]
    elif entry is None:
        raise stores.make_absence_error(url)
    else:
        files = stores.list_below(url) if entry.is_folder else [entry]
    files = [file for file in files if not file.is_folder]
    _entries.update({file.url: file for file in files})
    return files, entry is not None and entry.is_folder


def describe(url: str) -> Entry:
    """Describe a file of a store, as it was listed if it was."""
    if url not in _entries:
        _entries[url] = stores.look_at_file(url)
    return _entries[url]


def is_file(name: str | Path) -> bool:
    """Return whether a name is that of a file. A URL that is read as a file is one."""
    return as_url(name) is not None or Path(name).is_file()


def size_of(name: str | Path) -> int:
    url = as_url(name)
    return Path(name).stat().st_size if url is None else describe(url).size


def open_file(name: str | Path) -> IO[bytes]:
    url = as_url(name)
    if url is None:
        return open(name, "rb")
    return cast(IO[bytes], io.BufferedReader(StoreFile(url), 1 << 20))


class StoreFile(io.RawIOBase):
    """A file of a store, read in blocks, of which the next is fetched ahead."""

    def __init__(self, url: str) -> None:
        listed = describe(url).size
        self._entry = stores.look_at_file(url)
        if listed != self._entry.size:
            raise self._make_change_error()
        self._position = 0
        self._blocks: dict[int, Future[bytes]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._stopped = threading.Event()
        self._is_same = self._entry.size <= BLOCK  # one request reads one file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._entry.size}[whence]
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read as many bytes as there are in the block at the position, at most all of `buffer`."""
        size = self._entry.size
        if self._position >= size:
            # The blocks of a file that was changed while it was read are of two files.
            if not self._is_same and stores.look(self._entry.url) != self._entry:
                raise self._make_change_error()
            self._is_same = True
            return 0
        number, offset = divmod(self._position, BLOCK)
        content = self._read_block(number)[offset : offset + len(buffer)]
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)

    def _read_block(self, number: int) -> bytes:
        is_next = number == 0 or number in self._blocks or number - 1 in self._blocks
        block, following = self._fetch(number), number + 1
        if is_next and following * BLOCK < self._entry.size:
            self._fetch(following)
        for other in self._blocks.keys() - {number, following}:
            del self._blocks[other]
        return block.result()

    def _fetch(self, number: int) -> Future[bytes]:
        if number not in self._blocks:
            self._threads = self._threads or ThreadPoolExecutor(2, "store")
            start = number * BLOCK
            end = min(start + BLOCK, self._entry.size)
            self._blocks[number] = self._threads.submit(
                stores.read_range, self._entry.url, start, end, self._stopped
            )
        return self._blocks[number]

    def _make_change_error(self) -> DataError:
        _entries.pop(self._entry.url, None)
        return DataError(
            f"{shorten(self._entry.url)} was changed while it was read; give the same command again"
        )

    def close(self) -> None:
        if not self.closed:
            self._stopped.set()
            self._blocks.clear()
            if self._threads is not None:
                self._threads.shutdown(wait=False, cancel_futures=True)
        super().close()
