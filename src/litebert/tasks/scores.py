"""Scores of answers: each is a function of the truth and the answers, and is defined even where its
formula is not.

A score that is undefined (a correlation with a constant, an F1 without positives, an R^2 of
constant truth) is 0: the model showed nothing there, and a NaN would hide that in a mean. Answers
that are not finite numbers have no merit at all: their correlations are 0, their R^2 is minus
infinity and their error is infinite. All scores are fractions, not percentages.

Shapes: n examples, C classes. `truth` and `guess` are int64 (n,) class numbers; 0/1 (n, C) for
several labels; float64 (n,) for numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]


def accuracy(truth: Values, guess: Values) -> float:
    """Share of examples answered right; with several labels, of those where every label is."""
    same = truth == guess
    return float(same.reshape(len(same), -1).all(1).mean())


def f1(truth: Values, guess: Values) -> float:
    """F1 of class 1, as GLUE counts it for MRPC and QQP; over several labels, all decisions
    together (micro).
    """
    from sklearn.metrics import f1_score  # takes half a second to load

    return float(f1_score(truth.ravel() == 1, guess.ravel() == 1, zero_division=0))


def macro_f1(truth: Values, guess: Values) -> float:
    """Mean of the F1 of each class that occurs in truth or guess, or of each label: a rare class
    counts as much.
    """
    if truth.ndim == 2:
        return float(
            np.mean([f1(truth[:, label], guess[:, label]) for label in range(truth.shape[1])])
        )
    classes = np.union1d(truth, guess)
    return float(np.mean([f1(truth == label, guess == label) for label in classes]))


def matthews(truth: Values, guess: Values) -> float:
    """Matthews' correlation; for more than two classes Gorodkin's R_K, as GLUE counts AX."""
    from sklearn.metrics import matthews_corrcoef

    return 0.0 if _constant(truth) or _constant(guess) else float(matthews_corrcoef(truth, guess))


def pearson(truth: Values, guess: Values) -> float:
    """Pearson's correlation."""
    from scipy.stats import pearsonr

    return _correlation(pearsonr, truth, guess)


def spearman(truth: Values, guess: Values) -> float:
    """Spearman's rank correlation; equal values share their mean rank."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, truth, guess)


def r2(truth: Values, guess: Values) -> float:
    """Share of the variance of the truth that the guess explains; below 0 where the mean of the
    truth is better.
    """
    from sklearn.metrics import r2_score

    if not np.isfinite(guess).all():
        return -math.inf
    if _constant(truth):
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        value = float(r2_score(truth, guess))
    return value if math.isfinite(value) else -math.inf


def rmse(truth: Values, guess: Values) -> float:
    """Root of the mean squared error, in the unit of the numbers; lower is better."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = float(np.sqrt(np.mean((truth - guess) ** 2)))
    return value if math.isfinite(value) else math.inf


def _correlation(compute: Callable[[Values, Values], Any], truth: Values, guess: Values) -> float:
    """The statistic of a function of scipy; 0 where it has no value."""
    if not np.isfinite(guess).all() or _constant(truth) or _constant(guess):
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        value = float(compute(truth, guess).statistic)
    return value if math.isfinite(value) else 0.0


def _constant(values: Values) -> bool:
    """Whether all values are equal, or differ by less than the sums of a formula can resolve."""
    if values.dtype.kind != "f":
        return bool((values == values[0]).all())
    with np.errstate(over="ignore"):
        return bool(np.ptp(values) <= 1e-12 * np.abs(values).max())


_ALL = (accuracy, f1, macro_f1, matthews, pearson, spearman, r2, rmse)
SCORES: MappingProxyType[str, Callable[[Values, Values], float]] = MappingProxyType(
    {score.__name__: score for score in _ALL} | {"micro_f1": f1, "exact": accuracy}
)
"""Name -> score. All but `rmse` are better when higher."""


_WORDS = {
    "f1": "F1",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "exact": "exact match",
    "r2": "R²",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "rmse": "root mean squared error",
    "total": "questions",
}
_OF_QUESTIONS = (
    ("HasAns_", "with an answer"),
    ("NoAns_", "without an answer"),
    ("best_", "at the best threshold"),
)


def score_title(name: str) -> str:
    """What a report calls a score of any task: macro F1 for macro_f1."""
    if name.endswith("_thresh"):
        return (
            f"best threshold for {score_title(name.removeprefix('best_').removesuffix('_thresh'))}"
        )
    for prefix, group in _OF_QUESTIONS:
        if name.startswith(prefix):
            return f"{score_title(name.removeprefix(prefix))}, {group}"
    return _WORDS.get(name, name.replace("_", " "))


def scores(names: Sequence[str], truth: Values, guess: Values) -> dict[str, float]:
    """The named scores of at least one example."""
    assert len(truth) == len(guess) > 0
    return {name: SCORES[name](truth, guess) for name in names}


def class_scores(names: Sequence[str], truth: Values, guess: Values) -> dict[str, dict[str, float]]:
    """`precision`, `recall` and `f1` of each class or label by its name, and the `count` of its
    true examples.
    """
    from sklearn.metrics import precision_recall_fscore_support

    found = precision_recall_fscore_support(truth, guess, labels=range(len(names)), zero_division=0)
    rows = zip(*(column.tolist() for column in found), strict=True)
    return {
        name: dict(zip(CLASS_SCORES, row, strict=True))
        for name, row in zip(names, rows, strict=True)
    }


CLASS_SCORES = ("precision", "recall", "f1", "count")
