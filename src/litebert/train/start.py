"""The start of a pretraining run, its continuation and its extension: its sizes, and its run.json.

run.json identifies the run by its steps, its data, and each extension. It is written whole before a
step is taken, so that the same command continues after a kill at any instant, and continues an
extension rather than begin another.
"""

from __future__ import annotations

import logging
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from litebert import hub
from litebert.base.errors import ConfigError, DataError, RunError
from litebert.base.json_reader import fault_of, read_json
from litebert.base.storage import atomic_write, naming
from litebert.config import Config, EncoderConfig, replace
from litebert.config.amounts import BUDGET_UNITS, parse_amount
from litebert.config.cost import add_up, training_flops
from litebert.config.serialization import from_dict, to_dict, to_json
from litebert.data.mixture import DataSource, Mixture, TrainingData, list_sets, open_data
from litebert.hub import pin_to_record
from litebert.kernels import loader
from litebert.model.teacher import Teacher
from litebert.train import checkpoint, schedule
from litebert.train.device import Device
from litebert.train.measure import buy_steps, choose_batch
from litebert.train.memory import fit_micro_batch
from litebert.train.optim import has_float32_iteration
from litebert.train.ranks import Ranks
from litebert.train.run_folder import RunFolder
from litebert.train.supply import PretrainingBatches
from litebert.train.teacher import build_record
from litebert.train.trackers import TRACKED

log = logging.getLogger("litebert")

_FREE = (
    "name",
    "train.save_every",
    "train.keep_checkpoints",
    "train.batch_processes",
    "train.recompute",
)
"""Fields that may change between calls, because they change no weight."""


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


@dataclass(frozen=True, kw_only=True)
class PretrainRequest:
    """What decides which run a folder holds; the arguments are those of `pretrain`."""

    folder: RunFolder
    from_model: str | Path | None
    table_from: str | Path | None
    teacher: str | Path | None
    extensions: tuple[str, ...]
    overwrite: bool
    began: float
    """When the call began, by `time.monotonic`: from here a budget in time counts."""


def run_folder(out: str | Path) -> RunFolder:
    return RunFolder(Path(out), IDENTITY, leftovers=LEFTOVERS, contents=CONTENTS)


def check_folder(request: PretrainRequest) -> None:
    folder, ranks = request.folder, request.folder.ranks
    for amount in request.extensions:
        parse_amount(amount, "--add-budget", BUDGET_UNITS)
    if request.from_model is not None and request.table_from is not None:
        raise ConfigError("--from takes all weights and --table-from the token table; give one")
    if request.overwrite and request.extensions:
        raise ConfigError(
            "--add-budget continues a run and --overwrite deletes it; give one of them"
        )
    ranks.decide(folder.check)
    if request.overwrite:
        ranks.decide(folder.list_removable)
        for source in (request.from_model, request.table_from, request.teacher):
            ranks.decide(lambda source=source: folder.protect(source))  # type: ignore[misc]
    else:
        pin_to_record(folder.identity_file)
    if request.extensions and not ranks.decide(folder.identity_file.exists):
        raise RunError(f"{folder.path} holds no run to extend; leave --add-budget out to start one")


def open_training_data(source: DataSource, ranks: Ranks) -> TrainingData:
    shards = ranks.do(lambda: open_data(source, verify=True))
    if ranks.agree(shards.fingerprint) != shards.fingerprint:
        raise DataError(
            f"{shards.name} differs between the machines of this run; copy it from the first one"
        )
    for data in list_sets(shards):
        if not data.heldout.tokens:
            remedy = "prepare it with a --heldout above 0"
            if data.index["settings"].get("heldout"):
                remedy = "prepare more documents, or shorter ones (--split sets where one ends)"
            raise DataError(f"{data.name} has no held-out text to evaluate on; {remedy}")
    return shards


def resolve_vocabulary(config: Config, shards: TrainingData) -> Config:
    size, named = shards.tokenizer.vocab_size, config.encoder.vocab_size
    if size != named:
        log.info(
            f"encoder.vocab_size is {size}, from the tokenizer in {shards.name} (recipe: {named})"
        )
    return replace(config, encoder=replace(config.encoder, vocab_size=size))


@dataclass(frozen=True)
class RunRecord:
    """The length and the data of a run, as run.json records them."""

    config: Config
    plan: schedule.Plan
    data: str
    data_fingerprint: str
    extensions: tuple[str, ...] = ()
    sets: Mapping[str, str] = field(default_factory=dict)
    time_budget: tuple[float, float] | None = None
    """`Loop.time_budget`."""
    stage_seconds: tuple[tuple[float, float], ...] = ()
    """`Rate.step_seconds`, as measured for the newest budget in time."""

    @property
    def steps(self) -> int:
        return self.plan.steps

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], file: Path, config: Config) -> RunRecord:
        try:
            plan = schedule.Plan.of_record(fields)
            fingerprint, data = fields["data_fingerprint"], fields["data"]
            extensions = fields.get("extensions", [])
            budgets = tuple(str(extension["budget"]) for extension in extensions)
            sets = {entry["data"]: entry["fingerprint"] for entry in fields.get("sets", [])}
            newest = extensions[-1] if extensions else fields
            span, stages = newest.get("time_budget"), newest.get("stage_seconds") or []
            if span is not None:
                begin, end = map(float, span)
                span = begin, end
                if not begin < end < math.inf:
                    raise ValueError(f"time_budget {span}")
            stages = tuple((float(share), float(seconds)) for share, seconds in stages)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise RunError(
                f"{file} was changed ({fault_of(error)}); restore it or start another --out"
            ) from None
        return cls(config, plan, data, fingerprint, budgets, sets, span, stages)


# -------------------------------------------------------------------------------------------- sizes


def settle_batch_sizes(
    request: PretrainRequest, config: Config, machine: Device, teacher: Teacher | None
) -> Config:
    """Put numbers for `auto` batch sizes into the config: those of the run in the folder, else such
    as suit the budget and fit in the free memory.
    """
    folder, ranks = request.folder, request.folder.ranks
    open_sizes = [
        name for name in ("batch", "micro_batch") if getattr(config.train, name) == "auto"
    ]
    if not open_sizes:
        return config
    if not request.overwrite and ranks.decide(folder.identity_file.exists):
        recorded = vars(_read_recipe(folder).train)
        sizes = {name: recorded[name] for name in open_sizes}
        return replace(config, train=replace(config.train, **sizes))
    if "batch" in open_sizes:
        batch = f"{choose_batch(config, machine, ranks, teacher)} sequences"
        log.info(
            f"train.batch is {batch}, which suits a budget of {config.train.budget} on this machine"
        )
        config = replace(config, train=replace(config.train, batch=batch))
    if "micro_batch" in open_sizes:
        beside = None if teacher is None else teacher.encoder.config
        micro_batch = ranks.agree(fit_micro_batch(config, machine, teacher=beside, ranks=ranks))
        log.info(
            f"train.micro_batch is {micro_batch} of {config.batch_sequences} sequences, "
            "which fit in memory"
        )
        config = replace(config, train=replace(config.train, micro_batch=micro_batch))
    return config


def _read_recipe(folder: RunFolder) -> Config:
    file = folder.path / "recipe.json"
    try:
        return from_dict(Config, folder.ranks.decide(lambda: read_json(file, RunError)))
    except ConfigError as error:
        raise RunError(f"{file} was changed ({error}); restore it or start another --out") from None


# ---------------------------------------------------------------------------------- which run it is


def start_run(
    request: PretrainRequest,
    config: Config,
    shards: TrainingData,
    machine: Device,
    teacher: Teacher | None,
) -> RunRecord:
    """Buy the steps of a run and make its folder this run."""
    folder = request.folder
    steps, rate, seconds = buy_steps(
        config, machine, folder.ranks, teacher=teacher, began=request.began
    )
    if config.train.schedule.warmup >= max(steps, 2):
        log.warning(
            f"all {steps} steps are within the warm-up of {config.train.schedule.warmup:g}, so the "
            "learning rate never reaches its peak; give a larger --budget, or a share such as "
            "--train.schedule.warmup 0.025"
        )
    width, hidden = config.encoder.embedding_size, config.encoder.hidden_size
    if width > hidden:
        log.warning(
            f"encoder.embedding_size is {width} and encoder.hidden_size only {hidden}, so the "
            "token table is wider than the hidden states; if you did not intend this, give "
            f"--encoder.embedding-size {hidden}"
        )
    sources = {"from": request.from_model, "table_from": request.table_from}
    fields = {
        "format": 1,
        "steps": steps,
        "data": shards.name,
        "data_fingerprint": shards.fingerprint,
        **_record_sets(shards, config, schedule.Plan((steps,))),
        "tokenizer_fingerprint": shards.tokenizer.fingerprint,
        "unigram_entropy": shards.unigram_entropy,
        "machine": machine.describe(),
        "arithmetic": _describe_arithmetic(config, machine, folder.ranks),
        "seconds_per_step": None if rate is None else rate.mean_step_seconds,
        "time_budget": None if seconds is None else (0.0, seconds),
        "stage_seconds": None if rate is None else rate.step_seconds,
        **{name: hub.format_source(source) for name, source in sources.items() if source},
        **hub.record_revision(request.from_model, "from"),
        **hub.record_revision(request.table_from, "table_from"),
    }
    if teacher is not None:
        fields |= build_record(request.teacher, teacher.fingerprint)
    _report_sets(fields)
    if folder.ranks.main:
        if request.overwrite:
            folder.clear()
        with naming(folder.path / "tokenizer"):
            shards.tokenizer.save(folder.path / "tokenizer")
        with atomic_write(folder.path / "recipe.json") as file:
            file.write(to_json(config).encode())
        folder.claim(fields)
    return RunRecord.from_fields(fields, folder.identity_file, config)


def _record_sets(shards: TrainingData, config: Config, plan: schedule.Plan) -> dict[str, Any]:
    if not isinstance(shards, Mixture):
        return {}
    epochs = PretrainingBatches(config, shards, plan).count_epochs(plan.steps)
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
    return {"sets": sets}


def _report_sets(fields: Mapping[str, Any]) -> None:
    for entry in fields.get("sets", []):
        log.info(
            f"{entry['data']} gives {entry['share']:.1%} of the sequences, "
            f"{entry['epochs']:,.2f} epochs of it in this run"
        )


def continue_run(
    request: PretrainRequest,
    config: Config,
    shards: TrainingData,
    machine: Device,
    teacher: Teacher | None,
    fields: Mapping[str, Any],
) -> RunRecord:
    """Check that the run in the folder (run.json: `fields`) is the one requested, and extend it
    where the request has one budget more; the first budget need not be given again then.
    """
    folder, recorded = request.folder, _read_recipe(request.folder)
    record = RunRecord.from_fields(fields, folder.identity_file, config)
    another = "or start another --out"

    # The data.
    if record.data_fingerprint != shards.fingerprint:
        changed = next(
            (
                member.name
                for member in list_sets(shards)
                if record.sets.get(member.name) not in (None, member.fingerprint)
            ),
            None,
        )
        if changed is None and Path(record.data).resolve() == Path(shards.name).resolve():
            changed = shards.name
        if changed is not None:
            raise RunError(
                f"{changed} was prepared again or changed since the run in {folder.path} started; "
                f"restore it, {another}"
            )
        raise RunError(
            f"the run in {folder.path} was trained on {record.data}, and {shards.name} is other "
            f"data; give --shards {record.data}, {another}"
        )

    # The recipe, and the models that it started from.
    free = (*_FREE, *(["train.budget"] if request.extensions else []))
    folder.refuse_other(to_dict(recorded), to_dict(config), free)
    for option, source, name, about in (
        ("--from", request.from_model, "from", "the weights"),
        ("--table-from", request.table_from, "table_from", "the token table"),
    ):
        before = fields.get(name)
        if before != (None if source is None else hub.format_source(source)):
            began = f"from {about} of {before}" if before else f"untrained, without {option}"
            fix = f"give {option} {shlex.quote(str(before))}" if before else f"leave {option} out"
            raise RunError(f"the run in {folder.path} started {began}; {fix}, {another}")

    # The machine.
    arithmetic = _describe_arithmetic(config, machine, folder.ranks)
    if (before := fields.get("arithmetic")) != arithmetic:
        log.warning(
            f"this run was computed with {before} and continues with {arithmetic}: its last "
            "bits will differ"
        )
    config = replace(config, train=replace(config.train, budget=recorded.train.budget))
    record = replace(record, config=config)
    if request.extensions == record.extensions[: len(request.extensions)]:
        return record
    return _extend(request, record, shards, machine, teacher, fields)


def _extend(
    request: PretrainRequest,
    record: RunRecord,
    shards: TrainingData,
    machine: Device,
    teacher: Teacher | None,
    fields: Mapping[str, Any],
) -> RunRecord:
    folder, config, end = request.folder, record.config, record.steps
    *earlier, amount = request.extensions
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
    # At full depth and length from step one.
    train = replace(config.train, budget=amount, depth_schedule=(), length_schedule=())
    bought, rate, seconds = buy_steps(
        replace(config, train=train),
        machine,
        folder.ranks,
        "--add-budget",
        teacher,
        request.began,
    )
    trained = float(newest.state["seconds"])
    extension = {
        "budget": amount,
        "from_step": end,
        "seconds_per_step": rate and rate.mean_step_seconds,
        "time_budget": None if seconds is None else (trained, trained + seconds),
        "stage_seconds": rate and rate.step_seconds,
    }
    plan = replace(record.plan, ends=(*record.plan.ends, end + bought))
    changed = {"steps": plan.steps, "extensions": [*fields.get("extensions", []), extension]}
    fields = {**fields, **changed, **_record_sets(shards, config, plan)}
    _report_sets(fields)
    folder.claim(fields)
    rising = schedule.count_rewarm_steps(bought)
    share = schedule.compute_extended_factor(
        config.train.schedule, plan.locate(end + rising - 1), plan.planned_ends
    )
    log.info(
        f"extended by {amount}, from {end:,} to {plan.steps:,} steps; by step {end + rising:,} the "
        f"learning rate goes to {share * config.train.optimizer.peak:.2g}, and from there "
        f"it follows the schedule of a run of {plan.steps:,} steps"
    )
    return RunRecord.from_fields(fields, folder.identity_file, config)


def measure_work(record: RunRecord, teacher: EncoderConfig | None) -> Callable[[float], float]:
    """Return `Loop.work`: seconds measured for a budget in time, otherwise operations, because a
    GPU takes nearly as long for a shallow step of a small network as for a deep one.
    """
    *earlier, end = (0, *record.plan.planned_ends)
    if not record.stage_seconds:
        return training_flops(record.config, record.plan.planned_ends[0], teacher)
    parts, start, share = [], earlier[-1], 0.0
    for more, seconds in record.stage_seconds:
        share += more
        parts.append((start + round(share * (end - start)), seconds))
    return add_up([(start, parts[-1][1]), *parts], parts[-1][1])


def record_plan(
    folder: RunFolder, config: Config, shards: TrainingData, plan: schedule.Plan
) -> None:
    corrections = [{"step": step, "from": old, "to": new} for step, old, new in plan.corrections]
    fields = {"steps": plan.steps, "corrections": corrections}
    fields |= _record_sets(shards, config, plan)
    if folder.ranks.main:
        folder.claim({**read_json(folder.identity_file, RunError), **fields})


def _describe_arithmetic(config: Config, machine: Device, ranks: Ranks) -> str:
    """Describe what decides the last bits of a sum."""
    processes = f", {ranks.size} processes" if ranks.size > 1 else ""
    kernels = (
        ", compiled kernels that draw dropout"
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
