"""BM25 (Robertson and Zaragoza 2009) as Lucene computes it, over counts of scikit-learn.

    score(q, d) = sum over the words of q of  idf(w) tf / (tf + k1 (1 - b + b |d| / mean |d|))
    idf(w) = log(1 + (N - n + 0.5) / (n + 0.5)),  n of the N documents have w

Words are runs of letters and digits, lowercase. Text without spaces between words is counted by
characters, one and two in a row.

Shapes: N documents, Q queries, V words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from litebert.finetuning.baselines.features import UNSPACED, Sparse

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import CountVectorizer

K1, B = 0.9, 0.4
"""Those of Anserini, with which BEIR reports BM25."""


class Bm25:
    """The scores of documents for queries."""

    def __init__(self, documents: Sequence[str], k1: float = K1, b: float = B) -> None:
        """Count the words of N documents, at least one."""
        self._counter, counts = _count_words(documents)
        lengths = np.asarray(counts.sum(1), np.float64).ravel()
        documents_of = np.bincount(counts.indices, minlength=counts.shape[1])
        idf = np.log(1 + (len(documents) - documents_of + 0.5) / (documents_of + 0.5))
        norms = k1 * (1 - b + b * lengths / max(float(lengths.mean()), 1e-12))
        weights = counts.tocsr().astype(np.float64)
        rows = np.repeat(np.arange(len(documents)), np.diff(weights.indptr))
        weights.data = idf[weights.indices] * weights.data / (weights.data + norms[rows])
        self._weights = weights.astype(np.float32)

    def count(self, queries: Sequence[str]) -> Sparse:
        """Count the words of queries, (Q, V)."""
        return self._counter.transform(queries).astype(np.float32)

    def compute_scores(self, counts: Sparse, documents: slice) -> NDArray[np.float32]:
        """Compute the scores (Q, n) of n of the documents for the counts of queries."""
        scores: NDArray[np.float32] = (counts @ self._weights[documents].T).toarray()
        return scores


def _count_words(documents: Sequence[str]) -> tuple[CountVectorizer, Any]:
    """Fit a counter to documents, and return it with their counts, (N, V)."""
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(token_pattern=r"\w+")
    # A word at least, where all texts are empty.
    counts = counter.fit_transform([*documents, "a"])[:-1]
    if sum(map(len, documents)) > UNSPACED * counts.sum():
        counter = CountVectorizer(analyzer="char", ngram_range=(1, 2))
        counts = counter.fit_transform([*documents, "a"])[:-1]
    return counter, counts
