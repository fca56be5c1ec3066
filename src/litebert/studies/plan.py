"""The plan of a study, made before the first run: its runs, the steps of each, and how many run at
a time. `study.json` holds it, so that the same command continues the same study.
"""

from __future__ import annotations

import logging
import math
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litebert.base.errors import RunError, require
from litebert.base.json_reader import read_json
from litebert.base.progress import duration
from litebert.base.storage import write_json
from litebert.config import replace
from litebert.config.amounts import BUDGET_UNITS, parse_amount
from litebert.config.serialization import to_dict
from litebert.data.building import write_portion
from litebert.data.shards import Shards
from litebert.studies.grid import UNMEASURED, make_grid, plan_grid
from litebert.studies.study import Scale, Study, make_identity, make_slug
from litebert.tokenizer.tokenizer import Tokenizer
from litebert.train import device as devices

log = logging.getLogger("litebert")

PLAN = "study.json"


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """How a study runs: its size, and what its runs are scored on beside held-out text."""

    budget: str = "30m"
    """A time for the whole grid, or steps or tokens for each run."""
    seeds: int = 5
    """Most runs of each variant."""
    scale: Scale = "tiny"
    """Size of the encoder that is varied."""
    tasks: Mapping[str, Path] = field(default_factory=dict)
    """Folders of tasks to fine-tune on, by name."""
    blimp: Path | None = None
    """Sentence pairs to score each run on."""
    pilot: Path | None = None
    """An earlier study, whose seeds tell the spread before this study starts."""
    jobs: int = 0
    """Runs at a time; 0 chooses by the machine."""
    device: str = "auto"
    """auto, cpu, cuda, or mps."""

    @property
    def scores(self) -> tuple[str, ...]:
        """The scores that its runs have beside those of held-out text."""
        return (*(["blimp"] if self.blimp else []), *self.tasks)

    def list_folders(self) -> dict[str, str]:
        folders = {f"--tasks {name}": str(folder.resolve()) for name, folder in self.tasks.items()}
        if self.blimp is not None:
            folders["--blimp"] = str(self.blimp.resolve())
        return folders


@dataclass(frozen=True)
class Plan:
    name: str
    folder: Path
    data: Path
    scale: str
    budget: str
    seeds: int
    jobs: int
    threads: int
    """Threads of each run; 0 on a GPU."""
    steps: Mapping[str, int]
    machine: str
    shares: Mapping[str, float]
    """The share of the training documents by variant; a variant that learns from all is absent."""
    vocabulary: int
    text: str
    """A sentence on the size of the data, for the report."""
    baseline: str = ""
    first_seeds: int | None = None
    """The seeds when the study was planned; None if they are `seeds`."""
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
        share = self.shares.get(variant)
        return self.data if share is None else self.folder / "data" / f"{share:g}"

    def run_folder(self, variant: str, seed: int) -> Path:
        return self.folder / "runs" / f"{make_slug(variant)}-seed{seed}"

    def recipe_file(self, variant: str) -> Path:
        return self.folder / "recipes" / f"{make_slug(variant)}.json"


def make_plan(
    study: Study,
    name: str,
    folder: Path,
    data: Path,
    settings: StudySettings,
    power: Callable[[], str] = str,
) -> Plan:
    """Make the plan of a study, or read the plan in its folder, which the caller has locked, and
    write the inputs of its runs. `power` says which difference a new study sees.
    """
    seeds, jobs = settings.seeds, settings.jobs
    require(seeds >= 1, f"seeds is {seeds}; it must be at least 1")
    require(jobs >= 0, f"jobs is {jobs}; it must be at least 1, or 0 to choose by the machine")
    amount = parse_amount(settings.budget, "--budget", BUDGET_UNITS)
    shards = Shards.open(data, verify=True)
    facts: dict[str, Any] = {
        "vocabulary": shards.tokenizer.vocab_size,
        "text": _describe_text(shards),
        "entropy": shards.unigram_entropy,
        "preparing": list_preparing_commands(shards),
    }
    identity = {
        "study": name,
        "scale": settings.scale,
        "budget": settings.budget,
        "data_fingerprint": shards.fingerprint,
        **make_identity(study),
    }
    was_forecast = (folder / PLAN).exists() and not any((folder / "runs").glob("*"))
    if was_forecast:
        forecast = read_json(folder / PLAN, RunError)
        if any(forecast.get(key) != value for key, value in identity.items()):
            for written in ("recipes", "data"):  # a forecast alone takes no folder
                shutil.rmtree(folder / written, ignore_errors=True)
            (folder / PLAN).unlink()
    if (folder / PLAN).exists():
        saved = _read_plan(folder, settings, identity)
    else:
        if not was_forecast and any(path.name[0] != "." for path in folder.iterdir()):
            raise RunError(
                f"{folder} is not empty and holds no study (it has no {PLAN}); give --out a new "
                "folder"
            )
        precision = next(iter(study.variants.values())).train.precision
        machine = devices.choose(precision, settings.device)
        grid = make_grid(study, facts["vocabulary"], seeds, jobs, machine, settings.device)
        saved = {
            "format": 1,
            **identity,
            "data": str(data),
            "seeds": seeds,
            **plan_grid(grid, amount, settings.scale not in UNMEASURED),
            "machine": machine.describe(),
            "power": power(),
            "scored_on": settings.list_folders(),
        }
        write_json(folder / PLAN, saved)
    plan = Plan(
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
        **facts,
        baseline=study.baseline,
        first_seeds=saved["seeds"],
        hours=saved.get("hours"),
        power=saved.get("power", ""),
    )

    for variant, share in study.data.items():
        write_portion(data, plan.data_folder(variant), share)
    (folder / "recipes").mkdir(exist_ok=True)
    for variant, config in study.variants.items():
        file = plan.recipe_file(variant)
        if not file.exists():
            write_json(file, to_dict(replace(config, name=variant)))
    return plan


def _read_plan(
    folder: Path, settings: StudySettings, identity: Mapping[str, Any]
) -> dict[str, Any]:
    saved = read_json(folder / PLAN, RunError)
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
    if settings.seeds != saved["seeds"]:
        log.info(
            f"the study was planned for {saved['seeds']} seeds and continues with {settings.seeds}"
        )
    if settings.jobs not in (0, saved["jobs"]):
        log.info(
            f"the study keeps to {saved['jobs']} runs at a time, because its steps were planned "
            "for that"
        )
    scored_on = saved.get("scored_on", {})
    for option, path in settings.list_folders().items():
        if scored_on.get(option, path) != path:
            raise RunError(
                f"{folder} holds scores of {option} on {scored_on[option]}, not on {path}; give "
                "the same folder, or --out a new one"
            )
    if not settings.list_folders().items() <= scored_on.items():
        scored_on = {**scored_on, **settings.list_folders()}
        write_json(folder / PLAN, {**saved, "scored_on": scored_on})
    return saved


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
    tokenizer, settings = shards.tokenizer, shards.index["settings"]
    train = ["tokenizer", "train", "my-text", "--vocab-size", str(tokenizer.vocab_size)]
    train += ["--kind", tokenizer.kind]
    if not tokenizer.engine.kind.is_bytes:
        train += [] if _lower_cases(tokenizer) else ["--no-lower-case"]
        train += ["--strip-accents"] if tokenizer.normalize("é").strip() == "e" else []
    prepare = ["prepare", "my-text", "--tokenizer", "tokenizer"]
    prepare += ["--heldout", f"{settings['heldout']:g}", "--out", "data"]
    return shlex.join([*train, "--out", "tokenizer"]), shlex.join(prepare)
