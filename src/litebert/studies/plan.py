"""What a study will do, fixed before its first run: the runs, how many steps each takes, and how
many go at a time.

`study.json` in the study's folder holds it, so that the same command continues the same study.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from litebert import cost
from litebert.config import Config, replace
from litebert.config.amounts import BUDGET_UNITS, parse_amount
from litebert.config.serialization import to_dict
from litebert.data.portions import write_portion
from litebert.data.shards import Shards
from litebert.errors import ConfigError, RunError
from litebert.json_reader import read_json
from litebert.machine import count_cores, read_free_memory
from litebert.progress import duration, task
from litebert.storage import write_json
from litebert.studies.study import Study, identity, slug
from litebert.train import device as devices
from litebert.train.budget import LEAST_STEPS
from litebert.train.measure import Rate

log = logging.getLogger("litebert")

PLAN = "study.json"
START_SECONDS = 12.0
"""Of two commands a run, pretrain and evaluate: loading libraries, reading data, writing
checkpoints.
"""
MEASURE_SECONDS = 3.0
DECIDING = 4
"""How many times the sequences of a run's own evaluations are scored at its end."""


@dataclass(frozen=True)
class Extras:
    """What is scored beside held-out text."""

    tasks: Mapping[str, Path] = field(default_factory=dict)
    """The folder of each fine-tuning task."""
    blimp: Path | None = None

    def places(self) -> dict[str, str]:
        """The folders by the words that name them."""
        found = {f"--tasks {name}": str(folder.resolve()) for name, folder in self.tasks.items()}
        return found if self.blimp is None else {**found, "--blimp": str(self.blimp.resolve())}


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
    """Of each of them."""
    steps: Mapping[str, int]
    """By variant."""
    machine: str
    shares: Mapping[str, float]
    """Of the training documents, by variant; absent for all of them."""
    vocabulary: int
    """Pieces of the tokenizer of the data."""
    text: str
    """How much there is to learn from, for the report."""

    def data_of(self, variant: str) -> Path:
        """What a variant learns from."""
        share = self.shares.get(variant)
        return self.data if share is None else self.folder / "data" / f"{share:g}"

    def run(self, variant: str, seed: int) -> Path:
        """The run folder of a cell."""
        return self.folder / "runs" / f"{slug(variant)}-seed{seed}"

    def recipe(self, variant: str) -> Path:
        """The recipe file of a variant."""
        return self.folder / "recipes" / f"{slug(variant)}.json"


def planned(
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
) -> Plan:
    """The plan of a study: that in its folder, where the study was begun before, else a new one,
    written there.

    The caller holds the folder. Recipes and parts of the data are written where they are absent.

    Raises:
        ConfigError: the budget is too small for the grid.
        RunError: the folder holds another study, or something else.
        DataError: the data cannot be used.
    """
    if seeds < 1:
        raise ConfigError(f"seeds is {seeds}; it must be at least 1")
    if jobs < 0:
        raise ConfigError(f"jobs is {jobs}; it must be at least 1, or 0 to choose by the machine")
    amount = parse_amount(budget, "--budget", BUDGET_UNITS)
    shards = Shards.open(data, verify=True)
    asked = {
        "study": name,
        "scale": scale,
        "budget": budget,
        "data_fingerprint": shards.fingerprint,
        **identity(study),
    }
    file = folder / PLAN
    if file.exists():
        there = read_json(file, RunError)
        plan = _continued(there, asked, folder, data, seeds, shards)
        if jobs not in (0, plan.jobs):
            log.info(
                f"the study keeps to {plan.jobs} runs at a time, as its steps were planned for"
            )
        scored = _scored(there.get("scored_on", {}), extras, folder)
        if scored != there.get("scored_on"):
            write_json(file, {**there, "scored_on": scored})
        return _written(study, plan)
    if any(path.name[0] != "." for path in folder.iterdir()):
        raise RunError(
            f"{folder} is not empty and holds no study (it has no {PLAN}); give --out a new folder"
        )
    machine = devices.choose(next(iter(study.variants.values())).train.precision, device)
    configs = {
        name: sized(config, shards.tokenizer.vocab_size) for name, config in study.variants.items()
    }
    jobs = min(jobs or _jobs(configs.values(), machine), len(configs) * seeds)
    threads = (
        max(1, torch.get_num_threads() // jobs) if machine.device.type == "cpu" else 0
    )  # heeds OMP_NUM_THREADS
    steps = _steps(study, configs, amount.value, amount.unit, seeds, jobs, threads, device)
    plan = Plan(
        name,
        folder,
        data,
        scale,
        budget,
        seeds,
        jobs,
        threads,
        steps,
        machine.describe(),
        study.data,
        shards.tokenizer.vocab_size,
        _text(shards),
    )
    write_json(
        file,
        {
            "format": 1,
            **asked,
            "data": str(data),
            "seeds": seeds,
            "jobs": jobs,
            "threads": threads,
            "steps": dict(steps),
            "machine": plan.machine,
            "scored_on": extras.places(),
        },
    )
    return _written(study, plan)


def _written(study: Study, plan: Plan) -> Plan:
    """The plan, once everything stands in its folder that the runs read: what is there is kept."""
    for variant, share in study.data.items():
        write_portion(plan.data, plan.data_of(variant), share)
    (plan.folder / "recipes").mkdir(exist_ok=True)
    for variant, config in study.variants.items():
        if not plan.recipe(variant).exists():
            write_json(plan.recipe(variant), to_dict(replace(config, name=variant)))
    return plan


def _scored(there: Mapping[str, str], extras: Extras, folder: Path) -> dict[str, str]:
    """What the study scores its runs on, with what this call adds: scores on other folders cannot
    be compared.
    """
    for words, place in extras.places().items():
        if there.get(words, place) != place:
            raise RunError(
                f"{folder} holds scores of {words} on {there[words]}, not on {place}; give "
                "the same folder, "
                "or --out a new one"
            )
    return {**there, **extras.places()}


def _continued(
    there: Mapping[str, Any],
    asked: Mapping[str, Any],
    folder: Path,
    data: Path,
    seeds: int,
    shards: Shards,
) -> Plan:
    for key, value in asked.items():
        if there.get(key) != value:
            shown = (
                ""
                if key in ("variants", "after", "data_shares", "data_fingerprint")
                else f" ({there.get(key)} there, {value} here)"
            )
            raise RunError(
                f"{folder} holds a study with another {key.replace('_', ' ')}{shown}; give "
                "--out a new folder"
            )
    if seeds != there["seeds"]:
        log.info(f"the study was planned for {there['seeds']} seeds and continues with {seeds}")
    return Plan(
        there["study"],
        folder,
        data,
        there["scale"],
        there["budget"],
        seeds,
        there["jobs"],
        there["threads"],
        there["steps"],
        there["machine"],
        there["data_shares"],
        shards.tokenizer.vocab_size,
        _text(shards),
    )


def _text(shards: Shards) -> str:
    pieces, level = shards.tokenizer.vocab_size, shards.unigram_entropy
    return (
        f"{shards.train.tokens:,} tokens to learn from, {shards.heldout.tokens:,} held "
        f"out, {pieces:,} pieces; a model "
        f"that knows only how frequent each is has a loss of {level:.2f} nats"
    )


def sized(config: Config, vocabulary: int) -> Config:
    """The config with as many rows of embeddings as the tokenizer has pieces."""
    return replace(config, encoder=replace(config.encoder, vocab_size=vocabulary))


def _jobs(configs: Sequence[Config] | Any, machine: devices.Device) -> int:
    """How many runs go at a time: on a GPU one a device, on a CPU one a core, as far as memory
    allows.

    A second thread makes a step of a small encoder 1.4 to 1.6 times as fast (docs/performance.md),
    a second run beside it twice as much is done.
    """
    if machine.device.type != "cpu":
        return max(1, torch.cuda.device_count())
    free = read_free_memory()
    most = max(sum(vars(cost.memory(config)).values()) for config in configs)
    return max(1, min(count_cores(), int(0.7 * free / most) if free else 1))


def _steps(
    study: Study,
    configs: Mapping[str, Config],
    value: float,
    unit: str,
    seeds: int,
    jobs: int,
    threads: int,
    device: str,
) -> dict[str, int]:
    """Steps of each variant. A budget in time is that of the whole grid; one in steps or tokens is
    each run's.
    """
    share = {name: config.batch_sequences * config.mean_length for name, config in configs.items()}
    if unit == "tokens" or (unit == "steps" and study.equal == "tokens"):
        tokens = value if unit == "tokens" else value * share[study.baseline]
        return {name: max(1, round(tokens / one)) for name, one in share.items()}
    if unit == "steps" and study.equal == "steps":
        return dict.fromkeys(configs, int(value))
    with task("measuring the variants"):
        rates = _rates(configs, jobs, threads, device)
    seconds = {name: rate.mean_step_seconds for name, rate in rates.items()}
    if unit == "steps":  # the baseline takes as many, the others as long
        return {
            name: max(1, round(value * seconds[study.baseline] / one))
            for name, one in seconds.items()
        }
    fixed = (
        sum(START_SECONDS + _evaluations(configs[name], rate) for name, rate in rates.items())
        * seeds
        / jobs
    )
    left = value - fixed - len(configs) * MEASURE_SECONDS / jobs
    per_unit = {
        "steps": seconds,
        "tokens": {name: one / share[name] for name, one in seconds.items()},
        "time": dict.fromkeys(configs, 1.0),
    }[study.equal]
    units = left * jobs / (seeds * sum(per_unit.values()))
    bought = {
        "steps": dict.fromkeys(configs, units),
        "tokens": {name: units / share[name] for name in configs},
        "time": {name: units / one for name, one in seconds.items()},
    }[study.equal]
    steps = {name: int(one) for name, one in bought.items()}
    least = min(steps, key=lambda name: steps[name])
    if steps[least] < LEAST_STEPS:
        each = sum(LEAST_STEPS * seconds[name] for name in configs) * seeds / jobs
        raise ConfigError(
            f"a budget of {duration(value)} for {len(configs)} variants and {seeds} "
            f"seed{'s' * (seeds > 1)} leaves "
            f"'{least}' {max(0, steps[least])} steps, and a run needs at least {LEAST_STEPS}; give "
            f"--budget {int(1.3 * (fixed + each)) + 60}s or more, fewer --seeds or a "
            "smaller --scale"
        )
    return steps


def _evaluations(config: Config, rate: Rate) -> float:
    """Seconds of the held-out evaluations of a run: ten on its way, and the one that decides."""
    return rate.evaluation_seconds * (10 + DECIDING)


def _rates(configs: Mapping[str, Config], jobs: int, threads: int, device: str) -> dict[str, Rate]:
    """The speed of each variant while as many others run as will in the study."""
    free: SimpleQueue[int] = SimpleQueue()
    for place in range(jobs):
        free.put(place)

    def rate(config: Config) -> Rate:
        place = free.get()
        try:
            return _rate(config, surroundings(place, threads), threads, device)
        finally:
            free.put(place)

    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip(configs, pool.map(rate, configs.values()), strict=True))


def _rate(config: Config, environment: Mapping[str, str], threads: int, device: str) -> Rate:
    """Measured in a program of its own, so that a script that calls `study` needs no `if __name__
    == "__main__"`.
    """
    question = {
        "config": to_dict(config),
        "device": device,
        "threads": threads,
        "seconds": MEASURE_SECONDS,
    }
    ended = subprocess.run(
        [sys.executable, "-m", "litebert.studies.speed"],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    if ended.returncode:
        reason = (ended.stderr.rstrip().split("\n")[-1] or f"status {ended.returncode}").strip()
        raise RunError(
            f"the speed of '{config.name}' cannot be measured ({reason}); give --budget in steps"
        )
    return Rate(**json.loads(ended.stdout))


def surroundings(place: int, threads: int) -> dict[str, str]:
    """The environment of a process at one of the places of those that run at a time: its threads,
    or its GPU.
    """
    environment = dict(os.environ)
    named = environment.get("CUDA_VISIBLE_DEVICES")
    visible = (
        range(torch.cuda.device_count())
        if named is None
        else [one for one in named.split(",") if one.strip()]
    )
    if threads:
        environment["OMP_NUM_THREADS"] = str(threads)
    elif len(visible):
        environment["CUDA_VISIBLE_DEVICES"] = str(visible[place % len(visible)])
    return environment
