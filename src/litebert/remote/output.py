"""A file that a verb writes: here, or in a store, where it appears when the work ends."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from litebert.errors import ConfigError, DataError
from litebert.remote import cache, stores
from litebert.remote.names import as_url, join, shorten
from litebert.storage import check_output


@contextmanager
def open_output_file(out: str | Path) -> Iterator[Path]:
    """Give the path here to write that an output stands for.

    A file of a store is written to a temporary folder and sent at the end, after the files that
    were written beside it. So is what an interrupted work has written. Errors name the store.

    Raises:
        DataError: the store cannot be written.
    """
    url = as_url(out)
    if url is None:
        yield Path(out)
        return
    parent, _, name = url.rpartition("/")
    folder = cache.find_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=folder) as temporary:
        path = Path(temporary, name)
        try:
            yield path
        except (DataError, ConfigError) as error:
            raise type(error)(str(error).replace(str(path), shorten(url))) from None
        finally:
            for written in sorted(Path(temporary).iterdir(), key=lambda file: file == path):
                stores.write_file(join(parent, written.name), written)


def check_output_file(out: str | Path) -> None:
    """Refuse a name that no file can be written to, before anything is computed for it.

    Raises:
        ConfigError: the name is that of a folder; or its folder here does not exist, or may not be
            written to.
    """
    url = as_url(out)
    if url is None:
        check_output(Path(out))
    elif "/" not in url.partition("://")[2].rstrip("/") or url.endswith("/"):
        raise ConfigError(f"cannot write {shorten(url)}; give --out a file in a store")
