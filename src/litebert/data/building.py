"""Shards written from documents, with the journal of what is finished and the index at the end.

The documents are texts of sources (prepare.py), or of parts that are encoded already
(part_shards.py). Both come as a `Corpus`, and everything else is the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from litebert import progress, storage
from litebert.data import arrow_files
from litebert.data import shards as disk
from litebert.data.arrow_files import Ids, Offsets
from litebert.data.contamination import Contamination
from litebert.data.dealing import Dealer, Hashed, Key, make_other_text_error
from litebert.data.encoding import Encoded
from litebert.data.journal import Journal, check_folder, check_same
from litebert.data.shards import ShardInfo, Shards
from litebert.data.summary import summarize, warn
from litebert.errors import DataError
from litebert.remote.target import Target, open_target
from litebert.text.tally import Tally
from litebert.tokenizer import Tokenizer

log = logging.getLogger("litebert")

T = TypeVar("T")


class Corpus(Protocol[T]):
    """Documents, and how they become token ids."""

    @property
    def tally(self) -> Tally:
        """Counts of what was read."""

    @property
    def duplicates(self) -> int:
        """Duplicates that were dropped before."""

    @property
    def dropped(self) -> Mapping[str, Any]:
        """Counts and examples of what else was dropped, by the name of the setting."""

    def read(self) -> Iterator[Hashed[T]]:
        """Yield the documents in order."""

    def encode(
        self, chunks: Iterable[tuple[Key, list[T]]], tokenizer: Path
    ) -> Iterator[tuple[Key, Encoded]]:
        """Encode every chunk with the tokenizer of a folder, in order."""


def finish_set(
    out: str | Path,
    header: dict[str, Any],
    corpus: Corpus[T],
    save_tokenizer: Callable[[Path], None],
) -> Shards:
    """Write the set of a corpus, unless the folder `out` has it, and open it.

    Args:
        save_tokenizer: saves the tokenizer in a folder.

    Raises:
        DataError: the folder holds something else, the text has no tokens, or the disk is full.
            Finished shards stay.
    """
    target = open_target(out)
    with target.open() as folder:
        with reporting_writes(folder):
            if not (folder / disk.INDEX).exists():
                check_folder(target)
                with storage.lock_folder(folder, DataError):
                    journal = Journal(target, header)
                    save_tokenizer(folder)
                    _write_set(target, journal, header, corpus)
                target.finish(disk.INDEX)
            # A process leaves these if it is killed after it wrote the index.
            for leftover in (storage.LOCK, Journal.NAME):
                target.delete(leftover)
        warn(_check_text(folder, header, corpus))
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


def _write_set(target: Target, journal: Journal, header: dict[str, Any], corpus: Corpus[T]) -> None:
    """Write the shards of a corpus that are missing, and then the index.

    The caller holds the lock of the folder, which has the tokenizer.
    """
    counts = _Counts(
        {split: np.zeros(header["tokenizer"]["vocab_size"], np.int64) for split in disk.SPLITS}
    )
    finished = dict(journal.finished)
    with progress.track(
        finished.values(), "reading finished shards", len(finished), "shards"
    ) as infos:
        for info in infos:
            for block in arrow_files.read_blocks(target.fetch(info)):
                counts.add(info.split, block.ids, np.diff(block.document_offsets))
    settings, folder = header["settings"], target.folder
    dealer: Dealer[T] = Dealer(settings["heldout"], settings["shard_bytes"], finished, folder)
    for key, encoded in write_shards(folder, header, journal, dealer, corpus):
        counts.add(key[0], encoded.ids, encoded.document_sentences)
    if not counts.tokens["train"].any():
        raise _make_nothing_error(", ".join(settings["sources"]), corpus.dropped)
    shards = sorted(journal.finished.values(), key=_rank_shard)
    tokenizer = Tokenizer.load(folder / disk.TOKENIZER)
    content = _describe_content(counts, dealer, shards, corpus, tokenizer.unk_id)
    if names := settings.get("check_against"):
        content["contamination"] = _find_contamination(target, shards, names, tokenizer, settings)
    disk.write_index(folder, {**header, **content}, shards)
    if dealer.added:
        log.info(
            f"held out {dealer.added:,} more documents than --heldout {settings['heldout']} asks "
            "for, so that scores on this small corpus are meaningful"
        )


def _make_nothing_error(sources: str, dropped: Mapping[str, Any]) -> DataError:
    """Return the error for a set without a token, which names what dropped most documents."""
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


def _find_contamination(
    target: Target,
    shards: Sequence[ShardInfo],
    names: Sequence[str],
    tokenizer: Tokenizer,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Look for the texts of files, and held-out documents, in the documents to train on."""
    infos = {split: [info for info in shards if info.split == split] for split in disk.SPLITS}
    heldout = (
        block for info in infos["heldout"] for block in arrow_files.read_blocks(target.fetch(info))
    )
    search = Contamination(names, tokenizer, settings["language"], heldout)
    with progress.track(
        infos["train"], "looking for texts to check against", len(infos["train"]), "shards"
    ) as train:
        for info in train:
            for block in arrow_files.read_blocks(target.fetch(info)):
                search.search(block)
    return search.to_json()


def _rank_shard(info: ShardInfo) -> tuple[bool, int, str]:
    """Return what shards are sorted by; the hundred thousandth has a longer name."""
    return info.split != "train", len(info.file), info.file


def write_shards(
    folder: Path, header: Mapping[str, Any], journal: Journal, dealer: Dealer[T], corpus: Corpus[T]
) -> Iterator[tuple[Key, Encoded]]:
    """Write the shards that are missing, and yield each of their chunks."""
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
                vocab_size = header["tokenizer"]["vocab_size"]
                journal.add(_write_shard(folder / file, split, text, parts, vocab_size))


def _check_text(folder: Path, header: dict[str, Any], corpus: Corpus[T]) -> dict[str, Any]:
    """Return the index of a finished folder, after a check that the corpus holds the same text.

    Raises:
        DataError: the settings or the text differ.
    """
    index, shards = disk.read_index(folder)
    check_same(folder, index, header)
    settings = header["settings"]
    # Files that were copied, touched or spelled another way may still hold the same text.
    if index["settings"].get("files") != settings["files"]:
        finished = {info.file: info for info in shards}
        dealer: Dealer[T] = Dealer(settings["heldout"], settings["shard_bytes"], finished, folder)
        has_more = any(True for _ in dealer.make_chunks(corpus.read()))
        if has_more or dealer.distinct != index["documents"]["kept"]:
            raise make_other_text_error(folder)
    return index


def _describe_content(
    counts: _Counts,
    dealer: Dealer[T],
    shards: Sequence[ShardInfo],
    corpus: Corpus[T],
    unk_id: int,
) -> dict[str, Any]:
    """Return the counts of the index."""
    train = counts.tokens["train"]
    shares = train[train > 0] / int(train.sum())
    unknown = sum(int(tokens[unk_id]) for tokens in counts.tokens.values())
    return {
        "documents": {
            "kept": dealer.distinct,
            "duplicates": dealer.duplicates + corpus.duplicates,
            "empty": dealer.distinct - sum(info.documents for info in shards),
        },
        **corpus.dropped,
        "unigram_entropy": float(-(shares * np.log(shares)).sum()),
        "top_piece_share": float(shares.max()),
        "summary": summarize(corpus.tally, shards, dealer.words, unknown, counts.pairs),
    }


def _write_shard(
    path: Path, split: str, text: str, chunks: list[Encoded], vocab_size: int
) -> ShardInfo:
    """Write a shard, and return its entry of the index."""
    arrow_files.write_shard(path, chunks, vocab_size)
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
