"""The learning rate and the depth as pure functions of the step.

Steps count from 0 and `steps` (T) is the length of the run. Nothing is kept between calls, so a
resumed run needs nothing but its step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from litebert.config import ScheduleConfig

REWARM = 0.05
"""Share of an extension over which the rate rises again."""


def compute_extended_factor(config: ScheduleConfig, step: int, ends: Sequence[int]) -> float:
    """Compute the factor of a run that was extended: `ends` are the steps at which it ended each
    time, and will end now.

    An extension follows the schedule of a run that was as long from the start. It begins at the
    rate at which the run ended, and reaches that schedule within the first `REWARM` of its steps.
    This is re-warming and re-decaying (Ibrahim et al. 2024, "Simple and Scalable Strategies to
    Continually Pre-train Large Language Models").
    """
    part = next(i for i, end in enumerate(ends) if step < end)
    target = compute_factor(config, step, ends[part])
    if part == 0:
        return target
    start = ends[part - 1]
    last = compute_extended_factor(config, start - 1, ends[:part])
    return last + (target - last) * min(
        1.0, (step - start + 1) / count_rewarm_steps(ends[part] - start)
    )


def count_rewarm_steps(steps: int) -> int:
    """Count the steps of an extension of `steps` over which the rate rises again."""
    return max(1, round(REWARM * steps))


def compute_factor(config: ScheduleConfig, step: int, steps: int) -> float:
    """Compute the learning rate of step `step` as a share of the peak.

    `tf_linear` and `product_linear` start at exactly 0, as BERT, ALBERT and ELECTRA did. The others
    warm up by (step + 1) / W, so that no step is wasted. They decay so that the first rate of 0
    would be that of step T.
    """
    assert 0 <= step < steps
    warmup = round(config.warmup * steps) if config.warmup < 1 else round(config.warmup)
    if config.name == "tf_linear":
        return step / warmup if step < warmup else 1 - step / steps
    if config.name == "product_linear":
        return (1 - step / steps) * (min(1.0, step / warmup) if warmup else 1.0)
    rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
    if config.name == "trapezoid":
        start = steps - round(config.cooldown * steps)
        # The run may be so short that both slopes meet.
        return min(rise, 1 - _compute_progress(step, start, steps))
    done = _compute_progress(step, warmup, steps)
    if config.name == "cosine":
        done = (1 - math.cos(math.pi * done)) / 2
    return min(rise, 1 - done)


def _compute_progress(step: int, start: int, end: int) -> float:
    """Return how far `step` is from `start` to `end`, in [0, 1)."""
    return max(0, step - start) / max(1, end - start)


def find_depth(schedule: tuple[tuple[float, int], ...], layers: int, step: int, steps: int) -> int:
    """Find how many layers step `step` applies: those of the first pair whose share of the run is
    not over, then all.
    """
    return next((depth for share, depth in schedule if step < round(share * steps)), layers)
