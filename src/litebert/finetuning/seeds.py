"""Scores of several seeds: how far they spread, and how large a difference must be to mean
something.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def summarize(scores: Sequence[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Compute median, mean, standard deviation, lowest and highest of each score that is a number
    with every seed.
    """
    return {
        name: {
            "median": statistics.median(values),
            "mean": statistics.fmean(values),
            "deviation": statistics.stdev(values) if len(values) > 1 else 0.0,
            "lowest": min(values),
            "highest": max(values),
        }
        for name in scores[0]
        if math.isfinite(sum(values := [score[name] for score in scores]))
    }


def describe_noise(name: str, values: Sequence[float]) -> str:
    """Describe the least difference between two means of as many seeds, two or more, that is more
    than chance.
    """
    if not math.isfinite(sum(values)):
        return f"{name} is not a number with every seed"
    if len(set(values)) == 1:
        return (
            f"{name} is the same for all {len(values)} seeds, which does not tell what chance "
            "does to it"
        )
    return (
        f"{name} differs from seed to seed by {statistics.stdev(values):.3g}: between two "
        f"means of {len(values)} "
        f"seeds, a difference below {compute_halfwidth(values, values):.3g} is inside the noise"
    )


def compute_halfwidth(first: Sequence[float], second: Sequence[float]) -> float:
    """Compute half of the 95 % interval of the difference of two means (Welch's t): what is smaller
    may be chance.

    Two values or more on each side. With three seeds it is 2.8 standard errors, with many 2.
    """
    if len(set(first)) == len(set(second)) == 1:
        return 0.0
    from scipy.stats import ttest_ind

    interval = ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    return float(interval.high - interval.low) / 2
