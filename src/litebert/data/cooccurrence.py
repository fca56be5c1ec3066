"""Token vectors from counts: which tokens stand near each other in prepared text.

Counts within a window, weighted by 1 / distance, become positive pointwise mutual information, and
its truncated singular value decomposition gives a vector for each token (Levy and Goldberg 2014,
"Neural Word Embedding as Implicit Matrix Factorization"; Levy, Goldberg and Dagan 2015, "Improving
Distributional Similarity with Lessons Learned from Word Embeddings"). Memory does not grow with the
text: a large vocabulary counts the neighbors among its most frequent tokens only.

Shapes: V vocabulary, C neighbors that are counted, E width of the vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from litebert.base.errors import DataError
from litebert.base.progress import track
from litebert.config import TableConfig
from litebert.data.segments import AnySplit, list_splits

MOST_CELLS = 1 << 25
"""Numbers of the array of counts, 128 MiB in float32."""
MOST_TOKENS = 1 << 26
"""Tokens that are counted, 67 million; of a longer text, passages spread evenly over it."""
PASSAGE = 1 << 18
SMOOTHING = 0.75
"""Power of the neighbors' frequencies, against large values of rare ones (Levy et al. 2015)."""

Floats = npt.NDArray[np.float32]
Sparse: TypeAlias = Any
"""A matrix of scipy in the form csr, float32."""


@dataclass(frozen=True)
class Counts:
    """How often tokens stand alone and near each other."""

    tokens: npt.NDArray[np.int64]
    """(V,): how often each token occurs."""
    pairs: Sparse
    """(V, C): weights of the neighbors of each token, summed, without zeros."""
    token_sums: npt.NDArray[np.float64]
    """(V,): the sum of each row of `pairs`."""
    neighbor_sums: npt.NDArray[np.float64]
    """(C,): the sum of each column."""


Blocks = list[tuple[npt.NDArray[Any], npt.NDArray[np.int32]]]
"""Token ids (n,) and where their sentences or documents start, for each block."""


@dataclass(frozen=True)
class _Passages:
    blocks: Blocks
    places: Sequence[tuple[int, int]]
    """The block and the first token of each."""
    scale: float
    """The weight of a token, 1 or more, which gives the splits of a mixture their shares."""

    def add_up(self, vocab_size: int) -> npt.NDArray[np.int64]:
        tokens = np.zeros(vocab_size, np.int64)
        for block, first in self.places:
            tokens += np.bincount(
                self.blocks[block][0][first : first + PASSAGE], minlength=vocab_size
            )
        return tokens if self.scale == 1 else np.rint(tokens * self.scale).astype(np.int64)


def count_neighbors(split: AnySplit, vocab_size: int, table: TableConfig) -> Counts:
    """Count each token and its neighbors up to `table.window` tokens away in the same unit."""
    every = _choose_passages(split, table.context)
    tokens = np.sum([passages.add_up(vocab_size) for passages in every], axis=0)
    width = max(1, min(vocab_size, MOST_CELLS // vocab_size))
    neighbors = np.argsort(-tokens, kind="stable")[:width]
    column_of = np.full(vocab_size, -1, np.int64)
    column_of[neighbors] = np.arange(width)
    pairs = np.zeros((vocab_size, width), np.float32)
    places = [(passages, place) for passages in every for place in passages.places]
    with track(places, "counting neighbors", len(places), "passages") as tracked:
        for passages, (block, first) in tracked:
            every_id, starts = passages.blocks[block]
            ids = every_id[first : first + PASSAGE + table.window].astype(np.int64)
            segment = np.zeros(len(ids), np.int64)
            # The edges have the type of the starts, for otherwise numpy would convert all starts.
            edges = np.array([first, first + len(ids)], starts.dtype)
            lowest, highest = starts.searchsorted(edges)
            segment[starts[lowest:highest] - first] = 1
            _add_neighbors(pairs, ids, segment.cumsum(), table.window, column_of, passages.scale)
    if not pairs.any():
        raise DataError(
            "no token of the text has a neighbor to count; prepare whole sentences, or set "
            "table.start=random"
        )
    return keep_nonzero(tokens, pairs)


def count_tokens(split: AnySplit, vocab_size: int) -> npt.NDArray[np.int64]:
    """Count each token, (V,), in the passages that `count_neighbors` reads."""
    every = _choose_passages(split, "document")
    tokens: npt.NDArray[np.int64] = np.sum(
        [passages.add_up(vocab_size) for passages in every], axis=0
    )
    return tokens


def _choose_passages(split: AnySplit, unit: Literal["sentence", "document"]) -> list[_Passages]:
    splits, weights = zip(*list_splits(split), strict=True)
    every: list[tuple[Blocks, list[tuple[int, int]]]] = []
    sizes = []
    for member in splits:
        blocks: Blocks = list(member.read_segments(unit))
        lengths = [len(ids) for ids, _ in blocks]
        places = [
            (block, first)
            for block, length in enumerate(lengths)
            for first in range(0, length, PASSAGE)
        ]
        limit = max(1, MOST_TOKENS // len(splits) // PASSAGE)
        if len(places) > limit:
            places = [places[i * len(places) // limit] for i in range(limit)]
        sizes.append(sum(min(PASSAGE, lengths[block] - first) for block, first in places))
        every.append((blocks, places))
    scales = [weight / max(1, size) for size, weight in zip(sizes, weights, strict=True)]
    return [
        _Passages(blocks, places, scale / min(scales))
        for (blocks, places), scale in zip(every, scales, strict=True)
    ]


def keep_nonzero(tokens: npt.NDArray[np.int64], pairs: Floats) -> Counts:
    from scipy.sparse import csr_matrix

    ends = np.count_nonzero(pairs, axis=1).cumsum()
    starts = np.concatenate([[0], ends]).astype(np.int32)
    weights, neighbors = np.empty(ends[-1], np.float32), np.empty(ends[-1], np.int32)
    for first in range(0, len(pairs), step := _choose_step(pairs.shape[1])):
        part = csr_matrix(pairs[first : first + step])
        places = slice(starts[first], starts[first] + part.nnz)
        weights[places], neighbors[places] = part.data, part.indices
    # Sums of the dense array, for those of the sparse one are added in another order.
    sums = pairs.sum(axis=1, dtype=np.float64), pairs.sum(axis=0, dtype=np.float64)
    return Counts(tokens, csr_matrix((weights, neighbors, starts), pairs.shape), *sums)


def _choose_step(width: int) -> int:
    """Return how many rows of `width` numbers to process at once, so that copies stay small."""
    return max(1, (1 << 22) // width)


def _add_neighbors(
    pairs: Floats,
    ids: npt.NDArray[np.int64],
    segment: npt.NDArray[np.int64],
    window: int,
    column_of: npt.NDArray[np.int64],
    scale: float,
) -> None:
    columns, flat, width = column_of[ids], pairs.reshape(-1), pairs.shape[1]
    for distance in range(1, window + 1):
        size = min(PASSAGE, len(ids) - distance)
        if size <= 0:
            break
        left, right = slice(0, size), slice(distance, distance + size)
        in_same_segment = segment[left] == segment[right]
        for centers, sides in ((left, right), (right, left)):
            token, neighbor = ids[centers][in_same_segment], columns[sides][in_same_segment]
            np.add.at(flat, (token * width + neighbor)[neighbor >= 0], np.float32(scale / distance))


def compute_token_vectors(counts: Counts, width: int, std: float) -> Floats:
    """Return vectors (V, E) of standard deviation `std`, whose columns have mean 0 over the tokens
    with neighbors. Tokens without neighbors are zero, and so are columns beyond the counts' rank.
    """
    from sklearn.utils.extmath import randomized_svd
    from threadpoolctl import threadpool_limits

    information = _compute_positive_information(counts)
    vectors = np.zeros((len(counts.tokens), width), np.float32)
    rank = min(width, *information.shape)
    # With more threads, libraries add in another order.
    with threadpool_limits(1):
        left, values, _ = randomized_svd(information, rank, n_iter=4, random_state=0)
    vectors[:, :rank] = left * np.sqrt(values)
    has_neighbors = np.diff(counts.pairs.indptr) > 0
    vectors[has_neighbors] -= vectors[has_neighbors].mean(axis=0)
    vectors[~has_neighbors] = 0
    actual_std = float(vectors[has_neighbors].std())
    return vectors * np.float32(std / actual_std) if actual_std > 0 else vectors


def _compute_positive_information(counts: Counts) -> Sparse:
    """Return positive pointwise mutual information, (V, C): max(0, log p(c | w) / p(c)^0.75)."""
    from scipy.sparse import vstack

    frequency = counts.neighbor_sums**SMOOTHING
    frequency /= frequency.sum()
    parts, step = [], _choose_step(counts.pairs.shape[1])
    for first in range(0, counts.pairs.shape[0], step):
        part = counts.pairs[first : first + step]
        row_of = first + np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))
        ratio = part.data / (counts.token_sums[row_of] * frequency[part.indices])
        part.data = np.log(np.maximum(ratio, 1)).astype(np.float32)
        part.eliminate_zeros()
        parts.append(part)
    return vstack(parts, format="csr")
