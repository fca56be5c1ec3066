"""How long a step of a config takes on this machine, measured on made-up batches; how fast the
machine multiplies matrices; and how many steps a budget buys, once measured and then fixed.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from litebert.base.errors import ConfigError
from litebert.base.progress import task
from litebert.config import Config, cost, replace
from litebert.config.amounts import BUDGET_UNITS, parse_amount
from litebert.data.batches import Batch
from litebert.data.masking import find_span_boundaries
from litebert.model.pretrainer import Pretrainer, compile_parts
from litebert.model.teacher import Teacher
from litebert.train.device import Device
from litebert.train.evaluate import EVALUATION_BATCH
from litebert.train.optim import Optimizers, has_float32_iteration
from litebert.train.parallel import parallelize
from litebert.train.ranks import ALONE, Ranks

log = logging.getLogger("litebert")

SECONDS = 4.0
"""Seconds of measuring for each depth and length."""
MEASURED_SHARE = 0.04
"""Share of a short budget in time that measuring takes; of a long one, `measure.SECONDS` for each
depth. The run itself corrects what it says (`Loop.time_budget`).
"""
QUICK_SECONDS = 0.5
"""Seconds for each depth and length, where half or twice the speed decides nothing."""
LEAST_STEPS = 20
"""Fewer steps than this, bought by a budget in time, train nothing and are refused."""


@dataclass(frozen=True)
class Rate:
    """Seconds of one optimizer step in each stage of a run, and of one held-out evaluation."""

    step_seconds: tuple[tuple[float, float], ...]
    """(share of the run, seconds per step at its depth and length); the shares sum to 1."""
    evaluation_seconds: float

    @property
    def mean_step_seconds(self) -> float:
        """Over the whole run."""
        return sum(share * seconds for share, seconds in self.step_seconds)


@cache
def measure_matmul_speed(device: Device, seconds: float = 0.3) -> float:
    """Floating point operations a second of matrix products, in the type of the device's runs,
    measured in about `seconds`.

    It is the best of square products of growing size. Makers print higher figures, which a GPU does
    not hold for long.
    """
    kind, dtype = device.device, device.autocast or torch.float32
    best, taken, size = 0.0, 0.0, 512
    while size <= 8192 and 16 * taken < seconds:
        left, right = (torch.randn(size, size, device=kind).to(dtype) for _ in range(2))
        repeats = 1
        # The first finds its library, the second says how often there is time for.
        for _ in range(3):
            start = _read_clock(device)
            for _ in range(repeats):
                torch.mm(left, right)
            taken = (_read_clock(device) - start) / repeats
            repeats = max(1, min(50, int(seconds / 10 / taken)))
        best = max(best, 2 * size**3 / taken)
        size *= 2
    return best


def make_batch(config: Config, sequences: int, padded: bool = False) -> Batch:
    """Make a full batch of random ids with the config's share of masks.

    With `padded` one token is padding, as in nearly every batch of text, so that attention gets a
    mask.
    """
    length = config.sequences.length
    generator = torch.Generator().manual_seed(0)
    count = max(1, round(config.masking.rate * sequences * length))
    positions = torch.randperm(sequences * length, generator=generator)[:count].sort().values
    vocab = config.encoder.vocab_size
    mask = torch.ones(sequences, length, dtype=torch.bool)
    mask[0, -1] = False
    return Batch(
        input_ids=torch.randint(0, vocab, (sequences, length), generator=generator),
        token_type_ids=torch.zeros(sequences, length, dtype=torch.int64),
        attention_mask=mask if padded else None,
        masked_positions=positions,
        masked_labels=torch.randint(0, vocab, (count,), generator=generator),
        sentence_labels=torch.randint(0, 2, (sequences,), generator=generator),
        masked_boundaries=torch.from_numpy(
            find_span_boundaries(np.ones((sequences, length), bool), positions.numpy())
        ),
    )


def take_process_share(config: Config, ranks: Ranks) -> Config:
    if ranks.size == 1:
        return config
    most = -(-config.batch_sequences // ranks.size)
    return replace(config, train=replace(config.train, batch=f"{most} sequences"))


@task("measuring the speed of training")
def measure(
    config: Config,
    device: Device,
    seconds: float = SECONDS,
    ranks: Ranks = ALONE,
    teacher: Teacher | None = None,
) -> Rate:
    """Time real training steps on a throw-away model, about `seconds` in each stage, in all
    processes; large batches by one micro-batch, multiplied.
    """
    config = take_process_share(config, ranks)
    torch.manual_seed(0)
    model = Pretrainer(config).to(device.device)
    network, model.teacher = parallelize(model, ranks), teacher
    if config.train.compile:
        compile_parts(model)
    optimizers = Optimizers(
        model, config.train.optimizer, ranks=ranks, muon_in_float32=has_float32_iteration(device)
    )
    scale = config.batch_sequences / config.micro_sequences

    def time_step(batch: Batch, depth: int) -> tuple[float, float]:
        """Return the seconds of one micro-batch, forward and backward, and of the update."""
        start = _read_clock(device)
        with device.autocast_context():
            losses = network(batch, depth)
        torch.stack(
            [loss.total / loss.count.clamp(min=1) for loss in losses.values()]
        ).sum().backward()  # type: ignore[no-untyped-call]
        middle = _read_clock(device)
        optimizers.clip(config.train.clip, device.answers_at_once)
        optimizers.step(0.0)
        optimizers.zero_grad()
        return middle - start, _read_clock(device) - middle

    step_seconds, start_share = [], 0.0
    for end_share, depth, length in config.stages():
        train = replace(config.train, length_schedule=())
        shape = replace(config, sequences=replace(config.sequences, length=length), train=train)
        batch = make_batch(shape, config.micro_sequences, padded=True).to(device.device)
        times: list[tuple[float, float]] = []
        began = time.monotonic()
        while not ranks.agree(_is_enough(len(times), time.monotonic() - began, seconds)):
            times.append(time_step(batch, depth))
        # The first two find their memory, the second that of the gradients.
        passes, updates = zip(*(times[2:] or times[1:]), strict=True)
        mean = statistics.median(passes) * scale + statistics.median(updates)
        step_seconds.append((end_share - start_share, mean))
        start_share = end_share
    return Rate(tuple(step_seconds), _measure_evaluation(model, config, device, ranks))


def _measure_evaluation(model: Pretrainer, config: Config, device: Device, ranks: Ranks) -> float:
    model.eval()
    sequences = min(EVALUATION_BATCH, config.train.evaluate_sequences)
    batch = make_batch(config, sequences, padded=True).to(device.device)
    forward = []
    for _ in range(3):
        start = _read_clock(device)
        with torch.no_grad(), device.autocast_context():
            model(batch)
        forward.append(_read_clock(device) - start)
    # One pass over the held-out sequences for each objective.
    return (
        statistics.median(forward)
        / sequences
        * config.train.evaluate_sequences
        * len(config.objectives)
        / ranks.size
    )


def build_share_of_peak(config: Config, device: Device) -> Callable[[float, int], float]:
    """Build a function of tokens per second and depth: the share of `measure_matmul_speed` that
    training uses, by `cost.forward_flops` times three for both passes.

    It is measured at the first call; a machine that was busy then is at least as fast as training
    has shown since.
    """
    shown = 0.0

    @cache
    def flops(layers: int) -> float:
        plain = replace(config, train=replace(config.train, depth_schedule=()))
        return 3 * cost.forward_flops(
            replace(plain, encoder=replace(config.encoder, layers=layers))
        )

    def share(tokens_per_second: float, layers: int) -> float:
        nonlocal shown
        used = tokens_per_second * flops(layers)
        shown = max(shown, used)
        return used / max(shown, measure_matmul_speed(device))

    return share


def _is_enough(passes: int, spent: float, seconds: float) -> bool:
    """Four passes at least, two where they are slow; beyond, as many as fit."""
    if passes < 4:
        return passes >= 2 and spent >= 4 * seconds
    return spent >= seconds or passes >= 40


def _read_clock(device: Device) -> float:
    if device.device.type == "cuda":
        torch.cuda.synchronize(device.device)
    return time.perf_counter()


# ---------------------------------------------------------------------------------------- budgets


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
    """The seconds of a run whatever its length, and of each step, with held-out evaluations."""
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
    in ten minutes on two cores (docs/decisions.md). A budget in steps decides nothing,
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
    """Return the steps of `train.budget`, and for a budget in time the measured rate and the
    seconds that are left after measuring.

    `option` names the budget in messages; its time `began` by `time.monotonic`, or now.
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
    ranks: Ranks = ALONE,
    teacher: Teacher | None = None,
    began: float | None = None,
) -> tuple[int, Rate]:
    """Measure how many steps a budget in time buys, and the rate; arguments as of `buy_steps`."""
    amount = config.train.budget
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
        # A quarter more, for no two measurements agree.
        seconds = math.ceil(1.25 * (spent + once + least * each))
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
