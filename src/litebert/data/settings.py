"""The settings of a set of shards: its sources, how they are read, and what is dropped.

The settings and the tokenizer are the identity of a set. A folder, a part and a journal keep them,
and refuse to continue with others.
"""

from __future__ import annotations

import hashlib
import inspect
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.data.contamination import HELDOUT, check_texts
from litebert.errors import DataError, nearest
from litebert.registry import SOURCES
from litebert.remote.names import shorten
from litebert.remote.reading import describe
from litebert.storage import sha256_of
from litebert.text.files import expand, is_remote
from litebert.text.filters import FILTERS
from litebert.text.languages import check_languages
from litebert.text.lines import STANDARD_INPUT, find_suffix
from litebert.text.sentences import check_language
from litebert.text.sources import DocumentSplit, Markup, Reading
from litebert.tokenizer import Tokenizer


@dataclass(frozen=True)
class ShardSettings:
    """The settings of a set. `prepare` (prepare.py) says what each one means.

    Raises:
        DataError: a setting is out of range, or has no meaning.
    """

    sources: Sequence[str]
    text_column: str = "text"
    split: DocumentSplit = "blank-line"
    language: str = "en"
    encoding: str = "utf-8"
    encodings: Mapping[str, str] | None = None
    unwrap: bool = False
    markup: Markup = "keep"
    heldout: float = 0.01
    shard_bytes: int = 32 << 20
    near_duplicates: float = 0.0
    filters: Sequence[str] = ()
    keep_languages: Sequence[str] = ()
    check_against: Sequence[str] = ()
    out: str | Path = ""
    """Where the set is written, which is no source where it lies in one."""

    def __post_init__(self) -> None:
        if not 0 <= self.heldout < 1:
            raise DataError(
                f"heldout is {self.heldout}; give the share of the documents to hold out, from 0 "
                "to below 1"
            )
        if self.shard_bytes < 1:
            raise DataError(f"shard_bytes is {self.shard_bytes}; give 1 or more")
        if self.near_duplicates and not 0.5 <= self.near_duplicates <= 1:
            raise DataError(
                f"near_duplicates is {self.near_duplicates}; give the smallest similarity of "
                "documents to drop, from 0.5 to 1, or 0 for none"
            )
        for name in self.filters:
            if name not in FILTERS:
                raise DataError(f"there is no filter '{name}'; {nearest(name, FILTERS)}")
        if self.keep_languages:
            check_languages(self.keep_languages)
        for name in self.check_against:
            check_texts(name)
        check_language(self.language)
        self.make_reading()

    @property
    def needs_parts(self) -> bool:
        """True where documents are dropped in a part, or compared when it is merged."""
        return bool(self.near_duplicates or self.filters or self.keep_languages)

    def make_reading(self) -> Reading:
        """Make a reading of the sources, which counts what it reads."""
        return Reading(
            self.text_column,
            self.split,
            self.encoding,
            self.encodings or {},
            self.unwrap,
            self.markup,
            out=self.out,
        )

    def list_files(self) -> list[str]:
        """Return the names of all files of the sources, in order."""
        return expand(self.sources, html=self.markup == "strip", out=self.out)

    def make_header(self, tokenizer: Tokenizer) -> dict[str, Any]:
        """Return the settings and the tokenizer, which decide the content of a folder."""
        settings: dict[str, Any] = {
            "sources": [shorten(source) for source in self.sources],
            "files": _digest_files(self.list_files()),
            "text_field": self.text_column,
            "split": self.split,
            "language": self.language,
            "encoding": self.encoding,
            "encodings": dict(self.encodings or {}),
            "unwrap": self.unwrap,
            "markup": self.markup,
            "heldout": self.heldout,
            "shard_bytes": self.shard_bytes,
        }
        # A later setting is left out where it is off, so that older folders stay the same.
        if self.near_duplicates:
            settings["near_duplicates"] = self.near_duplicates
        if self.filters:
            settings["filters"] = [name for name in FILTERS if name in self.filters]
        if self.keep_languages:
            settings["keep_languages"] = sorted(set(self.keep_languages))
        if self.check_against:
            # With their digests: other texts under an old name are other work.
            settings["check_against"] = {
                name: None if name == HELDOUT else sha256_of(Path(name))
                for name in self.check_against
            }
        return {
            "settings": settings,
            "tokenizer": {
                "kind": tokenizer.kind,
                "vocab_size": tokenizer.vocab_size,
                "fingerprint": tokenizer.fingerprint,
            },
        }


def _digest_files(names: Sequence[str]) -> str:
    """Return a digest of names, sizes, and times or the marks of a store. While it is the same, so
    is the text.

    It is never the same for standard input and pipes. A source of the user's own counts by the code
    of its reader. The built-in corpus counts by the version of Python, a set of the `datasets`
    library by its name alone.
    """
    digest = hashlib.sha256()
    for name in names:
        path, state = Path(name), f"{sys.version}{_read_reader_code(name)}"
        if is_remote(name):
            entry = describe(name)
            state = f"{entry.size} {entry.mark or secrets.token_hex()}"
        elif path.is_file():
            state = f"{path.stat().st_size} {path.stat().st_mtime_ns}{_read_reader_code(name)}"
        elif name == STANDARD_INPUT or path.exists():
            state = secrets.token_hex()
        digest.update(f"{shorten(name)}\0{state}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _read_reader_code(name: str) -> str:
    """Return the code that reads a source of the user's own; "" for a source of litebert."""
    for key in (name.partition(":")[0] + ":", name, find_suffix(name)):
        if key in SOURCES and not SOURCES[key].__module__.startswith("litebert."):
            try:
                return inspect.getsource(SOURCES[key])
            except (OSError, TypeError):  # a function typed into a session has no source
                return ""
    return ""
