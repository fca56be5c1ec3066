"""Scores of several seeds: how far they spread, and how large a difference must be to mean something."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def summarise(scores: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Median, mean, deviation of one run, lowest and highest of each score."""
    return {
        name: {
            "median": statistics.median(values),
            "mean": statistics.fmean(values),
            "deviation": statistics.stdev(values) if len(values) > 1 else 0.0,
            "lowest": min(values),
            "highest": max(values),
        }
        for name in scores[0]
        if (values := [one[name] for one in scores])
    }


def noise_of(name: str, values: list[float]) -> str:
    """What difference between two means of as many seeds is more than chance, in words; empty for one seed."""
    if len(values) < 2:
        return ""
    if not statistics.stdev(values):
        return f"{name} is the same for all {len(values)} seeds, which does not tell what chance does to it"
    return (
        f"{name} differs from seed to seed by {statistics.stdev(values):.3g}: between two means of {len(values)} "
        f"seeds, a difference below {confidence_halfwidth(values, values):.3g} is inside the noise"
    )


def confidence_halfwidth(first: Sequence[float], second: Sequence[float]) -> float:
    """Half of the 95 % interval of the difference of two means (Welch's t): what is smaller may be chance.

    Two values or more on each side. With three seeds it is 2.8 standard errors, with many 2.
    """
    parts = [statistics.variance(values) / len(values) for values in (first, second)]
    total = sum(parts)
    if total == 0:
        return 0.0
    from scipy.stats import t

    freedom = total**2 / sum(part**2 / (len(values) - 1) for part, values in zip(parts, (first, second), strict=True))
    return float(t.ppf(0.975, freedom)) * math.sqrt(total)
