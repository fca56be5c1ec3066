"""A linear model on vectors of length 1, from few rows or many, near what labels are called.

Where labels have names, the weights of a class are pulled towards a multiple of the vector of its
name instead of 0, so that without a single row the class is the one whose name is nearest.

Shapes: N rows, H numbers of a vector, C numbers of the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from litebert.judge.baselines.models import split_folds
from litebert.tasks.outputs import Output, logistic
from litebert.tasks.rows import number_groups
from litebert.tasks.text_outputs import Number, SeveralLabels
from litebert.tasks.values import Item, Logits

NEARNESS = 10.0
"""The weight of the cosine of a text and a name, where no row says another."""
_NEARNESSES = (0.0, NEARNESS)
_STRENGTHS = (0.3, 1.0, 4.0, 16.0, 64.0)
"""Inverse strengths of the penalty (scikit-learn's C)."""
_SEARCHED = 3000
"""Rows that the strength is looked for on, at most."""
_ROWS = 50_000
"""Rows of 384 numbers that a head is fitted on, at most: its few weights learn little from more."""
_STEPS, _SEARCH_STEPS = 300, 40
"""Steps of the optimizer for the head that is taken, and for one that is only compared, which
begins where the one of the strength before ended."""
_PAIR_SCALES, _COSINE = (0.3, 0.3, 1.0, 4.0), 3.0
"""Factors of u, v, |u - v| and u * v of pairs, and of their cosine: what tells of one text alone is
penalized most. With them, 1,000 pairs of STS-B have Pearson's 87.3, and without any 84.0."""
_FEW = 6
"""Rows with fewer of which nothing is searched."""


@dataclass(frozen=True, eq=False)
class LinearHead:
    """A linear map of vectors to logits."""

    output: Output
    """With the scale of its numbers."""
    weight: NDArray[np.float32]
    """(C, H)"""
    bias: NDArray[np.float32]
    """(C,)"""

    def logits(self, vectors: NDArray[np.float32]) -> Logits:
        """In the form of `Output.of_item`."""
        numbers: Any = vectors @ self.weight.T + self.bias
        if isinstance(self.output, Number):
            numbers = self.output.rescale(numbers)
        return list(numbers)

    def scale(self, targets: Sequence[Any]) -> list[Any]:
        """Targets as a network under this head learns them."""
        if isinstance(self.output, Number):
            return [(target - self.output.mean) / self.output.std for target in targets]
        return list(targets)

    def tensors(self) -> dict[str, torch.Tensor]:
        return {
            "classifier.weight": torch.from_numpy(self.weight.copy()),
            "classifier.bias": torch.from_numpy(self.bias.copy()),
        }


def fit_head(
    output: Output,
    vectors: NDArray[np.float32],
    items: Sequence[Item],
    names: NDArray[np.float32] | None = None,
    apart: bool = False,
) -> LinearHead:
    """Fit the head with the penalty, and the nearness to names (C, H), of the lowest loss on rows
    that it was not fitted on. `items` have the targets of the vectors, (N, H), or with `apart` of
    what the vectors of pairs say together, (N, 4H); without items the names alone answer."""
    if apart:
        width = vectors.shape[1] // 4
        scales = np.repeat(np.array(_PAIR_SCALES, np.float32), width)
        cosines = vectors[:, 3 * width :].sum(1, keepdims=True)
        vectors = np.concatenate((vectors * scales, _COSINE * cosines), 1)
    with threadpool_limits(1):  # products are small, and threads that wait for cores take them
        head = _fit_head(output, vectors, items, names)
    if apart:  # a cosine is the sum of the products
        weight = head.weight[:, :-1] * scales
        weight[:, 3 * width :] += _COSINE * head.weight[:, -1:]
        head = replace(head, weight=weight)
    return head


def _fit_head(
    output: Output,
    vectors: NDArray[np.float32],
    items: Sequence[Item],
    names: NDArray[np.float32] | None,
) -> LinearHead:
    if not items:
        assert names is not None
        weight = NEARNESS * names
        return LinearHead(output, weight, np.zeros(len(weight), np.float32))
    most = _ROWS * 384 // max(384, vectors.shape[1])
    if len(items) > most:
        some = np.random.default_rng(0).permutation(len(items))[:most]
        vectors, items = vectors[some], [items[place] for place in some.tolist()]
    output, targets = output.fit([item.target for item in items])
    truth = _lay_out(output, targets)
    weights = np.array([item.weight for item in items])
    groups, searched = number_groups(items), len(items) <= _SEARCHED
    folds = list(split_folds(groups, len(groups) if searched else _SEARCHED))
    choices = [
        (strength, nearness)
        for nearness in (_NEARNESSES if names is not None else (0.0,))
        for strength in _STRENGTHS
    ]
    best = (_STRENGTHS[2], NEARNESS if names is not None else 0.0)
    if folds and len(items) >= _FEW:
        losses = np.zeros(len(choices))
        for learn, tried in folds:
            warm: dict[float, NDArray[np.float64]] = {}
            for i, (strength, nearness) in enumerate(choices):
                prior = None if names is None or not nearness else nearness * names
                made = _fit(
                    output,
                    vectors[learn],
                    truth[learn],
                    weights[learn],
                    strength,
                    prior,
                    warm.get(nearness),
                    _SEARCH_STEPS,
                )
                warm[nearness] = made
                numbers = vectors[tried] @ made[:, :-1].T + made[:, -1]
                losses[i] += _compute_loss(output, numbers, truth[tried], weights[tried])
        best = choices[int(losses.argmin())]
    strength, nearness = best
    prior = None if names is None or not nearness else nearness * names
    made = _fit(output, vectors, truth, weights, strength, prior).astype(np.float32)
    return LinearHead(output, made[:, :-1].copy(), made[:, -1].copy())


def _lay_out(output: Output, targets: Sequence[Any]) -> NDArray[np.float64]:
    """(N, C): the right numbers, or 1 for the right class and 0 for others."""
    if isinstance(output, (Number, SeveralLabels)):
        return np.array(targets, np.float64).reshape(len(targets), -1)
    return np.eye(output.width)[np.array(targets, np.int64)]


def _compute_loss(
    output: Output,
    numbers: NDArray[np.floating[Any]],
    truth: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> float:
    if isinstance(output, Number):
        losses = np.square(numbers - truth)[:, 0]
    elif isinstance(output, SeveralLabels):
        losses = (np.logaddexp(0, numbers) - numbers * truth).sum(1)
    else:
        shifted = numbers - numbers.max(1, keepdims=True)
        losses = np.log(np.exp(shifted).sum(1)) - (shifted * truth).sum(1)
    return float((losses * weights).sum())


def _fit(
    output: Output,
    vectors: NDArray[np.float32],
    truth: NDArray[np.float64],
    weights: NDArray[np.float64],
    strength: float,
    prior: NDArray[np.float32] | None,
    begin: NDArray[np.float64] | None = None,
    steps: int = _STEPS,
) -> NDArray[np.float64]:
    """(C, H + 1): weights, of the least loss and penalty of their distance from `prior`, and the
    bias. `begin` is near it."""
    from scipy.optimize import minimize

    if isinstance(output, Number):
        mean, middle = np.average(vectors, 0, weights), np.average(truth, 0, weights)
        x, y = (vectors - mean) * weights[:, None], truth - middle
        gram = x.T @ (vectors - mean) + np.eye(x.shape[1]) / (2 * strength)
        slope = np.linalg.solve(gram, x.T @ y).T
        return np.concatenate((slope, (middle - slope @ mean)[:, None]), 1)
    classes, width = truth.shape[1], vectors.shape[1]
    origin = np.zeros((classes, width + 1))
    if prior is not None:
        origin[:, :-1] = prior
    several = isinstance(output, SeveralLabels)
    vectors = vectors.astype(np.float32)

    def measure(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        made = flat.reshape(classes, width + 1)
        numbers = (vectors @ made[:, :-1].T.astype(np.float32)).astype(np.float64) + made[:, -1]
        if several:
            likely = logistic(numbers)
        else:
            likely = np.exp(numbers - numbers.max(1, keepdims=True))
            likely /= likely.sum(1, keepdims=True)
        apart = (likely - truth) * weights[:, None]
        away = made[:, :-1] - origin[:, :-1]
        loss = strength * _compute_loss(output, numbers, truth, weights) + 0.5 * (away**2).sum()
        # A weak pull of the bias, so that a class without a row has a finite one.
        loss += 0.5e-3 * (made[:, -1] ** 2).sum()
        slope = strength * (apart.T.astype(np.float32) @ vectors).astype(np.float64) + away
        tilt = strength * apart.sum(0) + 1e-3 * made[:, -1]
        return loss, np.concatenate((slope, tilt[:, None]), 1).ravel()

    begin = origin if begin is None else begin
    options = {"maxiter": steps, "maxcor": 20}
    found = minimize(measure, begin.ravel(), jac=True, method="L-BFGS-B", options=options)
    made: NDArray[np.float64] = found.x.reshape(classes, width + 1)
    return made
