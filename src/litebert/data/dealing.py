"""Documents split into the chunks of text that shards are made of.

Duplicates are dropped, documents are dealt to the splits, and shards are cut. All that decides the
bytes on disk happens here, in a single process and in order. So the bytes do not depend on the
number of processes that encode.
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
"""Bytes of text that are encoded in one call."""
LOOKAHEAD_BYTES = 8 << 20
"""Bytes of text that are read before the first document is dealt. So a small corpus gets enough
held-out documents too.
"""
FLOOR_BYTES, FLOOR_SHARE = 64 << 10, 0.05
"""A corpus that ends within the lookahead holds out this many bytes of text, but no more than this
share of its own. That is some 15,000 tokens, of which 2,200 are masked, and an accuracy on those
has a standard error of one point.
"""

Key = tuple[str, str, str]
"""Split, file of the shard, and for its last chunk the checksum of its text, else ""."""


class DocumentHashes:
    """The hashes of all documents so far, 80 bits each, in about 15 bytes of memory.

        hash of a document   3f a2 | 01 9c 44 d0 7b e8 15 6a | ...   16 bytes, of which 10 count
        buckets[3f a2]       [77 ... 10][01 9c 44 d0 7b e8 15 6a][c3 ...   8 bytes each, end to end

    One search for a substring finds a member. A Python set of the same takes 100 bytes a document.
    """

    def __init__(self) -> None:
        self._buckets: dict[bytes, bytearray] = {}

    def is_new(self, digest: bytes) -> bool:
        """Return whether a document was not seen before, and remember it."""
        bucket = self._buckets.setdefault(digest[:2], bytearray())
        rest = digest[2:10]
        offset = bucket.find(rest)
        while offset > 0 and offset % 8:  # a match across two members does not count
            offset = bucket.find(rest, offset + 1)
        if offset < 0:
            bucket += rest
        return offset < 0


class _ShardCutter:
    """Cuts the documents of one split into shards, and a shard into chunks to encode."""

    def __init__(
        self, split: str, shard_bytes: int, finished: dict[str, ShardInfo], folder: Path
    ) -> None:
        self._split, self._shard_bytes = split, shard_bytes
        self._finished, self._folder = finished, folder
        self._number = -1
        self._next_shard()

    def _next_shard(self) -> None:
        self._number += 1
        self._file = f"{self._split}-{self._number:05d}.arrow"
        self._digest = hashlib.blake2b(digest_size=16)
        self._texts: list[str] = []
        self._chunk = self._size = 0

    def add(self, text: str, size: int, digest: bytes) -> Iterator[tuple[Key, list[str]]]:
        """Take a document of `size` bytes, and yield the chunks that it completes."""
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
        """Close the shard. The key of its last chunk has the checksum of its text."""
        digest = self._digest.hexdigest()
        finished = self._finished.get(self._file)
        if finished is not None and finished.text != digest:
            raise make_other_text_error(self._folder)
        if finished is None and self._size:
            yield (self._split, self._file, digest), self._texts
        self._next_shard()


class Dealer:
    """Turns documents into chunks: drops duplicates, deals the splits, cuts the shards."""

    def __init__(
        self, heldout: float, shard_bytes: int, finished: dict[str, ShardInfo], folder: Path
    ) -> None:
        self._heldout = int(heldout * 2**64)
        self._seen = DocumentHashes()
        self.distinct = self.duplicates = 0
        """Documents without duplicates, and the duplicates."""
        self._words = 0
        self._uncounted = bytearray()
        self.added = 0
        """Documents held out beyond the share."""
        self._cutters = {
            name: _ShardCutter(name, shard_bytes, finished, folder) for name in ("train", "heldout")
        }

    def make_chunks(self, texts: Iterable[Document]) -> Iterator[tuple[Key, list[str]]]:
        """Yield the chunks to encode with their keys, in an order that only the texts decide."""
        for split, text, size, digest in self._deal(texts):
            yield from self._cutters[split].add(text, size, digest)
        for cutter in self._cutters.values():
            yield from cutter.end()

    def _deal(self, texts: Iterable[Document]) -> Iterator[tuple[str, str, int, bytes]]:
        """Yield (split, text, bytes, hash) of each distinct document."""
        unique = self._drop_duplicates(texts)
        yield from self._deal_first(unique)
        for text, size, digest in unique:
            yield self._choose_split(digest), text, size, digest

    def _deal_first(
        self, unique: Iterator[tuple[str, int, bytes]]
    ) -> Iterator[tuple[str, str, int, bytes]]:
        """Deal the first documents, so that both splits get some of a small corpus."""
        ahead: list[tuple[str, int, bytes]] = []
        ahead_bytes = 0
        while ahead_bytes < LOOKAHEAD_BYTES and (document := next(unique, None)):
            ahead.append(document)
            ahead_bytes += document[1]
        digests = [digest for _, _, digest in ahead]
        splits = [self._choose_split(digest) for digest in digests]
        # A split without documents gets one, which the hash alone decides.
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
        """Hold out more documents, up to the floor, in the order in which a larger share would take
        them.

        A document that goes far beyond the floor is not taken.
        """
        floor = min(FLOOR_BYTES, FLOOR_SHARE * sum(size for _, size, _ in documents))
        held_out_bytes = sum(
            size
            for split, (_, size, _) in zip(splits, documents, strict=True)
            if split == "heldout"
        )
        order = sorted(range(len(documents)), key=lambda i: _read_position(documents[i][2]))
        for index in order:
            size = documents[index][1]
            if held_out_bytes >= floor or len(splits) - splits.count("heldout") < 2:
                return
            if splits[index] == "train" and held_out_bytes + size <= 2 * floor:
                splits[index] = "heldout"
                held_out_bytes += size
                self.added += 1

    def _drop_duplicates(self, texts: Iterable[Document]) -> Iterator[tuple[str, int, bytes]]:
        """Yield (text, bytes, hash) of each distinct document, and count words."""
        is_new = self._seen.is_new
        for document in texts:
            data = document.text.encode()
            digest = hashlib.blake2b(data, digest_size=16).digest()
            if is_new(digest):
                self.distinct += 1
                self._uncounted += data
                self._uncounted += b"\n"
                if len(self._uncounted) >= CHUNK_BYTES:
                    self._count_words()
                yield document.text, len(data), digest
            else:
                self.duplicates += 1

    @property
    def words(self) -> int:
        """Number of words in distinct documents.

        A word ends at a space or a line end, so several spaces in a row count as several words.
        """
        self._count_words()
        return self._words

    def _count_words(self) -> None:
        # Counting in numpy is four times as fast as bytes.count.
        text = np.frombuffer(self._uncounted, np.uint8)
        self._words += int(np.count_nonzero(text == ord(" ")) + np.count_nonzero(text == ord("\n")))
        self._uncounted = bytearray()

    def _choose_split(self, digest: bytes) -> str:
        return "heldout" if _read_position(digest) < self._heldout else "train"


def _read_position(digest: bytes) -> int:
    """Return the number of a hash that decides the split, uniform below 2**64."""
    return int.from_bytes(digest[8:], "big")


def make_other_text_error(folder: Path) -> DataError:
    """Return the error for a folder whose shards were made from other text."""
    return DataError(
        f"{folder} was made from other text than the sources hold; give --out another "
        "folder, or delete it"
    )
