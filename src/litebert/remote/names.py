"""Names of files and folders that may be URLs of stores."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from litebert.base.errors import require

_URL = re.compile(r"([a-z][a-z0-9+.-]+):(//|/(?=[^/]))", re.IGNORECASE)
_PASSWORD = re.compile(r"(?<=://)[^/@]*:[^@]*@")
_QUERY = re.compile(r"\?[^/]*=.*$")
_ANYWHERE = re.compile(r"[a-z][a-z0-9+.-]+://[^\s'\"]+", re.IGNORECASE)


def as_url(name: str | Path) -> str | None:
    """Return the URL that a name is, or None. A `Path` made of a URL gets its lost slash back."""
    match = _URL.match(str(name))
    if match is None or (match[2] == "/" and not isinstance(name, Path)):
        return None
    return f"{match[1].lower()}://{str(name)[match.end() :]}"


def is_url(name: str | Path) -> bool:
    return as_url(name) is not None


def require_local(name: str | Path, *, any_bytes: bool = False) -> None:
    """Refuse a name in a store and, without `any_bytes`, one that not all libraries can open."""
    text = str(name).encode("utf-8", "backslashreplace").decode()
    require(
        not is_url(name),
        f"{shorten(name)} is in a store, and this must be a file or a folder of this machine; give "
        "one, and copy it from or to the store",
    )
    require(
        any_bytes or text == str(name),
        f"the name {text} is not UTF-8, so not every library can open it; give another name",
    )


def get_scheme(url: str) -> str:
    return url.partition("://")[0]


def shorten(name: str | Path) -> str:
    """Return a name for messages and records: a URL without password, and without the query, which
    may be a signature.
    """
    url = as_url(name)
    return str(name) if url is None else _QUERY.sub("?...", _PASSWORD.sub("...@", url))


def suggest(name: str | Path, suffix: str) -> str:
    """Return a name with another suffix, for a message that asks for it."""
    text = shorten(name)
    folder, _, last = text.rpartition("/")
    stem = last.rpartition(".")[0].strip(".") or last.strip(".") or "answers"
    return f"{folder}/{stem}{suffix}" if folder else stem + suffix


def hide_secrets(text: str, url: str = "") -> str:
    """Return a text with the URLs in it as messages show them, and without the secrets of `url`."""
    for pattern in (_PASSWORD, _QUERY):
        for match in pattern.finditer(url):
            text = text.replace(match[0], "...").replace(match[0].rstrip("@"), "...")
    return _ANYWHERE.sub(lambda match: shorten(match[0]), text)


def join(folder: str | Path, name: str) -> str:
    url = as_url(folder)
    return str(Path(folder, name)) if url is None else f"{url.rstrip('/')}/{name}"


def path_of(name: str | Path) -> PurePosixPath | Path:
    """Return the path in a name, whose suffix tells what the file holds; without a query."""
    url = as_url(name)
    return Path(name) if url is None else PurePosixPath(_QUERY.sub("", url))
