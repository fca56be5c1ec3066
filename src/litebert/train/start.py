"""How a pretraining run begins, continues, or grows: the steps it has, the weights it starts from,
its run.json.

run.json identifies the run in a folder: its steps, its data, and each extension. It is written
whole before a step is taken, so that the same command continues after a kill at any instant.
"""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from litebert.change.vocabulary import with_rows_of
from litebert.config import Config, EncoderConfig, replace
from litebert.config.serialization import from_dict, to_dict, to_json
from litebert.data.cooccurrence import compute_token_vectors, count_neighbors
from litebert.data.shards import Shards
from litebert.errors import ConfigError, ModelError, RunError
from litebert.interop import read_folder
from litebert.interop.models import config_of
from litebert.json_reader import fault_of, read_json
from litebert.model.cpu import loader
from litebert.model.distillation import Teacher
from litebert.model.heads import SpanBoundaryHead, VocabularyHead
from litebert.model.pretrainer import Pretrainer
from litebert.storage import atomic_write, naming
from litebert.train import checkpoint, schedule
from litebert.train.budget import buy_steps, choose_batch, with_budget
from litebert.train.device import Device
from litebert.train.memory import fit_micro_batch
from litebert.train.muon import has_float32_iteration
from litebert.train.ranks import Ranks
from litebert.train.run_folder import RunFolder

log = logging.getLogger("litebert")

LEFTOVERS = ("tokenizer", "recipe.json")
"""Files that a run leaves if it is killed before its run.json is written, beside hidden files."""
CONTENTS = (
    *LEFTOVERS,
    "run.json",
    "metrics.jsonl",
    "speed.jsonl",
    "checkpoints",
    "tensorboard",
    "report.html",
)
"""All that a run writes."""
_FREE = (
    "name",
    "train.save_every",
    "train.keep_checkpoints",
    "train.batch_processes",
    "train.parallel",
    "train.recompute",
)
"""Fields that may change between calls, for they change no weight."""
_NO_WEIGHTS = ("hidden_dropout", "attention_dropout", "init", "init_std", "untied", "pooler")
"""Fields of an encoder in which one may differ from the weights it starts from."""


def start_run(
    folder: RunFolder,
    config: Config,
    shards: Shards,
    machine: Device,
    source: str | Path | None,
    overwrite: bool,
    taught: Mapping[str, Any],
    teacher: Teacher | None = None,
) -> dict[str, Any]:
    """Start a run in a folder; returns the content of its run.json, which holds `taught` too."""
    steps, rate = buy_steps(config, machine, folder.ranks, teacher=teacher)
    if config.train.schedule.warmup >= max(steps, 2):
        log.warning(
            f"all {steps} steps lie within the warm-up of "
            f"{config.train.schedule.warmup:g}, so the learning rate never "
            "reaches its peak; give a larger --budget, or a share such as "
            "--train.schedule.warmup 0.025"
        )
    wide, hidden = config.encoder.embedding_size, config.encoder.hidden_size
    if wide > hidden:
        log.warning(
            f"encoder.embedding_size is {wide} and encoder.hidden_size only {hidden}, so "
            "the tables are wider than "
            f"what reads them; if that was not meant, give --encoder.embedding-size {hidden}"
        )
    run = {
        "format": 1,
        "steps": steps,
        "data": str(shards.path),
        "data_fingerprint": shards.fingerprint,
        "tokenizer_fingerprint": shards.tokenizer.fingerprint,
        "unigram_entropy": shards.unigram_entropy,
        "machine": machine.describe(),
        "arithmetic": _describe_arithmetic(config, machine, folder.ranks),
        "seconds_per_step": None if rate is None else rate.mean_step_seconds,
        **({} if source is None else {"from": _resolve_path(source)}),
        **({} if teacher is None else taught),
    }
    if folder.ranks.main:
        if overwrite:
            folder.clear()
        with naming(folder.path / "tokenizer"):
            shards.tokenizer.save(folder.path / "tokenizer")
        with atomic_write(folder.path / "recipe.json") as file:
            file.write(to_json(config).encode())
        folder.claim(run)
    return run


def settle_batch_sizes(
    config: Config,
    folder: RunFolder,
    machine: Device,
    overwrite: bool,
    teacher: Teacher | None = None,
) -> Config:
    """The config with numbers for `train.batch=auto` and `train.micro_batch=auto`: those of the run
    in the folder, else what suits the budget and fits in the free memory.

    Raises:
        RunError: the recipe of the run was changed.
    """
    if "auto" not in (config.train.batch, config.train.micro_batch):
        return config
    recorded = None
    if not overwrite and folder.ranks.decide(folder.identity_file.exists):
        recorded = _read_recipe(folder).train
    if config.train.batch == "auto":
        batch = (
            recorded.batch
            if recorded
            else f"{choose_batch(config, machine, folder.ranks, teacher)} sequences"
        )
        config = replace(config, train=replace(config.train, batch=batch))
        if recorded is None:
            log.info(
                f"train.batch is {batch}, which suits a budget of {config.train.budget} on "
                "this machine"
            )
    if config.train.micro_batch == "auto":
        shape = None if teacher is None else teacher.encoder.config
        micro = (
            recorded.micro_batch
            if recorded
            else folder.ranks.agree(fit_micro_batch(config, machine, teacher=shape))
        )
        config = replace(config, train=replace(config.train, micro_batch=micro))
        if recorded is None:
            log.info(
                f"train.micro_batch is {micro} of {config.batch_sequences} sequences, "
                "which fit in memory"
            )
    return config


def _read_recipe(folder: RunFolder) -> Config:
    """The recipe.json of a run."""
    file = folder.path / "recipe.json"
    try:
        return from_dict(Config, folder.ranks.decide(lambda: read_json(file, RunError)))
    except ConfigError as error:
        raise RunError(f"{file} was changed ({error}); restore it or start another --out") from None


def require_same_run(
    folder: RunFolder,
    run: Mapping[str, Any],
    config: Config,
    shards: Shards,
    machine: Device,
    source: str | Path | None,
    extensions: Sequence[str],
    teacher: Teacher | None = None,
) -> tuple[dict[str, Any], Config]:
    """Check that the run in the folder is of this config, data and origin; return its run.json and
    its config.

    Args:
        extensions: where it is extended, the budget it was started with need not be given again.

    Raises:
        RunError: it is another run, or its files were changed.
    """
    recorded = _read_recipe(folder)
    try:
        steps, fingerprint, data = int(run["steps"]), run["data_fingerprint"], run["data"]
        ends = list_earlier_ends(run)
        amounts = [str(extension["budget"]) for extension in run.get("extensions", [])]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            f"{folder.identity_file} was changed ({fault_of(error)}); restore it or start "
            "another --out"
        ) from None
    if steps < 1 or list(ends) != sorted(set(ends)) or any(not 0 < end < steps for end in ends):
        raise RunError(
            f"{folder.identity_file} was changed (steps {steps}); restore it or start another --out"
        )
    if fingerprint != shards.fingerprint:
        same = _resolve_path(str(data)) == _resolve_path(shards.path)
        how = (
            f"{shards.path} was prepared again or changed since the run in {folder.path} started"
            if same
            else (
                f"the run in {folder.path} was trained on {data}, and {shards.path} holds "
                "other data"
            )
        )
        fix = "restore it" if same else f"give --data {data}"
        raise RunError(f"{how}; {fix}, or start another --out")
    folder.refuse_other(
        to_dict(recorded), to_dict(config), (*_FREE, *(["train.budget"] if extensions else []))
    )
    origin = None if source is None else _resolve_path(source)
    if (was := run.get("from")) != origin:
        began = f"from the weights of {was}" if was else "untrained, without --from"
        fix = f"give --from {shlex.quote(str(was))}" if was else "leave --from out"
        raise RunError(f"the run in {folder.path} started {began}; {fix}, or start another --out")
    arithmetic = _describe_arithmetic(config, machine, folder.ranks)
    if (before := run.get("arithmetic")) != arithmetic:
        log.warning(
            f"this run was computed with {before} and continues with {arithmetic}: its last "
            "bits will differ"
        )
    config = replace(config, train=replace(config.train, budget=recorded.train.budget))
    run = {**run, "steps": steps}
    return _extend(folder, run, config, machine, amounts, list(extensions), teacher), config


def _extend(
    folder: RunFolder,
    run: dict[str, Any],
    config: Config,
    machine: Device,
    done: list[str],
    amounts: list[str],
    teacher: Teacher | None,
) -> dict[str, Any]:
    """The run, extended once more where `asked` names one amount more than were `done`."""
    if amounts == done[: len(amounts)]:
        return run
    if amounts[:-1] != done:
        more = " ".join(map(shlex.quote, [*done, amounts[-1]]))
        before = f"was extended by {' and '.join(done)}" if done else "has not been extended yet"
        raise RunError(
            f"the run in {folder.path} {before}; to extend it by another {amounts[-1]}, give "
            f"--extend {more}"
        )
    before = run["steps"]
    newest = folder.ranks.decide(lambda: checkpoint.find_newest(folder.path / "checkpoints"))
    if newest is None or newest.step < before:
        at = 0 if newest is None else newest.step
        raise RunError(
            f"the run in {folder.path} is not finished (step {at} of {before}); run its "
            "command again without "
            f"{'the last amount of ' if done else ''}--extend, and extend it then"
        )
    bought, rate = buy_steps(
        with_budget(config, amounts[-1]), machine, folder.ranks, "--extend", teacher
    )
    steps = before + bought
    extension = {
        "budget": amounts[-1],
        "from_step": before,
        "seconds_per_step": rate and rate.mean_step_seconds,
    }
    run = {**run, "steps": steps, "extensions": [*run.get("extensions", []), extension]}
    folder.claim(run)
    rising = schedule.count_rewarm_steps(steps - before)
    share = schedule.compute_extended_factor(
        config.train.schedule, before + rising - 1, (*list_earlier_ends(run), steps)
    )
    log.info(
        f"extended by {amounts[-1]}, from {before:,} to {steps:,} steps; by step "
        f"{before + rising:,} the learning rate "
        f"goes to {share * config.train.optimizer.learning_rate:.2g}, and from there it "
        "follows the schedule of a run "
        f"of {steps:,} steps"
    )
    return run


def list_earlier_ends(run: Mapping[str, Any]) -> tuple[int, ...]:
    """The steps at which a run ended before each of its extensions."""
    return tuple(int(extension["from_step"]) for extension in run.get("extensions", []))


def build_further_recipe(source: str | Path) -> Config:
    """The recipe to train a model further with: its own without teacher, at full depth and length
    from the first step, with a learning rate that rises again over the first twentieth of the run.

    Of a folder that does not say how it was trained (Hugging Face), the shape and the objectives
    that its heads are for, and the defaults of everything else.

    Raises:
        ModelError: the folder cannot be opened.
    """
    config = config_of(source).without_its_run()
    calm = replace(config.train.schedule, warmup=schedule.REWARM)
    return replace(config, train=replace(config.train, schedule=calm))


def read_optimizer(source: str | Path, config: Config) -> dict[str, torch.Tensor] | None:
    """The state of the optimizer that a run ended with; None where `source` is no run, or of
    another optimizer.
    """
    folder = Path(source) / "checkpoints"
    if not folder.is_dir():
        return None
    was, now = config_of(source).train.optimizer.name, config.train.optimizer.name
    if was != now:
        log.info(f"the optimizer of {source} was {was} and is {now} here, so its state begins anew")
        return None
    newest = checkpoint.find_newest(folder)
    return None if newest is None else newest.optimizer()


def load_weights(source: str | Path, model: Pretrainer, shards: Shards) -> None:
    """Put the weights of a model folder into a new model: those of its encoder, and of each
    objective that fits.

    What stays untrained is logged.

    Raises:
        ModelError: the folder cannot be opened, or its encoder is of another shape.
        DataError: the data was prepared with another tokenizer, or the model has none.
    """
    loaded = with_rows_of(shards.path, shards.tokenizer, read_folder(source), source)
    target, source_shape = model.config.encoder, loaded.config.encoder
    if differ := _compare_shapes(source_shape, target):
        raise ModelError(
            f"the weights of {source} do not fit this recipe ({'; '.join(differ)}); give "
            "the recipe they were trained "
            "with, or these fields as they are there"
        )
    weights, state = loaded.model.state_dict(), model.state_dict()
    fitting = {
        key: tensor
        for key, tensor in weights.items()
        if key in state and state[key].shape == tensor.shape
    }
    taken = {key: tensor for key, tensor in fitting.items() if key.startswith("encoder.")}
    fresh = sorted(
        {key.split(".")[1] for key in state if key.startswith("encoder.") and key not in taken}
    )
    for name, objective in model.named_objectives.items():
        keys = [key for key in state if key.startswith(f"objectives.{name}.")]
        if name not in loaded.untrained and all(key in fitting for key in keys):
            taken.update({key: fitting[key] for key in keys})
        else:
            fresh.append(objective.network_name)
    model.load_state_dict({**state, **taken})
    log.info(
        f"starting from the weights of {source}"
        + (f"; untrained: {', '.join(fresh)}" if fresh else "")
    )


def start_table(model: Pretrainer, shards: Shards) -> None:
    """Start the token table from counts of neighboring tokens in the training text, and the output
    biases from the frequencies of tokens, as `Config.table` says; leave a model whose table starts
    at random as it is.

    A token without neighbors in the text, such as [MASK], keeps its random row.

    Raises:
        DataError: no token of the text has a neighbor.
    """
    table, encoder = model.config.table, model.config.encoder
    if table.start == "random":
        return
    started = time.monotonic()
    counts = count_neighbors(shards.train, encoder.vocab_size, table)
    vectors = torch.from_numpy(compute_token_vectors(counts, encoder.embedding_size, table.std))
    # A token that never occurs is taken to have occurred half a time, so that its logarithm is
    # finite.
    shares = torch.from_numpy(np.maximum(counts.tokens, 0.5) / counts.tokens.sum())
    heads = [
        module
        for module in model.objectives.modules()
        if isinstance(module, (VocabularyHead, SpanBoundaryHead))
    ]
    with torch.no_grad():
        word = model.encoder.embedding.word.weight
        counted = vectors.any(dim=1, keepdim=True).to(word.device)
        word.copy_(torch.where(counted, vectors.to(word), word))
        for head in heads:
            head.bias.copy_(shares.log())
    seconds = time.monotonic() - started
    log.info(
        f"the token table starts from the neighbors of {counts.tokens.sum():,} tokens, "
        f"counted in {seconds:.0f} s"
    )


def _compare_shapes(source: EncoderConfig, target: EncoderConfig) -> list[str]:
    """The fields in which two encoders differ so that the weights of one are no weights of the
    other.
    """
    by_depth = source.sharing != target.sharing or target.sharing != "all"
    free = {
        *_NO_WEIGHTS,
        *([] if by_depth else ["layers"]),
    }  # shared blocks are the same ones at every depth
    pairs = {
        field.name: (getattr(source, field.name), getattr(target, field.name))
        for field in fields(target)
    }
    return [
        f"encoder.{name} is {was} there and {now} here"
        for name, (was, now) in pairs.items()
        if was != now and name not in free
    ]


def resolve_vocabulary(config: Config, shards: Shards) -> Config:
    """The config on this data: the vocabulary is the tokenizer's."""
    size, named = shards.tokenizer.vocab_size, config.encoder.vocab_size
    if size != named:
        log.info(
            f"encoder.vocab_size is {size}, of the tokenizer in {shards.path} (recipe: {named})"
        )
    return replace(config, encoder=replace(config.encoder, vocab_size=size))


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
