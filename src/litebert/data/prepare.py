"""`litebert prepare`: text to token shards, in constant memory, over several processes, resumable.

One process reads the sources, drops exact duplicates, deals documents to the splits by the hash of
their text, and cuts each split into shards of about `shard_bytes` of text (dealing.py); the others
encode (workers.py).

A journal lists the finished shards with their checksums. The same command reads the text again (the
cheap part) but encodes only what is missing; a checksum of the text of each kept shard proves that
the sources are the same.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from litebert import progress, storage
from litebert.data import shards as disk
from litebert.data.dealing import Dealer, other_text
from litebert.data.encoding import Encoded
from litebert.data.journal import Journal, check_folder, check_same
from litebert.data.shards import ShardInfo, Shards
from litebert.data.summary import summary, warn
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
    encodings: Mapping[str, str] | None = None,
    unwrap: bool = False,
    markup: Markup = "keep",
    heldout: float = 0.01,
    processes: int = 0,
    shard_bytes: int = 32 << 20,
) -> Shards:
    """Turn `sources` (text/sources.py) into the shard folder `out`. The same call again continues,
    or finds it whole.

    Args:
        tokenizer: a folder or file that `Tokenizer.load` opens.
        encodings: of the files that match a pattern, by pattern; `encoding` is that of the others.
        unwrap: join the lines of each paragraph of plain text.
        markup: `strip` takes the text out of web pages and Markdown, `keep` reads them as plain
            text.
        heldout: share of the documents held out, by the hash of their text. Above 0, a corpus of
            less than 8 MB with two documents or more holds out at least one, and about 5 % of its
            text up to 64 KB; never all of it.
        processes: how many encode, beside the one that reads; 0 for one per core, at most 8.
        shard_bytes: of text per shard; memory grows with it.

    Raises DataError for unusable text, tokenizer or folder, or a full disk. What is finished stays.
    """
    if not 0 <= heldout < 1:
        raise DataError(
            f"heldout is {heldout}; give the share of the documents to hold out, from 0 to below 1"
        )
    if processes < 0:
        raise DataError(f"processes is {processes}; give how many to use, or 0 for one per core")
    if shard_bytes < 1:
        raise DataError(f"shard_bytes is {shard_bytes}; give 1 or more")
    if not processes:
        processes = min(count_cores(), MOST_PROCESSES)
    check_language(language)
    folder = Path(out)
    pieces = Tokenizer.load(tokenizer)
    settings = {
        "sources": list(sources),
        "files": _files_digest(expand(sources, html=markup == "strip")),
        "text_field": text_field,
        "split": split,
        "language": language,
        "encoding": encoding,
        "encodings": dict(encodings or {}),
        "unwrap": unwrap,
        "markup": markup,
        "heldout": heldout,
        "shard_bytes": shard_bytes,
    }
    kind = {"kind": pieces.kind, "vocab_size": pieces.vocab_size, "fingerprint": pieces.fingerprint}
    header = {"settings": settings, "tokenizer": kind}
    reading = Reading(text_field, split, encoding, encodings or {}, unwrap, markup)
    try:
        if not (folder / disk.INDEX).exists():
            check_folder(folder)
            with storage.locked(folder, DataError):
                journal = Journal(folder, header)
                _save_tokenizer(pieces, folder)
                _build(folder, journal, header, sources, reading, processes)
        for leftover in (
            storage.LOCK,
            Journal.NAME,
        ):  # perhaps of a run killed between its index and here
            if (
                folder / leftover
            ).exists():  # a finished folder may lie where nothing can be deleted
                (folder / leftover).unlink()
    except OSError as error:
        reason = f"cannot be written ({error.strerror or error})"
        if error.errno in storage.FULL:
            reason = "is on a full disk; free some space and run the same command again to continue"
        raise DataError(f"{folder} {reason}") from error
    index, shards = disk.read_index(folder)
    check_same(folder, index, header)
    if (
        index["settings"].get("files") != settings["files"]
    ):  # copied, touched, others, or spelled another way
        finished = {info.file: info for info in shards}
        reader = Dealer(heldout, shard_bytes, finished, folder)
        grown = any(True for _ in reader.chunks(read_documents(sources, reading)))
        if grown or reader.kept != index["documents"]["kept"]:
            raise other_text(folder)
    warn(index)
    return Shards.open(folder)


def _files_digest(names: Sequence[str]) -> str:
    """Of names, sizes and times: while it is the same, so is the text. Standard input and pipes
    never are the same.

    A source of one's own counts by the code of its reader, the built-in corpus by the version of
    Python; a set of the `datasets` library counts by its name alone.
    """
    digest = hashlib.sha256()
    for name in names:
        path, state = Path(name), f"{sys.version}{_reader(name)}"
        if path.is_file():
            state = f"{path.stat().st_size} {path.stat().st_mtime_ns}{_reader(name)}"
        elif name == STANDARD_INPUT or path.exists():
            state = secrets.token_hex()
        digest.update(f"{name}\0{state}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _reader(name: str) -> str:
    """The code that defines a source of one's own; nothing for ours."""
    for key in (name.partition(":")[0] + ":", name, find_suffix(Path(name))):
        if key in SOURCES and not SOURCES[key].__module__.startswith("litebert."):
            try:
                return inspect.getsource(SOURCES[key])
            except (OSError, TypeError):  # typed into a session
                return ""
    return ""


def _save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    place = folder / disk.TOKENIZER
    if place.exists() and Tokenizer.load(place).fingerprint != tokenizer.fingerprint:
        storage.remove(place)  # of a command that was corrected before it finished a shard
    if not place.exists():
        with storage.written_whole(place) as aside:
            tokenizer.save(aside)


# --------------------------------------------------------------------------------------- the writer


def _build(
    folder: Path,
    journal: Journal,
    header: dict[str, Any],
    sources: Sequence[str],
    reading: Reading,
    processes: int,
) -> None:
    settings, vocab_size = header["settings"], header["tokenizer"]["vocab_size"]
    tokenizer = folder / disk.TOKENIZER
    counts = {
        split: np.zeros(vocab_size, np.int64) for split in ("train", "heldout")
    }  # how often each piece is there
    pairs = 0  # held-out documents of two sentences or more
    finished = dict(journal.finished)
    with progress.tracked(
        finished.values(), "reading finished shards", len(finished), "shards"
    ) as infos:
        for info in infos:
            for block in disk.read_blocks(folder / info.file):
                counts[info.split] += np.bincount(block.ids, minlength=vocab_size)
                pairs += (
                    int((np.diff(block.document_offsets) > 1).sum())
                    if info.split == "heldout"
                    else 0
                )
    reader = Dealer(settings["heldout"], settings["shard_bytes"], finished, folder)
    held: dict[str, list[Encoded]] = {}
    chunks = encode_all(
        reader.chunks(read_documents(sources, reading)), tokenizer, settings["language"], processes
    )
    with progress.task("encoding", unit="documents") as bar:
        for (split, file, text), encoded in chunks:
            held.setdefault(file, []).append(encoded)
            counts[split] += np.bincount(encoded.ids, minlength=vocab_size)
            pairs += int((encoded.document_sentences > 1).sum()) if split == "heldout" else 0
            bar.advance(len(encoded.document_sentences))
            if text:
                journal.add(_write(folder / file, split, text, held.pop(file), vocab_size))
    total = int(counts["train"].sum())
    if total == 0:
        raise DataError(
            f"the tokenizer leaves nothing of {', '.join(sources)}; give text that it covers"
        )
    shards = sorted(journal.finished.values(), key=lambda info: (info.split != "train", info.file))
    shares = counts["train"][counts["train"] > 0] / total
    kept = reader.kept
    unknown = sum(int(count[Tokenizer.load(tokenizer).unk_id]) for count in counts.values())
    content = {
        "documents": {
            "kept": kept,
            "duplicates": reader.duplicates,
            "empty": kept - sum(s.documents for s in shards),
        },
        "unigram_entropy": float(-(shares * np.log(shares)).sum()),
        "top_piece_share": float(shares.max()),
        "summary": summary(reading.tally, shards, reader.words, unknown, pairs),
    }
    disk.write_index(folder, {**header, **content}, shards)
    if reader.added:
        more = (
            f"{reader.added:,} documents more than --heldout {settings['heldout']} asks for "
            "are held out"
        )
        log.info(f"{more}, so that scores on this small corpus mean something")


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
