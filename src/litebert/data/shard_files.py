"""The files of a set of shards: in a folder, or in a store and read through the local cache."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from litebert.cost import format_bytes
from litebert.errors import DataError
from litebert.progress import track
from litebert.remote import cache, stores
from litebert.remote.names import as_url, join, require_local, shorten
from litebert.remote.target import FileEntry
from litebert.storage import sha256_of

log = logging.getLogger("litebert")

AHEAD = 4
"""Files that are fetched at the same time, ahead of the reader."""


class FolderFiles:
    """Files of a folder here."""

    is_remote = False

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        """The folder, for messages."""
        self.location = str(folder)
        """The path or URL that opens the folder again."""
        self._folder = folder

    def check(self, entries: Sequence[FileEntry], verify: bool) -> None:
        """Check the sizes of all files, and with `verify` their checksums.

        Raises:
            DataError: a file is absent or has changed.
        """
        with _track("checking the shards", entries) as checked:
            for entry in checked:
                file = os.path.join(self._folder, entry.file)
                try:
                    state = os.stat(file)
                except OSError:
                    raise DataError(f"{file} is missing; prepare the data again") from None
                if state.st_size != entry.bytes or not stat.S_ISREG(state.st_mode):
                    raise DataError(
                        f"{file} has {state.st_size} bytes, not {entry.bytes}; "
                        "prepare the data again"
                    )
                if verify and sha256_of(Path(file)) != entry.sha256:
                    raise DataError(
                        f"{file} has changed since it was written (sha256); prepare the data again"
                    )

    def open_file(self, entry: FileEntry) -> Path:
        """Return the path of a file."""
        return self._folder / entry.file

    def fetch_ahead(self, entries: Iterable[FileEntry]) -> None:
        """Expect that files are read soon, which changes nothing here."""

    def count_open(self, entries: Iterable[FileEntry], most: int) -> int:
        """Return how many of the files may be open, where `most` may be for other reasons."""
        return most


class StoreFiles:
    """Files of a folder in a store."""

    is_remote = True

    def __init__(self, url: str) -> None:
        self.name, self.location = shorten(url), url
        self._threads: ThreadPoolExecutor | None = None
        self._expected: dict[str, Future[Path]] = {}

    def check(self, entries: Sequence[FileEntry], verify: bool) -> None:
        """Fill the cache with all files, if `verify` asks for it, and check those that it has.

        A file that is fetched is checked anyway.

        Raises:
            DataError: a file is absent or has changed, or the store cannot be read.
        """
        total, limit = sum(entry.bytes for entry in entries), cache.read_limit()
        if verify and total > limit:
            log.warning(
                f"{self.name} has {format_bytes(total)} and the cache at most {format_bytes(limit)}"
                f", so files are fetched again and again; set {cache.SIZE_VARIABLE} to more"
            )
        elif verify:
            with _track("fetching the shards", entries) as expected:
                for number, entry in enumerate(expected):
                    self.fetch_ahead(entries[number : number + AHEAD], verify=True)
                    self.open_file(entry)

    def open_file(self, entry: FileEntry) -> Path:
        """Return the path of a file in the cache.

        Raises:
            DataError: the file is absent or has changed, or the store cannot be read.
        """
        future = self._expected.pop(entry.file, None)
        path = None if future is None else future.result()
        if path is not None and path.exists():
            return path
        return self._fetch(entry)

    def fetch_ahead(self, entries: Iterable[FileEntry], verify: bool = False) -> None:
        """Fetch the next files in other threads, at most `AHEAD` of them."""
        for entry in entries:
            for name in [name for name, future in self._expected.items() if future.done()]:
                if len(self._expected) >= AHEAD:  # the reader went elsewhere
                    del self._expected[name]
            if len(self._expected) >= AHEAD:
                return
            if entry.file not in self._expected:
                self._threads = self._threads or ThreadPoolExecutor(AHEAD, "shards")
                self._expected[entry.file] = self._threads.submit(self._fetch, entry, verify)

    def count_open(self, entries: Iterable[FileEntry], most: int) -> int:
        """Return how many of the files may be open: the space of an open file is free only when it
        is closed.
        """
        largest = max((entry.bytes for entry in entries), default=1)
        return max(1, min(most, cache.read_limit() // max(1, largest)))

    def _fetch(self, entry: FileEntry, verify: bool = False) -> Path:
        url = join(self.location, entry.file)
        return cache.fetch(url, entry.bytes, entry.sha256, verify=verify)


ShardFiles = FolderFiles | StoreFiles


def _track(title: str, entries: Sequence[FileEntry]) -> AbstractContextManager[Iterator[FileEntry]]:
    total = sum(entry.bytes for entry in entries)
    return track(entries, title, total, "bytes", lambda entry: entry.bytes)


def open_set_folder(
    folder: str | Path, index_name: str, tokenizer_name: str
) -> tuple[Path, ShardFiles]:
    """Return a folder here that has the index and the tokenizer of a set, and the set's files.

    Raises:
        DataError: the store cannot be read, or holds no finished set of that name.
    """
    url = as_url(folder)
    if url is None:
        require_local(folder)
        return Path(folder), FolderFiles(Path(folder))
    url = url.rstrip("/")
    entry = stores.look(join(url, index_name))
    if entry is None:
        others = stores.list_below(url)
        fault = f"holds no {index_name}, so it is not finished" if others else "does not exist"
        raise DataError(f"{shorten(url)} {fault}; run litebert prepare to its end")
    index = stores.read_range(entry.url, 0, entry.size)
    names = [
        f"{tokenizer_name}/{file.url.rpartition('/')[2]}"
        for file in stores.list_below(join(url, tokenizer_name))
    ]
    return cache.copy_records(url, names, index, index_name), StoreFiles(url)


def has_index(folder: str | Path, index_name: str) -> bool:
    """Return whether a folder holds a finished set."""
    url = as_url(folder)
    name = join(folder, index_name)
    return Path(name).exists() if url is None else stores.look(name) is not None


@contextmanager
def naming_store(copy: Path, files: ShardFiles) -> Iterator[None]:
    """Around work with the copy of a set: errors name the store, not the copy."""
    try:
        yield
    except DataError as error:
        if not files.is_remote:
            raise
        raise DataError(str(error).replace(str(copy), files.name)) from None
