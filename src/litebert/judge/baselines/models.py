"""Baselines that count: a model of scikit-learn or of counts for each kind of output.

From more text than `CHARACTERS` they read a part of the rows, so that seconds and bounded memory
are enough. Shapes: N rows, F features, C classes, n words of a sentence.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import DataError
from litebert.data import IGNORED
from litebert.interop.tfidf import Tfidf
from litebert.tasks.features import Sparse, TextFeatures
from litebert.tasks.outputs import Output
from litebert.tasks.retrieval.bm25 import Bm25
from litebert.tasks.rows import number_groups
from litebert.tasks.similarity import Similarity
from litebert.tasks.task import Task
from litebert.tasks.text_outputs import Number, OneClass, Relevance, SeveralLabels, are_far
from litebert.tasks.token_outputs import Tags
from litebert.tasks.values import Compared, Logits, PlainItem

CHARACTERS = 6_000_000
"""Characters of training text that are read, at most: more would take minutes and gigabytes."""
FEATURES = 1 << 18
"""Features of words, and of characters, at most."""
WEIGHTS = 1 << 25
"""Weights of a linear model, at most: features times classes."""
FITTED = 300_000_000
"""Numbers other than zero in the training rows, times classes, at most: half a minute."""
COMPARED = 100_000_000
"""The same of the rows that the strength is looked for on, times the strengths."""
FEW_CLASSES = 50
TRIED = 16_000
_FOLDS = 3
_STRENGTHS = (1.0, 3.0, 10.0, 30.0)
_PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_CERTAIN = 10.0
"""The log-odds of a class that every training row has; negated, of a class that none has."""
MOST_PAIRS = 20_000


class Baseline(ABC):
    """A model that learns one kind of output from plain texts, without network or tokenizer."""

    name: str
    """Short description for people."""
    supervised: ClassVar[bool] = True
    """True if it needs the labels of its training rows."""

    def __init__(self) -> None:
        self.read = 0
        """How many training rows it learned from."""

    def fit(self, items: Sequence[PlainItem], classes: int) -> None:
        lengths = [sum(map(len, item.texts)) for item in items]
        chosen = [items[place] for place in _choose_affordable(lengths, CHARACTERS)]
        self.read = len(chosen)
        self._learn(chosen, classes)

    @abstractmethod
    def _learn(self, items: Sequence[PlainItem], classes: int) -> None: ...

    @abstractmethod
    def logits(self, items: Sequence[PlainItem]) -> Logits:
        """Compute the logits of each row, in the form that `Output.of_item` gives."""

    def answers(
        self, task: Task[Any], examples: Sequence[Any], items: Sequence[PlainItem]
    ) -> list[Any]:
        return task.answers(examples, items, self.logits(items))


def _choose_affordable(costs: Sequence[int], most: float) -> list[int]:
    """Choose places of rows whose costs sum to `most` at most: all, or random ones, in order."""
    if sum(costs) <= most:
        return list(range(len(costs)))
    chosen, total = [], 0
    # A file may be sorted by class, so its first rows would not do.
    for place in np.random.default_rng(0).permutation(len(costs)).tolist():
        # One row may cost more than all others together, and then they are read without it.
        if total + costs[place] <= most:
            chosen.append(place)
            total += costs[place]
    return sorted(chosen)


def split_folds(
    groups: NDArray[np.int64], most: int = TRIED
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Split rows, by groups (N,) that no fold divides, into those to learn from and to try on.

    Each row is tried once; of more than `most` groups, a single fold of so many is enough.
    """
    count = int(groups.max()) + 1
    order = np.random.default_rng(0).permutation(count)[:most]
    for number in range(_FOLDS if len(order) == count else 1):
        is_tried = np.isin(groups, order[number::_FOLDS])
        learned = np.flatnonzero(np.isin(groups, order) & ~is_tried)
        if len(learned) and is_tried.any():
            yield learned, np.flatnonzero(is_tried)


# ------------------------------------------------------------------------------- classes and labels


class LinearClasses(Baseline):
    """One of C classes: a logistic regression for each against the others (one for two classes).

    Its penalty is the one of the lowest cross-entropy on held-out rows.
    """

    name = "TF-IDF of words and characters, logistic regression"
    _is_exclusive = True

    def __init__(self, class_weights: Sequence[float] = ()) -> None:
        super().__init__()
        self._class_weights = np.array(class_weights)
        if class_weights:
            self.name = f"{type(self).name}, weighted classes"

    def _learn(self, items: Sequence[PlainItem], classes: int) -> None:
        matrix, truth = self._count(items, classes)
        rows = _choose_affordable(np.diff(matrix.indptr).tolist(), FITTED / truth.shape[1])
        if len(rows) < self.read:
            matrix, truth, self.read = matrix[rows], truth[rows], len(rows)
            items = [items[row] for row in rows]
        weights = self._weigh(truth) * np.array([item.weight for item in items])[:, None]
        strength = self._choose_strength(matrix, truth, weights, number_groups(items))
        self._models = _fit_columns(matrix, truth, weights, strength)

    def _count(self, items: Sequence[PlainItem], classes: int) -> tuple[Sparse, NDArray[np.bool_]]:
        """Learn the features of rows; return them, (N, F), and the right classes."""
        self._features = TextFeatures(min(FEATURES, WEIGHTS // max(1, classes) // 2))
        matrix = self._features.fit([item.texts for item in items])
        return matrix, self._mark_classes([item.target for item in items], classes)

    def logits(self, items: Sequence[PlainItem]) -> Logits:
        matrix = self._features.transform([item.texts for item in items])
        return list(self._arrange(_compute_log_odds(self._models, matrix)).astype(np.float32))

    def tables(self) -> Tfidf:
        columns = [
            (0.0, model) if isinstance(model, float) else (model[:-1], float(model[-1]))
            for model in self._models
        ]
        return _make_tfidf(self._features, columns)

    def compute_held_out_logits(
        self, items: Sequence[PlainItem], classes: int
    ) -> tuple[list[int], NDArray[np.float64]]:
        """Compute the logits of each row by a model that was fitted on other rows, and the places
        of the rows: (N,) and (N, C). The features and the strength are those of all rows.
        """
        lengths = [sum(map(len, item.texts)) for item in items]
        places = _choose_affordable(lengths, CHARACTERS)
        chosen = [items[place] for place in places]
        matrix, truth = self._count(chosen, classes)
        weights, odds = np.ones(truth.shape), np.zeros(truth.shape)
        groups = number_groups(chosen)
        strength = self._choose_strength(matrix, truth, weights, groups)
        for learn, tried in split_folds(groups, len(truth)):
            models = _fit_columns(matrix[learn], truth[learn], weights[learn], strength)
            odds[tried] = _compute_log_odds(models, matrix[tried])
        return places, self._arrange(odds)

    def _choose_strength(
        self,
        matrix: Sparse,
        truth: NDArray[np.bool_],
        weights: NDArray[np.float64],
        groups: NDArray[np.int64],
    ) -> float:
        if truth.shape[1] > FEW_CLASSES or groups.max() + 1 < 2 * _FOLDS:
            return _STRENGTHS[1]
        losses = np.zeros(len(_STRENGTHS))
        work = len(_STRENGTHS) * truth.shape[1] * matrix.nnz / len(truth)  # of a row
        most = min(TRIED, max(2 * _FOLDS, int(COMPARED / max(1, work))))
        for learn, tried in split_folds(groups, most):
            for i, strength in enumerate(_STRENGTHS):
                models = _fit_columns(matrix[learn], truth[learn], weights[learn], strength)
                losses[i] += self._compute_loss(
                    _compute_log_odds(models, matrix[tried]), truth[tried], weights[tried]
                )
        return _STRENGTHS[int(losses.argmin())]

    def _mark_classes(self, targets: Sequence[Any], classes: int) -> NDArray[np.bool_]:
        """Mark the right classes, (N, C); of two classes only the second, (N, 1)."""
        right: NDArray[np.bool_] = np.array(targets)[:, None] == np.arange(classes)
        return right[:, 1:] if classes == 2 else right

    def _weigh(self, truth: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Compute the weight of each row in each model, (N, C) or (N, 1)."""
        weights: NDArray[np.float64] = np.ones(truth.shape)
        if len(self._class_weights):
            places = truth[:, 0].astype(int) if truth.shape[1] == 1 else truth.argmax(1)
            weights *= self._class_weights[places, None]
        return weights

    def _arrange(self, odds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn log-odds (N, C), or (N, 1) of two classes, into logits (N, C)."""
        is_one_of_two = self._is_exclusive and odds.shape[1] == 1
        return np.concatenate((-odds, odds), axis=1) / 2 if is_one_of_two else odds

    def _compute_loss(
        self,
        odds: NDArray[np.float64],
        right: NDArray[np.bool_],
        weights: NDArray[np.float64],
    ) -> float:
        if odds.shape[1] == 1 or not self._is_exclusive:
            return float(np.average(np.logaddexp(0, np.where(right, -odds, odds)), weights=weights))
        shifted = odds - odds.max(1, keepdims=True)
        losses = np.log(np.exp(shifted).sum(1)) - (shifted * right).sum(1)
        return float(np.average(losses, weights=weights[:, 0]))


class LinearLabels(LinearClasses):
    """Any of C labels: a linear model for each."""

    _is_exclusive = False

    def _mark_classes(self, targets: Sequence[Any], classes: int) -> NDArray[np.bool_]:
        return np.array(targets, bool).reshape(-1, classes)

    def _weigh(self, truth: NDArray[np.bool_]) -> NDArray[np.float64]:
        """A row that lacks the label weighs 1."""
        return np.where(truth, self._class_weights if len(self._class_weights) else 1.0, 1.0)


def _fit_columns(
    matrix: Sparse, truth: NDArray[np.bool_], weights: NDArray[np.float64], strength: float
) -> list[Any]:
    return [
        _fit_logistic(matrix, column, column_weights, strength)
        for column, column_weights in zip(truth.T, weights.T, strict=True)
    ]


def _fit_logistic(
    matrix: Sparse, right: NDArray[np.bool_], weights: NDArray[np.float64], strength: float
) -> Any:
    """Fit the weights of one class, float32 (F + 1,) with the bias last, or its log-odds where all
    rows have it or none.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if right.all() or not right.any():
        return _CERTAIN if right.all() else -_CERTAIN
    # The dual form takes memory and time by the numbers that are not zero, whatever the features
    # and the rows.
    model = LogisticRegression(
        C=strength, solver="liblinear", dual=True, tol=1e-2, max_iter=100, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the score says what became of it
        model.fit(matrix, right, sample_weight=weights)
    return np.append(model.coef_[0], model.intercept_[0]).astype(np.float32)


def _make_tfidf(features: TextFeatures, columns: Sequence[tuple[Any, float]]) -> Tfidf:
    words, ngrams, sizes, idf = features.describe()
    weight = np.zeros((len(columns), features.width), np.float32)
    for row, (weights, _) in zip(weight, columns, strict=True):
        row[:] = weights
    bias = np.array([bias for _, bias in columns], np.float32)
    return Tfidf(words, ngrams, sizes, idf, weight, bias, np.zeros(0, np.float32))


def _compute_log_odds(models: Sequence[Any], matrix: Sparse) -> NDArray[np.float64]:
    columns = [
        np.full(matrix.shape[0], model)
        if isinstance(model, float)
        else matrix @ model[:-1] + model[-1]
        for model in models
    ]
    return np.stack(columns, axis=1).astype(np.float64)


# ------------------------------------------------------------------------------------------ numbers


class LinearNumber(Baseline):
    """A number by ridge regression, inside the range of the training numbers."""

    name = "TF-IDF of words and characters, ridge regression"

    def _learn(self, items: Sequence[PlainItem], classes: int) -> None:
        self._features = TextFeatures(FEATURES)
        matrix = self._features.fit([item.texts for item in items])
        numbers = np.array([item.target for item in items], np.float64)
        self._range = (numbers.min(), numbers.max())
        # scikit-learn computes in the float32 of the features, which cannot tell numbers apart that
        # are far from zero.
        mean = float(numbers.mean())
        self.offset = mean if are_far(mean, float(numbers.std()) or 1.0) else 0.0
        """What float32 would lose of its numbers, which stands in task.json."""
        numbers -= self.offset
        weights = np.array([item.weight for item in items])
        errors = np.zeros(len(_PENALTIES))
        for learn, tried in split_folds(number_groups(items)):
            for i, penalty in enumerate(_PENALTIES):
                model = _fit_ridge(matrix[learn], numbers[learn], penalty, weights[learn])
                wrong = np.square(model.predict(matrix[tried]) - numbers[tried])
                errors[i] += (weights[tried] * wrong).mean()
        self._model = _fit_ridge(matrix, numbers, _PENALTIES[int(errors.argmin())], weights)

    def logits(self, items: Sequence[PlainItem]) -> Logits:
        predicted = self._model.predict(self._features.transform([item.texts for item in items]))
        if self.offset:
            return list(np.clip(predicted.astype(np.float64) + self.offset, *self._range)[:, None])
        return list(np.clip(predicted, *self._range)[:, None].astype(np.float32))

    def tables(self) -> Tfidf:
        """As numbers above `offset`."""
        made = _make_tfidf(self._features, [(self._model.coef_, float(self._model.intercept_))])
        return made._replace(bounds=(np.array(self._range) - self.offset).astype(np.float32))


def _fit_ridge(
    matrix: Sparse, numbers: NDArray[np.float64], penalty: float, weights: NDArray[np.float64]
) -> Any:
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=penalty, solver="sparse_cg", tol=1e-3, max_iter=300)
    return model.fit(matrix, numbers, sample_weight=None if (weights == 1).all() else weights)


# ------------------------------------------------------------------------------------------ vectors


class WeightedCharacters(Baseline):
    """How alike two texts are: the cosine of their characters, two or three in a row, by inverse
    document frequency.

    It learns from no score, only how many of the training texts have each.
    """

    name = "characters weighted by inverse document frequency"
    supervised = False

    def _learn(self, items: Sequence[PlainItem], classes: int) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        texts = list(dict.fromkeys(text for item in items for text in item.texts))
        # What a tenth of the texts have says next to nothing, and takes most of the time.
        most = 0.1 if len(texts) > 1000 else 1.0
        self._vectors = TfidfVectorizer(
            analyzer="char_wb",
            ngram_range=(2, 3),
            max_df=most,
            max_features=FEATURES,
            sublinear_tf=True,
            dtype=np.float32,
        ).fit(texts)

    def logits(self, items: Sequence[PlainItem]) -> Logits:
        if len(items) > MOST_PAIRS:
            raise DataError(f"{len(items):,} pairs are too many to compare within seconds")
        first, second = (
            self._vectors.transform([item.texts[side] for item in items]) for side in (0, 1)
        )
        from scipy.sparse import vstack

        return [vstack((first[place], second[place]), format="csr") for place in range(len(items))]

    def answers(
        self, task: Task[Any], examples: Sequence[Any], items: Sequence[PlainItem]
    ) -> list[Any]:
        return [
            Compared(float(pair[0].multiply(pair[1]).sum()), pair) for pair in self.logits(items)
        ]


# --------------------------------------------------------------------------------------------- tags


class FrequentTags(Baseline):
    """The tag that a word has most often; of a new word, the commonest of words seen once."""

    name = "the most frequent tag of each word"

    def _learn(self, items: Sequence[PlainItem], classes: int) -> None:
        counts: dict[str, Counter[int]] = {}
        for item in items:
            for word, tag in zip(item.texts, item.target.tolist(), strict=True):
                if tag != IGNORED:
                    for form in dict.fromkeys((word, word.lower())):
                        counts.setdefault(form, Counter())[tag] += 1
        rare = Counter(
            tag for word, tags in counts.items() if sum(tags.values()) == 1 for tag in tags
        )
        every = Counter(tag for tags in counts.values() for tag in tags.elements())
        if not every:
            raise DataError("no word of the training part has a tag")
        self._unknown = _compute_log_shares(rare or every, classes)
        self._tags = {word: _compute_log_shares(tags, classes) for word, tags in counts.items()}

    def logits(self, items: Sequence[PlainItem]) -> Logits:
        # (n, C): logarithms of how often the word had each tag.
        tags, unknown = self._tags, self._unknown
        return [
            np.stack([tags.get(word, tags.get(word.lower(), unknown)) for word in item.texts])
            if item.texts
            else np.zeros((0, len(unknown)), np.float32)
            for item in items
        ]


def _compute_log_shares(counts: Counter[int], classes: int) -> NDArray[np.float32]:
    """Compute the log shares of a word's tags, (C,); a tag that it never had is not impossible."""
    smoothed = np.full(classes, 0.01)
    for tag, count in counts.items():
        smoothed[tag] += count
    shares: NDArray[np.float32] = np.log(smoothed / smoothed.sum()).astype(np.float32)
    return shares


# ---------------------------------------------------------------------------------------- relevance


class Bm25Order(Baseline):
    name = "BM25"
    supervised = False

    def _learn(self, items: Sequence[PlainItem], classes: int) -> None:
        self._scorer = Bm25(list(dict.fromkeys(item.texts[1] for item in items)))

    def logits(self, items: Sequence[PlainItem]) -> Logits:
        queries, documents = ([item.texts[side] for item in items] for side in (0, 1))
        return list(self._scorer.score_pairs(queries, documents)[:, None])


def make_baseline(output: Output) -> Baseline | None:
    """Make the model, not fitted yet, that counts for an output; None if none is worth showing."""
    if isinstance(output, Relevance):
        return Bm25Order()
    if isinstance(output, SeveralLabels):
        return LinearLabels(output.weights)
    if isinstance(output, OneClass):
        return LinearClasses(output.weights)
    if isinstance(output, Number):
        return LinearNumber()
    if isinstance(output, Tags):
        return FrequentTags()
    return WeightedCharacters() if isinstance(output, Similarity) else None
