"""What the seeds allow to say: intervals of means, and which differences exceed the noise.

The seed is the unit: every score of a run is one number, however many tokens it was counted on.
Intervals are Student's t at 95 %, differences are Welch's t test (unequal variances), and p values
of several comparisons are corrected by Holm's method (Holm 1979), which bounds the chance of any
false claim.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEVEL = 0.05


@dataclass(frozen=True)
class Mean:
    """The mean of a score over seeds."""

    value: float
    halfwidth: float | None
    """Of its 95 % interval; None with one seed."""
    seeds: int


@dataclass(frozen=True)
class Difference:
    """A variant's mean minus the baseline's."""

    variant: str
    score: str
    value: float
    halfwidth: float | None
    """Of its 95 % interval, not corrected; None where a side has one seed."""
    p: float | None
    """After Holm's correction over all comparisons; None where nothing can be tested: a side has
    one seed, or the seeds of each side agree exactly."""

    @property
    def beyond_noise(self) -> bool:
        """Whether it is larger than the spread of the seeds explains."""
        return self.p is not None and self.p < LEVEL


def mean(values: Sequence[float]) -> Mean:
    """Of one value or more."""
    count = len(values)
    if count < 2:
        return Mean(values[0], None, count)
    from scipy.stats import t

    error = statistics.stdev(values) / math.sqrt(count)
    return Mean(statistics.fmean(values), float(t.ppf(1 - LEVEL / 2, count - 1)) * error, count)


def differences(
    scores: Mapping[str, Mapping[str, Sequence[float]]], baseline: str, names: Sequence[str]
) -> list[Difference]:
    """Every variant against the baseline, in every score that both have.

    Args:
        scores: by variant and name, a value for each seed.
        names: the scores to compare.
    """
    found, ps = [], []
    for variant, own in scores.items():
        for name in names:
            ours, theirs = own.get(name, ()), scores.get(baseline, {}).get(name, ())
            if variant == baseline or not ours or not theirs:
                continue
            value = statistics.fmean(ours) - statistics.fmean(theirs)
            halfwidth, p = _welch(ours, theirs)
            found.append(Difference(variant, name, value, halfwidth, None))
            ps.append(p)
    corrected = iter(holm([p for p in ps if p is not None]))
    return [
        Difference(
            one.variant, one.score, one.value, one.halfwidth, None if p is None else next(corrected)
        )
        for one, p in zip(found, ps, strict=True)
    ]


def _welch(first: Sequence[float], second: Sequence[float]) -> tuple[float | None, float | None]:
    """Half of the 95 % interval of the difference of means, and the p value."""
    if min(len(first), len(second)) < 2:
        return None, None
    if len({*first}) == len({*second}) == 1:  # seeds that change nothing leave no noise
        return 0.0, 1.0 if first[0] == second[0] else None
    from scipy.stats import ttest_ind

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of seeds that agree to many digits
        test = ttest_ind(first, second, equal_var=False)
    interval = test.confidence_interval(1 - LEVEL)
    return float(interval.high - interval.low) / 2, float(test.pvalue)


def holm(ps: Sequence[float]) -> list[float]:
    """P values corrected for their number, in the order given."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    corrected, highest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = highest
    return corrected
