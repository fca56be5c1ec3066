"""Shards written from documents, with the journal of what is finished and the index at the end.

The journal has one JSON object a line, synced to the disk: the settings and the tokenizer, then a
`ShardInfo` for each finished shard. It goes once the index is written.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from litebert.base import progress, storage
from litebert.base.errors import DataError
from litebert.data import shard_files
from litebert.data import shards as disk
from litebert.data.contamination import Contamination
from litebert.data.dealing import Dealer, Hashed, Key, make_other_text_error
from litebert.data.encoding import Encoded
from litebert.data.shard_files import Ids, Offsets
from litebert.data.shards import ShardInfo, Shards
from litebert.data.summary import summarize, warn
from litebert.remote.names import is_url
from litebert.remote.target import Target, open_target
from litebert.text.tally import Tally
from litebert.tokenizer import Tokenizer

log = logging.getLogger("litebert")

T = TypeVar("T")


class Corpus(Protocol[T]):
    @property
    def header(self) -> dict[str, Any]:
        """The settings and the tokenizer, which decide the content of a set."""

    @property
    def tally(self) -> Tally:
        """Counts of what was read."""

    @property
    def duplicates(self) -> int:
        """Duplicates that were dropped before."""

    @property
    def dropped(self) -> Mapping[str, Any]:
        """Counts and examples of what else was dropped, by the name of the setting."""

    def save_tokenizer(self, folder: Path) -> None:
        """Save the tokenizer in a folder."""

    def read(self) -> Iterator[Hashed[T]]:
        """Yield the documents in order."""

    def encode(
        self, chunks: Iterable[tuple[Key, list[T]]], tokenizer: Path
    ) -> Iterator[tuple[Key, Encoded]]:
        """Encode every chunk with the tokenizer of a folder, in order."""


def finish_set(out: str | Path, corpus: Corpus[T]) -> Shards:
    """Write the set of a corpus, unless the folder `out` has it, and open it."""
    target = open_target(out)
    with target.open() as folder:
        with reporting_writes(folder):
            if not (folder / disk.INDEX).exists():
                check_folder(target)
                with storage.lock_folder(folder, DataError):
                    journal = Journal(target, corpus.header)
                    corpus.save_tokenizer(folder)
                    _write_set(target, journal, corpus)
                target.finish(disk.INDEX)
            # A process leaves these if it is killed after it wrote the index.
            for leftover in (storage.LOCK, Journal.NAME):
                target.delete(leftover)
        index, shards = disk.read_index(folder)
        check_same(folder, index, corpus.header)
        settings = corpus.header["settings"]
        # Files that were copied, touched or spelled another way may still hold the same text.
        if index["settings"].get("files") != settings["files"]:
            finished = {info.file: info for info in shards}
            dealer: Dealer[T] = Dealer(
                settings["heldout"], settings["shard_bytes"], finished, folder
            )
            has_more = any(True for _ in dealer.make_chunks(corpus.read()))
            if has_more or dealer.distinct != index["documents"]["kept"]:
                raise make_other_text_error(folder)
        warn(index)
    return Shards.open(out)


@contextmanager
def reporting_writes(folder: Path) -> Iterator[None]:
    """Turn errors of the system into a sentence about a folder that cannot be written."""
    try:
        yield
    except OSError as error:
        reason = f"cannot be written ({error.strerror or error})"
        if error.errno in storage.FULL:
            reason = "is on a full disk; free some space and run the same command again to continue"
        raise DataError(f"{folder} {reason}") from error


def _write_set(target: Target, journal: Journal, corpus: Corpus[T]) -> None:
    header, folder = corpus.header, target.folder
    settings, vocab_size = header["settings"], header["tokenizer"]["vocab_size"]
    tokens = {split: np.zeros(vocab_size, np.int64) for split in disk.SPLITS}
    pairs = 0  # held-out documents of two sentences or more

    def count(split: str, ids: Ids, document_sentences: npt.NDArray[np.int32]) -> None:
        nonlocal pairs
        tokens[split] += np.bincount(ids, minlength=vocab_size)
        if split == "heldout":
            pairs += int((document_sentences > 1).sum())

    finished = dict(journal.finished)
    with progress.track(
        finished.values(), "reading finished shards", len(finished), "shards"
    ) as infos:
        for info in infos:
            for block in shard_files.read_blocks(target.fetch(info)):
                count(info.split, block.ids, np.diff(block.document_offsets))
    dealer: Dealer[T] = Dealer(settings["heldout"], settings["shard_bytes"], finished, folder)
    for key, encoded in write_shards(folder, header, journal, dealer, corpus):
        count(key[0], encoded.ids, encoded.document_sentences)
    if not tokens["train"].any():
        raise _make_nothing_error(", ".join(settings["sources"]), corpus.dropped)

    # By length too: the hundred thousandth shard has a longer name.
    shards = sorted(
        journal.finished.values(),
        key=lambda info: (info.split != "train", len(info.file), info.file),
    )
    tokenizer = Tokenizer.load(folder / disk.TOKENIZER)
    unknown = sum(int(counts[tokenizer.unk_id]) for counts in tokens.values())
    content = {
        **header,
        "documents": {
            "kept": dealer.distinct,
            "duplicates": dealer.duplicates + corpus.duplicates,
            "empty": dealer.distinct - sum(info.documents for info in shards),
        },
        **corpus.dropped,
        **_describe_frequencies(tokens["train"]),
        "summary": summarize(corpus.tally, shards, dealer.words, unknown, pairs),
    }
    if names := settings.get("check_against"):
        heldout = [info for info in shards if info.split == "heldout"]
        train = [info for info in shards if info.split == "train"]
        blocks = (
            block for info in heldout for block in shard_files.read_blocks(target.fetch(info))
        )
        search = Contamination(names, tokenizer, settings["language"], blocks)
        title = "looking for texts to check against"
        with progress.track(train, title, len(train), "shards") as infos:
            for info in infos:
                for block in shard_files.read_blocks(target.fetch(info)):
                    search.search(block)
        content["contamination"] = search.to_json()
    disk.write_index(folder, content, shards)
    if dealer.added:
        log.info(
            f"held out {dealer.added:,} more documents than --heldout {settings['heldout']} asks "
            "for, so that scores on this small corpus are meaningful"
        )


def _describe_frequencies(counts: Offsets) -> dict[str, float]:
    shares = counts[counts > 0] / int(counts.sum())
    entropy = float(-(shares * np.log(shares)).sum())
    return {"unigram_entropy": entropy, "top_piece_share": float(shares.max())}


def _make_nothing_error(sources: str, dropped: Mapping[str, Any]) -> DataError:
    rules = dropped.get("filters", {})
    others = dropped.get("languages", {})
    counts = {rule: count["documents"] for rule, count in rules.items()}
    counts |= {f"language {code}": c["documents"] for code, c in others.items() if not c["stays"]}
    rule = max(counts, key=counts.__getitem__, default="")
    if not counts.get(rule):
        return DataError(f"the tokenizer leaves nothing of {sources}; give text that it covers")
    return DataError(
        f"the filters leave nothing of {sources}: {rule} dropped {counts[rule]:,} documents; "
        "leave that filter out, or give longer documents, such as by --split file"
    )


def write_shards(
    folder: Path, header: Mapping[str, Any], journal: Journal, dealer: Dealer[T], corpus: Corpus[T]
) -> Iterator[tuple[Key, Encoded]]:
    open_shards: dict[str, list[Encoded]] = {}
    chunks = corpus.encode(dealer.make_chunks(corpus.read()), folder / disk.TOKENIZER)
    with progress.task("encoding", unit="documents") as bar:
        for key, encoded in chunks:
            split, file, text = key
            open_shards.setdefault(file, []).append(encoded)
            bar.advance(len(encoded.document_sentences))
            yield key, encoded
            # Only the last chunk of a shard has the checksum of its text.
            if text:
                parts = open_shards.pop(file)
                shard_files.write_shard(folder / file, parts, header["tokenizer"]["vocab_size"])
                journal.add(_describe_shard(folder / file, split, text, parts))


def _describe_shard(path: Path, split: str, text: str, chunks: Sequence[Encoded]) -> ShardInfo:
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


# -------------------------------------------------------------------------------------- the journal


class Journal:
    """The journal of a locked folder, begun, or continued where the settings are the same."""

    NAME = "unfinished.jsonl"

    def __init__(self, target: Target, header: dict[str, Any]) -> None:
        self._target, folder = target, target.folder
        with open(folder / self.NAME, "a+b") as file:
            file.seek(0)
            lines, end = _read_entries(file)
            # Without a finished shard, a corrected command may start again.
            is_continued = len(lines) > 1
            file.truncate(end if is_continued else 0)
        if is_continued:
            check_same(folder, lines[0], header)
        else:
            self._write(header)
        self.finished: dict[str, ShardInfo] = {}
        """Unchanged shards on the disk, by file name."""
        infos = [ShardInfo.from_json(line) for line in lines[1:]] if is_continued else []
        with progress.track(infos, "checking finished shards", len(infos), "shards") as checked:
            for info in checked:
                if target.has_file(info):
                    self.finished[info.file] = info

    def _write(self, entry: dict[str, Any]) -> None:
        with open(self._target.folder / self.NAME, "ab") as file:
            file.write(json.dumps(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._target.send_growing(self.NAME)

    def add(self, info: ShardInfo) -> None:
        """Record a shard that is on the disk, and bring it to the store."""
        self._target.send(info.file)
        self._write(asdict(info))
        self.finished[info.file] = info


def _read_entries(file: IO[bytes]) -> tuple[list[dict[str, Any]], int]:
    entries: list[dict[str, Any]] = []
    end = 0
    for line in file:
        try:
            entry = json.loads(line)
            if entries:
                ShardInfo.from_json(entry)
            else:
                entry["settings"].items(), entry["tokenizer"]
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
            break
        if not line.endswith(b"\n"):
            break
        entries.append(entry)
        end += len(line)
    return entries, end


def check_folder(target: Target) -> None:
    """Refuse a folder that holds files of another program, for it has no journal."""
    names = target.list_names()
    if names and Journal.NAME not in names:
        raise DataError(
            f"{target.name} holds other files ({names[0]}); give an empty folder or a new name"
        )


def check_same(folder: str | Path, existing: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse a folder that was made with other settings. The times of files and the spelling of
    their names do not count, for the checksums of the text tell whether it is the same.
    """
    remedy = "give --out another folder, or delete this one"
    if existing.get("tokenizer") != wanted["tokenizer"]:
        raise DataError(f"{folder} was made with another tokenizer; {remedy}")
    old, new = existing["settings"], wanted["settings"]
    for key in (*new, *(key for key in old if key not in new)):
        before, now = old.get(key), new.get(key)
        if key == "sources" and _normalize_sources(before) == _normalize_sources(now):
            continue
        if key != "files" and before != now:
            made, wanted_now = (
                f"with {key}={value!r}" if value is not None else f"without {key}"
                for value in (before, now)
            )
            raise DataError(f"{folder} was made {made}, not {wanted_now}; {remedy}")


def _normalize_sources(sources: Any) -> Any:
    if not isinstance(sources, list):
        return sources
    return [source.rstrip("/") if is_url(source) else os.path.abspath(source) for source in sources]


# ------------------------------------------------------------------------------------ a share of it

PORTION_FILE = "train-00000.arrow"
PORTION_KEY = 5
"""Seed of the order of the documents. It is constant, so a larger share holds every smaller one."""


def write_portion(source: Path, folder: Path, share: float) -> Shards:
    """Write a set with a share of the training documents of another one, drawn at random, and with
    the same held-out text, to compare amounts of data. An existing set is not written again.
    """
    if (folder / disk.INDEX).exists():
        return Shards.open(folder, verify=True)
    whole = Shards.open(source, verify=True)
    split, vocabulary = whole.train, whole.tokenizer.vocab_size
    order = np.random.default_rng(PORTION_KEY).permutation(split.documents)
    chosen = np.sort(order[: max(1, round(share * split.documents))])
    if not split.document_tokens[chosen].sum():
        raise DataError(
            f"{share:.3%} of the documents of {source} hold no token; prepare more text"
        )
    folder.mkdir(parents=True, exist_ok=True)
    storage.remove(folder / disk.TOKENIZER)
    shutil.copytree(source / disk.TOKENIZER, folder / disk.TOKENIZER)
    index, infos = disk.read_index(source)
    heldout = [info for info in infos if info.split == "heldout"]
    for info in heldout:
        shutil.copyfile(source / info.file, folder / info.file)
    chunks = []
    for first in range(0, len(chosen), 100):
        documents = [split.read_document(int(number)) for number in chosen[first : first + 100]]
        ids, starts = zip(*documents, strict=True)
        chunks.append(
            Encoded(
                ids=np.concatenate(ids).astype(np.int32),
                sentence_tokens=np.concatenate([np.diff(s) for s in starts]).astype(np.int32),
                document_sentences=np.array([len(s) - 1 for s in starts], np.int32),
            )
        )
    shard_files.write_shard(folder / PORTION_FILE, chunks, vocabulary)
    text = next(info.text for info in infos if info.split == "train")
    info = _describe_shard(folder / PORTION_FILE, "train", text, chunks)
    counts = np.bincount(np.concatenate([chunk.ids for chunk in chunks]), minlength=vocabulary)
    content = {
        key: value for key, value in index.items() if key not in ("format", "shards", "summary")
    }
    content["settings"] = {**index["settings"], "portion": share, "portion_of": whole.fingerprint}
    content["documents"] = {
        **index["documents"],
        "kept": len(chosen) + sum(info.documents for info in heldout),
        "empty": 0,
    }
    content |= _describe_frequencies(counts)
    disk.write_index(folder, content, [info, *heldout])
    return Shards.open(folder)
