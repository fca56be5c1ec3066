"""The rates that short runs try, and the choice among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
"""The rates that are tried from the only start there is."""
FITTED_RATES, DRAWN_RATES = RATES[:3], RATES[2:]
"""The rates that are tried from a fitted head, and from a drawn one, where one of them is taken."""
LONG_RUN, LARGEST_OF_LONG = 5000, 1e-3
"""Steps of a run in which larger rates than this one are not tried: a short run is ahead with them,
and a long one ends behind (docs/reports/results.md)."""
LEAST_UNTOLD = 1e-4
"""The least rate that is taken where no short run learns anything. The papers' rates are for
networks that were pretrained for days, and such a network seldom learns nothing.
"""


def list_rates(rates: Sequence[float], steps: int) -> list[float]:
    """List the rates that are tried for a run of some steps."""
    return [rate for rate in rates if steps < LONG_RUN or rate <= LARGEST_OF_LONG]


def choose_rate(
    losses: Mapping[float, NDArray[np.float64]], prior: NDArray[np.float64] | None, usual: float
) -> float:
    """Choose the rate to take, as `find_largest_good` says, where a short run learned something.

    Where none did, the lowest loss is that of the network that moved least. Then rates below the
    usual one are left out, and the lowest loss of the others counts.

    Args:
        losses: by rate, (P,): the mean loss of each of P parts of the held-out rows.
        prior: the same of answers that read no text; None where they are not known.
        usual: the rate of the recipe.
    """
    best = min(losses.values(), key=lambda parts: float(parts.mean()))
    if (
        prior is None
        or not np.isfinite(best).all()
        or (prior - best).mean() > compute_standard_error(prior - best)
    ):
        return find_largest_good(losses)
    higher = [rate for rate in losses if rate >= usual] or [max(losses)]
    return min(higher, key=lambda rate: float(losses[rate].mean()))


def compute_standard_error(differences: NDArray[np.float64]) -> float:
    """Compute the standard error of the mean of differences; none of a single one."""
    return (
        float(differences.std(ddof=1) / np.sqrt(len(differences))) if len(differences) > 1 else 0.0
    )


def find_largest_good(losses: Mapping[float, NDArray[np.float64]]) -> float:
    """Find the largest rate whose loss is not above the lowest by more than its standard error.

    A short run shows too little of what a small rate would still learn. So of rates that cannot be
    told apart the largest is the safest.

    Args:
        losses: by rate, (P,): the mean loss of each of P parts of the held-out rows.
    """
    best = min(losses.values(), key=lambda parts: float(parts.mean()))
    good = []
    for rate, parts in losses.items():
        if np.isfinite(parts).all():
            good.append((rate, (parts - best).mean() <= compute_standard_error(parts - best)))
    return max((rate for rate, fits in good if fits), default=min(losses))
