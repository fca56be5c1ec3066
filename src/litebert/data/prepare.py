"""`litebert prepare`: text to token shards, in constant memory, over several processes, resumable.

One process reads the sources. It drops exact duplicates, deals documents to the splits by the hash
of their text, and cuts each split into shards of about `shard_bytes` of text (dealing.py). The
other processes encode (workers.py).

A journal lists the finished shards with their checksums. The same command reads the text again,
which is cheap, but encodes only what is missing. A checksum of the text of each finished shard
proves that the sources are the same.
"""

from __future__ import annotations

import hashlib
import inspect
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from litebert import storage
from litebert.data import shards as disk
from litebert.data.building import finish_set, reporting_writes, write_shards
from litebert.data.dealing import Dealer, Hashed, Key, hash_documents, make_other_text_error
from litebert.data.encoding import Encode, Encoded, encode, encode_with_texts
from litebert.data.journal import Journal, check_folder, check_same
from litebert.data.part_shards import merge_shards
from litebert.data.shards import ShardInfo, Shards
from litebert.data.summary import warn
from litebert.data.workers import encode_all
from litebert.errors import DataError
from litebert.machine import count_cores
from litebert.parts import (
    Part,
    find_parts,
    finish_part,
    is_finished,
    lock_part,
    make_identity,
    read_marker,
    read_parts,
)
from litebert.registry import SOURCES
from litebert.text.files import expand
from litebert.text.lines import STANDARD_INPUT, find_suffix
from litebert.text.sentences import check_language
from litebert.text.sources import DocumentSplit, Markup, Reading, read_documents
from litebert.text.tally import Tally
from litebert.tokenizer import Tokenizer

MOST_PROCESSES = 8
"""Largest number of processes by default. With more, the one reader is the limit, and only memory
grows.
"""


def prepare(
    sources: Sequence[str],
    out: str | Path,
    *,
    tokenizer: str | Path,
    text_column: str = "text",
    split: DocumentSplit = "blank-line",
    language: str = "en",
    encoding: str = "utf-8",
    encodings: Mapping[str, str] | None = None,
    unwrap: bool = False,
    markup: Markup = "keep",
    heldout: float = 0.01,
    processes: int = 0,
    shard_bytes: int = 32 << 20,
    near_duplicates: float = 0.0,
) -> Shards:
    """Turn `sources` (text/sources.py) into the shard folder `out`.

    The same call again continues an unfinished folder, or returns a finished one.

    Args:
        tokenizer: a folder or file that `Tokenizer.load` opens.
        encodings: encodings of the files that match a pattern, by pattern; `encoding` is for
            all others.
        unwrap: join the lines of each paragraph of plain text.
        markup: `strip` takes the text out of web pages and Markdown, `keep` reads them as plain
            text.
        heldout: share of the documents held out, by the hash of their text. Above 0, a corpus of
            less than 8 MB with two documents or more holds out at least one. It holds out about
            5 % of its text up to 64 KB, and never all of it.
        processes: number of processes that encode, in addition to the one that reads; 0 for one per
            core, at most 8.
        shard_bytes: bytes of text per shard; memory grows with it.
        near_duplicates: drop documents that resemble an earlier one at least so much: the Jaccard
            similarity of their runs of five tokens, from 0.5 to 1; 0 drops exact duplicates only.

    Raises:
        DataError: the text, the tokenizer or the folder cannot be used, or the disk is full.
            Finished shards stay.
    """
    _check_numbers(heldout, processes, shard_bytes, near_duplicates)
    check_language(language)
    folder = Path(out)
    loaded = Tokenizer.load(tokenizer)
    reading = Reading(text_column, split, encoding, encodings or {}, unwrap, markup)
    header = _make_header(sources, loaded, reading, language, heldout, shard_bytes, near_duplicates)
    if near_duplicates:
        return _prepare_distinct(folder, loaded, reading, header, processes)
    corpus = _TextCorpus(sources, reading, language, processes)
    return finish_set(folder, header, corpus, lambda: _save_tokenizer(loaded, folder))


def prepare_part(
    part: str | Part,
    sources: Sequence[str],
    out: str | Path,
    *,
    tokenizer: str | Path,
    text_column: str = "text",
    split: DocumentSplit = "blank-line",
    language: str = "en",
    encoding: str = "utf-8",
    encodings: Mapping[str, str] | None = None,
    unwrap: bool = False,
    markup: Markup = "keep",
    heldout: float = 0.01,
    processes: int = 0,
    shard_bytes: int = 32 << 20,
    near_duplicates: float = 0.0,
) -> Path:
    """Prepare one part of `sources`, `i/n`, on any machine, for `merge` to make the set `out` of.

    All parts take equal arguments, which `prepare` explains. The same call again continues an
    unfinished part, or returns at once.

    Returns:
        The folder of the part, in `out`.parts.

    Raises:
        ConfigError: the part is none, a source can be read only once, or the folder holds the same
            part of other work.
        DataError: as in `prepare`.
    """
    _check_numbers(heldout, processes, shard_bytes, near_duplicates)
    check_language(language)
    chosen = Part.parse(part) if isinstance(part, str) else part
    loaded = Tokenizer.load(tokenizer)
    reading = Reading(text_column, split, encoding, encodings or {}, unwrap, markup)
    header = _make_header(sources, loaded, reading, language, heldout, shard_bytes, near_duplicates)
    return _finish_part(chosen, Path(out), loaded, reading, header, processes)


def _finish_part(
    part: Part,
    out: Path,
    tokenizer: Tokenizer,
    reading: Reading,
    header: dict[str, Any],
    processes: int,
) -> Path:
    """Write what is missing of a part, and return its folder."""
    sources, language = header["settings"]["sources"], header["settings"]["language"]
    names = expand(sources, html=reading.markup == "strip")
    settings = {name: value for name, value in header["settings"].items() if name != "files"}
    identity = make_identity("prepare", settings, tokenizer.fingerprint, names)
    corpus = _TextCorpus(sources, reading, language, processes, part, encode_with_texts)
    with lock_part(out, part, identity) as folder, reporting_writes(folder):
        if is_finished(folder):
            _check_part(folder, header, corpus)
        else:
            _save_tokenizer(tokenizer, folder)
            _write_part(folder, part, identity, header, corpus)
        storage.remove(folder / Journal.NAME)
    return folder


def _prepare_distinct(
    out: Path, tokenizer: Tokenizer, reading: Reading, header: dict[str, Any], processes: int
) -> Shards:
    """Prepare a set without near-duplicates: as one part, whose documents `merge` compares."""
    if (out / disk.INDEX).exists():
        index, _ = disk.read_index(out)
        check_same(out, index, header)
        if index["settings"]["files"] == header["settings"]["files"]:
            _remove_part(find_parts(out) / Part(1, 1).name)  # of a process killed at the end
            warn(index)
            return Shards.open(out)
    else:
        with reporting_writes(out):
            check_folder(out)
    folder = _finish_part(Part(1, 1), out, tokenizer, reading, header, processes)
    shards = merge_shards(out, read_parts(out))
    _remove_part(folder)
    return shards


def _remove_part(folder: Path) -> None:
    """Remove a part that is merged, and the folder of parts, if it is empty then."""
    storage.remove(folder)
    with suppress(OSError):  # other parts lie there, or there is no folder
        folder.parent.rmdir()


def _write_part(
    folder: Path, part: Part, identity: dict[str, Any], header: dict[str, Any], corpus: _TextCorpus
) -> None:
    """Write the files of a part that are missing, and then its marker."""
    journal = Journal(folder, header)
    dealer: Dealer[str] = Dealer(None, header["settings"]["shard_bytes"], journal.finished, folder)
    for _ in write_shards(folder, header, journal, dealer, corpus):
        pass
    infos = sorted(journal.finished.values(), key=lambda info: (len(info.file), info.file))
    finish_part(
        folder,
        part,
        identity,
        files=[info.file for info in infos],
        header=header,
        shards=[asdict(info) for info in infos],
        documents={"kept": dealer.distinct, "duplicates": dealer.duplicates},
        tally=corpus.tally.to_state(),
    )


def _check_part(folder: Path, header: dict[str, Any], corpus: _TextCorpus) -> None:
    """Check that the sources still hold the text of a finished part, where their times differ.

    Raises:
        DataError: they hold other text.
    """
    marker, settings = read_marker(folder), header["settings"]
    if marker["header"]["settings"]["files"] == settings["files"]:
        return
    infos = [ShardInfo.from_json(entry) for entry in marker["shards"]]
    finished = {info.file: info for info in infos}
    dealer: Dealer[str] = Dealer(None, settings["shard_bytes"], finished, folder)
    has_more = any(True for _ in dealer.make_chunks(corpus.read()))
    if has_more or dealer.distinct != marker["documents"]["kept"]:
        raise make_other_text_error(folder)


@dataclass(frozen=True)
class _TextCorpus:
    """The documents of text sources, or of one part of them."""

    sources: Sequence[str]
    reading: Reading
    language: str
    processes: int
    part: Part | None = None
    encode_chunk: Encode = encode
    duplicates: int = 0
    near_duplicates: None = None

    @property
    def tally(self) -> Tally:
        return self.reading.tally

    def read(self) -> Iterator[Hashed[str]]:
        """Yield the documents in order."""
        return hash_documents(read_documents(self.sources, self.reading, self.part))

    def encode(
        self, chunks: Iterable[tuple[Key, list[str]]], tokenizer: Path
    ) -> Iterator[tuple[Key, Encoded]]:
        """Encode every chunk, over several processes."""
        processes = self.processes or min(count_cores(), MOST_PROCESSES)
        return encode_all(chunks, tokenizer, self.language, processes, self.encode_chunk)


def _check_numbers(
    heldout: float, processes: int, shard_bytes: int, near_duplicates: float
) -> None:
    """Refuse numbers out of range.

    Raises:
        DataError: a number has no meaning.
    """
    if not 0 <= heldout < 1:
        raise DataError(
            f"heldout is {heldout}; give the share of the documents to hold out, from 0 to below 1"
        )
    if processes < 0:
        raise DataError(f"processes is {processes}; give how many to use, or 0 for one per core")
    if shard_bytes < 1:
        raise DataError(f"shard_bytes is {shard_bytes}; give 1 or more")
    if near_duplicates and not 0.5 <= near_duplicates <= 1:
        raise DataError(
            f"near_duplicates is {near_duplicates}; give the smallest similarity of documents to "
            "drop, from 0.5 to 1, or 0 for none"
        )


def _make_header(
    sources: Sequence[str],
    tokenizer: Tokenizer,
    reading: Reading,
    language: str,
    heldout: float,
    shard_bytes: int,
    near_duplicates: float,
) -> dict[str, Any]:
    """Return the settings and the tokenizer, which decide the content of the folder."""
    settings = {
        "sources": list(sources),
        "files": _digest_files(expand(sources, html=reading.markup == "strip")),
        "text_field": reading.text_column,
        "split": reading.split,
        "language": language,
        "encoding": reading.encoding,
        "encodings": dict(reading.encodings),
        "unwrap": reading.unwrap,
        "markup": reading.markup,
        "heldout": heldout,
        "shard_bytes": shard_bytes,
        **({"near_duplicates": near_duplicates} if near_duplicates else {}),
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
    """Return a digest of names, sizes and times. While it is the same, so is the text.

    It is never the same for standard input and pipes. A source of the user's own counts by the code
    of its reader. The built-in corpus counts by the version of Python, a set of the `datasets`
    library by its name alone.
    """
    digest = hashlib.sha256()
    for name in names:
        path, state = Path(name), f"{sys.version}{_read_reader_code(name)}"
        if path.is_file():
            state = f"{path.stat().st_size} {path.stat().st_mtime_ns}{_read_reader_code(name)}"
        elif name == STANDARD_INPUT or path.exists():
            state = secrets.token_hex()
        digest.update(f"{name}\0{state}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _read_reader_code(name: str) -> str:
    """Return the code that reads a source of the user's own; "" for a source of litebert."""
    for key in (name.partition(":")[0] + ":", name, find_suffix(Path(name))):
        if key in SOURCES and not SOURCES[key].__module__.startswith("litebert."):
            try:
                return inspect.getsource(SOURCES[key])
            except (OSError, TypeError):  # a function typed into a session has no source
                return ""
    return ""


def _save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Save the tokenizer in the folder, unless it is there already."""
    target = folder / disk.TOKENIZER
    if target.exists() and Tokenizer.load(target).fingerprint != tokenizer.fingerprint:
        storage.remove(target)  # the command was corrected before it finished a shard
    if not target.exists():
        with storage.write_whole(target) as unfinished:
            tokenizer.save(unfinished)
