"""Documents split into the chunks that shards are made of.

All that decides the bytes on disk happens here, in a single process and in order. So the bytes do
not depend on the number of processes that encode.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from litebert.base.errors import DataError
from litebert.data.encoding import count_words, hash_text
from litebert.data.shards import UNDEALT, ShardInfo
from litebert.text.sources import Document

T = TypeVar("T")

CHUNK_BYTES = 1 << 20
LOOKAHEAD_BYTES = 8 << 20
"""Bytes of text that are read before a document is dealt, for a small corpus (`_deal`)."""
FLOOR_BYTES, FLOOR_SHARE = 64 << 10, 0.05
"""A corpus that ends within the lookahead holds out this many bytes of text, but no more than this
share of its own. That is some 15,000 tokens, of which 2,200 are masked, and an accuracy on those
has a standard error of one point.
"""

Key = tuple[str, str, str]
"""Split, file of the shard, and for its last chunk the checksum of its text, else ""."""


@dataclass(slots=True)
class Hashed(Generic[T]):
    content: T
    size: int
    digest: bytes
    """The hash of its text, 16 bytes."""
    data: bytes | int
    """Its text in UTF-8, or the number of its words."""


def hash_documents(documents: Iterable[Document]) -> Iterator[Hashed[str]]:
    for document in documents:
        data = document.text.encode()
        yield Hashed(document.text, len(data), hash_text(data), data)


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
        offset = bucket.find(rest)
        while offset > 0 and offset % 8:  # a match across two members does not count
            offset = bucket.find(rest, offset + 1)
        if offset < 0:
            bucket += rest
        return offset < 0


class _ShardCutter(Generic[T]):
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
        self._contents: list[T] = []
        self._chunk = self._size = 0

    def add(self, document: Hashed[T]) -> Iterator[tuple[Key, list[T]]]:
        self._digest.update(document.digest)
        self._size += document.size
        self._chunk += document.size
        if self._file not in self._finished:
            self._contents.append(document.content)
        if self._size >= self._shard_bytes:
            yield from self.end()
        elif self._chunk >= CHUNK_BYTES and self._contents:
            yield (self._split, self._file, ""), self._contents
            self._contents, self._chunk = [], 0

    def end(self) -> Iterator[tuple[Key, list[T]]]:
        digest = self._digest.hexdigest()
        finished = self._finished.get(self._file)
        if finished is not None and finished.text != digest:
            raise make_other_text_error(self._folder)
        if finished is None and self._size:
            yield (self._split, self._file, digest), self._contents
        self._next_shard()


class Dealer(Generic[T]):
    def __init__(
        self, heldout: float | None, shard_bytes: int, finished: dict[str, ShardInfo], folder: Path
    ) -> None:
        """`heldout` is the share to hold out; None for a part, whose documents `merge` deals."""
        self._heldout = None if heldout is None else int(heldout * 2**64)
        self._seen = DocumentHashes()
        self.distinct = self.duplicates = 0
        """Documents without duplicates, and the duplicates."""
        self._words = 0
        self._uncounted = bytearray()
        self.added = 0
        names = (UNDEALT,) if heldout is None else ("train", "heldout")
        self._cutters: dict[str, _ShardCutter[T]] = {
            name: _ShardCutter(name, shard_bytes, finished, folder) for name in names
        }

    def make_chunks(self, documents: Iterable[Hashed[T]]) -> Iterator[tuple[Key, list[T]]]:
        """Yield the chunks to encode with their keys, in an order that only the texts decide."""
        for split, document in self._deal(documents):
            yield from self._cutters[split].add(document)
        for cutter in self._cutters.values():
            yield from cutter.end()

    def _deal(self, documents: Iterable[Hashed[T]]) -> Iterator[tuple[str, Hashed[T]]]:
        unique = self._drop_duplicates(documents)
        share = self._heldout
        if share is None:
            yield from ((UNDEALT, document) for document in unique)
            return

        def read_position(document: Hashed[T]) -> int:
            return int.from_bytes(document.digest[8:], "big")  # uniform below 2**64

        def choose_split(document: Hashed[T]) -> str:
            return "heldout" if read_position(document) < share else "train"

        # The first documents are dealt together, so that both splits get some of a small corpus.
        ahead: list[Hashed[T]] = []
        ahead_bytes = 0
        while ahead_bytes < LOOKAHEAD_BYTES and (document := next(unique, None)):
            ahead.append(document)
            ahead_bytes += document.size
        digests = [document.digest for document in ahead]
        splits = [choose_split(document) for document in ahead]
        # A split without documents gets one, which the hash alone decides.
        if len(ahead) == 1:
            splits = ["train"]
        elif share and set(splits) == {"train"}:
            splits[digests.index(min(digests))] = "heldout"
        elif set(splits) == {"heldout"}:
            splits[digests.index(max(digests))] = "train"
        if share and ahead_bytes < LOOKAHEAD_BYTES:
            # More is held out up to the floor, in the order in which a larger share would take it,
            # but no document that goes far beyond the floor.
            floor = min(FLOOR_BYTES, FLOOR_SHARE * ahead_bytes)
            held_out_bytes = sum(
                document.size
                for split, document in zip(splits, ahead, strict=True)
                if split == "heldout"
            )
            for index in sorted(range(len(ahead)), key=lambda index: read_position(ahead[index])):
                size = ahead[index].size
                if held_out_bytes >= floor or splits.count("train") < 2:
                    break
                if splits[index] == "train" and held_out_bytes + size <= 2 * floor:
                    splits[index] = "heldout"
                    held_out_bytes += size
                    self.added += 1
        yield from zip(splits, ahead, strict=True)
        yield from ((choose_split(document), document) for document in unique)

    def _drop_duplicates(self, documents: Iterable[Hashed[T]]) -> Iterator[Hashed[T]]:
        is_new = self._seen.is_new
        for document in documents:
            if not is_new(document.digest):
                self.duplicates += 1
                continue
            self.distinct += 1
            if isinstance(document.data, int):
                self._words += document.data
            else:
                self._uncounted += document.data
                self._uncounted += b"\n"
                if len(self._uncounted) >= CHUNK_BYTES:
                    self._count_words()
            yield document

    @property
    def words(self) -> int:
        self._count_words()
        return self._words

    def _count_words(self) -> None:
        # Counting many texts at once in numpy is four times as fast as bytes.count.
        if self._uncounted:
            text = np.frombuffer(self._uncounted, np.uint8)
            self._words += int(count_words(text, np.zeros(1, np.int64))[0])
            self._uncounted = bytearray()


def make_other_text_error(folder: Path) -> DataError:
    return DataError(
        f"{folder} was made from other text than the sources hold; give --out another "
        "folder, or delete it"
    )
