"""Intervals of means over seeds, and tests of differences between variants.

The seed is the unit: a score of a run is a single number, however many tokens it was counted on.
Intervals are Student's t at 95 %. Differences are tested by Welch's t test (unequal variances).
Holm's method (Holm 1979) corrects the p values of several comparisons, which bounds the chance of
any false claim.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

LEVEL = 0.05


@dataclass(frozen=True)
class Mean:
    """The mean of a score over seeds."""

    value: float
    halfwidth: float | None
    """Half of its 95 % interval; None with one seed."""
    seeds: int


@dataclass(frozen=True)
class Difference:
    """A variant's mean minus the baseline's."""

    variant: str
    score: str
    value: float
    halfwidth: float | None
    """Half of its 95 % interval, not corrected; None if a side has one seed."""
    p: float | None
    """The p value after Holm's correction over all comparisons. It is None if there is no test: a
    side has one seed, or the seeds of each side agree exactly."""

    @property
    def is_beyond_noise(self) -> bool:
        """True if the difference is larger than the variation of the seeds explains."""
        return self.p is not None and self.p < LEVEL


def compute_mean(values: Sequence[float]) -> Mean:
    """Compute the mean of at least one value, with its interval."""
    count = len(values)
    if count < 2:
        return Mean(values[0], None, count)
    from scipy.stats import t

    error = statistics.stdev(values) / math.sqrt(count)
    return Mean(statistics.fmean(values), float(t.ppf(1 - LEVEL / 2, count - 1)) * error, count)


def compare_with_baseline(
    scores: Mapping[str, Mapping[str, Sequence[float]]], baseline: str, names: Sequence[str]
) -> list[Difference]:
    """Compare every variant with the baseline, in every score that both have.

    Args:
        scores: by variant and name, a value for each seed.
        names: the scores to compare.
    """
    differences = []
    baseline_scores = scores.get(baseline, {})
    for variant, variant_scores in scores.items():
        if variant == baseline:
            continue
        for name in names:
            values, baseline_values = variant_scores.get(name, ()), baseline_scores.get(name, ())
            if not values or not baseline_values:
                continue
            value = statistics.fmean(values) - statistics.fmean(baseline_values)
            halfwidth, p = _test_welch(values, baseline_values)
            differences.append(Difference(variant, name, value, halfwidth, p))
    tested = [difference.p for difference in differences if difference.p is not None]
    corrected = iter(correct_holm(tested))
    return [
        difference if difference.p is None else replace(difference, p=next(corrected))
        for difference in differences
    ]


def _test_welch(
    first: Sequence[float], second: Sequence[float]
) -> tuple[float | None, float | None]:
    """Return half of the 95 % interval of the difference of means, and the p value."""
    if min(len(first), len(second)) < 2:
        return None, None
    if len({*first}) == len({*second}) == 1:  # seeds that change nothing leave no noise
        return 0.0, 1.0 if first[0] == second[0] else None
    from scipy.stats import ttest_ind

    with warnings.catch_warnings():
        # scipy warns if the seeds agree to many digits.
        warnings.simplefilter("ignore", RuntimeWarning)
        test = ttest_ind(first, second, equal_var=False)
    interval = test.confidence_interval(1 - LEVEL)
    return float(interval.high - interval.low) / 2, float(test.pvalue)


def correct_holm(ps: Sequence[float]) -> list[float]:
    """Correct p values for their number by Holm's method, and return them in the same order."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    corrected, highest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = highest
    return corrected
