"""Stores of files, spoken to through `fsspec`. Where a network or a server fails, an operation is
repeated with growing pauses, and ends after half a minute with a sentence. The retries of other
libraries are off where they can be, so that pauses do not multiply.
"""

from __future__ import annotations

import errno
import logging
import random
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from litebert.base.errors import DataError, LitebertError, MissingExtraError
from litebert.remote.names import get_scheme, hide_secrets, shorten

log = logging.getLogger("litebert")

T = TypeVar("T")

PAUSES: tuple[float, ...] = (0.5, 1, 2, 4, 8, 16)
"""Seconds between two tries of an operation."""
_MARKS = ("ETag", "etag", "md5Hash", "content_md5", "blob_id", "LastModified", "last_modified")
_TIMES = ("mtime", "updated", "created")
"""The fields of a file's description, in different stores, that change with its content."""
_LASTING = (ValueError, TypeError, ImportError, NotImplementedError, PermissionError)
"""Errors that another try would repeat."""


@dataclass(frozen=True)
class Entry:
    """A file or a folder in a store."""

    url: str
    size: int
    mark: str
    """Changes with the content of a file; "" where the store tells nothing of the kind."""
    is_folder: bool = False


# ------------------------------------------------------------------------------------ operations


def look(url: str) -> Entry | None:
    """Describe what a URL names; None where there is nothing."""

    def act(files: Any, path: str) -> Entry | None:
        files.invalidate_cache()
        return _make_entry(url, files.info(path))

    return _repeat(url, act, must_exist=False)


def look_at_file(url: str) -> Entry:
    """Describe a file that must exist."""
    entry = look(url)
    if entry is None or entry.is_folder:
        raise make_absence_error(url)
    return entry


def list_below(url: str) -> list[Entry]:
    """Describe all files below a folder, sorted by name; none where there is no folder."""

    def act(files: Any, path: str) -> list[Entry]:
        files.invalidate_cache()
        infos = files.find(path, detail=True)
        # Consoles of stores make a folder by an empty file, whose name ends in a slash.
        folder = path.rstrip("/")
        infos = {
            name: info for name, info in infos.items() if not name.endswith("/") and name != folder
        }
        # The order is that of local folders, which sort by the parts of paths.
        return _make_entries(files, url, infos, lambda path: path.split("/"))

    return _repeat(url, act, must_exist=False) or []


def list_matches(pattern: str) -> list[Entry]:
    """Describe all files and folders that match a pattern of `*`, `?`, `[a-z]` and `**`, sorted."""

    def act(files: Any, path: str) -> list[Entry]:
        files.invalidate_cache()
        return _make_entries(files, pattern, files.glob(path, detail=True))

    return _repeat(pattern, act, must_exist=False) or []


def read_range(url: str, start: int, end: int, stopped: threading.Event | None = None) -> bytes:
    """Read the bytes of a file from `start` to `end`, which it must have. A body that ends early is
    continued where it ended, until `stopped` is set.
    """
    content = b""
    while len(content) < end - start:
        first = start + len(content)

        def act(files: Any, path: str, first: int = first) -> bytes:
            body: bytes = files.cat_file(path, start=first, end=end)
            if not body:
                raise EOFError(f"no bytes from {first:,} on arrived")
            return body

        body = _repeat(url, act, stopped)
        if len(body) > end - first:
            raise DataError(
                f"{shorten(url)} cannot be read in parts, for its server sends all at once; fetch "
                "the file first"
            )
        content += body
    return content


def read_file(url: str) -> bytes:
    return read_range(url, 0, look_at_file(url).size)


def write_file(url: str, content: bytes | Path) -> None:
    """Write a file, whole: bytes, or a copy of a local file."""
    size = content.stat().st_size if isinstance(content, Path) else len(content)

    def act(files: Any, path: str) -> None:
        if isinstance(content, Path):
            files.put_file(str(content), path)
        else:
            files.pipe_file(path, content)
        files.invalidate_cache()
        if (written := files.info(path)["size"]) != size:
            raise EOFError(f"{written:,} of {size:,} bytes arrived")

    _repeat(url, act)


def delete(url: str) -> None:
    """Delete a file, where there is one."""

    def act(files: Any, path: str) -> None:
        files.invalidate_cache()
        files.rm_file(path)

    _repeat(url, act, must_exist=False)


def require_bucket(url: str) -> None:
    """Refuse a URL whose bucket does not exist, before anything is computed for it. Only S3 is
    asked, once. It may give no clear answer: some may write into a bucket and not look at it.
    """
    files, path = _open_store(url)
    if get_scheme(url) not in ("s3", "s3a"):
        return
    try:
        files.call_s3("head_bucket", Bucket=files.split_path(path)[0])
    except FileNotFoundError:
        raise DataError(
            f"{shorten(url)} cannot be written, for its bucket does not exist; make the bucket, or "
            "give another one"
        ) from None
    except Exception as error:  # every store has errors of its own
        log.debug(f"the bucket of {shorten(url)} was not seen: {_describe(url, error)}")


def make_absence_error(url: str) -> DataError:
    return DataError(f"{shorten(url)} does not exist; check the bucket and the name")


# ----------------------------------------------------------------------------------- `fsspec`


def _open_store(url: str) -> tuple[Any, str]:
    scheme = get_scheme(url)
    if scheme in ("file", "local"):
        raise DataError(f"{url} is a file or folder here; give its path without {scheme}://")
    try:
        from fsspec.config import conf
        from fsspec.core import url_to_fs
    except ImportError:
        raise MissingExtraError("fsspec", "remote") from None
    options: dict[str, Any] = {}
    if scheme in ("s3", "s3a"):
        settings = conf.get("s3", {}).get("config_kwargs", {})
        options["config_kwargs"] = {"retries": {"total_max_attempts": 1}, **settings}
    try:
        files, path = url_to_fs(url, **options)
    except ImportError as error:
        if scheme in ("s3", "s3a"):
            raise MissingExtraError("s3fs", "remote") from None
        reason = hide_secrets(str(error)).rstrip(".")
        raise DataError(f"{scheme}:// needs another library ({reason}); install it") from None
    except Exception as error:  # every store has errors of its own
        raise _make_error(url, error) from None
    if isinstance(getattr(type(files), "retries", None), int):
        files.retries = 1
    return files, path


def _make_entry(url: str, info: Mapping[str, Any]) -> Entry:
    if info["type"] == "directory":
        return Entry(url, 0, "", is_folder=True)
    if info.get("size") is None:
        raise DataError(
            f"the server of {shorten(url)} does not tell the length of the file; fetch it first"
        )
    mark = next((str(info[key]) for key in (*_MARKS, *_TIMES) if info.get(key)), "")
    return Entry(url, int(info["size"]), mark)


def _make_entries(
    files: Any, url: str, infos: Mapping[str, Any], key: Callable[[str], Any] | None = None
) -> list[Entry]:
    scheme = get_scheme(url)
    return [
        _make_entry(f"{scheme}://{files.unstrip_protocol(path).partition('://')[2]}", infos[path])
        for path in sorted(infos, key=key)
    ]


# ------------------------------------------------------------------------------------- retries


def _repeat(
    url: str,
    act: Callable[[Any, str], T],
    stopped: threading.Event | None = None,
    must_exist: bool = True,
) -> T:
    """Try an operation until it succeeds, fails in a way that lasts, or `stopped` is set. Without
    `must_exist`, a file or a bucket that does not exist gives None.
    """
    files, path = _open_store(url)
    for number in range(len(PAUSES) + 1):
        try:
            return act(files, path)
        except LitebertError:
            raise
        except Exception as raised:  # every store has errors of its own
            error = _find_cause(raised)
            if isinstance(error, (FileNotFoundError, NotADirectoryError)):
                if must_exist:
                    raise make_absence_error(url) from None
                return cast("T", None)
            if number == len(PAUSES) or is_lasting(error):
                failure = _make_error(url, error)
                failure.is_of_store = True
                raise failure from None
            log.debug(f"{shorten(url)} is tried again: {_describe(url, error)}")
        pause = PAUSES[number] * random.uniform(0.75, 1.25)
        if (stopped or threading.Event()).wait(pause):
            break
    raise DataError(f"{shorten(url)} is no longer read")


def _find_cause(error: Exception) -> Exception:
    """Return the error of the network where `fsspec` says that a web page does not exist."""
    cause = error.__cause__
    is_network = type(cause).__module__.startswith("aiohttp")
    if (
        isinstance(cause, Exception)
        and is_network
        and getattr(cause, "status", 0) not in (404, 410)
    ):
        return cause
    return error


def _needs_credentials(error: BaseException) -> bool:
    return re.search("Credential|Authentication|ProfileNotFound", type(error).__name__) is not None


def is_lasting(error: BaseException) -> bool:
    return (
        (isinstance(error, OSError) and error.errno in (errno.EINVAL, errno.ENOSYS))
        or getattr(error, "status", 0) in (400, 401, 403, 405, 410)
        or "Validation" in type(error).__name__
        or isinstance(error, _LASTING)
        or _needs_credentials(error)
    )


def _make_error(url: str, error: Exception) -> DataError:
    label, reason = shorten(url), _describe(url, error)
    if _needs_credentials(error):
        return DataError(
            f"{label} needs credentials ({reason}); give them as the store's library reads them, "
            "such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if isinstance(error, PermissionError) or getattr(error, "status", 0) in (401, 403):
        return DataError(
            f"{label} is refused ({reason}); check the credentials, and what they may do"
        )
    if is_lasting(error):
        return DataError(f"{label} cannot be used ({reason}); check the name")
    tries = len(PAUSES) + 1
    return DataError(
        f"{label} cannot be reached after {tries} tries ({reason}); check the network and the "
        "store, then give the same command again"
    )


def _describe(url: str, error: BaseException) -> str:
    lines = hide_secrets(str(error), url).strip().split("\n")
    text = " ".join(" ".join(lines[: 1 + lines[0].endswith(":")]).split())[:120].rstrip(".")
    return text or type(error).__name__
