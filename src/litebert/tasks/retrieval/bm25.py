"""BM25, which ranks texts by the words that a query shares with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from litebert.tasks.features import UNSPACED, Sparse

K1, B = 0.9, 0.4
"""The parameters of BM25 of Anserini, with which BEIR reports it."""


class Bm25:
    """The scores of documents for queries by BM25 (Robertson and Zaragoza 2009), as Lucene computes
    it, over counts of scikit-learn.

        score(q, d) = sum over the words of q of  idf(w) tf / (tf + k1 (1 - b + b |d| / mean |d|))
        idf(w) = log(1 + (N - n + 0.5) / (n + 0.5)),  n of the N documents have w

    Words are runs of letters and digits, lowercase. Text without spaces between words is counted by
    characters, one and two in a row. Shapes: N documents, Q queries, V words.
    """

    def __init__(self, documents: Sequence[str]) -> None:
        from sklearn.feature_extraction.text import CountVectorizer

        counter = CountVectorizer(token_pattern=r"\w+")
        # A word at least, where all texts are empty.
        counts = counter.fit_transform([*documents, "a"])[:-1]
        if sum(map(len, documents)) > UNSPACED * counts.sum():
            counter = CountVectorizer(analyzer="char", ngram_range=(1, 2))
            counts = counter.fit_transform([*documents, "a"])[:-1]
        self._counter = counter
        documents_of = np.bincount(counts.indices, minlength=counts.shape[1])
        self._idf = np.log(1 + (len(documents) - documents_of + 0.5) / (documents_of + 0.5))
        self._mean = max(float(counts.sum(1).mean()), 1e-12)
        self._weights = self._weigh(counts)

    def _weigh(self, counts: Sparse) -> Sparse:
        """Compute the weight of each word in documents from their counts, (N, V)."""
        lengths = np.asarray(counts.sum(1), np.float64).ravel()
        norms = K1 * (1 - B + B * lengths / self._mean)
        weights = counts.tocsr().astype(np.float64)
        rows = np.repeat(np.arange(len(lengths)), np.diff(weights.indptr))
        weights.data = self._idf[weights.indices] * weights.data / (weights.data + norms[rows])
        return weights.astype(np.float32)

    def score_pairs(self, queries: Sequence[str], documents: Sequence[str]) -> NDArray[np.float32]:
        """Compute the score of each query for its document, which may be new, (N,)."""
        weights = self._weigh(self._counter.transform(documents))
        return np.asarray(self.count(queries).multiply(weights).sum(1), np.float32).ravel()

    def count(self, queries: Sequence[str]) -> Sparse:
        return self._counter.transform(queries).astype(np.float32)

    def compute_scores(self, counts: Sparse, documents: slice) -> NDArray[np.float32]:
        """Compute the scores (Q, n) of n of the documents for the counts of queries."""
        scores: NDArray[np.float32] = (counts @ self._weights[documents].T).toarray()
        return scores
