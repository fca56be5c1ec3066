"""Texts as sparse rows of numbers: TF-IDF of words and of characters, by scikit-learn.

Shapes: N rows, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from litebert.interop.tfidf import SCALE, WORD

Texts: TypeAlias = "tuple[str, ...]"
"""One text, or the two of a pair."""
Sparse: TypeAlias = Any
"""A matrix of scipy in the form csr, float32 (N, F)."""

FEW_ROWS = 100
"""Training rows below which a feature of one row counts too."""
UNSPACED = 15
"""Characters between two spaces, on average, of text whose language puts none between words."""


class CharacterFeatures:
    """TF-IDF of the 3 to 5 neighboring characters inside words (`char_wb` of scikit-learn); of text
    without spaces between words, of 1 to 3.

    The n-grams of a word depend on nothing outside it. So they are counted once for each different
    word and not for each text. The product (texts x words) @ (words x n-grams) has the counts of
    `char_wb` exactly, in a fifth of the time.
    """

    def fit(self, texts: Sequence[str], rows: int, most: int) -> Sparse:
        """Learn the `most` commonest n-grams of `rows` texts or more; return the texts' rows."""
        from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

        counts, words = _count_words(texts)
        lengths = (3, 5) if sum(map(len, texts)) < UNSPACED * counts.sum() else (1, 3)
        self._ngrams = CountVectorizer(analyzer="char_wb", ngram_range=lengths, dtype=np.float32)
        counts = counts @ self._ngrams.fit_transform(words)
        frequency = np.bincount(counts.indices, minlength=counts.shape[1])
        order = np.argsort(-frequency, kind="stable")[:most]
        self._columns = np.sort(order[frequency[order] >= rows])
        self._weights = TfidfTransformer(sublinear_tf=True)
        matrix: Sparse = self._weights.fit_transform(counts[:, self._columns])
        return matrix

    def transform(self, texts: Sequence[str]) -> Sparse:
        """N-grams that `fit` did not see are left out."""
        counts, words = _count_words(texts)
        matrix: Sparse = self._weights.transform(
            (counts @ self._ngrams.transform(words))[:, self._columns]
        )
        return matrix

    def describe(self) -> tuple[list[str], tuple[int, int], NDArray[np.float64]]:
        names = self._ngrams.get_feature_names_out()[self._columns].tolist()
        return names, self._ngrams.ngram_range, self._weights.idf_


def _count_words(texts: Sequence[str]) -> tuple[Sparse, list[str]]:
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(token_pattern=r"\S+", dtype=np.float32)
    counts = counter.fit_transform([*texts, "."])[:-1]  # a word at least, where all texts are empty
    return counts, counter.get_feature_names_out().tolist()


class TextFeatures:
    """TF-IDF of words (one or two in a row) and of characters, each text's of length 1; and of
    pairs how alike the two are."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._characters = CharacterFeatures()

    def fit(self, rows: Sequence[Texts]) -> Sparse:
        from sklearn.feature_extraction.text import TfidfVectorizer

        least = 1 if len(rows) < FEW_ROWS else 2
        self._words = TfidfVectorizer(
            token_pattern=WORD,
            ngram_range=(1, 2),
            min_df=least,
            max_features=self._most,
            sublinear_tf=True,
            dtype=np.float32,
        )
        texts = _flatten(rows)
        matrix = _join_features(
            rows, self._words.fit_transform(texts), self._characters.fit(texts, least, self._most)
        )
        self.width = matrix.shape[1]
        return matrix

    def transform(self, rows: Sequence[Texts]) -> Sparse:
        texts = _flatten(rows)
        return _join_features(rows, self._words.transform(texts), self._characters.transform(texts))

    def describe(self) -> tuple[list[str], list[str], tuple[int, int], NDArray[np.float32]]:
        """Return the words, the n-grams with their sizes, and the weights of both by TF-IDF, (F,):
        what a model needs to count without scikit-learn (interop/tfidf.py)."""
        ngrams, sizes, weights = self._characters.describe()
        idf = np.concatenate((self._words.idf_, weights)).astype(np.float32)
        return self._words.get_feature_names_out().tolist(), ngrams, sizes, idf


def _flatten(rows: Sequence[Texts]) -> list[str]:
    return [text for side in zip(*rows, strict=True) for text in side]


def _join_features(rows: Sequence[Texts], words: Sparse, characters: Sparse) -> Sparse:
    """Join features of texts, in the order of `_flatten`, to a row for each text or pair."""
    from scipy.sparse import csr_matrix, hstack

    if len(rows[0]) == 1:
        return hstack([words, characters], format="csr", dtype=np.float32)
    # Which words, of either side: entailment has a direction.
    parts = [words[: len(rows)], words[len(rows) :]]
    cosines = []
    for both in (words, characters):
        first, second = both[: len(rows)], both[len(rows) :]
        shared = first.multiply(second).tocsr()
        parts += [shared, abs(first - second)]
        cosines.append(np.asarray(shared.sum(1), np.float32).ravel())
    likeness = np.stack([*cosines, *(cosine**2 for cosine in cosines)], axis=1)
    return hstack([*parts, csr_matrix(SCALE * likeness)], format="csr", dtype=np.float32)
