"""Compute the difference that a study sees, before its runs start or by the spread of its seeds.

The spread is the standard deviation, over seeds, of the difference of two runs with one seed. It is
measured in the first seeds of the study itself, or in the folder of an earlier study. Power is that
of the paired t test at the last planned seed, at the level that Holm's method asks of the smallest
p value. The earlier looks only add to it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from litebert.errors import DataError
from litebert.studies.statistics import Difference, compute_look_level
from litebert.studies.verdicts import format_amount, format_title

POWER = 0.8
"""The chance that a difference is seen if it is as large as stated."""


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
    """The difference that a study sees."""

    seeds: int
    comparisons: int
    spreads: float
    """The difference that is seen with a chance of 80 %, in spreads."""
    spread: Spread | None = None
    """None if nothing has measured it yet."""

    @property
    def difference(self) -> float | None:
        """The difference that is seen with a chance of 80 %; None without a spread."""
        return None if self.spread is None else self.spreads * self.spread.value

    def describe(self) -> str:
        """Describe it in two sentences."""
        comparisons = f"{self.comparisons} comparison{'s' * (self.comparisons != 1)}"
        start = f"With {self.seeds} seeds and {comparisons}, the study can detect"
        if self.spread is None:
            return (
                f"{start} a difference of {self.spreads:.1f} times the spread of a pair of runs, "
                f"with a chance of {100 * POWER:.0f} %. That spread is measured once two seeds "
                "have finished."
            )
        score, value = self.spread.score, self.spreads * self.spread.value
        return (
            f"{start} a difference of {format_amount(score, value)} in {format_title(score)} with "
            f"a chance of {100 * POWER:.0f} %. The spread of a pair of runs is "
            f"{format_amount(score, self.spread.value)}, from {self.spread.source}."
        )


def compute_power(difference: float, seeds: int, level: float) -> float:
    """Compute the chance that a paired t test finds a difference.

    Args:
        difference: in spreads.
        level: of the two-sided test, in (0, 1).
    """
    from scipy.stats import nct, t

    bound, shift = t.ppf(1 - level / 2, seeds - 1), difference * math.sqrt(seeds)
    # The other side is left out, where scipy has no digits for large shifts and no chance is left.
    return float(nct.sf(bound, seeds - 1, shift))


def find_difference(seeds: int, level: float, power: float = POWER) -> float:
    """Find the difference, in spreads, that a paired t test finds with a chance of `power`."""
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
    """Pool the spreads of a score over the variants of a study; None if no spread is known.

    Their squares are averaged, each weighted by its pairs less one.
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
    """Read the scores of an earlier study from `results.csv` in its folder."""
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
