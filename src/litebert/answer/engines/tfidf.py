"""The engine of TF-IDF models (interop/tfidf.py): a sparse product.

Shapes: R rows, F features, C columns of weights, N features of all rows that are not 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from litebert.answer.engines.runtime import Capabilities, Runtime, check_device
from litebert.base.errors import ConfigError
from litebert.interop.tfidf import SCALE, FeatureTokenizer
from litebert.tasks.rows import PaddedRows

if TYPE_CHECKING:
    from litebert.interop.loaded import LoadedModel


class TfidfRuntime(Runtime):
    """Each row's features by TF-IDF, words and n-grams of length 1 each, times their weights."""

    capabilities = Capabilities(tokens=1 << 18)

    def __init__(self, loaded: LoadedModel, device: str) -> None:
        check_device("tfidf", device)
        if not isinstance(loaded.tokenizer, FeatureTokenizer):
            raise ConfigError(f"{loaded.path} is a network and no TF-IDF model; leave --engine out")
        self._tables = loaded.tokenizer.tables
        self._pairs = self._tables.weight.shape[1] != len(self._tables.idf)
        self._two = loaded.task.get("problem") == "classes" and loaded.task["classes"] == 2

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        tables, count, flat = self._tables, len(rows), rows.end_to_end
        known = flat.ids < len(tables.idf)
        # A number for each side of a row, and a feature of it.
        sides = np.repeat(np.arange(count), rows.lengths)[known]
        if self._pairs and flat.types is not None:
            sides = sides + count * flat.types[known]
        columns = [np.full(count, bias, np.float64) for bias in tables.bias]
        whole, values = self._weigh(sides, flat.ids[known], count * (1 + self._pairs))
        if self._pairs:
            whole, values = self._join(whole, values, count)
        row, feature = whole
        for column, weight in zip(columns, tables.weight, strict=True):
            column += np.bincount(row, values * weight[feature], count)
        odds = np.stack(columns, 1)
        if self._two:
            odds = np.concatenate((-odds, odds), 1) / 2
        if len(tables.bounds):
            odds = np.clip(odds, *tables.bounds)
        return odds.astype(np.float32)

    def _weigh(
        self, sides: NDArray[np.int64], ids: NDArray[np.int32], count: int
    ) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]:
        """The TF-IDF of features: (sides, features) and values, (N,), in the order of both."""
        known = len(self._tables.idf)
        keys, often = np.unique(sides * known + ids, return_counts=True)
        side, feature = np.divmod(keys, known)
        values = (1 + np.log(often)) * self._tables.idf[feature]
        block = 2 * side + (feature >= len(self._tables.words))
        lengths = np.sqrt(np.bincount(block, values**2, 2 * count))
        return (side, feature), values / lengths[block]

    def _join(
        self,
        whole: tuple[NDArray[np.int64], NDArray[np.int64]],
        values: NDArray[np.float64],
        count: int,
    ) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]:
        """Features of pairs, in the order of `tasks.features`: the words of each side; of words and
        of n-grams, products and differences; and how alike the sides are."""
        side, feature = whole
        words, known = len(self._tables.words), len(self._tables.idf)
        second, row = side >= count, side % count
        keys = row * known + feature
        shared, left, right = np.intersect1d(
            keys[~second], keys[second], assume_unique=True, return_indices=True
        )
        a, b = values[~second][left], values[second][right]
        every, place = np.unique(keys, return_inverse=True)
        apart = np.abs(np.bincount(place, np.where(second, values, -values), len(every)))
        # Where a block of features begins, by whether it is of n-grams.
        products, differences = np.array((2 * words, 4 * words)), np.array((3 * words, 0))
        differences[1] = products[1] + known - words

        def put(keys: NDArray[np.int64], begins: NDArray[np.int64]) -> NDArray[np.int64]:
            of_ngram = (keys % known >= words).astype(np.int64)
            return begins[of_ngram] + keys % known - words * of_ngram

        in_words = feature < words
        cosines = np.bincount(
            2 * (shared // known) + (shared % known >= words), a * b, 2 * count
        ).reshape(count, 2)
        likeness = SCALE * np.concatenate((cosines, cosines**2), 1)
        first = self._tables.weight.shape[1] - 4
        rows = (row[in_words], shared // known, every // known, np.repeat(np.arange(count), 4))
        features = (
            feature[in_words] + words * second[in_words],
            put(shared, products),
            put(every, differences),
            np.tile(np.arange(first, first + 4), count),
        )
        return (
            (np.concatenate(rows), np.concatenate(features)),
            np.concatenate((values[in_words], a * b, apart, likeness.ravel())),
        )
