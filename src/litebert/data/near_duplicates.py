"""Near-duplicates among the documents of encoded parts, by MinHash of their token ids.

Documents are alike where their sets of runs of five tokens have a large Jaccard similarity (Broder
1997, "On the resemblance and containment of documents"), estimated by signatures of 128 minima.
Documents that agree in a band of their signatures are compared (Leskovec, Rajaraman and Ullman,
"Mining of Massive Datasets", section 3.4). Of a group of alike ones the first document stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import numpy.typing as npt

from litebert.base.progress import task
from litebert.data.random_keys import mix_bits
from litebert.data.shard_files import Block

SHINGLE = 5
MINIMA = 128
MOST_ROUNDS = 64
"""Documents of a bucket that are compared with the others of the bucket."""
_CHUNK = 1 << 16
"""Runs of tokens whose hashes are computed at once, so that they fit in a processor's cache."""
_CANDIDATES = 1000
"""Pairs that examples are chosen from, where the earlier document stays."""
_PAIRS = 1 << 16

Signatures = npt.NDArray[np.uint32]
"""(documents, MINIMA)."""


@dataclass(frozen=True)
class NearDuplicates:
    dropped: npt.NDArray[np.bool_]
    examples: list[tuple[int, int, float]]
    """Some dropped documents, each with the document that stays and the estimated similarity."""


def choose_bands(similarity: float) -> tuple[int, int]:
    """Choose the bands of a signature and the rows of a band, so that 95% or more of the pairs
    that are exactly as similar as asked for share a band, and as few others as possible do.
    """
    best = (MINIMA, 1)
    for rows in range(1, MINIMA + 1):
        bands = MINIMA // rows
        if 1 - (1 - similarity**rows) ** bands >= 0.95:
            best = (bands, rows)
    return best


_draw = np.random.Generator(np.random.PCG64(20260101))  # the hash functions are always the same
_MULTIPLIERS = _draw.integers(0, 2**63, MINIMA, np.uint64) * np.uint64(2) + np.uint64(1)
_SUMMANDS = _draw.integers(0, 2**63, MINIMA, np.uint64)
_ODD = np.uint64(0x9E3779B97F4A7C15)


def sign(block: Block) -> Signatures:
    """Compute the signatures of a block's documents, (documents, MINIMA). A document of fewer than
    five tokens is a single run.
    """
    every_start = block.sentence_offsets[block.document_offsets[:-1]].astype(np.int64)
    every_end = block.sentence_offsets[block.document_offsets[1:]].astype(np.int64)
    signatures = np.full((len(every_start), MINIMA), np.iinfo(np.uint32).max, np.uint32)
    first = last = 0
    while (first := last) < len(every_start):
        # As many documents as fit in the cache, at least one, whose ids lie end to end.
        last = int(np.searchsorted(every_end, every_start[first] + _CHUNK, "right"))
        last = max(first + 1, last)
        base = every_start[first]
        ids = block.ids[base : every_end[last - 1]]
        starts, ends = every_start[first:last] - base, every_end[first:last] - base
        hashes = _hash_runs(ids.astype(np.uint64))
        for length in range(1, SHINGLE):  # documents too short for a run of five, hashed whole
            for start in starts[ends - starts == length]:
                whole = np.full(1, length, np.uint64)
                for token in ids[start : start + length].astype(np.uint64):
                    whole = _mix(whole * _ODD + token)
                hashes[start : start + 1] = whole
        counts = np.maximum(ends - starts - SHINGLE + 1, np.minimum(ends - starts, 1))
        full = np.flatnonzero(counts > 0)
        if not len(full):
            continue
        counts = counts[full]
        offsets = np.cumsum(counts) - counts
        # The runs that lie within one document, end to end.
        within = np.arange(int(counts.sum())) - np.repeat(offsets - starts[full], counts)
        runs = hashes[within] >> np.uint64(32)
        minima = np.empty((len(full), MINIMA), np.uint32)
        buffer = np.empty_like(runs)
        for i in range(MINIMA):
            # Multiply-shift hashing of 32 bits to 32 bits (Dietzfelbinger 1996).
            np.multiply(runs, _MULTIPLIERS[i], out=buffer)
            buffer += _SUMMANDS[i]
            buffer >>= np.uint64(32)
            minima[:, i] = np.minimum.reduceat(buffer, offsets)
        signatures[first + full] = minima
    return signatures


def _hash_runs(ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    hashes = np.zeros(len(ids), np.uint64)
    count = len(ids) - SHINGLE + 1
    if count > 0:
        for i in range(SHINGLE):
            hashes[:count] = _mix(hashes[:count] + ids[i : i + count] + np.uint64(1))
    return hashes


def _mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    return mix_bits(numbers * _ODD)


def estimate(left: Signatures, right: Signatures) -> npt.NDArray[np.float64]:
    equal: npt.NDArray[np.float64] = (left == right).mean(axis=1)
    return equal


# ------------------------------------------------------------------------------------ all documents


def write_signatures(file: IO[bytes], blocks: Iterable[Block]) -> int:
    count = 0
    with task("looking for near-duplicates", unit="documents") as bar:
        for block in blocks:
            file.write(sign(block).data)
            count += block.documents
            bar.advance(block.documents)
    file.flush()
    return count


def find_near_duplicates(
    file: IO[bytes], similarity: float, skipped: npt.NDArray[np.bool_], examples: int = 3
) -> NearDuplicates:
    """Find the documents that resemble an earlier one, from the file of `write_signatures`.

    Documents that are `skipped`, (documents,), such as exact duplicates, are compared with none.
    """
    count = len(skipped)
    signatures = (
        np.memmap(file, np.uint32, "r", shape=(count, MINIMA))
        if count
        else np.empty((0, MINIMA), np.uint32)
    )
    compared = np.flatnonzero(~skipped)
    groups = _Groups(count)
    pairs: list[tuple[int, int, float]] = []
    bands, rows = choose_bands(similarity)
    for band in range(bands):
        columns = slice(band * rows, (band + 1) * rows)
        order, starts = _sort_buckets(signatures, compared, columns)
        for left, right, likeness in _compare(signatures, order, starts, similarity):
            for first, second, value in zip(
                left.tolist(), right.tolist(), likeness.tolist(), strict=True
            ):
                if groups.join(first, second) and len(pairs) < _CANDIDATES:
                    pairs.append((second, first, value))
    dropped = groups.list_later()
    shown = [pair for pair in pairs if not dropped[pair[1]]]
    return NearDuplicates(dropped, shown[:examples])


def _sort_buckets(
    signatures: Signatures, compared: npt.NDArray[np.int64], columns: slice
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Sort documents by the hash of a band: those of buckets of two or more, bucket after bucket
    and in their order within, and where each bucket starts.
    """
    keys = np.empty(len(compared), np.uint64)
    for begin in range(0, len(compared), _PAIRS):
        chosen = compared[begin : begin + _PAIRS]
        key = np.zeros(len(chosen), np.uint64)
        for column in signatures[chosen, columns].T:
            key = _mix(key + column.astype(np.uint64) + np.uint64(1))
        keys[begin : begin + _PAIRS] = key
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    is_start = np.ones(len(keys), bool)
    is_start[1:] = keys[1:] != keys[:-1]
    bucket = np.cumsum(is_start) - 1
    sizes = np.bincount(bucket) if len(bucket) else np.zeros(0, np.int64)
    members = np.flatnonzero(sizes[bucket] > 1) if len(bucket) else np.zeros(0, np.int64)
    starts = np.flatnonzero(np.diff(bucket[members], prepend=-1))
    return compared[order[members]], starts


def _compare(
    signatures: Signatures,
    order: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    similarity: float,
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]]:
    """Yield the alike pairs of each bucket, the earlier document first. All are compared with the
    first one, those that are not alike with the first among them, and so on.
    """
    bucket = np.zeros(len(order), np.int64)
    bucket[starts] = 1
    bucket = np.cumsum(bucket) - 1
    for _ in range(MOST_ROUNDS):
        if not len(order):
            return
        is_first = np.ones(len(bucket), bool)
        is_first[1:] = bucket[1:] != bucket[:-1]
        firsts = order[is_first]
        others = np.flatnonzero(~is_first)
        index = np.cumsum(is_first) - 1
        left, right = firsts[index[others]], order[others]
        likeness = np.empty(len(others))
        for begin in range(0, len(others), _PAIRS):
            chosen = slice(begin, begin + _PAIRS)
            likeness[chosen] = estimate(signatures[left[chosen]], signatures[right[chosen]])
        alike = likeness >= similarity
        yield left[alike], right[alike], likeness[alike]
        rest = others[~alike]
        order, bucket = order[rest], bucket[rest]


class _Groups:
    """Groups of documents, each known by its first one (union and find)."""

    def __init__(self, count: int) -> None:
        self._parents = np.arange(count, dtype=np.int64 if count > 1 << 31 else np.int32)

    def _find(self, document: int) -> int:
        parents = self._parents
        root = document
        while (parent := int(parents[root])) != root:
            root = parent
        while document != root:
            document, parents[document] = int(parents[document]), root
        return root

    def join(self, first: int, second: int) -> bool:
        left, right = self._find(first), self._find(second)
        self._parents[max(left, right)] = min(left, right)
        return left != right

    def list_later(self) -> npt.NDArray[np.bool_]:
        later: npt.NDArray[np.bool_] = self._parents != np.arange(len(self._parents))
        return later
