"""The start of a pretraining run, its continuation and its extension: its sizes, and its run.json.

run.json identifies the run in a folder: its steps, its data, and each extension. It is written
whole before a step is taken, so that the same command continues after a kill at any instant.

An extension gives a finished run a further budget. Within its first twentieth, the learning rate
goes from where the run ended to the schedule of a run that was as long from the start. From there
it follows that schedule. The optimizer's state and the order of the data go on. The same call again
continues the extension and does not begin another.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from litebert import hub
from litebert.config import Config, replace
from litebert.config.serialization import from_dict, to_dict, to_json
from litebert.data.mixture import Mixture, TrainingData, list_sets
from litebert.errors import ConfigError, RunError
from litebert.json_reader import fault_of, read_json
from litebert.model.cpu import loader
from litebert.storage import atomic_write, naming
from litebert.train import checkpoint, schedule
from litebert.train.budget import buy_steps, choose_batch, with_budget
from litebert.train.device import Device
from litebert.train.memory import fit_micro_batch
from litebert.train.muon import has_float32_iteration
from litebert.train.pretrain_inputs import Inputs, PretrainRequest
from litebert.train.ranks import Ranks
from litebert.train.run_folder import RunFolder
from litebert.train.supply import PretrainingBatches
from litebert.train.teacher import build_record

log = logging.getLogger("litebert")

_FREE = (
    "name",
    "train.save_every",
    "train.keep_checkpoints",
    "train.batch_processes",
    "train.parallel",  # of earlier versions
    "train.recompute",
)
"""Fields that may change between calls, because they change no weight."""


@dataclass(frozen=True)
class RunRecord:
    """The length and the data of a run, as run.json records them."""

    steps: int
    data: str
    """The folder of the data."""
    data_fingerprint: str
    earlier_ends: tuple[int, ...] = ()
    """The steps at which the run ended before each of its extensions."""
    extensions: tuple[str, ...] = ()
    """The budget of each extension."""
    sets: Mapping[str, str] = field(default_factory=dict)
    """The fingerprints of the sets of a mixture, by their names."""

    @property
    def first_steps(self) -> int:
        """Steps of the run before it was extended."""
        return (*self.earlier_ends, self.steps)[0]

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], file: Path) -> RunRecord:
        """Read the content of a run.json.

        Raises:
            RunError: the file was changed.
        """
        try:
            steps, fingerprint, data = (
                int(fields["steps"]),
                fields["data_fingerprint"],
                fields["data"],
            )
            extensions = fields.get("extensions", [])
            ends = tuple(int(extension["from_step"]) for extension in extensions)
            budgets = tuple(str(extension["budget"]) for extension in extensions)
            sets = {entry["data"]: entry["fingerprint"] for entry in fields.get("sets", [])}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(
                f"{file} was changed ({fault_of(error)}); restore it or start another --out"
            ) from None
        if steps < 1 or list(ends) != sorted(set(ends)) or any(not 0 < end < steps for end in ends):
            raise RunError(f"{file} was changed (steps {steps}); restore it or start another --out")
        return cls(steps, data, fingerprint, ends, budgets, sets)


# -------------------------------------------------------------------------------------------- sizes


def settle_batch_sizes(request: PretrainRequest, inputs: Inputs) -> Config:
    """Put numbers for `train.batch=auto` and `train.micro_batch=auto` into the config. They are
    those of the run in the folder; for a new run they suit the budget and fit in the free memory.

    Raises:
        RunError: the recipe of the run was changed.
    """
    config, folder, machine = inputs.config, inputs.folder, inputs.machine
    ranks = folder.ranks
    if "auto" not in (config.train.batch, config.train.micro_batch):
        return config
    recorded = None
    if not request.overwrite and ranks.decide(folder.identity_file.exists):
        recorded = _read_recipe(folder).train
    if config.train.batch == "auto":
        if recorded is not None:
            batch = recorded.batch
        else:
            batch = f"{choose_batch(config, machine, ranks, inputs.teacher)} sequences"
            log.info(
                f"train.batch is {batch}, which suits a budget of {config.train.budget} on "
                "this machine"
            )
        config = replace(config, train=replace(config.train, batch=batch))
    if config.train.micro_batch == "auto":
        if recorded is not None:
            micro_batch = recorded.micro_batch
        else:
            micro_batch = ranks.agree(
                fit_micro_batch(config, machine, teacher=inputs.teacher_shape)
            )
            log.info(
                f"train.micro_batch is {micro_batch} of {config.batch_sequences} sequences, "
                "which fit in memory"
            )
        config = replace(config, train=replace(config.train, micro_batch=micro_batch))
    return config


def _read_recipe(folder: RunFolder) -> Config:
    """Read the recipe.json of a run."""
    file = folder.path / "recipe.json"
    try:
        return from_dict(Config, folder.ranks.decide(lambda: read_json(file, RunError)))
    except ConfigError as error:
        raise RunError(f"{file} was changed ({error}); restore it or start another --out") from None


# ---------------------------------------------------------------------------------- which run it is


def start_run(request: PretrainRequest, inputs: Inputs, config: Config) -> RunRecord:
    """Buy the steps of a run and make its folder this run."""
    folder, shards, machine = inputs.folder, inputs.shards, inputs.machine
    steps, rate = buy_steps(config, machine, folder.ranks, teacher=inputs.teacher)
    _warn_of_shape(config, steps)
    sources = {"from": request.from_model, "table_from": request.table_from}
    fields = {
        "format": 1,
        "steps": steps,
        "data": shards.name,
        "data_fingerprint": shards.fingerprint,
        **_record_sets(shards, config, steps, steps),
        "tokenizer_fingerprint": shards.tokenizer.fingerprint,
        "unigram_entropy": shards.unigram_entropy,
        "machine": machine.describe(),
        "arithmetic": _describe_arithmetic(config, machine, folder.ranks),
        "seconds_per_step": None if rate is None else rate.mean_step_seconds,
        **{name: hub.format_source(source) for name, source in sources.items() if source},
        **hub.record_revision(request.from_model, "from"),
        **hub.record_revision(request.table_from, "table_from"),
    }
    if inputs.teacher is not None:
        fields |= build_record(request.teacher, inputs.teacher_fingerprint)
    if folder.ranks.main:
        if request.overwrite:
            folder.clear()
        with naming(folder.path / "tokenizer"):
            shards.tokenizer.save(folder.path / "tokenizer")
        with atomic_write(folder.path / "recipe.json") as file:
            file.write(to_json(config).encode())
        folder.claim(fields)
    return RunRecord(steps, shards.name, shards.fingerprint)


def _record_sets(
    shards: TrainingData, config: Config, first_steps: int, steps: int
) -> dict[str, Any]:
    """Return what run.json holds of the sets of a mixture: their weights, shares and epochs.

    Args:
        first_steps: steps of the run before it was extended.
    """
    if not isinstance(shards, Mixture):
        return {}
    epochs = PretrainingBatches(config, shards, first_steps).count_epochs(steps)
    columns = zip(shards.sets, shards.weights, shards.shares, epochs, strict=True)
    sets = [
        {
            "data": member.name,
            "fingerprint": member.fingerprint,
            "weight": weight,
            "share": share,
            "epochs": count,
        }
        for member, weight, share, count in columns
    ]
    for entry in sets:
        log.info(
            f"{entry['data']} gives {entry['share']:.1%} of the sequences, "
            f"{entry['epochs']:,.2f} epochs of it in this run"
        )
    return {"sets": sets}


def _warn_of_shape(config: Config, steps: int) -> None:
    """Warn of a warm-up as long as the run, and of token tables wider than the encoder."""
    if config.train.schedule.warmup >= max(steps, 2):
        log.warning(
            f"all {steps} steps are within the warm-up of {config.train.schedule.warmup:g}, so the "
            "learning rate never reaches its peak; give a larger --budget, or a share such as "
            "--train.schedule.warmup 0.025"
        )
    width, hidden = config.encoder.embedding_size, config.encoder.hidden_size
    if width > hidden:
        log.warning(
            f"encoder.embedding_size is {width} and encoder.hidden_size only {hidden}, so "
            "the token table is wider than the hidden states; if you did not intend this, "
            f"give --encoder.embedding-size {hidden}"
        )


def continue_run(
    request: PretrainRequest, inputs: Inputs, config: Config, fields: Mapping[str, Any]
) -> tuple[RunRecord, Config]:
    """Check that the run in the folder is the one that is requested. Extend it where the request
    has one budget more. Return its length, and the config with its budget.

    Where a run is extended, the budget it was started with need not be given again.

    Args:
        fields: the content of run.json.

    Raises:
        RunError: it is another run, or its files were changed.
    """
    folder, recorded = inputs.folder, _read_recipe(inputs.folder)
    record = RunRecord.from_fields(fields, folder.identity_file)
    _refuse_other_data(inputs, record)
    free = (*_FREE, *(["train.budget"] if request.extensions else []))
    folder.refuse_other(to_dict(recorded), to_dict(config), free)
    _refuse_other_source(request, folder, fields)
    arithmetic = _describe_arithmetic(config, inputs.machine, folder.ranks)
    if (before := fields.get("arithmetic")) != arithmetic:
        log.warning(
            f"this run was computed with {before} and continues with {arithmetic}: its last "
            "bits will differ"
        )
    config = replace(config, train=replace(config.train, budget=recorded.train.budget))
    if request.extensions == record.extensions[: len(request.extensions)]:
        return record, config
    return _extend(inputs, config, record, {**fields}, request.extensions), config


def _refuse_other_data(inputs: Inputs, record: RunRecord) -> None:
    folder, shards, data = inputs.folder, inputs.shards, record.data
    if record.data_fingerprint == shards.fingerprint:
        return
    for member in list_sets(shards):
        before = record.sets.get(member.name)
        if before is not None and before != member.fingerprint:
            raise RunError(
                f"{member.name} was prepared again or changed since the run in {folder.path} "
                "started; restore it, or start another --out"
            )
    if _resolve_path(str(data)) == _resolve_path(shards.name):
        raise RunError(
            f"{shards.name} was prepared again or changed since the run in {folder.path} started; "
            "restore it, or start another --out"
        )
    raise RunError(
        f"the run in {folder.path} was trained on {data}, and {shards.name} is other data; give "
        f"--shards {data}, or start another --out"
    )


def _refuse_other_source(
    request: PretrainRequest, folder: RunFolder, fields: Mapping[str, Any]
) -> None:
    """Refuse to continue a run that started from other weights, or another token table."""
    options = (
        ("--from", request.from_model, "from", "the weights"),
        ("--table-from", request.table_from, "table_from", "the token table"),
    )
    for option, source, name, about in options:
        before = fields.get(name)
        if before == (None if source is None else hub.format_source(source)):
            continue
        began = f"from {about} of {before}" if before else f"untrained, without {option}"
        fix = f"give {option} {shlex.quote(str(before))}" if before else f"leave {option} out"
        raise RunError(f"the run in {folder.path} started {began}; {fix}, or start another --out")


def _extend(
    inputs: Inputs,
    config: Config,
    record: RunRecord,
    fields: dict[str, Any],
    extensions: Sequence[str],
) -> RunRecord:
    """Extend a finished run by the last of the extensions, and record that in run.json.

    Raises:
        RunError: the run is not finished, or the other extensions are not those that it had.
    """
    folder, end = inputs.folder, record.steps
    *earlier, amount = extensions
    if tuple(earlier) != record.extensions:
        more = " ".join(map(shlex.quote, [*record.extensions, amount]))
        before = (
            f"was extended by {' and '.join(record.extensions)}"
            if record.extensions
            else "has not been extended yet"
        )
        raise RunError(
            f"the run in {folder.path} {before}; to extend it by another {amount}, give "
            f"--add-budget {more}"
        )
    newest = folder.ranks.decide(lambda: checkpoint.find_newest(folder.path / "checkpoints"))
    if newest is None or newest.step < end:
        step = 0 if newest is None else newest.step
        option = "the last amount of --add-budget" if record.extensions else "--add-budget"
        raise RunError(
            f"the run in {folder.path} is not finished (step {step} of {end}); run its command "
            f"again without {option}, and extend it then"
        )
    bought, rate = buy_steps(
        with_budget(config, amount), inputs.machine, folder.ranks, "--add-budget", inputs.teacher
    )
    seconds = rate and rate.mean_step_seconds
    extension = {"budget": amount, "from_step": end, "seconds_per_step": seconds}
    steps = end + bought
    changed = {"steps": steps, "extensions": [*fields.get("extensions", []), extension]}
    sets = _record_sets(inputs.shards, config, record.first_steps, steps)
    folder.claim({**fields, **changed, **sets})
    record = replace(
        record,
        steps=steps,
        earlier_ends=(*record.earlier_ends, end),
        extensions=(*record.extensions, amount),
    )
    rising = schedule.count_rewarm_steps(bought)
    share = schedule.compute_extended_factor(
        config.train.schedule, end + rising - 1, (*record.earlier_ends, steps)
    )
    log.info(
        f"extended by {amount}, from {end:,} to {steps:,} steps; by step {end + rising:,} the "
        f"learning rate goes to {share * config.train.optimizer.peak:.2g}, and from there "
        f"it follows the schedule of a run of {steps:,} steps"
    )
    return record


def _describe_arithmetic(config: Config, machine: Device, ranks: Ranks) -> str:
    """Describe what decides the last bits of a sum."""
    processes = f", {ranks.size} processes" if ranks.size > 1 else ""
    kernels = (
        ", compiled kernels"
        if machine.device.type == "cpu" and loader.library() is not None
        else ""
    )
    muon = (
        ", Muon in float32"
        if config.train.optimizer.name == "muon" and has_float32_iteration(machine)
        else ""
    )
    return (
        f"{machine.device.type}, {machine.precision}, {torch.get_num_threads()} "
        f"threads{processes}{kernels}{muon}"
    )


def _resolve_path(path: str | Path) -> str:
    return str(Path(path).resolve())
