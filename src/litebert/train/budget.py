"""How many optimizer steps a budget buys on this machine. A budget in time is measured once and
then fixed.
"""

from __future__ import annotations

import logging
import math
import time

import torch

from litebert.base.errors import ConfigError
from litebert.config import Config, replace
from litebert.config.amounts import BUDGET_UNITS, parse_amount
from litebert.model.teacher import Teacher
from litebert.train.device import Device
from litebert.train.measure import SECONDS, Rate, measure
from litebert.train.ranks import Ranks

log = logging.getLogger("litebert")

MEASURED_SHARE = 0.04
"""Share of a short budget in time that measuring takes; of a long one, `measure.SECONDS` for each
depth. The run itself corrects what it says (`Loop.time_budget`).
"""
QUICK_SECONDS = 0.5
"""Seconds for each depth and length, where half or twice the speed decides nothing."""
LEAST_STEPS = 20
"""Fewer steps than this, bought by a budget in time, train nothing: it is a mistake, and
refused."""


def count_steps(config: Config, rate: Rate | None, spent: float = 0.0) -> int:
    """Optimizer steps that `train.budget` buys. A budget in time needs a `rate`; held-out
    evaluations are paid for, and the seconds that were `spent` on measuring."""
    budget = parse_amount(config.train.budget, "train.budget", BUDGET_UNITS)
    if budget.unit == "steps":
        return int(budget.value)
    if budget.unit == "tokens":
        return max(1, round(budget.value / (config.batch_sequences * config.mean_length)))
    assert rate is not None
    once, each = _estimate_seconds(config, rate)
    return max(1, round((budget.value - spent - once) / each))


def _estimate_seconds(config: Config, rate: Rate) -> tuple[float, float]:
    """Estimate the seconds of a run whatever its length, and those of each step, held-out
    evaluations included.
    """
    every = parse_amount(config.train.evaluate_every, "train.evaluate_every", ("share", "steps"))
    if every.unit == "share":
        return rate.evaluation_seconds / every.value, rate.mean_step_seconds
    return 0.0, rate.mean_step_seconds + rate.evaluation_seconds / every.value


def choose_batch(
    config: Config, machine: Device, ranks: Ranks, teacher: Teacher | None = None
) -> int:
    """Choose the batch of `train.batch=auto`, in sequences. It is a power of two near 1.5 sqrt(T)
    tokens for a budget of T tokens, and at least one sequence for each process.

    Noise in the gradient matters less as the loss falls, so longer runs gain from larger batches
    (McCandlish et al. 2018, "An Empirical Model of Large-Batch Training"); the factor is measured
    in ten minutes on two cores (docs/adr/0008-masking.md). A budget in steps decides nothing,
    and leaves `config.batch_sequences`.

    An accelerator computes a small batch as slowly as one that fills it. There, batches are doubled
    for as long as that lets the run learn faster: with r tokens a second in batches of B tokens,
    and the power of two above as the size n at which noise and signal are level, it learns as
    r / (B + n).
    """
    budget = parse_amount(config.train.budget, "train.budget", BUDGET_UNITS)
    if budget.unit == "steps":
        return config.batch_sequences

    # Compiling would take longer than what it decides.
    config = replace(config, train=replace(config.train, compile=False))
    tokens = budget.value
    if budget.unit == "time":
        rate = ranks.agree(measure(config, machine, QUICK_SECONDS, ranks, teacher))
        tokens *= config.batch_sequences * config.mean_length / rate.mean_step_seconds
    each = 2.0 ** round(math.log2(1.5 * math.sqrt(tokens)))
    level = batch = max(ranks.size, round(each / config.sequences.length))
    full = replace(config.train, depth_schedule=(), length_schedule=())
    best = 0.0
    while not machine.answers_at_once:
        sized = replace(config, train=replace(full, batch=f"{batch} sequences"))
        try:
            rate = ranks.agree(measure(sized, machine, QUICK_SECONDS, ranks, teacher))
            progress = batch / rate.mean_step_seconds / (batch + level)
        except torch.OutOfMemoryError:
            progress = 0.0
        if progress < 1.05 * best or not progress:
            return max(ranks.size, batch // 2)
        best, batch = progress, 2 * batch
    return batch


def buy_steps(
    config: Config,
    machine: Device,
    ranks: Ranks,
    option: str = "--budget",
    teacher: Teacher | None = None,
    began: float | None = None,
) -> tuple[int, Rate | None, float | None]:
    """Return the steps of `train.budget`, and for a budget in time the rate that was measured for
    it, and the seconds that are left of it after measuring.

    Args:
        option: what the budget is called in a message.
        began: when its time began, by `time.monotonic`; now, where it is None.
    """
    amount = config.train.budget
    began = time.monotonic() if began is None else began
    budget = parse_amount(amount, "train.budget", BUDGET_UNITS)
    if budget.unit != "time":
        return count_steps(config, None), None, None
    steps, rate = measure_steps(config, machine, option, ranks, teacher, began)
    speed = config.batch_sequences * config.mean_length / rate.mean_step_seconds
    log.info(
        f"{amount} on this machine is about {steps:,} steps ({speed:,.0f} tokens/s); the run "
        "counts them anew where its clock says so"
    )
    return steps, rate, budget.value - ranks.agree(time.monotonic() - began)


def measure_steps(
    config: Config,
    machine: Device,
    option: str = "--budget",
    ranks: Ranks | None = None,
    teacher: Teacher | None = None,
    began: float | None = None,
) -> tuple[int, Rate]:
    """Measure how many steps a budget in time buys, and the rate; arguments and errors are those of
    `buy_steps`.
    """
    ranks, amount = ranks or Ranks(), config.train.budget
    start, stages = time.monotonic() if began is None else began, len(config.stages())
    longest = MEASURED_SHARE * parse_amount(amount, "train.budget", BUDGET_UNITS).value / stages
    # The run compiles, and finds out how much faster that makes it.
    plain = replace(config, train=replace(config.train, compile=False))
    rate = measure(plain, machine, min(SECONDS, longest), ranks, teacher)
    rate, spent = ranks.agree((rate, time.monotonic() - start))
    steps, warmup = count_steps(config, rate, spent), config.train.schedule.warmup
    least = max(LEAST_STEPS, 2 * round(warmup) if warmup >= 1 else 0)
    if steps < least:
        once, each = _estimate_seconds(config, rate)
        seconds = math.ceil(
            1.25 * (spent + once + least * each)
        )  # a quarter more, for no two measurements agree
        shorter = (
            " or a share of the run as warm-up, such as --train.schedule.warmup 0.025,"
            if warmup >= 1
            else ""
        )
        why = (
            f"its warm-up of {warmup:g} steps needs at least"
            if least > LEAST_STEPS
            else "a run needs at least"
        )
        raise ConfigError(
            f"{option} {amount} buys {steps} step{'s' * (steps != 1)} of {each:.2g} s on this "
            f"machine, and {why} {least}; give {option} {seconds}s or more,{shorter} or name the "
            f"steps: {option} '{least} steps'"
        )
    return steps, rate


def with_budget(config: Config, amount: str) -> Config:
    """Return the config of an extension by `amount`, at full depth and length from step one."""
    return replace(
        config, train=replace(config.train, budget=amount, depth_schedule=(), length_schedule=())
    )
