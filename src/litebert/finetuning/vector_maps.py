"""The maps of pooled states that are computed when training has ended: whitening, and the map to a
teacher's vectors.

Shapes: N texts, H hidden size, D numbers of a teacher's vector.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from litebert.interop.vector_map import VectorMap

STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""The strengths among which `fit_map` chooses, as shares of the mean variance of the states."""
HELD_OUT = 5
"""One text of so many is held out to choose the strength."""


def fit_whitening(vectors: NDArray[np.float32]) -> VectorMap:
    """Fit the map after which vectors like these (N, H) have mean 0, and no direction varies more
    than others (Su et al. 2021, "Whitening Sentence Representations").

    Directions that hardly vary, as that which a final layer norm takes away, are not blown up. To
    each variance a hundredth of their mean is added.
    """
    exact = vectors.astype(np.float64)
    mean = exact.mean(0)
    centered = exact - mean
    variances, directions = np.linalg.eigh(centered.T @ centered / len(exact))
    variances = np.maximum(variances, 0)
    floor = max(
        0.01 * variances.mean(), 1e-8 * np.square(mean).mean(), 1e-30
    )  # the second where all are nearly alike
    # Turned back, so that it does not depend on the signs and the order of the directions.
    weight = directions / np.sqrt(variances + floor) @ directions.T
    return VectorMap(weight.astype(np.float32), (-weight @ mean).astype(np.float32))


def fit_map(states: NDArray[np.float32], taught: NDArray[np.floating]) -> VectorMap:
    """Fit the map from pooled states (N, H) to the teacher's vectors (N, D) by least squares with
    an L2 penalty (ridge regression).

    Of `STRENGTHS` that is taken whose map has the highest mean cosine on a held-out fifth of the
    texts. The map is then fitted on all texts.
    """
    exact, goals = states.astype(np.float64), taught.astype(np.float64)
    held_out = np.arange(len(exact)) % HELD_OUT == 0
    if held_out.all() or not held_out.any():
        return _fit(exact, goals, STRENGTHS[-1])
    cosines = []
    for strength in STRENGTHS:
        map_ = _fit(exact[~held_out], goals[~held_out], strength)
        cosines.append(_compute_mean_cosine(map_.of(states[held_out]), goals[held_out]))
    return _fit(exact, goals, STRENGTHS[int(np.argmax(cosines))])


def _fit(states: NDArray[np.float64], goals: NDArray[np.float64], strength: float) -> VectorMap:
    mean, goal_mean = states.mean(0), goals.mean(0)
    centered = states - mean
    covariance = centered.T @ centered / len(states)
    penalty = strength * max(float(np.trace(covariance)) / len(covariance), 1e-30)
    weight = np.linalg.solve(
        covariance + penalty * np.eye(len(covariance)),
        centered.T @ (goals - goal_mean) / len(states),
    ).T
    bias = goal_mean - weight @ mean
    return VectorMap(weight.astype(np.float32), bias.astype(np.float32))


def _compute_mean_cosine(vectors: NDArray[np.floating], goals: NDArray[np.floating]) -> float:
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(goals, axis=1)
    return float(((vectors * goals).sum(1) / np.maximum(lengths, 1e-30)).mean())
