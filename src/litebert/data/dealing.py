"""Documents to the chunks of text that shards are made of: duplicates dropped, splits dealt, shards
cut.

All that decides the bytes on disk happens here, in one process and in order, so they do not depend
on the number of processes that encode.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from litebert.data.shards import ShardInfo
from litebert.errors import DataError
from litebert.text.sources import Document

CHUNK_BYTES = 1 << 20
"""Text encoded in one call."""
LOOKAHEAD_BYTES = 8 << 20
"""Text read before the first document is dealt, so that a small corpus gets enough held-out
documents too.
"""
FLOOR_BYTES, FLOOR_SHARE = 64 << 10, 0.05
"""A corpus that ends within the lookahead holds out this many bytes of text, but no more than this
share of its own: some 15,000 tokens, of which 2,200 are masked, on which an accuracy is known to a
point."""

Key = tuple[str, str, str]
"""Split, file of the shard, and at its last chunk the checksum of its text."""


class DocumentHashes:
    """The hashes of all documents so far, 80 bits each, in about 15 bytes of memory.

        hash of a document   3f a2 | 01 9c 44 d0 7b e8 15 6a | ...   16 bytes, of which 10 count
        buckets[3f a2]       [77 ... 10][01 9c 44 d0 7b e8 15 6a][c3 ...   8 bytes each, end to end

    One search for a substring finds a member. A Python set of the same takes 100 bytes a document.
    """

    def __init__(self) -> None:
        self._buckets: dict[bytes, bytearray] = {}

    def is_new(self, digest: bytes) -> bool:
        bucket = self._buckets.setdefault(digest[:2], bytearray())
        rest = digest[2:10]
        at = bucket.find(rest)
        while at > 0 and at % 8:  # the end of one member and the start of the next
            at = bucket.find(rest, at + 1)
        if at < 0:
            bucket += rest
        return at < 0


class _ShardCutter:
    """Cuts the documents of one split into shards, and a shard into chunks to encode."""

    def __init__(
        self, split: str, shard_bytes: int, finished: dict[str, ShardInfo], folder: Path
    ) -> None:
        self._split, self._shard_bytes, self._finished, self._folder = (
            split,
            shard_bytes,
            finished,
            folder,
        )
        self._number = -1
        self._next_shard()

    def _next_shard(self) -> None:
        self._number += 1
        self._file = f"{self._split}-{self._number:05d}.arrow"
        self._digest = hashlib.blake2b(digest_size=16)
        self._texts: list[str] = []
        self._chunk = self._size = 0

    def add(self, text: str, size: int, digest: bytes) -> Iterator[tuple[Key, list[str]]]:
        """Take one document of `size` bytes; gives the chunks that it completes."""
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

    def end(self) -> Iterator[tuple[Key, list[str]]]:
        """Close the shard; its last chunk carries the checksum of its text."""
        digest = self._digest.hexdigest()
        done = self._finished.get(self._file)
        if done is not None and done.text != digest:
            raise other_text(self._folder)
        if done is None and self._size:
            yield (self._split, self._file, digest), self._texts
        self._next_shard()


class Dealer:
    """Documents to chunks: drops duplicates, deals the splits, cuts the shards."""

    def __init__(
        self, heldout: float, shard_bytes: int, finished: dict[str, ShardInfo], folder: Path
    ) -> None:
        self._heldout = int(heldout * 2**64)
        self._seen = DocumentHashes()
        self.kept = self.duplicates = 0  # documents
        self._words = 0
        self._uncounted = bytearray()
        self.added = 0
        """Documents held out beyond the share asked for."""
        self._cutters = {
            name: _ShardCutter(name, shard_bytes, finished, folder) for name in ("train", "heldout")
        }

    def chunks(self, texts: Iterable[Document]) -> Iterator[tuple[Key, list[str]]]:
        """Chunks to encode, keyed, in an order that only the texts decide."""
        for split, text, size, digest in self._dealt(texts):
            yield from self._cutters[split].add(text, size, digest)
        for cutter in self._cutters.values():
            yield from cutter.end()

    def _dealt(self, texts: Iterable[Document]) -> Iterator[tuple[str, str, int, bytes]]:
        unique = self._unique(texts)
        yield from self._first_dealt(unique)
        for text, size, digest in unique:
            yield self._split_of(digest), text, size, digest

    def _first_dealt(
        self, unique: Iterator[tuple[str, int, bytes]]
    ) -> Iterator[tuple[str, str, int, bytes]]:
        ahead: list[tuple[str, int, bytes]] = []
        ahead_bytes = 0
        while ahead_bytes < LOOKAHEAD_BYTES and (document := next(unique, None)):
            ahead.append(document)
            ahead_bytes += document[1]
        digests = [digest for _, _, digest in ahead]
        splits = [self._split_of(digest) for digest in digests]
        if len(ahead) == 1:
            splits = ["train"]
        elif self._heldout and set(splits) == {"train"}:
            splits[digests.index(min(digests))] = "heldout"
        elif set(splits) == {"heldout"}:
            splits[digests.index(max(digests))] = "train"
        if self._heldout and ahead_bytes < LOOKAHEAD_BYTES:
            self._hold_out_more(splits, ahead)
        for split, document in zip(splits, ahead, strict=True):
            yield split, *document

    def _hold_out_more(self, splits: list[str], documents: list[tuple[str, int, bytes]]) -> None:
        """Up to the floor, those that a larger share would take first; none that goes far beyond
        it.
        """
        floor = min(FLOOR_BYTES, FLOOR_SHARE * sum(size for _, size, _ in documents))
        held = sum(
            size
            for split, (_, size, _) in zip(splits, documents, strict=True)
            if split == "heldout"
        )
        for place in sorted(
            range(len(documents)), key=lambda place: _place_of(documents[place][2])
        ):
            size = documents[place][1]
            if held >= floor or len(splits) - splits.count("heldout") < 2:
                return
            if splits[place] == "train" and held + size <= 2 * floor:
                splits[place] = "heldout"
                held += size
                self.added += 1

    def _unique(self, texts: Iterable[Document]) -> Iterator[tuple[str, int, bytes]]:
        is_new = self._seen.is_new
        for document in texts:
            data = document.text.encode()
            digest = hashlib.blake2b(data, digest_size=16).digest()
            if is_new(digest):
                self.kept += 1
                self._uncounted += data
                self._uncounted += b"\n"
                if len(self._uncounted) >= CHUNK_BYTES:
                    self._count_words()
                yield document.text, len(data), digest
            else:
                self.duplicates += 1

    @property
    def words(self) -> int:
        """Between single spaces or line ends, in the documents kept; more where several stand in a
        row.
        """
        self._count_words()
        return self._words

    def _count_words(self) -> None:
        text = np.frombuffer(self._uncounted, np.uint8)  # four times as fast as bytes.count
        self._words += int(np.count_nonzero(text == ord(" ")) + np.count_nonzero(text == ord("\n")))
        self._uncounted = bytearray()

    def _split_of(self, digest: bytes) -> str:
        return "heldout" if _place_of(digest) < self._heldout else "train"


def _place_of(digest: bytes) -> int:
    return int.from_bytes(digest[8:], "big")


def other_text(folder: Path) -> DataError:
    """The error for a folder whose shards were made from other text."""
    return DataError(
        f"{folder} was made from other text than the sources hold; give --out another "
        "folder, or delete it"
    )
