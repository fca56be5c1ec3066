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
import logging
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert import progress, storage
from litebert.data import shards as disk
from litebert.data.dealing import Dealer, make_other_text_error
from litebert.data.encoding import Encoded
from litebert.data.journal import Journal, check_folder, check_same
from litebert.data.shards import Ids, Offsets, ShardInfo, Shards
from litebert.data.summary import summarize, warn
from litebert.data.workers import encode_all
from litebert.errors import DataError
from litebert.machine import count_cores
from litebert.registry import SOURCES
from litebert.text.files import expand
from litebert.text.lines import STANDARD_INPUT, find_suffix
from litebert.text.sentences import check_language
from litebert.text.sources import DocumentSplit, Markup, Reading, read_documents
from litebert.tokenizer import Tokenizer

log = logging.getLogger("litebert")

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

    Raises:
        DataError: the text, the tokenizer or the folder cannot be used, or the disk is full.
            Finished shards stay.
    """
    _check_numbers(heldout, processes, shard_bytes)
    if not processes:
        processes = min(count_cores(), MOST_PROCESSES)
    check_language(language)
    folder = Path(out)
    loaded = Tokenizer.load(tokenizer)
    reading = Reading(text_column, split, encoding, encodings or {}, unwrap, markup)
    header = _make_header(sources, loaded, reading, language, heldout, shard_bytes)
    try:
        if not (folder / disk.INDEX).exists():
            check_folder(folder)
            with storage.lock_folder(folder, DataError):
                journal = Journal(folder, header)
                _save_tokenizer(loaded, folder)
                _build(folder, journal, header, sources, reading, processes)
        _delete_leftovers(folder)
    except OSError as error:
        raise _make_write_error(folder, error) from error
    warn(_check_sources(folder, header, sources, reading))
    return Shards.open(folder)


def _check_numbers(heldout: float, processes: int, shard_bytes: int) -> None:
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


def _make_header(
    sources: Sequence[str],
    tokenizer: Tokenizer,
    reading: Reading,
    language: str,
    heldout: float,
    shard_bytes: int,
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
    }
    return {
        "settings": settings,
        "tokenizer": {
            "kind": tokenizer.kind,
            "vocab_size": tokenizer.vocab_size,
            "fingerprint": tokenizer.fingerprint,
        },
    }


def _make_write_error(folder: Path, error: OSError) -> DataError:
    """Return the error for a folder that cannot be written."""
    reason = f"cannot be written ({error.strerror or error})"
    if error.errno in storage.FULL:
        reason = "is on a full disk; free some space and run the same command again to continue"
    return DataError(f"{folder} {reason}")


def _delete_leftovers(folder: Path) -> None:
    """Delete the files that a process leaves if it is killed after it wrote the index."""
    for leftover in (storage.LOCK, Journal.NAME):
        # A finished folder may be read-only, so nothing is deleted that does not exist.
        if (folder / leftover).exists():
            (folder / leftover).unlink()


def _check_sources(
    folder: Path, header: dict[str, Any], sources: Sequence[str], reading: Reading
) -> dict[str, Any]:
    """Return the index of a finished folder, after a check that its sources hold the same text.

    Raises:
        DataError: the settings or the text differ.
    """
    index, shards = disk.read_index(folder)
    check_same(folder, index, header)
    settings = header["settings"]
    # Files that were copied, touched or spelled another way may still hold the same text.
    if index["settings"].get("files") != settings["files"]:
        finished = {info.file: info for info in shards}
        reader = Dealer(settings["heldout"], settings["shard_bytes"], finished, folder)
        has_more = any(True for _ in reader.make_chunks(read_documents(sources, reading)))
        if has_more or reader.distinct != index["documents"]["kept"]:
            raise make_other_text_error(folder)
    return index


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


# --------------------------------------------------------------------------------------- the writer


@dataclass
class _Counts:
    """Counts of the tokens and documents in all shards."""

    tokens: dict[str, Offsets]
    """Occurrences of each token, int64 (V,), by split."""
    pairs: int = 0
    """Held-out documents of two sentences or more."""

    def add(self, split: str, ids: Ids, document_sentences: npt.NDArray[np.int32]) -> None:
        """Add documents, by their ids and their numbers of sentences."""
        self.tokens[split] += np.bincount(ids, minlength=len(self.tokens[split]))
        if split == "heldout":
            self.pairs += int((document_sentences > 1).sum())


def _build(
    folder: Path,
    journal: Journal,
    header: dict[str, Any],
    sources: Sequence[str],
    reading: Reading,
    processes: int,
) -> None:
    """Write the shards that are missing, and then the index."""
    settings, vocab_size = header["settings"], header["tokenizer"]["vocab_size"]
    tokenizer = folder / disk.TOKENIZER
    counts = _Counts({split: np.zeros(vocab_size, np.int64) for split in disk.SPLITS})
    finished = dict(journal.finished)
    with progress.track(
        finished.values(), "reading finished shards", len(finished), "shards"
    ) as infos:
        for info in infos:
            for block in disk.read_blocks(folder / info.file):
                counts.add(info.split, block.ids, np.diff(block.document_offsets))
    reader = Dealer(settings["heldout"], settings["shard_bytes"], finished, folder)
    open_shards: dict[str, list[Encoded]] = {}
    texts = reader.make_chunks(read_documents(sources, reading))
    chunks = encode_all(texts, tokenizer, settings["language"], processes)
    with progress.task("encoding", unit="documents") as bar:
        for (split, file, text), encoded in chunks:
            open_shards.setdefault(file, []).append(encoded)
            counts.add(split, encoded.ids, encoded.document_sentences)
            bar.advance(len(encoded.document_sentences))
            # Only the last chunk of a shard has the checksum of its text.
            if text:
                parts = open_shards.pop(file)
                journal.add(_write_shard(folder / file, split, text, parts, vocab_size))
    if not counts.tokens["train"].any():
        raise DataError(
            f"the tokenizer leaves nothing of {', '.join(sources)}; give text that it covers"
        )
    shards = sorted(journal.finished.values(), key=lambda info: (info.split != "train", info.file))
    unk_id = Tokenizer.load(tokenizer).unk_id
    content = _describe_content(counts, reader, shards, reading, unk_id)
    disk.write_index(folder, {**header, **content}, shards)
    if reader.added:
        log.info(
            f"{reader.added:,} documents more than --heldout {settings['heldout']} asks for are "
            "held out, so that scores on this small corpus mean something"
        )


def _describe_content(
    counts: _Counts, reader: Dealer, shards: Sequence[ShardInfo], reading: Reading, unk_id: int
) -> dict[str, Any]:
    """Return the counts of the index."""
    train = counts.tokens["train"]
    shares = train[train > 0] / int(train.sum())
    unknown = sum(int(tokens[unk_id]) for tokens in counts.tokens.values())
    return {
        "documents": {
            "kept": reader.distinct,
            "duplicates": reader.duplicates,
            "empty": reader.distinct - sum(info.documents for info in shards),
        },
        "unigram_entropy": float(-(shares * np.log(shares)).sum()),
        "top_piece_share": float(shares.max()),
        "summary": summarize(reading.tally, shards, reader.words, unknown, counts.pairs),
    }


def _write_shard(
    path: Path, split: str, text: str, chunks: list[Encoded], vocab_size: int
) -> ShardInfo:
    """Write a shard, and return its entry of the index."""
    disk.write_shard(path, chunks, vocab_size)
    return ShardInfo(
        file=path.name,
        split=split,
        documents=sum(len(chunk.document_sentences) for chunk in chunks),
        sentences=sum(len(chunk.sentence_tokens) for chunk in chunks),
        tokens=sum(len(chunk.ids) for chunk in chunks),
        bytes=path.stat().st_size,
        sha256=storage.sha256_of(path),
        text=text,
    )
