"""How many steps the runs of a study take, how many runs go at a time, and what they cost.

As a program, this module measures the speed of a config: a JSON object in, another one out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch

from litebert.base.errors import ConfigError, RunError
from litebert.base.machine import count_cores, read_free_memory
from litebert.base.progress import duration, task
from litebert.base.registry import load_extensions
from litebert.config import Config, cost, replace
from litebert.config.amounts import Amount
from litebert.config.serialization import from_dict, to_dict
from litebert.studies.study import Study
from litebert.train import device as devices
from litebert.train.measure import LEAST_STEPS, Rate, measure

START_SECONDS = 12.0
"""The seconds of a run without steps: its commands load libraries, read data, write checkpoints."""
UNMEASURED = ("toy",)
"""Scales that check in seconds whether a study runs, so that they say no cost."""
MEASURE_SECONDS = 3.0
DECIDING = 4
"""The last evaluation scores this many times the sequences of an evaluation during the run."""


def set_vocabulary(config: Config, vocabulary: int) -> Config:
    return replace(config, encoder=replace(config.encoder, vocab_size=vocabulary))


def _choose_jobs(configs: Iterable[Config], machine: devices.Device) -> int:
    """Choose how many runs go at a time: one for each GPU, or for each core if memory allows, for a
    second thread makes a step of a small encoder only 1.4 to 1.6 times as fast
    (docs/reports/performance.md).
    """
    if machine.device.type != "cpu":
        return max(1, torch.cuda.device_count())
    free = read_free_memory()
    most = max(sum(vars(cost.memory(config)).values()) for config in configs)
    return max(1, min(count_cores(), int(0.7 * free / most) if free else 1))


class Grid(NamedTuple):
    study: Study
    configs: Mapping[str, Config]
    seeds: int
    jobs: int
    threads: int
    device: str


def make_grid(
    study: Study, vocabulary: int, seeds: int, jobs: int, machine: devices.Device, device: str
) -> Grid:
    configs = {
        variant: set_vocabulary(config, vocabulary) for variant, config in study.variants.items()
    }
    jobs = min(jobs or _choose_jobs(configs.values(), machine), len(configs) * seeds)
    threads = 0
    if machine.device.type == "cpu":
        threads = max(1, torch.get_num_threads() // jobs)  # heeds OMP_NUM_THREADS
    return Grid(study, configs, seeds, jobs, threads, device)


def plan_grid(grid: Grid, amount: Amount, measured: bool) -> dict[str, Any]:
    """Plan the steps of a grid and what they cost, as fields of its plan. With `measured` the speed
    of each variant is measured even if the budget needs no speed.
    """
    is_time = amount.unit == "time" or grid.study.equal == "time"
    speeds = _measure_speeds(grid) if is_time or measured else {}
    rates = {name: speed.rate for name, speed in speeds.items()}
    steps = _plan_steps(grid, amount.value, amount.unit, rates)
    hours = None
    if speeds:  # without fine-tuning and sentence pairs, if nothing else runs on the machine
        seconds = sum(
            START_SECONDS
            + share * (steps[name] * rate.mean_step_seconds + _evaluation_seconds(rate))
            for name, (rate, share) in speeds.items()
        )
        hours = seconds * grid.seeds / grid.jobs / 3600
    return {
        "jobs": grid.jobs,
        "threads": grid.threads,
        "steps": steps,
        "step_seconds": {name: rate.mean_step_seconds for name, rate in rates.items()},
        "hours": hours,
    }


def _plan_steps(grid: Grid, value: float, unit: str, rates: Mapping[str, Rate]) -> dict[str, int]:
    """Plan the steps of each variant. A budget in time is for the whole grid. In steps or tokens it
    is for each run: the baseline takes the steps, and every other variant what is equal.
    """
    configs, seeds, jobs = grid.configs, grid.seeds, grid.jobs
    equal = "tokens" if unit == "tokens" else grid.study.equal
    sizes: dict[str, float]  # of a step, in what is equal for all variants
    if equal == "tokens":
        sizes = {
            name: config.batch_sequences * config.mean_length for name, config in configs.items()
        }
    elif equal == "time":
        sizes = {name: rate.mean_step_seconds for name, rate in rates.items()}
    elif equal == "operations":
        sizes = {name: cost.training_flops(config, 1)(1) for name, config in configs.items()}
    else:
        sizes = dict.fromkeys(configs, 1.0)
    if unit != "time":
        total = value if unit == "tokens" else value * sizes[grid.study.baseline]
        return {name: max(1, round(total / size)) for name, size in sizes.items()}

    step_seconds = {name: rate.mean_step_seconds for name, rate in rates.items()}
    fixed = sum(START_SECONDS + _evaluation_seconds(rate) for rate in rates.values()) * seeds / jobs
    left = value - fixed - len(configs) * MEASURE_SECONDS / jobs
    unit_seconds = sum(step_seconds[name] / sizes[name] for name in configs)
    units = left * jobs / (seeds * unit_seconds)
    steps = {name: int(units / sizes[name]) for name in configs}
    least = min(steps, key=lambda name: steps[name])
    if steps[least] < LEAST_STEPS:
        needed = sum(LEAST_STEPS * step_seconds[name] for name in configs) * seeds / jobs
        raise ConfigError(
            f"a budget of {duration(value)} for {len(configs)} variants and {seeds} "
            f"seed{'s' * (seeds > 1)} gives '{least}' {max(0, steps[least])} of at least "
            f"{LEAST_STEPS} steps; give --budget {int(1.3 * (fixed + needed)) + 60}s or "
            "more, fewer --seeds or a smaller --scale"
        )
    return steps


def _evaluation_seconds(rate: Rate) -> float:
    """Estimate the seconds of a run's evaluations: ten during training, and the deciding one."""
    return rate.evaluation_seconds * (10 + DECIDING)


class _Speed(NamedTuple):
    rate: Rate
    share: float
    """The share of the time in which other programs left the core to the measurement."""


@task("measuring the variants")
def _measure_speeds(grid: Grid) -> dict[str, _Speed]:
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
    """Measure the speed of a config in another process: a program rather than a worker of
    `multiprocessing`, so that a script that calls `study` needs no `if __name__ == "__main__"`.
    """
    request = {"config": to_dict(config), "device": device, "threads": threads}
    request["seconds"] = MEASURE_SECONDS
    process = subprocess.run(
        [sys.executable, "-m", "litebert.studies.grid"],
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


def _main() -> None:
    """Measure a config: the fields of a `Rate`, and the share of the time that `_Speed` has."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # an extension that prints must not spoil the output
    request = json.load(sys.stdin)
    load_extensions()
    if request["threads"]:
        torch.set_num_threads(request["threads"])
    config = from_dict(Config, request["config"])
    machine = devices.choose(config.train.precision, request["device"])
    start, start_of_process = time.perf_counter(), time.process_time()
    rate = measure(config, machine, request["seconds"])
    share = 1.0
    if request["threads"] == 1:  # more threads also wait for one another
        share = (time.process_time() - start_of_process) / (time.perf_counter() - start)
    with output:
        json.dump({"rate": vars(rate), "share": min(1.0, share)}, output)


if __name__ == "__main__":
    _main()
