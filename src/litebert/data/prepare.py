"""`litebert prepare`: text to token shards, in constant memory, over several processes, resumable.

One process reads and deals (dealing.py), the others encode (encoding.py). The same command reads
the text again, which is cheap, but encodes only what is missing.
"""

from __future__ import annotations

import hashlib
import inspect
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from litebert.base import storage
from litebert.base.errors import DataError, nearest
from litebert.base.machine import count_cores
from litebert.base.registry import SOURCES
from litebert.data import shards as disk
from litebert.data.building import (
    Journal,
    check_folder,
    check_same,
    finish_set,
    reporting_writes,
    write_shards,
)
from litebert.data.contamination import HELDOUT, check_texts
from litebert.data.dealing import Dealer, Hashed, Key, hash_documents
from litebert.data.encoding import Encoded, encode, encode_all, encode_with_texts
from litebert.data.filtering import FilteredEncoding
from litebert.data.part_shards import merge_shards
from litebert.data.shards import Shards, has_index
from litebert.data.summary import warn
from litebert.parts import (
    BEGUN,
    MARKER,
    Part,
    find_parts,
    finish_part,
    is_finished,
    lock_part,
    make_identity,
)
from litebert.parts.finished import read_parts
from litebert.remote.names import is_url, join, shorten
from litebert.remote.reading import describe
from litebert.remote.target import open_target
from litebert.text.files import expand, is_remote
from litebert.text.filters import FILTERS
from litebert.text.languages import check_languages
from litebert.text.lines import STANDARD_INPUT, find_suffix
from litebert.text.sentences import check_language
from litebert.text.sources import DocumentSplit, Markup, Reading, read_documents
from litebert.text.tally import Tally
from litebert.tokenizer import Tokenizer

MOST_PROCESSES = 8
"""Processes by default, at most. With more, the one reader is the limit, and only memory grows."""


@dataclass(frozen=True)
class PrepareConfig:
    """How `prepare` reads text, and what it drops and holds out.

    With the sources and the tokenizer it is the identity of a set. A folder, a part and a journal
    keep it, and refuse to continue with another one.
    """

    text_column: str = "text"
    """The column or field of rows that holds the text."""
    split: DocumentSplit = "blank-line"
    """Where a document of plain text ends."""
    language: str = "en"
    """Decides where sentences end (text/sentences.py)."""
    encoding: str = "utf-8"
    """Of all files for which `encodings` names no other one."""
    encodings: Mapping[str, str] | None = None
    """Encodings of the files that match a pattern, by pattern."""
    unwrap: bool = False
    """Join the lines of each paragraph."""
    markup: Markup = "keep"
    """`strip` takes the text out of web pages and Markdown."""
    heldout: float = 0.01
    """Share of the documents held out, by the hash of their text. Above 0, a corpus of less than
    8 MB holds out more, about 5% of its text up to 64 KB.
    """
    shard_bytes: int = 32 << 20
    """Bytes of text per shard; memory grows with it."""
    near_duplicates: float = 0.0
    """Drop documents at least so similar to an earlier one, from 0.5 to 1."""
    filters: Sequence[str] = ()
    """Drop documents by the rules of `c4`, `gopher` and `fineweb` (text/filters.py)."""
    keep_languages: Sequence[str] = ()
    """Drop documents in other languages; ISO 639-1 codes."""
    check_against: Sequence[str] = ()
    """Files, or "heldout", whose texts the documents to train on may hold."""

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
    def is_filtered(self) -> bool:
        return bool(self.filters or self.keep_languages)

    def make_reading(self, out: str | Path = "") -> Reading:
        """Make a reading, which counts what it reads. Files in `out` are no sources."""
        return Reading(
            self.text_column,
            self.split,
            self.encoding,
            self.encodings or {},
            self.unwrap,
            self.markup,
            out=out,
        )


def prepare(
    sources: Sequence[str],
    out: str | Path,
    *,
    tokenizer: str | Path,
    processes: int = 0,
    config: PrepareConfig | None = None,
) -> Shards:
    """Turn `sources` (text/sources.py) into the shard folder or URL `out`, or continue it.

    Args:
        tokenizer: a folder or file that `Tokenizer.load` opens.
        processes: those that encode, next to the one that reads; 0 for one per core, at most 8.
        config: how text is read, and what is dropped and held out.

    Raises:
        DataError: text, tokenizer or folder cannot be used, or the disk is full; shards stay.
    """
    config = config or PrepareConfig()
    # A set whose documents are dropped in a part, or compared by `merge`, is one part.
    part = Part(1, 1) if config.near_duplicates or config.is_filtered else None
    corpus = TextCorpus(sources, out, config, Tokenizer.load(tokenizer), processes, part)
    if part is None:
        return finish_set(out, corpus)
    if has_index(out):
        finished = Shards.open(out)
        check_same(finished.name, finished.index, corpus.header)
        if finished.index["settings"]["files"] == corpus.header["settings"]["files"]:
            _remove_part(join(find_parts(out), part.name))  # of a process killed at the end
            warn(finished.index)
            return finished
    else:
        target = open_target(out)
        with target.open() as local, reporting_writes(local):
            check_folder(target)
    folder = _write_part(part, out, corpus)
    shards = merge_shards(out, read_parts(out))
    _remove_part(folder)
    return shards


def prepare_part(
    part: str | Part,
    sources: Sequence[str],
    out: str | Path,
    *,
    tokenizer: str | Path,
    processes: int = 0,
    config: PrepareConfig | None = None,
) -> str | Path:
    """Prepare one part of `sources`, `i/n`, on any machine, for `merge` to make the set `out` of.

    All parts take equal arguments, those of `prepare`. The same call again continues an unfinished
    part, or returns at once.

    Returns:
        The folder of the part, in `out`.parts; its URL where `out` is one.

    Raises:
        ConfigError: the part is none, a source can be read only once, or the folder holds the same
            part of other work.
        DataError: as in `prepare`.
    """
    part = Part.parse(part) if isinstance(part, str) else part
    config = config or PrepareConfig()
    corpus = TextCorpus(sources, out, config, Tokenizer.load(tokenizer), processes, part)
    return _write_part(part, out, corpus)


def _write_part(part: Part, out: str | Path, corpus: TextCorpus) -> str | Path:
    recorded = {name: value for name, value in corpus.header["settings"].items() if name != "files"}
    identity = make_identity("prepare", recorded, corpus.tokenizer.fingerprint, corpus.files)
    with lock_part(out, part, identity) as target, reporting_writes(target.folder):
        folder = target.folder
        if not is_finished(folder):
            corpus.save_tokenizer(folder)
            journal = Journal(target, corpus.header)
            shard_bytes = corpus.header["settings"]["shard_bytes"]
            dealer: Dealer[str] = Dealer(None, shard_bytes, journal.finished, folder)
            for _ in write_shards(folder, corpus.header, journal, dealer, corpus):
                pass
            infos = sorted(journal.finished.values(), key=lambda info: (len(info.file), info.file))
            finish_part(
                folder,
                part,
                identity,
                files={info.file: {"bytes": info.bytes, "sha256": info.sha256} for info in infos},
                header=corpus.header,
                shards=[asdict(info) for info in infos],
                documents={"kept": dealer.distinct, "duplicates": dealer.duplicates},
                tally=corpus.tally.to_state(),
            )
            target.finish(MARKER)
            target.delete(BEGUN)
        target.delete(Journal.NAME)
    name = join(find_parts(out), part.name)
    return name if is_url(name) else Path(name)


def _remove_part(folder: str | Path) -> None:
    open_target(folder).remove()
    if not is_url(folder):
        with suppress(OSError):  # other parts lie there, or there is no folder
            Path(folder).parent.rmdir()


class TextCorpus:
    def __init__(
        self,
        sources: Sequence[str],
        out: str | Path,
        config: PrepareConfig,
        tokenizer: Tokenizer,
        processes: int,
        part: Part | None = None,
    ) -> None:
        if processes < 0:
            raise DataError(
                f"processes is {processes}; give how many to use, or 0 for one per core"
            )
        self.tokenizer = tokenizer
        self._sources, self._out, self._config, self._part = sources, out, config, part
        self._reading = config.make_reading(out)
        self._processes = processes or min(count_cores(), MOST_PROCESSES)
        self.duplicates, self.dropped = 0, dict[str, Any]()

    @property
    def tally(self) -> Tally:
        return self._reading.tally

    @cached_property
    def files(self) -> list[str]:
        return expand(self._sources, html=self._config.markup == "strip", out=self._out)

    @cached_property
    def header(self) -> dict[str, Any]:
        config = self._config
        # While the digest is the same, so is the text. It is never the same for standard input and
        # pipes. A source of the user's own counts by the code of its reader. The built-in corpus
        # counts by the version of Python, a set of the `datasets` library by its name alone.
        digest = hashlib.sha256()
        for name in self.files:
            path, state = Path(name), f"{sys.version}{_read_reader_code(name)}"
            if is_remote(name):
                entry = describe(name)
                state = f"{entry.size} {entry.mark or secrets.token_hex()}"
            elif path.is_file():
                state = f"{path.stat().st_size} {path.stat().st_mtime_ns}{_read_reader_code(name)}"
            elif name == STANDARD_INPUT or path.exists():
                state = secrets.token_hex()
            digest.update(f"{shorten(name)}\0{state}\0".encode("utf-8", "surrogatepass"))
        settings: dict[str, Any] = {
            "sources": [shorten(source) for source in self._sources],
            "files": digest.hexdigest(),
            "text_field": config.text_column,
            "split": config.split,
            "language": config.language,
            "encoding": config.encoding,
            "encodings": dict(config.encodings or {}),
            "unwrap": config.unwrap,
            "markup": config.markup,
            "heldout": config.heldout,
            "shard_bytes": config.shard_bytes,
        }
        later: dict[str, Any] = {
            "near_duplicates": config.near_duplicates,
            "filters": [name for name in FILTERS if name in config.filters],
            "keep_languages": sorted(set(config.keep_languages)),
            # With their digests: other texts under an old name are other work.
            "check_against": {
                name: None if name == HELDOUT else storage.sha256_of(Path(name))
                for name in config.check_against
            },
        }
        # These are left out where they are off, so that older folders stay the same.
        settings |= {name: value for name, value in later.items() if value}
        tokenizer = self.tokenizer
        return {
            "settings": settings,
            "tokenizer": {
                "kind": tokenizer.kind,
                "vocab_size": tokenizer.vocab_size,
                "fingerprint": tokenizer.fingerprint,
            },
        }

    def read(self) -> Iterator[Hashed[str]]:
        return hash_documents(read_documents(self._sources, self._reading, self._part))

    def encode(
        self, chunks: Iterable[tuple[Key, list[str]]], tokenizer: Path
    ) -> Iterator[tuple[Key, Encoded]]:
        config, encode_chunk = self._config, encode
        if self._part is not None:
            encode_chunk = encode_with_texts
            if config.is_filtered:
                filters, languages = tuple(config.filters), tuple(config.keep_languages)
                encode_chunk = FilteredEncoding(filters, languages).encode
        return encode_all(chunks, tokenizer, config.language, self._processes, encode_chunk)

    def save_tokenizer(self, folder: Path) -> None:
        target = folder / disk.TOKENIZER
        if target.exists() and Tokenizer.load(target).fingerprint != self.tokenizer.fingerprint:
            storage.remove(target)  # the command was corrected before it finished a shard
        if not target.exists():
            with storage.write_whole(target) as unfinished:
                self.tokenizer.save(unfinished)


def _read_reader_code(name: str) -> str:
    for key in (name.partition(":")[0] + ":", name, find_suffix(name)):
        if key in SOURCES and not SOURCES[key].__module__.startswith("litebert."):
            with suppress(OSError, TypeError):  # a function typed into a session has no source
                return inspect.getsource(SOURCES[key])
            return ""
    return ""
