"""Probabilities that mean what they say: a temperature, the calibration error, and thresholds for a
wanted precision.

A network that is trained for long is surer than it is right (Guo et al. 2017, "On Calibration of
Modern Neural Networks"). The temperature, fitted on the first development part, is divided out of
the last map of the head, so that every engine computes the same probabilities.

Shapes: N items, C classes, D decisions: one for each item with a class, C for each with labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import ConfigError, ModelError
from litebert.data.random_keys import derive, permute
from litebert.judge.seeds import NORMAL
from litebert.tasks.outputs import Output, log_softmax, logistic, softmax
from litebert.tasks.text_outputs import SeveralLabels
from litebert.tasks.values import Logits

BINS = 10
"""Bins of equal width of the calibration error and of the reliability diagram."""
FEWEST = 20
"""Answers that a threshold for a wanted precision must leave: fewer say too little."""
_WIDEST = 20.0
"""The temperature lies between 1 / 20 and 20; a fit at an end means nothing."""
_CHANCE = 3.84
"""The likelihood ratio of one parameter that chance exceeds in 5% of all cases."""
_FOLDS, _ORDER = 5, 71
_MOST_POINTS = 100


@dataclass(frozen=True)
class Bin:
    low: float
    high: float
    rows: int
    confidence: float
    """Their mean probability."""
    share: float
    """The share that is right, or that has the label."""


@dataclass(frozen=True)
class Calibration:
    """How far probabilities on held-out rows are from the shares of right answers."""

    rows: int
    temperature: float
    """The number that divides the logits; 1 where none is better by more than chance."""
    error_before: float
    error_after: float
    """The same with temperatures that were fitted on the other rows."""
    bins_before: tuple[Bin, ...]
    bins_after: tuple[Bin, ...]


def compute_item_losses(
    output: Output, logits: NDArray[np.float64], targets: Sequence[Any]
) -> NDArray[np.float64]:
    """Compute the plain cross-entropy of items, (N,), from logits (N, C): of labels the sum."""
    if isinstance(output, SeveralLabels):
        present = np.array(targets, bool)
        losses: NDArray[np.float64] = np.logaddexp(0, np.where(present, -logits, logits)).sum(1)
        return losses
    return -log_softmax(logits)[np.arange(len(logits)), np.array(targets, np.int64)]


def judge_decisions(
    output: Output, logits: NDArray[np.float64], targets: Sequence[Any]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the probability of each decision, the likeliest class or each label, and whether it
    came true, (D,) each.
    """
    if isinstance(output, SeveralLabels):
        return logistic(logits).ravel(), np.array(targets, bool).ravel()
    return softmax(logits, axis=1).max(1), logits.argmax(1) == np.array(targets, np.int64)


def compute_calibration_error(likely: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    """Compute the expected calibration error (Guo et al. 2017, equation 3): the mean over decisions
    (D,) of the distance between the probability and the share of right ones in its bin.
    """
    bins = bin_decisions(likely, right)
    return sum(part.rows * abs(part.confidence - part.share) for part in bins) / len(likely)


def bin_decisions(likely: NDArray[np.float64], right: NDArray[np.bool_]) -> tuple[Bin, ...]:
    """Sort decisions into bins of equal width that are not empty."""
    places = np.minimum((likely * BINS).astype(int), BINS - 1)
    bins = []
    for place in np.unique(places).tolist():
        chosen = places == place
        low, high = place / BINS, (place + 1) / BINS
        confidence, share = float(likely[chosen].mean()), float(right[chosen].mean())
        bins.append(Bin(low, high, int(chosen.sum()), confidence, share))
    return tuple(bins)


def fit_temperature(output: Output, logits: NDArray[np.float64], targets: Sequence[Any]) -> float:
    """Fit the temperature of the lowest loss of items, from logits (N, C); 1 where it is not better
    by more than chance.
    """
    from scipy.optimize import minimize_scalar

    def compute_loss(logarithm: float) -> float:
        scaled = logits / float(np.exp(logarithm))
        return float(compute_item_losses(output, scaled, targets).sum())

    limit = np.log(_WIDEST)
    fit = minimize_scalar(
        compute_loss, bounds=(-limit, limit), method="bounded", options={"xatol": 1e-4}
    )
    gain = compute_loss(0.0) - float(fit.fun)
    if abs(fit.x) > limit - 0.01 or not 2 * gain > _CHANCE:
        return 1.0
    return float(np.exp(fit.x))


def calibrate_part(output: Output, logits: Logits, targets: Sequence[Any]) -> Calibration | None:
    """Calibrate an output on the items of a part that have a target, from logits as
    `Output.of_item` gives them; None without probabilities or targets.
    """
    labeled = [place for place, target in enumerate(targets) if target is not None]
    if not output.calibrates or not labeled:
        return None
    values_NC = np.stack([logits[place] for place in labeled]).astype(np.float64)
    right = [targets[place] for place in labeled]
    temperature = fit_temperature(output, values_NC, right)
    scaled = values_NC.copy()
    if temperature != 1 and len(right) >= 2 * _FOLDS:
        order = permute(np.arange(len(right)), len(right), derive(0, _ORDER, 0))
        for fold in range(_FOLDS):
            held = order % _FOLDS == fold
            rest = [target for target, apart in zip(right, held, strict=True) if not apart]
            scaled[held] /= fit_temperature(output, values_NC[~held], rest)
    before, after = (judge_decisions(output, values, right) for values in (values_NC, scaled))
    return Calibration(
        len(right),
        temperature,
        compute_calibration_error(*before),
        compute_calibration_error(*after),
        bin_decisions(*before),
        bin_decisions(*after),
    )


def scale_logits(logits: Logits, temperature: float) -> Logits:
    """Divide logits by a temperature; those of 1 stay as they are, to the bit."""
    if temperature == 1:
        return logits
    return [values / np.float32(temperature) for values in logits]


# ---------------------------------------------------------------------------------------- precision


@dataclass(frozen=True)
class PrecisionPoint:
    """A threshold, and what answers at or above it were worth on the development part."""

    threshold: float
    precision: float
    """The share of these answers that is right."""
    coverage: float
    answers: int = 0
    """How many they are; 0 in a model that does not know it."""

    @property
    def lower_bound(self) -> float:
        """The lower end of the 95% interval of the precision (Wilson 1927); 0 for no answers."""
        if not self.answers:
            return 0.0
        share, spread = self.precision, NORMAL**2 / self.answers
        margin = NORMAL * math.sqrt((share * (1 - share) + spread / 4) / self.answers)
        return (share + spread / 2 - margin) / (1 + spread)


def trace_precision(
    likely: NDArray[np.float64], right: NDArray[np.bool_]
) -> tuple[PrecisionPoint, ...]:
    """Trace the precision of the answers at or above a threshold, from the lowest threshold up,
    from the probability of each answer and whether it is right, (D,).

    A point stands only where no lower threshold has as much precision, on `FEWEST` answers or more.
    """
    order = np.argsort(-likely, kind="stable")
    likely, right = likely[order], right[order]
    counts = np.arange(1, len(likely) + 1)
    precisions = np.cumsum(right) / counts
    ends = np.flatnonzero(np.append(likely[1:] < likely[:-1], True)) if len(likely) else counts
    points: list[PrecisionPoint] = []
    for end in ends[::-1].tolist():
        if end + 1 < FEWEST:
            break
        if not points or precisions[end] > points[-1].precision:
            # A rounding in the last bit of another engine must not lose the rows at the threshold.
            threshold = float(np.floor(likely[end] * 1e6) / 1e6)
            count = end + 1
            points.append(
                PrecisionPoint(threshold, float(precisions[end]), count / len(likely), count)
            )
    if len(points) > _MOST_POINTS:
        places = np.unique(np.linspace(0, len(points) - 1, _MOST_POINTS).round().astype(int))
        points = [points[place] for place in places.tolist()]
    return tuple(points)


def trace_part(
    output: Output, logits: Logits, targets: Sequence[Any]
) -> tuple[PrecisionPoint, ...]:
    labeled = [place for place, target in enumerate(targets) if target is not None]
    if not output.calibrates or not labeled:
        return ()
    values = np.stack([logits[place] for place in labeled]).astype(np.float64)
    likely, right = judge_decisions(output, values, [targets[place] for place in labeled])
    # A label below one half is not among the answers.
    claimed = likely > (0.5 if isinstance(output, SeveralLabels) else 0.0)
    return trace_precision(likely[claimed], right[claimed])


def choose_threshold(record: Mapping[str, Any], wanted: float, name: object) -> PrecisionPoint:
    """Choose the lowest threshold, of a saved model's task.json, that had the wanted precision."""
    if not isinstance(wanted, (int, float)) or not 0 < wanted <= 1:
        raise ConfigError(
            f"min_precision is {str(wanted).removesuffix('.0')}; give a share above 0 and at most 1"
        )
    saved = record.get("precision")
    if saved is None:
        raise ConfigError(
            f"min_precision is {wanted:g}, and {name} does not know its precision; fine-tune a "
            "model for classes or labels with this version, or leave min_precision out"
        )
    try:
        points = [
            PrecisionPoint(
                threshold=float(point["threshold"]),
                precision=float(point["precision"]),
                coverage=float(point["coverage"]),
                answers=int(point.get("answers", 0)),
            )
            for point in saved
        ]
    except (TypeError, ValueError, AttributeError, KeyError):
        raise ModelError(f"{name} has a damaged field 'precision' in task.json") from None
    for point in points:
        if point.precision >= wanted:
            return point
    highest = max((point.precision for point in points), default=None)
    raise ConfigError(
        f"min_precision is {wanted:g}, and "
        + (
            f"fewer than {FEWEST} held-out rows have answers; label more rows"
            if highest is None
            else f"no {FEWEST} development answers of {name} reach it; give {highest:.4g} or less"
        )
    )
