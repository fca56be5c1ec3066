"""Rankings of documents, and their scores.

Shapes: Q queries, n documents of a block, k documents that a ranking keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from litebert.base import progress
from litebert.finetuning.baselines.models import Bm25
from litebert.tasks.retrieval.files import Collection

Ranking = list[NDArray[np.int64]]
"""The places of the documents of each query, the best first, (k,) or fewer."""
DEPTH = 100
"""Documents that a ranking keeps, at most."""
BLOCK = 4096
"""Documents that BM25 scores at once."""
QUERIES = 1024
"""Queries that BM25 scores at once."""


class BestDocuments:
    """The best documents of each query, of blocks that come one after the other. Of equal scores
    the earlier document is better.
    """

    def __init__(
        self, queries: Sequence[str], places: Mapping[str, int], depth: int = DEPTH
    ) -> None:
        """`places` has the place of each document by its id; empty if equal ids mean nothing."""
        self._same = np.array([places.get(name, -1) for name in queries], np.int64)
        self._depth = depth
        self._scores = np.zeros((len(queries), 0), np.float32)
        self._places = np.zeros((len(queries), 0), np.int64)

    @classmethod
    def of(
        cls, collection: Collection, queries: Sequence[str] | None = None, depth: int = DEPTH
    ) -> BestDocuments:
        """Begin for the documents of a collection and some of its queries, all by default."""
        places = {}
        if collection.drops_equal_ids:
            places = {name: place for place, name in enumerate(collection.documents)}
        return cls(list(collection.queries) if queries is None else queries, places, depth)

    def add(self, scores: NDArray[np.float32], start: int) -> None:
        """Add the scores (Q, n) of the documents from a place on; minus infinity is no match."""
        end = start + scores.shape[1]
        rows = np.flatnonzero((self._same >= start) & (self._same < end))
        scores[rows, self._same[rows] - start] = -np.inf
        places = np.broadcast_to(np.arange(start, end), scores.shape)
        joined = np.concatenate((self._scores, scores), axis=1)
        order = _order_best(joined, self._depth)
        self._scores = np.take_along_axis(joined, order, axis=1)
        self._places = np.take_along_axis(
            np.concatenate((self._places, places), axis=1), order, axis=1
        )

    def rank(self) -> Ranking:
        return [
            places[scores > -np.inf]
            for scores, places in zip(self._scores, self._places, strict=True)
        ]


def _order_best(scores: NDArray[np.float32], depth: int) -> NDArray[np.int64]:
    """Return the columns of the best scores (Q, n) of each row, (Q, k), equal ones in order."""
    if scores.shape[1] > depth:
        # Above the last place that counts there are fewer than k scores; of those that equal the
        # score of that place, the first are taken.
        last = -np.partition(-scores, depth - 1, axis=1)[:, depth - 1 : depth]
        above = scores > last
        equal = scores == last
        room = depth - above.sum(1, keepdims=True)
        chosen = above | (equal & (np.cumsum(equal, axis=1) <= room))
        columns = np.nonzero(chosen)[1].reshape(len(scores), depth)
        order = np.argsort(-np.take_along_axis(scores, columns, axis=1), axis=1, kind="stable")
        return np.take_along_axis(columns, order, axis=1)
    return np.argsort(-scores, axis=1, kind="stable")


def rank_by_bm25(collection: Collection, depth: int = DEPTH) -> Ranking:
    """Rank `depth` documents of each query by BM25, without those that share no word with it."""
    names, texts = list(collection.queries), list(collection.queries.values())
    with progress.task("ranking by BM25", len(names), "queries") as bar:
        scorer, ranking = Bm25(list(collection.documents.values())), Ranking()
        for first in range(0, len(names), QUERIES):
            part = slice(first, first + QUERIES)
            counts = scorer.count(texts[part])
            best = BestDocuments.of(collection, names[part], depth)
            for start in range(0, len(collection.documents), BLOCK):
                scores = scorer.compute_scores(counts, slice(start, start + BLOCK))
                best.add(np.where(scores > 0, scores, -np.inf).astype(np.float32), start)
            ranking += best.rank()
            bar.advance(len(texts[part]))
    return ranking


def compute_ndcg(grades: NDArray[np.int64], relevant: Sequence[int], size: int) -> float:
    """Compute the normalized discounted cumulative gain of the first `size` ranks, whose gain is
    the grade. `relevant` are the grades of all relevant documents, ranked or not.
    """
    best = np.sort(np.array(relevant))[::-1]
    return _discount(grades[:size]) / _discount(best[:size])


def _discount(grades: NDArray[np.int64]) -> float:
    return float((grades / np.log2(np.arange(2, len(grades) + 2))).sum())


def compute_recall(grades: NDArray[np.int64], relevant: Sequence[int], size: int) -> float:
    return int((grades[:size] > 0).sum()) / len(relevant)


def compute_reciprocal_rank(grades: NDArray[np.int64], relevant: Sequence[int], size: int) -> float:
    """Compute 1/rank of the first relevant document; 0 where it is not among the first `size`."""
    places = np.flatnonzero(grades[:size] > 0)
    return 1 / (1 + int(places[0])) if len(places) else 0.0


MEASURES: Mapping[str, tuple[Callable[[NDArray[np.int64], Sequence[int], int], float], int]] = (
    MappingProxyType(
        {
            "ndcg_at_10": (compute_ndcg, 10),
            "recall_at_10": (compute_recall, 10),
            "recall_at_100": (compute_recall, 100),
            "mrr_at_10": (compute_reciprocal_rank, 10),
        }
    )
)
"""The scores of rankings: a function, and the ranks that it counts."""


def score_rankings(
    rankings: Sequence[Sequence[int]],
    relevant: Sequence[Sequence[int]],
    names: Sequence[str] = tuple(MEASURES),
) -> dict[str, float]:
    """Compute the mean of each score over the queries, from the grades of each ranking and of all
    relevant documents.
    """
    rows = [np.array(row, np.int64) for row in rankings]
    means = {}
    for name in names:
        compute, size = MEASURES[name]
        values = [
            compute(row, all_grades, size) for row, all_grades in zip(rows, relevant, strict=True)
        ]
        means[name] = float(np.mean(values))
    return means
