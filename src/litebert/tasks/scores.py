"""Scores of predictions, as fractions: functions of labels and predictions.

A score without a formula, such as a correlation with a constant or an F1 without positives, is 0,
because the model showed nothing and a NaN would hide that in a mean. Predictions that are not
finite have correlations of 0, an R^2 of minus infinity and an infinite error.

Shapes: n examples, C classes. `labels` and `predictions` are int64 (n,) class numbers; 0/1 (n, C)
for several labels; float64 (n,) for numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]


def accuracy(labels: Values, predictions: Values) -> float:
    """Share of right predictions. With several labels, all labels of an example must be right."""
    same = labels == predictions
    return float(same.reshape(len(same), -1).all(1).mean())


def f1(labels: Values, predictions: Values) -> float:
    """F1 of class 1, as GLUE counts it for MRPC and QQP; with several labels the micro F1."""
    from sklearn.metrics import f1_score  # takes half a second to load

    return float(f1_score(labels.ravel() == 1, predictions.ravel() == 1, zero_division=0))


def macro_f1(labels: Values, predictions: Values) -> float:
    """Mean of the F1 of each class that occurs, or of each label. A rare class counts as much."""
    from sklearn.metrics import f1_score

    if labels.ndim == 2:
        columns = range(labels.shape[1])
        return float(np.mean([f1(labels[:, column], predictions[:, column]) for column in columns]))
    return float(f1_score(labels, predictions, average="macro", zero_division=0))


def matthews(labels: Values, predictions: Values) -> float:
    """Matthews' correlation; for more than two classes Gorodkin's R_K, as GLUE counts AX."""
    from sklearn.metrics import matthews_corrcoef

    if _is_constant(labels) or _is_constant(predictions):
        return 0.0
    return float(matthews_corrcoef(labels, predictions))


def pearson(labels: Values, predictions: Values) -> float:
    from scipy.stats import pearsonr

    return _correlation(pearsonr, labels, predictions)


def spearman(labels: Values, predictions: Values) -> float:
    """Spearman's rank correlation; equal values share their mean rank."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, labels, predictions)


def r2(labels: Values, predictions: Values) -> float:
    """Share of the labels' variance that the predictions explain; below 0 if the mean is better."""
    from sklearn.metrics import r2_score

    if not np.isfinite(predictions).all():
        return -math.inf
    if _is_constant(labels):
        return 0.0
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        # Labels so close that their squared differences vanish count as constant.
        if not np.square(labels - np.mean(labels)).any():
            return 0.0
        value = float(r2_score(labels, predictions))
    return value if math.isfinite(value) else -math.inf


def rmse(labels: Values, predictions: Values) -> float:
    """Root of the mean squared error, in the unit of the labels; lower is better."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = float(np.sqrt(np.mean((labels - predictions) ** 2)))
    return value if math.isfinite(value) else math.inf


def _correlation(
    compute: Callable[[Values, Values], Any], labels: Values, predictions: Values
) -> float:
    if not np.isfinite(predictions).all() or _is_constant(labels) or _is_constant(predictions):
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        value = float(compute(labels, predictions).statistic)
    return value if math.isfinite(value) else 0.0


def _is_constant(values: Values) -> bool:
    """Return True if all values are equal, or differ by less than sums of floats can resolve."""
    if values.dtype.kind != "f":
        return bool((values == values[0]).all())
    with np.errstate(over="ignore"):
        return bool(np.ptp(values) <= 1e-12 * np.abs(values).max())


_ALL = (accuracy, f1, macro_f1, matthews, pearson, spearman, r2, rmse)
SCORES: MappingProxyType[str, Callable[[Values, Values], float]] = MappingProxyType(
    {score.__name__: score for score in _ALL} | {"micro_f1": f1, "exact": accuracy}
)
"""Name -> score. All but `rmse` are better when higher."""


_TITLES = {
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
_QUESTION_GROUPS = (
    ("HasAns_", "with an answer"),
    ("NoAns_", "without an answer"),
    ("best_", "at the best threshold"),
)


def score_title(name: str) -> str:
    """Return the title of a score of any task in reports: macro F1 for macro_f1."""
    if name.endswith("_thresh"):
        score = name.removeprefix("best_").removesuffix("_thresh")
        return f"best threshold for {score_title(score)}"
    for prefix, group in _QUESTION_GROUPS:
        if name.startswith(prefix):
            return f"{score_title(name.removeprefix(prefix))}, {group}"
    return _TITLES.get(name, name.replace("_", " "))


def compute_scores(names: Sequence[str], labels: Values, predictions: Values) -> dict[str, float]:
    assert len(labels) == len(predictions) > 0
    return {name: SCORES[name](labels, predictions) for name in names}


def compute_class_scores(
    names: Sequence[str], labels: Values, predictions: Values
) -> dict[str, dict[str, float]]:
    """Compute `precision`, `recall`, `f1` and `count` of each class, or label, by its name."""
    from sklearn.metrics import precision_recall_fscore_support

    columns = precision_recall_fscore_support(
        labels, predictions, labels=range(len(names)), zero_division=0
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return {
        name: dict(zip(CLASS_SCORES, row, strict=True))
        for name, row in zip(names, rows, strict=True)
    }


CLASS_SCORES = ("precision", "recall", "f1", "count")
