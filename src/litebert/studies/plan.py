"""The plan of a study: its runs, the steps of each, and how many run at a time.

It is made before the first run. `study.json` in the study's folder holds it, so that the same
command continues the same study.
"""

from __future__ import annotations

import json
import logging
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch

from litebert import cost
from litebert.config import Config, replace
from litebert.config.amounts import BUDGET_UNITS, Amount, parse_amount
from litebert.config.serialization import to_dict
from litebert.data.portions import write_portion
from litebert.data.shards import Shards
from litebert.errors import ConfigError, RunError
from litebert.json_reader import read_json
from litebert.machine import count_cores, read_free_memory
from litebert.progress import duration, task
from litebert.storage import write_json
from litebert.studies.study import Study, make_identity, make_slug
from litebert.tokenizer.tokenizer import Tokenizer
from litebert.train import device as devices
from litebert.train.budget import LEAST_STEPS
from litebert.train.measure import Rate

log = logging.getLogger("litebert")

PLAN = "study.json"
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


@dataclass(frozen=True)
class Extras:
    """The tasks and sentence pairs that runs are scored on, beside held-out text."""

    tasks: Mapping[str, Path] = field(default_factory=dict)
    """The folder of each fine-tuning task."""
    blimp: Path | None = None
    """The sentence pairs."""

    def list_folders(self) -> dict[str, str]:
        """Return the folders by the options that name them."""
        folders = {f"--tasks {name}": str(folder.resolve()) for name, folder in self.tasks.items()}
        if self.blimp is not None:
            folders["--blimp"] = str(self.blimp.resolve())
        return folders


@dataclass(frozen=True)
class Plan:
    """The runs of a study."""

    name: str
    folder: Path
    data: Path
    scale: str
    budget: str
    seeds: int
    jobs: int
    """Runs at a time."""
    threads: int
    """Threads of each run; 0 on a GPU."""
    steps: Mapping[str, int]
    """The steps of each variant."""
    machine: str
    shares: Mapping[str, float]
    """The share of the training documents by variant; a variant that learns from all is absent."""
    vocabulary: int
    """Tokens in the vocabulary of the data."""
    text: str
    """A sentence on the size of the data, for the report."""
    baseline: str = ""
    """The variant that all are compared with."""
    first_seeds: int | None = None
    """The seeds when the study was planned; None if they are `seeds`."""
    step_seconds: Mapping[str, float] = field(default_factory=dict)
    """The seconds of a step by variant, as measured on this machine; empty if not measured."""
    hours: float | None = None
    """The time of all runs on this machine without fine-tuning; None if not measured."""
    entropy: float = math.inf
    """The unigram entropy of the data in nats: the loss of a model that knows only frequencies."""
    preparing: tuple[str, ...] = ()
    """The commands that make a tokenizer and shards with the settings that the data records."""
    power: str = ""
    """A statement, made before the first run, of the differences that the study sees."""

    @property
    def planned(self) -> int:
        """The seeds of the last planned look."""
        return self.first_seeds or self.seeds

    def describe_cost(self) -> str:
        """Say in a sentence what the runs take on this machine; "" if it was not measured."""
        if self.hours is None:
            return ""
        return (
            f"At scale {self.scale} the study takes about {duration(3600 * self.hours)} on this "
            "machine if nothing else runs, without fine-tuning. Verdicts that stand early save "
            "some of it."
        )

    def data_folder(self, variant: str) -> Path:
        """Return the folder of the data of a variant."""
        share = self.shares.get(variant)
        return self.data if share is None else self.folder / "data" / f"{share:g}"

    def run_folder(self, variant: str, seed: int) -> Path:
        """Return the run folder of a cell."""
        return self.folder / "runs" / f"{make_slug(variant)}-seed{seed}"

    def recipe_file(self, variant: str) -> Path:
        """Return the recipe file of a variant."""
        return self.folder / "recipes" / f"{make_slug(variant)}.json"


def make_plan(
    study: Study,
    name: str,
    folder: Path,
    data: Path,
    extras: Extras,
    *,
    scale: str,
    budget: str,
    seeds: int,
    jobs: int,
    device: str,
    power: str = "",
) -> Plan:
    """Make the plan of a study, or read the plan in its folder, and write the inputs of its runs.

    The caller holds the lock of the folder.

    Args:
        power: which difference the study sees, as it says before its first run.

    Raises:
        ConfigError: the budget is too small for the grid.
        RunError: the folder holds another study, or something else.
        DataError: the data cannot be used.
    """
    _check_counts(seeds, jobs)
    amount = parse_amount(budget, "--budget", BUDGET_UNITS)
    shards = Shards.open(data, verify=True)
    identity = {
        "study": name,
        "scale": scale,
        "budget": budget,
        "data_fingerprint": shards.fingerprint,
        **make_identity(study),
    }
    if (folder / PLAN).exists():
        plan = _continue_plan(identity, folder, data, extras, seeds, jobs, shards, study.baseline)
        _write_inputs(study, plan)
        return plan
    _require_empty(folder)
    machine = devices.choose(next(iter(study.variants.values())).train.precision, device)
    grid = _make_grid(study, shards.tokenizer.vocab_size, seeds, jobs, machine, device)
    plan = Plan(
        name=name,
        folder=folder,
        data=data,
        scale=scale,
        budget=budget,
        seeds=seeds,
        machine=machine.describe(),
        vocabulary=shards.tokenizer.vocab_size,
        text=_describe_text(shards),
        entropy=shards.unigram_entropy,
        preparing=list_preparing_commands(shards),
        first_seeds=seeds,
        power=power,
        **_plan_grid(grid, amount, scale not in UNMEASURED),
    )
    _write_plan(plan, identity, extras)
    _write_inputs(study, plan)
    return plan


def _require_empty(folder: Path) -> None:
    if any(path.name[0] != "." for path in folder.iterdir()):
        raise RunError(
            f"{folder} is not empty and holds no study (it has no {PLAN}); give --out a new folder"
        )


def _check_counts(seeds: int, jobs: int) -> None:
    if seeds < 1:
        raise ConfigError(f"seeds is {seeds}; it must be at least 1")
    if jobs < 0:
        raise ConfigError(f"jobs is {jobs}; it must be at least 1, or 0 to choose by the machine")


def _write_plan(plan: Plan, identity: Mapping[str, Any], extras: Extras) -> None:
    write_json(
        plan.folder / PLAN,
        {
            "format": 1,
            **identity,
            "data": str(plan.data),
            "seeds": plan.seeds,
            "jobs": plan.jobs,
            "threads": plan.threads,
            "steps": dict(plan.steps),
            "machine": plan.machine,
            "step_seconds": dict(plan.step_seconds),
            "hours": plan.hours,
            "power": plan.power,
            "scored_on": extras.list_folders(),
        },
    )


def _write_inputs(study: Study, plan: Plan) -> None:
    """Write the data and the recipes that the runs read, unless they exist."""
    for variant, share in study.data.items():
        write_portion(plan.data, plan.data_folder(variant), share)
    (plan.folder / "recipes").mkdir(exist_ok=True)
    for variant, config in study.variants.items():
        file = plan.recipe_file(variant)
        if not file.exists():
            write_json(file, to_dict(replace(config, name=variant)))


def _continue_plan(
    identity: Mapping[str, Any],
    folder: Path,
    data: Path,
    extras: Extras,
    seeds: int,
    jobs: int,
    shards: Shards,
    baseline: str,
) -> Plan:
    """Read the plan in a folder, and add the folders to score on that are new.

    Raises:
        RunError: the folder holds another study.
    """
    file = folder / PLAN
    saved = read_json(file, RunError)
    _check_identity(saved, identity, folder)
    if seeds != saved["seeds"]:
        log.info(f"the study was planned for {saved['seeds']} seeds and continues with {seeds}")
    if jobs not in (0, saved["jobs"]):
        log.info(
            f"the study keeps to {saved['jobs']} runs at a time, as its steps were planned for"
        )
    scored_on = _merge_folders(saved.get("scored_on", {}), extras, folder)
    if scored_on != saved.get("scored_on"):
        write_json(file, {**saved, "scored_on": scored_on})
    return Plan(
        name=saved["study"],
        folder=folder,
        data=data,
        scale=saved["scale"],
        budget=saved["budget"],
        seeds=seeds,
        jobs=saved["jobs"],
        threads=saved["threads"],
        steps=saved["steps"],
        machine=saved["machine"],
        shares=saved["data_shares"],
        vocabulary=shards.tokenizer.vocab_size,
        text=_describe_text(shards),
        entropy=shards.unigram_entropy,
        preparing=list_preparing_commands(shards),
        baseline=baseline,
        first_seeds=saved["seeds"],
        step_seconds=saved.get("step_seconds", {}),
        hours=saved.get("hours"),
        power=saved.get("power", ""),
    )


def _check_identity(saved: Mapping[str, Any], identity: Mapping[str, Any], folder: Path) -> None:
    """Refuse a folder whose study differs from this study."""
    for key, value in identity.items():
        if saved.get(key) == value:
            continue
        values = f" ({saved.get(key)} there, {value} here)"
        if key in ("variants", "after", "data_shares", "data_fingerprint"):
            values = ""  # too long for a message
        raise RunError(
            f"{folder} holds a study with another {key.replace('_', ' ')}{values}; give "
            "--out a new folder"
        )


def _merge_folders(saved: Mapping[str, str], extras: Extras, folder: Path) -> dict[str, str]:
    """Return the folders that runs are scored on, with those that this call adds.

    Raises:
        RunError: a folder differs, so that its scores could not be compared.
    """
    for option, path in extras.list_folders().items():
        if saved.get(option, path) != path:
            raise RunError(
                f"{folder} holds scores of {option} on {saved[option]}, not on {path}; give "
                "the same folder, or --out a new one"
            )
    return {**saved, **extras.list_folders()}


def _describe_text(shards: Shards) -> str:
    tokens, entropy = shards.tokenizer.vocab_size, shards.unigram_entropy
    case = "lower-cases" if _lower_cases(shards.tokenizer) else "keeps capitals"
    return (
        f"{shards.train.tokens:,} tokens to learn from and {shards.heldout.tokens:,} held out, "
        f"with a vocabulary of {tokens:,}. Its {shards.tokenizer.kind} tokenizer {case}, and the "
        f"share held out is {shards.index['settings']['heldout']:g}. A model that knows only the "
        f"frequency of each token has a loss of {entropy:.2f} nats"
    )


def _lower_cases(tokenizer: Tokenizer) -> bool:
    return tokenizer.normalize("A").strip() == "a"


def list_preparing_commands(shards: Shards) -> tuple[str, str]:
    """List the commands that make a tokenizer and shards of `my-text` as those of a study."""
    tokenizer, settings = shards.tokenizer, shards.index["settings"]
    train = ["tokenizer", "train", "my-text", "--vocab-size", str(tokenizer.vocab_size)]
    train += ["--kind", tokenizer.kind]
    if not tokenizer.engine.kind.is_bytes:
        train += [] if _lower_cases(tokenizer) else ["--no-lower-case"]
        train += ["--strip-accents"] if tokenizer.normalize("é").strip() == "e" else []
    prepare = ["prepare", "my-text", "--tokenizer", "tokenizer"]
    prepare += ["--heldout", f"{settings['heldout']:g}", "--out", "data"]
    return shlex.join([*train, "--out", "tokenizer"]), shlex.join(prepare)


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


class _Grid(NamedTuple):
    """The runs whose steps are planned."""

    study: Study
    configs: Mapping[str, Config]
    """The config of each variant, with its vocabulary."""
    seeds: int
    jobs: int
    threads: int
    device: str


def _make_grid(
    study: Study, vocabulary: int, seeds: int, jobs: int, machine: devices.Device, device: str
) -> _Grid:
    """Choose how many runs go at a time, if `jobs` is 0, and the threads of each."""
    configs = {
        variant: set_vocabulary(config, vocabulary) for variant, config in study.variants.items()
    }
    jobs = min(jobs or _choose_jobs(configs.values(), machine), len(configs) * seeds)
    threads = 0
    if machine.device.type == "cpu":
        threads = max(1, torch.get_num_threads() // jobs)  # heeds OMP_NUM_THREADS
    return _Grid(study, configs, seeds, jobs, threads, device)


def _plan_grid(grid: _Grid, amount: Amount, measured: bool) -> dict[str, Any]:
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


def _plan_steps(grid: _Grid, value: float, unit: str, rates: Mapping[str, Rate]) -> dict[str, int]:
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
    grid: _Grid, seconds: float, rates: Mapping[str, Rate], step_tokens: Mapping[str, float]
) -> dict[str, int]:
    """Plan the steps of each variant from the seconds for the whole grid.

    Raises:
        ConfigError: a variant would get too few steps.
    """
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
    """Count the floating point operations of a step of each variant."""
    return {name: cost.training_flops(config, 1)(1) for name, config in configs.items()}


class _Speed(NamedTuple):
    """The speed of a config."""

    rate: Rate
    share: float
    """The share of the time in which other programs left the core to the measurement."""


def _estimate_hours(grid: _Grid, steps: Mapping[str, int], speeds: Mapping[str, _Speed]) -> float:
    """Estimate the hours of all runs, without their fine-tuning and sentence pairs, if nothing else
    runs on the machine.
    """
    seconds = sum(
        START_SECONDS + share * (steps[name] * rate.mean_step_seconds + _evaluation_seconds(rate))
        for name, (rate, share) in speeds.items()
    )
    return seconds * grid.seeds / grid.jobs / 3600


@task("measuring the variants")
def _measure_speeds(grid: _Grid) -> dict[str, _Speed]:
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
