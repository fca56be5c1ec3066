"""What a budget buys: time, tokens or steps become optimizer steps."""

from __future__ import annotations

from dataclasses import dataclass

from litebert.config import Config
from litebert.config.amounts import parse_amount


@dataclass(frozen=True)
class Rate:
    """Seconds of one optimizer step at each depth of the schedule, and of one held-out batch."""

    step_seconds: tuple[tuple[float, float], ...]
    """(share of the run, seconds per step at its depth); the shares sum to 1."""
    evaluation_seconds: float

    @property
    def mean_step_seconds(self) -> float:
        """Over the whole run."""
        return sum(share * seconds for share, seconds in self.step_seconds)


def steps_for(config: Config, rate: Rate | None) -> int:
    """Optimizer steps a budget buys; a time budget needs a measured `rate`, held-out evaluations counted in."""
    budget = parse_amount(config.train.budget, "train.budget", ("time", "steps", "tokens"))
    if budget.unit == "steps":
        return int(budget.value)
    if budget.unit == "tokens":
        return max(1, round(budget.value / (config.batch_sequences * config.sequences.length)))
    assert rate is not None
    every = parse_amount(config.train.evaluate_every, "train.evaluate_every", ("share", "steps"))
    if every.unit == "share":
        evaluations = rate.evaluation_seconds / every.value
        return max(1, int((budget.value - evaluations) / rate.mean_step_seconds))
    return max(1, int(budget.value / (rate.mean_step_seconds + rate.evaluation_seconds / every.value)))
