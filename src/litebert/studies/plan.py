"""The plan of a study: its runs, the steps of each, and how many run at a time.

It is made before the first run. `study.json` in the study's folder holds it, so that the same
command continues the same study.
"""

from __future__ import annotations

import logging
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litebert.config import replace
from litebert.config.amounts import BUDGET_UNITS, parse_amount
from litebert.config.serialization import to_dict
from litebert.data.portions import write_portion
from litebert.data.shards import Shards
from litebert.errors import ConfigError, RunError
from litebert.json_reader import read_json
from litebert.progress import duration
from litebert.storage import write_json
from litebert.studies.grid import UNMEASURED, make_grid, plan_grid
from litebert.studies.study import Study, make_identity, make_slug
from litebert.tokenizer.tokenizer import Tokenizer
from litebert.train import device as devices

log = logging.getLogger("litebert")

PLAN = "study.json"


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
    grid = make_grid(study, shards.tokenizer.vocab_size, seeds, jobs, machine, device)
    plan = Plan(
        name=name,
        folder=folder,
        data=data,
        scale=scale,
        budget=budget,
        seeds=seeds,
        machine=machine.describe(),
        first_seeds=seeds,
        power=power,
        **_describe_data(shards),
        **plan_grid(grid, amount, scale not in UNMEASURED),
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
    file = folder / PLAN
    saved = read_json(file, RunError)
    _check_identity(saved, identity, folder)
    if seeds != saved["seeds"]:
        log.info(f"the study was planned for {saved['seeds']} seeds and continues with {seeds}")
    if jobs not in (0, saved["jobs"]):
        log.info(
            f"the study keeps to {saved['jobs']} runs at a time, because its steps were planned "
            "for that"
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
        **_describe_data(shards),
        baseline=baseline,
        first_seeds=saved["seeds"],
        step_seconds=saved.get("step_seconds", {}),
        hours=saved.get("hours"),
        power=saved.get("power", ""),
    )


def _check_identity(saved: Mapping[str, Any], identity: Mapping[str, Any], folder: Path) -> None:
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
    for option, path in extras.list_folders().items():
        if saved.get(option, path) != path:
            raise RunError(
                f"{folder} holds scores of {option} on {saved[option]}, not on {path}; give "
                "the same folder, or --out a new one"
            )
    return {**saved, **extras.list_folders()}


def _describe_data(shards: Shards) -> dict[str, Any]:
    """Describe the data of a study, as fields of its plan."""
    return {
        "vocabulary": shards.tokenizer.vocab_size,
        "text": _describe_text(shards),
        "entropy": shards.unigram_entropy,
        "preparing": list_preparing_commands(shards),
    }


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
