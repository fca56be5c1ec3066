"""Paired comparisons of variants over seeds, judged seed after seed at a bounded error rate.

The seed is the unit. Two runs of one seed read the same sequences in the same order and answer the
same held-out questions, so a comparison is about their difference: Student's paired t test.

Comparisons are looked at after several seeds, and a verdict that stands ends a variant's runs. Each
look may spend a part of the 5% chance of a false verdict, and the parts sum to 5% (alpha
spending, Lan and DeMets 1983). At each look, Holm's method (1979) corrects for the number of
comparisons. By the union bound the chance of any false verdict in a study is at most 5%, however
looks and comparisons depend on one another.

What a study can detect follows from the spread: the standard deviation, over seeds, of the
difference of two runs with one seed. Power is that of the paired t test at the last planned seed,
at the level that Holm's method asks of the smallest p value.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from litebert.base.errors import DataError

LEVEL = 0.05
"""The chance that a study gives any verdict where there is no difference."""
FIRST_LOOK = 3
"""Seeds before the first look: the spread of two pairs is known too badly."""
SHARE_BEFORE, SHARE_LAST = 0.2, 0.75
"""Shares of the chance that the looks before the last planned seed, and that look, may spend. The
rest is for seeds that are added later.
"""

SeedScores = Mapping[str, Mapping[str, Mapping[int, float | None]]]
"""A value by variant, name of score and seed; None for a run that failed."""


@dataclass(frozen=True)
class Mean:
    value: float
    halfwidth: float | None
    """Half of its 95% interval; None with one seed."""
    seeds: int


@dataclass(frozen=True)
class Difference:
    """The mean over seeds of a variant's score minus the baseline's."""

    variant: str
    score: str
    value: float
    halfwidth: float | None
    """Half of its 95% interval, not corrected; None with one pair."""
    p: float | None
    """The p value after the corrections for comparisons and looks; a verdict stands if it is below
    0.05. None without a test: for one pair, equal differences, or before the first look.
    """
    pairs: int = 0
    """Seeds that both have."""
    spread: float | None = None
    """The standard deviation of the difference over seeds; None with one pair."""
    higher: int = 0
    """Pairs in which the variant has the higher score."""
    is_open: bool = False
    """True if no verdict stands yet and planned seeds have not ended."""

    @property
    def is_beyond_noise(self) -> bool:
        return self.p is not None and self.p < LEVEL


def compute_mean(values: Sequence[float]) -> Mean:
    count = len(values)
    if count < 2:
        return Mean(values[0], None, count)
    from scipy.stats import t

    error = statistics.stdev(values) / math.sqrt(count)
    return Mean(statistics.fmean(values), float(t.ppf(1 - LEVEL / 2, count - 1)) * error, count)


def compute_look_level(seeds: int, planned: int) -> float:
    """Compute the chance of a false verdict that the look after this many seeds may spend: beyond
    the seeds that were planned, each look may spend half as much as the one before.
    """
    first = min(FIRST_LOOK, planned)
    if seeds < first or seeds < 2:
        return 0.0
    if seeds < planned:
        return LEVEL * SHARE_BEFORE / (planned - first)
    if seeds == planned:
        return LEVEL * SHARE_LAST
    added = seeds - planned
    return LEVEL * (1 - SHARE_BEFORE - SHARE_LAST) * 0.5**added


def compare_with_baseline(
    scores: SeedScores, baseline: str, names: Sequence[str], planned: int
) -> list[Difference]:
    """Compare every variant with the baseline, in every score that both have and that is named.

    The looks are taken one after the other, as they were while the study ran, at the seeds that
    were planned and beyond. So the verdicts are those that ended its variants.
    """
    pairs = _pair_scores(scores, baseline, names)
    results: dict[tuple[str, str], Difference] = {}
    for seeds in range(1, max(map(len, pairs.values()), default=0) + 1):
        standing = {key for key, result in results.items() if result.is_beyond_noise}
        due = {
            key: _test_pairs(*key, values[:seeds])
            for key, values in pairs.items()
            if key not in standing and len(values) >= seeds
        }
        level = compute_look_level(seeds, planned)
        results |= _correct(due, len(standing), len(pairs), level)
    return [_complete(results[key], values, planned) for key, values in pairs.items()]


def _pair_scores(
    scores: SeedScores, baseline: str, names: Sequence[str]
) -> dict[tuple[str, str], list[float | None]]:
    """List the differences from the baseline by seed, up to the first seed that has not ended; a
    pair with a run that failed is None.
    """
    pairs = {}
    baseline_scores = scores.get(baseline, {})
    for variant, variant_scores in scores.items():
        for name in names if variant != baseline else ():
            values, baseline_values = variant_scores.get(name, {}), baseline_scores.get(name, {})
            differences: list[float | None] = []
            while len(differences) in values and len(differences) in baseline_values:
                value, other = values[len(differences)], baseline_values[len(differences)]
                differences.append(None if value is None or other is None else value - other)
            if any(difference is not None for difference in differences):
                pairs[variant, name] = differences
    return pairs


def _test_pairs(variant: str, score: str, pairs: Sequence[float | None]) -> Difference:
    values = [pair for pair in pairs if pair is not None]
    count, higher = len(values), sum(value > 0 for value in values)
    mean = statistics.fmean(values) if values else math.nan
    if count < 2:
        return Difference(variant, score, mean, None, None, count, higher=higher)
    spread = statistics.stdev(values)
    if len({*values}) == 1:  # seeds that change nothing leave no noise
        p = None if values[0] else 1.0
        return Difference(variant, score, mean, 0.0, p, count, spread, higher)
    from scipy.stats import t

    error = spread / math.sqrt(count)
    halfwidth = float(t.ppf(1 - LEVEL / 2, count - 1)) * error
    p = float(2 * t.sf(abs(mean) / error, count - 1))
    return Difference(variant, score, mean, halfwidth, p, count, spread, higher)


def _correct(
    due: Mapping[tuple[str, str], Difference], standing: int, comparisons: int, level: float
) -> dict[tuple[str, str], Difference]:
    """Correct the p values of a look, so that a verdict stands where one is below `LEVEL`. The
    verdicts that stand count as the smallest p values of Holm's method, and what cannot be tested
    as no evidence. `level` is what the look may spend; 0 if none is due.
    """
    tested = {key: difference.p for key, difference in due.items() if difference.p is not None}
    untested = comparisons - standing - len(tested)
    corrected = correct_holm([0.0] * standing + [*tested.values()] + [1.0] * untested)
    p_of = dict(zip(tested, corrected[standing:], strict=False))
    return {
        key: replace(
            difference, p=min(1.0, p_of[key] * LEVEL / level) if key in p_of and level else None
        )
        for key, difference in due.items()
    }


def _complete(result: Difference, pairs: Sequence[float | None], planned: int) -> Difference:
    is_open = not result.is_beyond_noise and len(pairs) < planned
    whole = _test_pairs(result.variant, result.score, pairs)
    return replace(whole, p=result.p, is_open=is_open)


def correct_holm(ps: Sequence[float]) -> list[float]:
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    corrected, highest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = highest
    return corrected


# ------------------------------------------------------------------------- what a study can detect


POWER = 0.8


@dataclass(frozen=True)
class Spread:
    """The standard deviation of the difference of two runs with one seed."""

    score: str
    value: float
    pairs: int
    """Pairs of runs that it is measured on."""
    source: str
    """The seeds that it is measured on, in words."""


@dataclass(frozen=True)
class Power:
    seeds: int
    comparisons: int
    spreads: float
    """The difference that is seen with a chance of 80%, in spreads."""
    spread: Spread | None = None
    """None if nothing has measured it yet."""

    @property
    def difference(self) -> float | None:
        return None if self.spread is None else self.spreads * self.spread.value


def compute_power(difference: float, seeds: int, level: float) -> float:
    """Compute the chance that a two-sided paired t test of a level in (0, 1) finds a difference, in
    spreads.
    """
    from scipy.stats import nct, t

    bound, shift = t.ppf(1 - level / 2, seeds - 1), difference * math.sqrt(seeds)
    # The other side is left out, where scipy has no digits for large shifts and no chance is left.
    return float(nct.sf(bound, seeds - 1, shift))


def find_difference(seeds: int, level: float, power: float = POWER) -> float:
    low, high = 0.0, 1.0
    while compute_power(high, seeds, level) < power:
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (
            (low, middle) if compute_power(middle, seeds, level) >= power else (middle, high)
        )
    return high


def make_power(seeds: int, comparisons: int, spread: Spread | None) -> Power | None:
    """State what a study of some seeds and comparisons sees; None if it can test nothing."""
    if seeds < 2 or comparisons < 1:
        return None
    level = compute_look_level(seeds, seeds) / comparisons
    return Power(seeds, comparisons, find_difference(seeds, level), spread)


def measure_spread(differences: Sequence[Difference], score: str, source: str) -> Spread | None:
    """Pool the spreads of a score over the variants of a study, as the root of the mean square
    weighted by pairs less one; None if no spread is known.
    """
    spreads = [
        (difference.spread, difference.pairs - 1)
        for difference in differences
        if difference.score == score and difference.spread
    ]
    degrees = sum(degree for _, degree in spreads)
    if not degrees:
        return None
    variance = sum(spread**2 * degree for spread, degree in spreads) / degrees
    return Spread(score, math.sqrt(variance), degrees + len(spreads), source)


def read_seed_scores(folder: Path) -> dict[str, dict[str, dict[int, float | None]]]:
    file = folder / "results.csv"
    scores: dict[str, dict[str, dict[int, float | None]]] = {}
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines):
                by_name = scores.setdefault(row["variant"], {})
                by_name.setdefault(row["score"], {})[int(row["seed"])] = float(row["value"])
    except OSError as error:
        raise DataError(
            f"{file} cannot be read ({error.strerror}); give --pilot the folder of a study"
        ) from None
    except (KeyError, TypeError, ValueError):
        raise DataError(
            f"{file} is not the table of a study's scores; give --pilot the folder of a study"
        ) from None
    return scores
