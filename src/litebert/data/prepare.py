"""`litebert prepare`: text to token shards, in constant memory, over several processes, resumable.

One process reads the sources, drops exact duplicates, deals documents to the splits by the hash of their text, and cuts
each split into shards of about `shard_bytes` of text (dealing.py); the others encode (workers.py).

A journal lists the finished shards with their checksums. The same command again reads the text anew (the cheap part)
but encodes only what is missing; a checksum of the text of each kept shard proves that the sources are the same.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from litebert import storage
from litebert.data import shards as disk
from litebert.data.dealing import Dealer, other_text
from litebert.data.encoding import Encoded
from litebert.data.journal import Journal, check_folder, check_same
from litebert.data.shards import ShardInfo, Shards
from litebert.data.workers import encode_all
from litebert.errors import DataError
from litebert.text.lines import Meter
from litebert.text.sentences import check_language
from litebert.text.sources import Document, DocumentSplit, Reading, documents, expand
from litebert.tokenizer import Tokenizer

Watch: TypeAlias = Callable[[Iterable[Document], Meter], Iterable[Document]]

MOST_PROCESSES = 8
"""Of processes=0: beyond, the one reader limits, and memory only grows."""


def prepare(
    sources: Sequence[str],
    out: str | Path,
    *,
    tokenizer: str | Path,
    text_field: str = "text",
    split: DocumentSplit = "blank-line",
    language: str = "en",
    encoding: str = "utf-8",
    heldout: float = 0.01,
    processes: int = 0,
    shard_bytes: int = 32 << 20,
    watch: Watch = lambda documents, meter: documents,
) -> Shards:
    """Turn `sources` (text/sources.py) into the shard folder `out`. The same call again continues, or finds it whole.

    Args:
        tokenizer: a folder or file that `Tokenizer.load` opens.
        heldout: share of the documents held out, by the hash of their text. Above 0 at least one is, where the first
            8 MB of text hold two documents; never all of them.
        processes: that encode, beside the one that reads; 0 for as many as there are cores, at most 8.
        shard_bytes: of text per shard; memory grows with it.
        watch: is given the documents and the meter of the bytes read, and passes the documents on: a progress bar.

    Raises DataError for unusable text, tokenizer or folder, or a full disk. What is finished stays.
    """
    if not 0 <= heldout < 1:
        raise DataError(f"heldout is {heldout}; it is a share of the documents, from 0 to below 1")
    if not processes:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        processes = min(cores, MOST_PROCESSES)
    if shard_bytes < 1 or processes < 0:
        raise DataError(f"shard_bytes is {shard_bytes} and processes {processes}; neither can be negative")
    check_language(language)
    folder = Path(out)
    pieces = Tokenizer.load(tokenizer)
    settings = {
        "sources": list(sources),
        "files": _files_digest(expand(sources)),
        "text_field": text_field,
        "split": split,
        "language": language,
        "encoding": encoding,
        "heldout": heldout,
        "shard_bytes": shard_bytes,
    }
    kind = {"kind": pieces.kind, "vocab_size": pieces.vocab_size, "fingerprint": pieces.fingerprint}
    header = {"settings": settings, "tokenizer": kind}
    reading = Reading(text_field, split, encoding)
    texts = watch(documents(sources, reading), reading.meter)  # read once, if at all
    try:
        if not (folder / disk.INDEX).exists():
            check_folder(folder)
            with storage.locked(folder, DataError):
                journal = Journal(folder, header)
                _save_tokenizer(pieces, folder)
                _build(folder, journal, header, texts, processes)
        for leftover in (storage.LOCK, Journal.NAME):  # perhaps of a run killed between its index and here
            (folder / leftover).unlink(missing_ok=True)
    except OSError as error:
        reason = f"cannot be written ({error.strerror or error})"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = "lies on a disk that is full; free some space and run the same command again to continue"
        raise DataError(f"{folder} {reason}") from error
    index, shards = disk.read_index(folder)
    check_same(folder, index, header)
    if index["settings"].get("files") != settings["files"]:  # copied, touched, or others
        reader = Dealer(heldout, shard_bytes, {info.file: info for info in shards}, folder)
        grown = any(True for _ in reader.chunks(texts))
        if grown or reader.kept != index["documents"]["kept"]:
            raise other_text(folder)
    return Shards.open(folder)


def _files_digest(names: Sequence[str]) -> str:
    """Of names, sizes and times: while it is the same, so is the text. Standard input never is the same."""
    digest = hashlib.sha256()
    for name in names:
        path = Path(name)
        state = f"{path.stat().st_size} {path.stat().st_mtime_ns}" if path.is_file() else sys.version
        digest.update(f"{name}\0{secrets.token_hex() if name == '-' else state}\0".encode())
    return digest.hexdigest()


def _save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    place = folder / disk.TOKENIZER
    if place.exists() and Tokenizer.load(place).fingerprint != tokenizer.fingerprint:
        storage.remove(place)  # of a command that was corrected before it finished a shard
    if not place.exists():
        with storage.written_whole(place) as aside:
            tokenizer.save(aside)


# ---- the writer ----------------------------------------------------------------------------------------------------


def _build(folder: Path, journal: Journal, header: dict[str, Any], texts: Iterable[Document], processes: int) -> None:
    settings, vocab_size = header["settings"], header["tokenizer"]["vocab_size"]
    pieces = np.zeros(vocab_size, np.int64)  # how often each is in the train split
    for info in journal.finished.values():
        for block in disk.read_blocks(folder / info.file) if info.split == "train" else ():
            pieces += np.bincount(block.ids, minlength=vocab_size)
    reader = Dealer(settings["heldout"], settings["shard_bytes"], dict(journal.finished), folder)
    held: dict[str, list[Encoded]] = {}
    chunks = encode_all(reader.chunks(texts), folder / disk.TOKENIZER, settings["language"], processes)
    for (split, file, text), encoded in chunks:
        held.setdefault(file, []).append(encoded)
        if split == "train":
            pieces += np.bincount(encoded.ids, minlength=vocab_size)
        if text:
            journal.add(_write(folder / file, split, text, held.pop(file), vocab_size))
    total = int(pieces.sum())
    if total == 0:
        raise DataError(f"the tokenizer leaves nothing of {', '.join(settings['sources'])}; give text that it covers")
    shards = sorted(journal.finished.values(), key=lambda info: (info.split != "train", info.file))
    shares = pieces[pieces > 0] / total
    kept = reader.kept
    summary = {
        "documents": {"kept": kept, "duplicates": reader.duplicates, "empty": kept - sum(s.documents for s in shards)},
        "unigram_entropy": float(-(shares * np.log(shares)).sum()),
        "top_piece_share": float(shares.max()),
    }
    disk.write_index(folder, {**header, **summary}, shards)


def _write(path: Path, split: str, text: str, chunks: list[Encoded], vocab_size: int) -> ShardInfo:
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
