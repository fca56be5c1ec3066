"""Scores of several seeds: their spread, and how large a difference must be to mean something."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

NORMAL = 1.959964
"""Standard deviations from the mean of a normal distribution to the ends of its central 95%."""


def summarize(scores: Sequence[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Compute median, mean, standard deviation, min and max of scores that every seed has."""
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


def describe_noise(name: str, values: Sequence[float], rows: int = 0, full: float = 1.0) -> str:
    """Describe the least difference of two means of as many seeds that is more than chance."""
    if not math.isfinite(sum(values)):
        return f"{name} is not a number with every seed"
    if len(set(values)) == 1:
        return (
            f"{name} is the same for all {len(values)} seeds, which does not tell what chance "
            "does to it"
        )
    return (
        f"{name} differs from seed to seed by {statistics.stdev(values):.3g}: between two "
        f"means of {len(values)} seeds{f' on {rows:,} rows' if rows else ''}, a difference below "
        f"{compute_noise(values, values, rows, full):.3g} is inside the noise"
    )


Verdict = Literal["better", "level", "worse"]


def judge(
    first: Sequence[float], second: Sequence[float], rows: int = 0, full: float = 1.0
) -> Verdict | None:
    """Judge the mean of scores beside another: inside the noise is level; None without noise."""
    noise = compute_noise(first, second, rows, full)
    difference = statistics.fmean(first) - statistics.fmean(second)
    if noise is None or not math.isfinite(difference):
        return None
    if abs(difference) <= noise:
        return "level"
    return "better" if difference > 0 else "worse"


def describe_standing(score: float, baseline: float | None, rows: int, full: float) -> str:
    """Describe which differences of one score are chance, and how it stands beside a baseline's."""
    noise = compute_noise([score], [score], rows, full)
    if noise is None or not math.isfinite(score):
        return ""
    text = f"Differences below {noise:.2g} on these rows are inside the noise."
    verdict = None if baseline is None else judge([score], [baseline], rows, full)
    if verdict is None:
        return text
    link = {"better": "better than", "level": "level with", "worse": "worse than"}[verdict]
    return f"The model is {link} the baseline. {text}"


def compute_noise(
    first: Sequence[float], second: Sequence[float], rows: int = 0, full: float = 1.0
) -> float | None:
    """Compute half of the 95% interval of the difference of two mean scores (one a seed): what is
    smaller may be chance. None of a single score on an unknown number of rows (0).

    Two things are chance: the seeds, of which Welch's t knows (with three seeds on each side it is
    2.8 standard errors, with many 2), and the rows. The mean of `rows` values between 0 and `full`
    has at most the error of a share, which stands for that of all scores. Two models answer the
    same rows, so that their difference varies less than that.
    """
    sides = [side for side in (first, second) if len(side) > 1]
    if not rows and len(sides) < 2:
        return None
    noise = 0.0
    if rows:
        shares = (min(1.0, max(0.0, statistics.fmean(side) / full)) for side in (first, second))
        errors = [full * compute_share_error(share, rows) for share in shares]
        noise = NORMAL * math.hypot(*errors)
    variances = [statistics.variance(side) / len(side) for side in sides]
    if total := sum(variances):
        from scipy.stats import t

        freedom = total**2 / sum(
            variance**2 / (len(side) - 1) for variance, side in zip(variances, sides, strict=True)
        )
        noise = math.hypot(noise, float(t.ppf(0.975, freedom)) * math.sqrt(total))
    return noise


def compute_share_error(share: float, count: int) -> float:
    """Compute the standard error of a share of `count` rows, with a right and a wrong row added."""
    smoothed = (share * count + 1) / (count + 2)
    return math.sqrt(smoothed * (1 - smoothed) / count)
