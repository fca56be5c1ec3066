"""`litebert prepare`: text to token shards, in constant memory, over several processes, resumable.

One process reads the sources, drops exact duplicates, deals documents to the train or held-out split by the hash of
their text, and cuts each split into shards of about `shard_bytes` of text; the others encode (encoding.py). All that
decides the bytes on disk happens in the one reader, in order, so they do not depend on the number of processes.

A journal in the folder lists the finished shards with their checksums. The same command again reads the text anew (the
cheap part) but encodes only what is missing; a checksum of the text of each kept shard proves that the sources are
still the same.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from litebert import storage
from litebert.data import shards as disk
from litebert.data.encoding import Encoded, encode_all
from litebert.data.journal import Journal, check_folder, check_same
from litebert.data.shards import ShardInfo, Shards
from litebert.errors import DataError
from litebert.text.formats import Meter
from litebert.text.sources import Document, DocumentSplit, check_language, documents, expand
from litebert.tokenizer import Tokenizer

CHUNK_BYTES = 1 << 20
"""Text encoded in one call."""
LOOKAHEAD_BYTES = 8 << 20
"""Text read before the first document is dealt, so that a small corpus gets a held-out document too."""
MOST_PROCESSES = 8
"""Of processes=0: beyond, the one reader is what limits, and memory only grows."""


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
    progress: bool | None = None,
) -> Shards:
    """Turn `sources` (see corpus.py) into the shard folder `out`. The same call again continues, or finds it whole.

    Args:
        tokenizer: a folder or file that `Tokenizer.load` opens.
        heldout: share of the documents held out, chosen by the hash of their text. Above 0 at least one is, where the
            first 8 MB of text hold two documents; never all of them.
        processes: that encode, beside the one that reads; 0 for as many as there are cores, at most 8.
        shard_bytes: of text per shard; memory grows with it.
        progress: show a bar on standard error; None where that is a terminal.

    Raises:
        DataError: unusable text, tokenizer or folder, or a full disk. What is finished stays.
    """
    if not 0 <= heldout < 1:
        raise DataError(f"heldout is {heldout}; it is a share of the documents, from 0 to below 1")
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
    meter, shown = Meter(), sys.stderr.isatty() if progress is None else progress
    read = partial(documents, sources, text_field=text_field, split=split, encoding=encoding, meter=meter)
    try:
        if not (folder / disk.INDEX).exists():
            check_folder(folder)
            with storage.locked(folder, DataError), Journal(folder, header) as journal:
                _save_tokenizer(pieces, folder)
                with _progress(meter, shown) as watched:
                    _build(folder, journal, header, watched(read()), processes or _cores())
                journal.remove()
        for leftover in (storage.LOCK, Journal.NAME):  # the second of a run killed between its index and here
            (folder / leftover).unlink(missing_ok=True)
    except OSError as error:
        reason = f"cannot be written ({error.strerror or error})"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = "lies on a disk that is full; free some space and run the same command again to continue"
        raise DataError(f"{folder} {reason}") from error
    index = disk.read_index(folder)[0]
    check_same(folder, index, header)
    if index["settings"].get("files") != settings["files"]:
        with _progress(meter, shown) as watched:
            _check_text(folder, index, watched(read()))
    return Shards.open(folder)


def _cores() -> int:
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(available, MOST_PROCESSES)


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
    saved = Tokenizer.load(place)
    assert saved.fingerprint == tokenizer.fingerprint, "a saved tokenizer gives the same ids"


# ---- the reader ----------------------------------------------------------------------------------------------------


class _Seen:
    """The hashes of all documents so far, 80 bits each, in about 15 bytes of memory.

    65,536 buckets by the first two bytes, each a byte string of the next eight of its members: found by one search
    for a substring, where a Python set of the same takes 100 bytes a document.
    """

    def __init__(self) -> None:
        self._buckets: dict[bytes, bytearray] = {}
        self.duplicates = 0

    def is_new(self, digest: bytes) -> bool:
        bucket = self._buckets.setdefault(digest[:2], bytearray())
        rest = digest[2:10]
        at = bucket.find(rest)
        while at > 0 and at % 8:  # the end of one member and the start of the next
            at = bucket.find(rest, at + 1)
        if at >= 0:
            self.duplicates += 1
            return False
        bucket += rest
        return True


class _Cutter:
    """Cuts the documents of one split into shards, and a shard into chunks to encode."""

    def __init__(self, split: str, shard_bytes: int, finished: dict[str, ShardInfo], folder: Path) -> None:
        self._split, self._shard_bytes, self._finished, self._folder = split, shard_bytes, finished, folder
        self._number = -1
        self.documents = 0
        self._next_shard()

    def _next_shard(self) -> None:
        self._number += 1
        self._file = f"{self._split}-{self._number:05d}.arrow"
        self._digest = hashlib.blake2b(digest_size=16)
        self._texts: list[str] = []
        self._chunk = self._size = 0

    def add(self, text: str, size: int, digest: bytes) -> Iterator[tuple[_Key, list[str]]]:
        """Take one document of `size` bytes; gives the chunks that it completes."""
        self.documents += 1
        self._digest.update(digest)
        self._size += size
        self._chunk += size
        if self._file not in self._finished:
            self._texts.append(text)
        if self._size >= self._shard_bytes:
            yield from self.end()
        elif self._chunk >= CHUNK_BYTES and self._texts:
            yield (self._split, self._file, ""), self._texts
            self._texts, self._chunk = [], 0

    def end(self) -> Iterator[tuple[_Key, list[str]]]:
        """Close the shard; its last chunk carries the checksum of its text."""
        digest = self._digest.hexdigest()
        done = self._finished.get(self._file)
        if done is not None and done.text != digest:
            raise _other_text(self._folder)
        if done is None and self._size:
            yield (self._split, self._file, digest), self._texts
        self._next_shard()


_Key = tuple[str, str, str]
"""Split, file of the shard, and at its last chunk the checksum of its text."""


class _Reader:
    """Documents to chunks: drops duplicates, deals the splits, cuts the shards."""

    def __init__(self, heldout: float, shard_bytes: int, finished: dict[str, ShardInfo], folder: Path) -> None:
        self._heldout = int(heldout * 2**64)
        self._seen = _Seen()
        self._cutters = {name: _Cutter(name, shard_bytes, finished, folder) for name in ("train", "heldout")}

    def chunks(self, texts: Iterable[Document]) -> Iterator[tuple[_Key, list[str]]]:
        """Chunks to encode, keyed, in an order that only the texts decide."""
        for split, text, size, digest in self._dealt(texts):
            yield from self._cutters[split].add(text, size, digest)
        for cutter in self._cutters.values():
            yield from cutter.end()

    def counts(self) -> dict[str, int]:
        """Of documents: kept and duplicates."""
        kept = sum(cutter.documents for cutter in self._cutters.values())
        return {"kept": kept, "duplicates": self._seen.duplicates}

    def _dealt(self, texts: Iterable[Document]) -> Iterator[tuple[str, str, int, bytes]]:
        ahead: list[tuple[str, int, bytes]] | None = []
        ahead_bytes = 0
        for text, size, digest in self._unique(texts):
            if ahead is None:
                yield self._split_of(digest), text, size, digest
                continue
            ahead.append((text, size, digest))
            ahead_bytes += size
            if ahead_bytes >= LOOKAHEAD_BYTES:
                yield from self._deal_first(ahead)
                ahead = None
        yield from self._deal_first(ahead or [])

    def _deal_first(self, ahead: list[tuple[str, int, bytes]]) -> Iterator[tuple[str, str, int, bytes]]:
        splits = [self._split_of(digest) for _, _, digest in ahead]
        if self._heldout and len(ahead) > 1 and len(set(splits)) == 1:
            order = sorted(range(len(ahead)), key=lambda i: ahead[i][2])
            if splits[0] == "train":
                splits[order[0]] = "heldout"
            else:
                splits[order[-1]] = "train"
        elif len(ahead) == 1:
            splits = ["train"]
        for split, (text, size, digest) in zip(splits, ahead, strict=True):
            yield split, text, size, digest

    def _unique(self, texts: Iterable[Document]) -> Iterator[tuple[str, int, bytes]]:
        is_new = self._seen.is_new
        for document in texts:
            try:
                data = document.text.encode()
            except UnicodeEncodeError as error:
                raise DataError(f"{document.source} holds half a surrogate pair ({error}); mend its escapes") from error
            digest = hashlib.blake2b(data, digest_size=16).digest()
            if is_new(digest):
                yield document.text, len(data), digest

    def _split_of(self, digest: bytes) -> str:
        return "heldout" if int.from_bytes(digest[8:], "big") < self._heldout else "train"


def _check_text(folder: Path, index: dict[str, Any], texts: Iterable[Document]) -> None:
    """Raise DataError if a whole set is of other text than this; files that were only copied or touched are not."""
    shards = {shard["file"]: ShardInfo(**shard) for shard in index["shards"]}
    reader = _Reader(index["settings"]["heldout"], index["settings"]["shard_bytes"], shards, folder)
    grown = any(True for _ in reader.chunks(texts))
    if grown or reader.counts()["kept"] != index["documents"]["kept"]:
        raise _other_text(folder)


def _other_text(folder: Path) -> DataError:
    return DataError(
        f"{folder} is made of other text than the sources hold now; give --out another folder, or delete this one"
    )


# ---- the writer ----------------------------------------------------------------------------------------------------


def _build(folder: Path, journal: Journal, header: dict[str, Any], texts: Iterable[Document], processes: int) -> None:
    settings, vocab_size = header["settings"], header["tokenizer"]["vocab_size"]
    pieces = np.zeros(vocab_size, np.int64)
    for info in journal.finished.values():
        pieces += _piece_counts(folder, info, vocab_size)
    reader = _Reader(settings["heldout"], settings["shard_bytes"], dict(journal.finished), folder)
    held: dict[str, list[Encoded]] = {}
    tokenizer = folder / disk.TOKENIZER
    for (split, file, text), encoded in encode_all(reader.chunks(texts), tokenizer, settings["language"], processes):
        held.setdefault(file, []).append(encoded)
        if text:
            info = _write(folder, split, file, text, held.pop(file), vocab_size)
            pieces += _piece_counts(folder, info, vocab_size)
            journal.add(info)
    total = int(pieces.sum())
    if total == 0:
        raise DataError(f"the tokenizer leaves nothing of {', '.join(settings['sources'])}; give text that it covers")
    shards = sorted(journal.finished.values(), key=lambda info: (info.split != "train", info.file))
    shares = pieces[pieces > 0] / total
    counts = reader.counts()
    counts["empty"] = counts["kept"] - sum(info.documents for info in shards)
    summary = {
        "documents": counts,
        "unigram_entropy": float(-(shares * np.log(shares)).sum()),
        "top_piece_share": float(shares.max()),
    }
    disk.write_index(folder, {**header, **summary}, shards)


def _write(folder: Path, split: str, file: str, text: str, chunks: list[Encoded], vocab_size: int) -> ShardInfo:
    path = folder / file
    disk.write_shard(path, chunks, vocab_size)
    return ShardInfo(
        file=file,
        split=split,
        documents=sum(len(chunk.document_sentences) for chunk in chunks),
        sentences=sum(len(chunk.sentence_tokens) for chunk in chunks),
        tokens=sum(len(chunk.ids) for chunk in chunks),
        bytes=path.stat().st_size,
        sha256=storage.sha256_of(path),
        text=text,
    )


def _piece_counts(folder: Path, info: ShardInfo, vocab_size: int) -> Any:
    """How often each piece is in a shard of the train split, int64 (vocab_size,)."""
    counts = np.zeros(vocab_size, np.int64)
    if info.split == "train":
        for block in disk.read_blocks(folder / info.file):
            counts += np.bincount(block.ids, minlength=vocab_size)
    return counts


@contextmanager
def _progress(meter: Meter, shown: bool) -> Iterator[Any]:
    """A function that passes documents on and draws a bar of the bytes read, the documents and the time left."""
    if not shown:
        yield lambda texts: texts
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("preparing"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[documents]:,} documents"), console=Console(stderr=True)) as bar:
        task = bar.add_task("prepare", total=None, documents=0)

        def watched(texts: Iterable[Document]) -> Iterator[Document]:
            number, last = 0, 0.0
            for number, document in enumerate(texts, 1):
                if number % 64 == 1 and time.monotonic() - last > 0.1:
                    bar.update(task, completed=meter.read, total=meter.total, documents=number)
                    last = time.monotonic()
                yield document
            bar.update(task, completed=meter.read, total=meter.total, documents=number)

        yield watched
