"""A file that a verb writes: here, or in a store, to which it is sent when the work ends. If the
store refuses it then, it stays in the cache:

    CACHE/.tmp-unsent-4c...-PID/output.npy    while the verb works
    CACHE/unsent-4c.../output.npy             whole; deleted once the store has it
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from litebert.base.errors import ConfigError, DataError, LitebertError
from litebert.base.storage import check_output, remove, write_whole
from litebert.remote import cache, stores
from litebert.remote.names import as_url, path_of, shorten

log = logging.getLogger("litebert")
_STEM = "output"


@contextmanager
def open_output_file(out: str | Path) -> Iterator[Path]:
    """Give the path here to write that an output stands for. A file of a store is sent at the end,
    also of interrupted work, after the files that were written next to it. Errors name the store.
    """
    url = as_url(out)
    if url is None:
        yield Path(out)
        return
    digest = hashlib.sha256(url.encode()).hexdigest()[:32]
    folder = cache.find_folder() / f"unsent-{digest}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    name = f"{_STEM}{path_of(url).suffix}"  # the name in the store may be too long for a disk
    with write_whole(folder) as aside:
        aside.mkdir()
        try:
            yield aside / name
        except BaseException as error:
            _send_interrupted(aside / name, url)
            if isinstance(error, (DataError, ConfigError)):
                text = str(error).replace(str(aside / name), shorten(url))
                raise type(error)(text) from None
            raise
        remove(folder)  # an earlier output that could not be sent; this one takes its place
    try:
        _send(folder / name, url)
    except LitebertError as error:
        reason = str(error).partition(";")[0]
        raise DataError(
            f"{reason}; the whole output is in {folder}, so send {name} to {shorten(url)} yourself"
        ) from None
    remove(folder)


def _send(path: Path, url: str) -> None:
    beside = sorted(file for file in path.parent.iterdir() if file != path)
    if beside:  # such as a scale: with it, an old file would hold other numbers
        stores.delete(url)
    base, mark, query = url.partition("?")
    stem = base.removesuffix(path.suffix)
    for file in beside:
        rest = file.name.removeprefix(_STEM)
        stores.write_file(f"{stem}{rest}{mark}{query}", file)
    stores.write_file(url, path)


def _send_interrupted(path: Path, url: str) -> None:
    """Send what interrupted work has written. A refusal does not hide why the work ended."""
    if not path.exists():
        return
    try:
        _send(path, url)
    except LitebertError as error:
        log.warning(f"the rows so far are lost, because {error}")
    else:
        log.warning(f"saved the rows so far to {shorten(url)}")


def check_output_file(out: str | Path) -> None:
    """Refuse a name that no file can be written to, before anything is computed for it."""
    url = as_url(out)
    if url is None:
        check_output(Path(out))
        return
    place = url.partition("://")[2]
    if "/" not in place.rstrip("/") or place.endswith("/"):
        raise ConfigError(f"cannot write {shorten(url)}; give --out a file in a store")
    stores.require_bucket(url)
