"""How many steps the runs of a study take, how many runs go at a time, and what they cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch

from litebert import cost
from litebert.config import Config, replace
from litebert.config.amounts import Amount
from litebert.config.serialization import to_dict
from litebert.errors import ConfigError, RunError
from litebert.machine import count_cores, read_free_memory
from litebert.progress import duration, task
from litebert.studies.study import Study
from litebert.train import device as devices
from litebert.train.budget import LEAST_STEPS
from litebert.train.measure import Rate

START_SECONDS = 12.0
"""The seconds of a run without steps, for its commands pretrain and evaluate.

They load libraries, read data and write checkpoints.
"""
UNMEASURED = ("toy",)
"""Scales that check in seconds whether a study runs, so that they say no cost."""
MEASURE_SECONDS = 3.0
"""The seconds for which the speed of each variant is measured."""
DECIDING = 4
"""The last evaluation scores this many times the sequences of an evaluation during the run."""


def set_vocabulary(config: Config, vocabulary: int) -> Config:
    """Return the config with a token table for a vocabulary of this size."""
    return replace(config, encoder=replace(config.encoder, vocab_size=vocabulary))


def _choose_jobs(configs: Iterable[Config], machine: devices.Device) -> int:
    """Choose how many runs go at a time: one for each GPU, or for each core if memory allows.

    A second thread makes a step of a small encoder 1.4 to 1.6 times as fast
    (docs/reports/performance.md).
    A second run beside it gets twice as much done.
    """
    if machine.device.type != "cpu":
        return max(1, torch.cuda.device_count())
    free = read_free_memory()
    most = max(sum(vars(cost.memory(config)).values()) for config in configs)
    return max(1, min(count_cores(), int(0.7 * free / most) if free else 1))


class Grid(NamedTuple):
    """The runs whose steps are planned."""

    study: Study
    configs: Mapping[str, Config]
    """The config of each variant, with its vocabulary."""
    seeds: int
    jobs: int
    threads: int
    device: str


def make_grid(
    study: Study, vocabulary: int, seeds: int, jobs: int, machine: devices.Device, device: str
) -> Grid:
    """Choose how many runs go at a time, if `jobs` is 0, and the threads of each."""
    configs = {
        variant: set_vocabulary(config, vocabulary) for variant, config in study.variants.items()
    }
    jobs = min(jobs or _choose_jobs(configs.values(), machine), len(configs) * seeds)
    threads = 0
    if machine.device.type == "cpu":
        threads = max(1, torch.get_num_threads() // jobs)  # heeds OMP_NUM_THREADS
    return Grid(study, configs, seeds, jobs, threads, device)


def plan_grid(grid: Grid, amount: Amount, measured: bool) -> dict[str, Any]:
    """Plan the steps of a grid and what they cost, as fields of its plan.

    Args:
        measured: whether the speed of each variant is measured even if the budget needs no speed.
    """
    is_time = amount.unit == "time" or grid.study.equal == "time"
    speeds = _measure_speeds(grid) if is_time or measured else {}
    rates = {name: speed.rate for name, speed in speeds.items()}
    steps = _plan_steps(grid, amount.value, amount.unit, rates)
    return {
        "baseline": grid.study.baseline,
        "shares": grid.study.data,
        "jobs": grid.jobs,
        "threads": grid.threads,
        "steps": steps,
        "step_seconds": {name: rate.mean_step_seconds for name, rate in rates.items()},
        "hours": _estimate_hours(grid, steps, speeds) if speeds else None,
    }


def _plan_steps(grid: Grid, value: float, unit: str, rates: Mapping[str, Rate]) -> dict[str, int]:
    """Plan the steps of each variant from a budget.

    A budget in time is for the whole grid. A budget in steps or tokens is for each run.

    Args:
        rates: the speed of each variant, which budgets in time need.
    """
    study, configs = grid.study, grid.configs
    step_tokens = {
        name: config.batch_sequences * config.mean_length for name, config in configs.items()
    }
    if unit == "tokens" or (unit == "steps" and study.equal == "tokens"):
        tokens = value if unit == "tokens" else value * step_tokens[study.baseline]
        return {name: max(1, round(tokens / count)) for name, count in step_tokens.items()}
    if unit == "steps" and study.equal == "steps":
        return dict.fromkeys(configs, int(value))
    if unit == "steps" and study.equal == "operations":
        operations = _count_step_operations(configs)
        return {
            name: max(1, round(value * operations[study.baseline] / count))
            for name, count in operations.items()
        }
    step_seconds = {name: rate.mean_step_seconds for name, rate in rates.items()}
    if unit == "steps":
        # The baseline takes this many steps, and every other variant as much time.
        seconds = value * step_seconds[study.baseline]
        return {name: max(1, round(seconds / step_seconds[name])) for name in configs}
    return _plan_time(grid, value, rates, step_tokens)


def _plan_time(
    grid: Grid, seconds: float, rates: Mapping[str, Rate], step_tokens: Mapping[str, float]
) -> dict[str, int]:
    """Plan the steps of each variant from the seconds for the whole grid."""
    configs, seeds, jobs = grid.configs, grid.seeds, grid.jobs
    step_seconds = {name: rate.mean_step_seconds for name, rate in rates.items()}
    operations = _count_step_operations(configs)
    fixed = sum(START_SECONDS + _evaluation_seconds(rate) for rate in rates.values()) * seeds / jobs
    left = seconds - fixed - len(configs) * MEASURE_SECONDS / jobs
    # Every run gets the same number of units: of steps, tokens, seconds or operations.
    unit_seconds = {
        "steps": step_seconds,
        "tokens": {name: step_seconds[name] / step_tokens[name] for name in configs},
        "time": dict.fromkeys(configs, 1.0),
        "operations": {name: step_seconds[name] / operations[name] for name in configs},
    }[grid.study.equal]
    units = left * jobs / (seeds * sum(unit_seconds.values()))
    run_steps = {
        "steps": dict.fromkeys(configs, units),
        "tokens": {name: units / step_tokens[name] for name in configs},
        "time": {name: units / step_seconds[name] for name in configs},
        "operations": {name: units / operations[name] for name in configs},
    }[grid.study.equal]
    steps = {name: int(count) for name, count in run_steps.items()}
    least = min(steps, key=lambda name: steps[name])
    if steps[least] < LEAST_STEPS:
        needed = sum(LEAST_STEPS * step_seconds[name] for name in configs) * seeds / jobs
        raise ConfigError(
            f"a budget of {duration(seconds)} for {len(configs)} variants and {seeds} "
            f"seed{'s' * (seeds > 1)} gives '{least}' {max(0, steps[least])} of at least "
            f"{LEAST_STEPS} steps; give --budget {int(1.3 * (fixed + needed)) + 60}s or "
            "more, fewer --seeds or a smaller --scale"
        )
    return steps


def _evaluation_seconds(rate: Rate) -> float:
    """Estimate the seconds of a run's evaluations: ten during training, and the deciding one."""
    return rate.evaluation_seconds * (10 + DECIDING)


def _count_step_operations(configs: Mapping[str, Config]) -> dict[str, float]:
    return {name: cost.training_flops(config, 1)(1) for name, config in configs.items()}


class _Speed(NamedTuple):
    """The speed of a config."""

    rate: Rate
    share: float
    """The share of the time in which other programs left the core to the measurement."""


def _estimate_hours(grid: Grid, steps: Mapping[str, int], speeds: Mapping[str, _Speed]) -> float:
    """Estimate the hours of all runs, without their fine-tuning and sentence pairs, if nothing else
    runs on the machine.
    """
    seconds = sum(
        START_SECONDS + share * (steps[name] * rate.mean_step_seconds + _evaluation_seconds(rate))
        for name, (rate, share) in speeds.items()
    )
    return seconds * grid.seeds / grid.jobs / 3600


@task("measuring the variants")
def _measure_speeds(grid: Grid) -> dict[str, _Speed]:
    """Measure the speed of each variant beside as many others as will run in the study."""
    free_slots: SimpleQueue[int] = SimpleQueue()
    for slot in range(grid.jobs):
        free_slots.put(slot)

    def measure_in_slot(config: Config) -> _Speed:
        slot = free_slots.get()
        try:
            environment = make_environment(slot, grid.threads)
            return _measure_speed(config, environment, grid.threads, grid.device)
        finally:
            free_slots.put(slot)

    with ThreadPoolExecutor(grid.jobs) as pool:
        speeds = pool.map(measure_in_slot, grid.configs.values())
        return dict(zip(grid.configs, speeds, strict=True))


def _measure_speed(
    config: Config, environment: Mapping[str, str], threads: int, device: str
) -> _Speed:
    """Measure the speed of a config in another process.

    It is a program rather than a worker of `multiprocessing`, so that a script that calls `study`
    needs no `if __name__ == "__main__"`.
    """
    request = {
        "config": to_dict(config),
        "device": device,
        "threads": threads,
        "seconds": MEASURE_SECONDS,
    }
    process = subprocess.run(
        [sys.executable, "-m", "litebert.studies.speed"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    if process.returncode:
        reason = (process.stderr.rstrip().split("\n")[-1] or f"status {process.returncode}").strip()
        raise RunError(
            f"the speed of '{config.name}' cannot be measured ({reason}); give --budget in steps"
        )
    fields = json.loads(process.stdout)
    return _Speed(Rate(**fields["rate"]), fields["share"])


def make_environment(slot: int, threads: int) -> dict[str, str]:
    """Make the environment of a process: its threads, or its GPU.

    Args:
        slot: the number of the process among those that run at a time.
    """
    environment = dict(os.environ)
    named_devices = environment.get("CUDA_VISIBLE_DEVICES")
    visible: Sequence[int | str]
    if named_devices is None:
        visible = range(torch.cuda.device_count())
    else:
        visible = [device for device in named_devices.split(",") if device.strip()]
    if threads:
        environment["OMP_NUM_THREADS"] = str(threads)
    elif len(visible):
        environment["CUDA_VISIBLE_DEVICES"] = str(visible[slot % len(visible)])
    return environment
