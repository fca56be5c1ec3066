"""The inputs of a pretraining run: the request, the folder that may hold the run, and the data and
the teacher, opened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from litebert.config import Config, EncoderConfig, replace
from litebert.config.amounts import BUDGET_UNITS, parse_amount
from litebert.data.batches import Batch
from litebert.data.mixture import DataSource, TrainingData, list_sets, open_data
from litebert.data.shards import Shards
from litebert.errors import ConfigError, DataError, RunError
from litebert.hub import pin_to_record
from litebert.model.distillation import Teacher
from litebert.train import device as devices
from litebert.train.loop import Loop
from litebert.train.ranks import Ranks
from litebert.train.run import RunRequest
from litebert.train.run_folder import RunFolder
from litebert.train.teacher import open_teacher
from litebert.train.trackers import TRACKED

log = logging.getLogger("litebert")

IDENTITY = "run.json"
LEFTOVERS = ("tokenizer", "recipe.json")
"""Files that a run leaves if it is killed before its run.json is written, beside hidden files."""
CONTENTS = (
    *LEFTOVERS,
    IDENTITY,
    "metrics.jsonl",
    "speed.jsonl",
    "checkpoints",
    *TRACKED,
    "report.html",
)
"""All that a run writes."""


@dataclass(frozen=True, kw_only=True)
class PretrainRequest(RunRequest):
    """A request to pretrain; the arguments are those of `pretrain`."""

    recipe: Config
    data: DataSource
    from_model: str | Path | None = None
    table_from: str | Path | None = None
    teacher: str | Path | None = None
    extensions: tuple[str, ...] = ()
    on_step: Callable[[Loop[Batch]], None] | None = None


@dataclass(frozen=True)
class Inputs:
    """A request whose folder is checked and whose data and teacher are open."""

    folder: RunFolder
    config: Config
    """The recipe with the vocabulary of the data and the layers of the teacher."""
    shards: TrainingData
    machine: devices.Device
    teacher: Teacher | None = None
    """The teacher, on the device already: memory that is free now is free for the run."""

    @property
    def teacher_shape(self) -> EncoderConfig | None:
        """The shape of the teacher's encoder, which computes beside the student."""
        return None if self.teacher is None else self.teacher.encoder.config

    @property
    def teacher_fingerprint(self) -> str | None:
        """The fingerprint of the teacher's weights."""
        return None if self.teacher is None else self.teacher.fingerprint


def run_folder(out: str | Path) -> RunFolder:
    """Return the folder of a pretraining run."""
    return RunFolder(Path(out), IDENTITY, leftovers=LEFTOVERS, contents=CONTENTS)


def check_folder(request: PretrainRequest, ranks: Ranks) -> RunFolder:
    """Return the folder of a request, if the run can begin or continue there.

    Raises:
        ConfigError: the extensions are no budgets, the run is to be extended and deleted, or it is
            to start from two models.
        RunError: the folder holds something else, or no run to extend.
    """
    for amount in request.extensions:
        parse_amount(amount, "--add-budget", BUDGET_UNITS)
    if request.from_model is not None and request.table_from is not None:
        raise ConfigError("--from takes all weights and --table-from the token table; give one")
    if request.overwrite and request.extensions:
        raise ConfigError(
            "--add-budget continues a run and --overwrite deletes it; give one of them"
        )
    folder = replace(run_folder(request.out), ranks=ranks)
    ranks.decide(folder.check)
    if request.overwrite:
        ranks.decide(folder.list_removable)
        ranks.decide(lambda: folder.protect(request.from_model))
        ranks.decide(lambda: folder.protect(request.table_from))
        ranks.decide(lambda: folder.protect(request.teacher))
    else:
        pin_to_record(folder.identity_file)
    if request.extensions and not ranks.decide(folder.identity_file.exists):
        raise RunError(f"{folder.path} holds no run to extend; leave --add-budget out to start one")
    return folder


def open_inputs(request: PretrainRequest, folder: RunFolder) -> Inputs:
    """Open the data and the teacher of a request.

    Raises:
        ConfigError: the recipe and the teacher do not fit each other.
        DataError: the data cannot be used, holds nothing out, or has another tokenizer than the
            teacher.
        ModelError: the teacher lacks what is learned from it.
    """
    ranks = folder.ranks
    shards = ranks.do(lambda: open_data(request.data, verify=True))
    if ranks.agree(shards.fingerprint) != shards.fingerprint:
        raise DataError(
            f"{shards.name} differs between the machines of this run; copy it from the first one"
        )
    for data in list_sets(shards):
        _require_heldout(data)
    machine = devices.choose(request.recipe.train.precision, ranks.device(request.device))
    config, teacher = open_teacher(
        request.teacher, resolve_vocabulary(request.recipe, shards), shards
    )
    if teacher is not None:
        teacher.to(machine.device)
    return Inputs(folder, config, shards, machine, teacher)


def _require_heldout(shards: Shards) -> None:
    """Refuse data that cannot be evaluated on."""
    if shards.heldout.tokens:
        return
    remedy = "prepare it with a --heldout above 0"
    if shards.index["settings"].get("heldout"):
        remedy = "prepare more documents, or shorter ones (--split sets where one ends)"
    raise DataError(f"{shards.name} has no held-out text to evaluate on; {remedy}")


def resolve_vocabulary(config: Config, shards: TrainingData) -> Config:
    """Give a config the vocabulary of the data's tokenizer."""
    size, named = shards.tokenizer.vocab_size, config.encoder.vocab_size
    if size != named:
        log.info(
            f"encoder.vocab_size is {size}, from the tokenizer in {shards.name} (recipe: {named})"
        )
    return replace(config, encoder=replace(config.encoder, vocab_size=size))
