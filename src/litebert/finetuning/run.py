"""Fine-tuning: a pretrained encoder, a task and a run folder, in the loop of pretraining; with one
seed or several.

A run folder holds

    finetune.json     the config, the task and the names of its files, the steps it takes, and
                      hashes of the model and of the encoded data
    metrics.jsonl     one row per window of steps, scores on the development parts, and remarks
    speed.jsonl       seconds and tokens per second, one row per window of steps
    checkpoints/      the newest valid ones; the same command continues
    best.safetensors  the weights with the best score so far
    model/            at the end: those weights as a litebert model folder, with tokenizer and
                      labels, and at most four short development texts
    predictions/      answers to the development parts and, where there is one, the test part
    teacher.safetensors
                      with a teacher: its logits for every training row
    head.safetensors  with `fit_head`: the classifier that was fitted before training
    exits.json        with `exits`: when a row leaves early, and what other rules would save and
                      cost
    baseline.json     the scores of a model that counts words and characters, on the same rows
    scores.json       the scores of model/, and of the baseline
"""

from __future__ import annotations

import logging
import math
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from litebert import launch
from litebert.config import Config, SequenceConfig, replace
from litebert.config.finetuning import FinetuneConfig
from litebert.errors import ConfigError, RunError
from litebert.finetuning.baselines import (
    BaselineScores,
    RunBaseline,
    advise,
    read_baseline,
    read_scores,
)
from litebert.finetuning.baselines.scores import BASELINE, FIELD, build_scores_fields
from litebert.finetuning.batches import TaskBatch, TaskBatches
from litebert.finetuning.defaults import take_recorded_choices
from litebert.finetuning.examples import FILE as EXAMPLES
from litebert.finetuning.examples import choose_examples, write_examples
from litebert.finetuning.exits import Exits, calibrate
from litebert.finetuning.probe import FITTED, choose_start
from litebert.finetuning.scoring import name_metric, score_parts
from litebert.finetuning.spread import summarise
from litebert.finetuning.start import (
    InitialModel,
    PreparedTask,
    build_task_model,
    claim,
    load_initial,
    prepare_task,
)
from litebert.finetuning.task import Task
from litebert.finetuning.teacher import KEPT, compute_teacher_logits
from litebert.finetuning.trainable import TrainableTaskModel
from litebert.interop import LoadedModel, save_litebert
from litebert.interop.cards import make_finetuned_card
from litebert.interop.files import read_weights, write_tensors
from litebert.json_reader import read_json
from litebert.model.task_model import TaskModel
from litebert.recipes.finetuning import choose_default_recipe
from litebert.storage import write_json, write_whole
from litebert.train import device as devices
from litebert.train import metrics
from litebert.train.loop import Loop, Outcome
from litebert.train.memory import (
    choose_parallel,
    explain_out_of_memory,
    fit_micro_batch,
    require_memory,
)
from litebert.train.parallel import build_module, load_state, parallelize
from litebert.train.ranks import Ranks, join_group
from litebert.train.run_folder import ASIDE, RunFolder

log = logging.getLogger("litebert")

IDENTITY = "finetune.json"
CONTENTS = (
    IDENTITY,
    "metrics.jsonl",
    "speed.jsonl",
    "checkpoints",
    "best.safetensors",
    "model",
    "predictions",
    "exits.json",
    BASELINE,
    "scores.json",
    "report.html",
    KEPT,
    FITTED,
)
"""All that a run writes."""
OnStep = Callable[[Loop[TaskBatch]], None]
"""A function that is called after every step."""


@dataclass(frozen=True)
class Finetuned:
    """A fine-tuning run as it stands in its folder."""

    folder: Path
    steps: int
    outcome: Outcome
    scores: dict[str, float]
    """Scores of the best weights; empty where the run is not finished."""
    collapsed: bool = False
    """True if it gives one answer to everything, restart or not."""
    restarted: bool = False
    """True if a run that collapsed went before, at three times the rate."""

    @property
    def baseline(self) -> BaselineScores | None:
        """Scores of the baseline on the same rows; None where the run has no baseline."""
        file = self.folder / "scores.json"
        return read_baseline(file) if file.is_file() else None

    @property
    def exits(self) -> dict[str, Any]:
        """The content of exits.json of a finished run with early exits (`finetuning.exits.Exits`);
        empty for others.
        """
        file = self.folder / "exits.json"
        return read_json(file, RunError) if file.is_file() else {}


def finetune(
    model: str | Path,
    task: Task[Any],
    out: str | Path,
    config: FinetuneConfig | None = None,
    *,
    tokenizer: str | Path | None = None,
    teacher: str | Path | None = None,
    unlabelled: Sequence[Any] | None = None,
    overwrite: bool = False,
    device: str = "auto",
    on_step: OnStep | None = None,
    baseline: bool = True,
) -> Finetuned:
    """Fine-tune a model on a task; the same call on the same folder continues, or returns what is
    finished.

    Args:
        model: a run, a litebert model or a Hugging Face folder; or a recipe's name, with
            `tokenizer`.
        config: by default the recipe that `recipes.finetuning.choose_default_recipe` finds for
            the encoder and the task.
        teacher: the folder of a model fine-tuned on the same task, whose answers are learned as
            `config.distill` says.
        unlabelled: further examples for the teacher to answer, as `Task.stream` gives them.
        overwrite: delete the run in `out`, if there is one, and start anew.
        baseline: also fit a model that counts words and characters on the same rows, see
            `Finetuned.baseline`.

    Raises:
        ConfigError: unlabelled examples without a teacher, or for a task that cannot use them.
        DataError: a file of the task cannot be used.
        ModelError: the model or the teacher cannot be opened, or the teacher does not fit the task.
        RunError: the folder is in use, or holds another run.
        NonFiniteError: a loss or gradient was not finite; no step was taken from it.
    """
    runs = finetune_seeds(
        model,
        task,
        out,
        config,
        tokenizer=tokenizer,
        teacher=teacher,
        unlabelled=unlabelled,
        overwrite=overwrite,
        device=device,
        on_step=on_step,
        baseline=baseline,
    )
    return runs[0]


def finetune_seeds(
    model: str | Path,
    task: Task[Any],
    out: str | Path,
    config: FinetuneConfig | None = None,
    *,
    seeds: int = 1,
    tokenizer: str | Path | None = None,
    teacher: str | Path | None = None,
    unlabelled: Sequence[Any] | None = None,
    start: InitialModel | None = None,
    overwrite: bool = False,
    device: str = "auto",
    on_step: OnStep | None = None,
    remarks: Sequence[str] = (),
    baseline: bool = True,
) -> list[Finetuned]:
    """`finetune` in `out`, or with several seeds in out/seed-0, out/seed-1, ..., counted on from
    the config's.

    A summary goes to out/seeds.json. After a signal there are fewer runs than seeds, or the last is
    not finished.

    Args:
        start: what `load_initial` gave, where it was asked before.
        remarks: warnings so far, which become events in the metrics of each run.
    """
    with join_group() as ranks:
        anew = overwrite and not launch.restarts()
        return _run_seeds(
            ranks,
            model,
            task,
            out,
            config,
            seeds,
            tokenizer,
            teacher,
            unlabelled,
            start,
            anew,
            device,
            on_step,
            remarks,
            baseline,
        )


def _run_seeds(
    ranks: Ranks,
    model: str | Path,
    task: Task[Any],
    out: str | Path,
    config: FinetuneConfig | None,
    seeds: int,
    tokenizer: str | Path | None,
    teacher: str | Path | None,
    unlabelled: Sequence[Any] | None,
    start: InitialModel | None,
    overwrite: bool,
    device: str,
    on_step: OnStep | None,
    remarks: Sequence[str],
    baseline: bool,
) -> list[Finetuned]:
    paths = [Path(out)] if seeds == 1 else [Path(out) / f"seed-{number}" for number in range(seeds)]
    if seeds < 1:
        raise ConfigError(f"seeds is {seeds}; it must be at least 1")
    folders = [replace(run_folder(path), ranks=ranks) for path in paths]
    for source in (model, teacher):
        ranks.decide(partial(_check_folders, Path(out), folders, overwrite, source))
    heard = list(remarks)
    with metrics.collect_remarks(heard):
        start = start or load_initial(model, tokenizer, task)
        config = config or choose_default_recipe(start.encoder, start.dense, task.point)
        recorded = ranks.decide(
            lambda: [] if overwrite else [one for place in folders for one in place.identities()]
        )
        chosen: list[str] = []
        if recorded and config.choose:
            config = take_recorded_choices(config, recorded[0].get("config", {}))
            chosen = recorded[0].get("chosen", [])
        prepared = prepare_task(model, task, config, start, teacher, unlabelled, chosen)
    prepared = choose_start(prepared, folders, device, overwrite)
    heard += [*prepared.notes, *prepared.chosen]
    if baseline:
        counted = RunBaseline(task, prepared.train, (*prepared.dev, *prepared.tests))
        prepared = replace(prepared, baseline=counted)
    runs: list[Finetuned] = []
    prepared.remark_on_steps()
    for seed, folder in enumerate(folders, prepared.config.train.seed):
        if seeds > 1:
            log.info(f"seed {len(runs) + 1} of {seeds}")
        own = replace(prepared.config, train=replace(prepared.config.train, seed=seed))
        runs.append(
            _one_seed(
                replace(prepared, config=own), folder, overwrite, device, on_step, list(heard)
            )
        )
        outcome = runs[-1].outcome
        if not outcome.finished or (outcome.signal is not None and len(runs) < seeds):
            return runs
    if seeds > 1 and folders[0].ranks.main:
        scores = [run.scores for run in runs]
        write_json(
            Path(out) / "seeds.json",
            build_scores_fields({"scores": scores, "summary": summarise(scores)}, runs[0].baseline),
        )
    _advise(name_metric(task), runs)
    return runs


def _advise(metric: str, runs: Sequence[Finetuned]) -> None:
    """Say so where the baseline is better than the runs are in the median."""
    median = statistics.median(run.scores.get(metric, math.nan) for run in runs)
    if sentence := advise(metric, median, runs[0].baseline):
        log.warning(sentence)


def _check_folders(
    out: Path, folders: Sequence[RunFolder], overwrite: bool, source: str | Path | None
) -> None:
    """Refuse folders in which these runs can neither start nor continue, or that hold a model they
    need.

    Raises:
        RunError: as it says.
    """
    if len(folders) > 1 and (out / IDENTITY).exists():
        raise RunError(
            f"{out} holds a run of one seed; give another --out for {len(folders)} seeds"
        )
    if (out / "recipe.json").exists() and not (out / IDENTITY).exists():
        raise RunError(f"{out} holds a pretraining run; give --out a new or empty folder")
    for folder in folders:
        folder.check()
        if overwrite:
            folder.list_removable()
            folder.protect(source)


def run_folder(out: str | Path) -> RunFolder:
    """The folder of a fine-tuning run."""
    return RunFolder(Path(out), IDENTITY, leftovers=(FITTED,), contents=CONTENTS)


def _one_seed(
    prepared: PreparedTask,
    folder: RunFolder,
    overwrite: bool,
    device: str,
    on_step: OnStep | None,
    remarks: list[str],
) -> Finetuned:
    """A run to its end, and once more where it collapsed."""
    with metrics.collect_remarks(remarks), folder.lock():
        machine = devices.choose(prepared.config.train.precision, folder.ranks.device(device))
        done = _run(prepared, folder, machine, on_step, remarks, overwrite)
        if done.collapsed and prepared.config.restart and not done.restarted:
            if done.outcome.signal is not None:  # the same command goes on from here
                return replace(done, outcome=replace(done.outcome, finished=False), scores={})
            folder.set_aside()
            done = _run(prepared, folder, machine, on_step, remarks)
        if done.collapsed:
            # No path in it, for it goes to metrics.jsonl, and equal runs in two folders hold equal
            # bytes.
            log.warning(
                f"the model gives one answer to every example of {prepared.dev[0].name}: "
                "its scores are those "
                "of guessing; train for more --epochs, or start from a pretrained model"
            )
            if folder.ranks.main:
                with closing(metrics.MetricsLog(folder.path, done.outcome.step)) as rows:
                    rows.note(done.outcome.step, remarks)
    return done


def _run(
    prepared: PreparedTask,
    place: RunFolder,
    machine: devices.Device,
    on_step: OnStep | None,
    remarks: list[str],
    overwrite: bool = False,
) -> Finetuned:
    """One run to its end; after one that collapsed, at a third of the rate."""
    ranks = place.ranks
    again = ranks.decide(lambda: place.has_predecessor) and not overwrite
    task, config, folder, pad = (
        prepared.task,
        prepared.config,
        place.path,
        prepared.start.tokenizer.pad_id,
    )
    train = prepared.train.items
    batch, steps = prepared.batch, prepared.steps
    warmup = config.train.schedule.warmup
    if 1 <= warmup >= steps:
        raise ConfigError(
            f"train.schedule.warmup is {warmup:g} steps of a run of {steps}; give a share of the "
            "run, such as 0.1"
        )
    output, targets = task.output.fit([item.target for item in train])
    items = [replace(item, target=target) for item, target in zip(train, targets, strict=True)]
    items += prepared.rows[len(train) :]
    rows = max(len(item.rows) for item in items)
    if prepared.teacher is not None and config.distill.compared:
        prepared.teacher.layers.to(machine.device)  # before anyone asks how much memory is free
    if config.train.micro_batch == "auto":
        there = ranks.decide(lambda: [] if overwrite else place.identities())
        recorded = [one.get("config", {}).get("train", {}).get("micro_batch", 1) for one in there]
        fits = (prepared.as_pretraining(), machine, rows, prepared.computing_teacher)
        micro = recorded[0] if recorded else ranks.agree(fit_micro_batch(*fits))
        config = replace(config, train=replace(config.train, micro_batch=micro))
        prepared = replace(prepared, config=config)
    planned = prepared.as_pretraining()
    how = choose_parallel(planned, machine, ranks)
    if how == "fsdp" and prepared.teacher is not None and config.distill.compared:
        raise ConfigError(
            "distill.states and distill.relations read layers one by one, which "
            "train.parallel=fsdp does "
            "not gather; set ddp"
        )
    planned = replace(planned, train=replace(planned.train, parallel=how))
    require_memory(planned, machine, rows, ranks, prepared.computing_teacher)
    model = build_module(
        lambda: build_task_model(prepared.start, task, config, prepared.fitted),
        machine.device,
        ranks,
        how,
    )
    if overwrite:
        place.clear()
    if (
        prepared.fitted and ranks.main and not place.identity_file.exists()
    ):  # a run without it has no fitted head
        with write_whole(folder / FITTED) as aside:
            write_tensors(aside, prepared.fitted)
    ranks.decide(lambda: claim(place, prepared, steps, items))
    settings, optimizer = config.train, config.train.optimizer
    if again:
        rate, muon = optimizer.learning_rate / 3, optimizer.muon_learning_rate / 3
        settings = replace(
            settings, optimizer=replace(optimizer, learning_rate=rate, muon_learning_rate=muon)
        )
        # Here, so that a run that was killed as it was set aside reports it too.
        log.warning(
            f"the model gave one answer to every example of {prepared.dev[0].name}; this "
            "run starts again with "
            f"a learning rate of {rate:.1e} (the first one was moved to {ASIDE}/)"
        )
    if not config.examples and ranks.main:  # a finished run may hold some
        (folder / "model" / EXAMPLES).unlink(missing_ok=True)
    file = folder / "scores.json"  # the last to be written
    if config.exits:
        ranks.decide(lambda: _require_calibrated(folder, config.exit_drop))
    if ranks.decide(
        lambda: file.exists() and not (folder / "checkpoints").exists()
    ):  # someone made room
        scores = ranks.decide(lambda: read_scores(file))
        return Finetuned(
            folder, steps, Outcome(steps, True, None, {}, 0, 0.0), scores, False, again
        )
    counted = prepared.baseline
    if counted is not None and not ranks.decide(file.exists):
        ranks.decide(lambda: counted.keep(folder))
    if prepared.teacher is not None:
        teacher = prepared.teacher
        taught = ranks.decide(
            lambda: compute_teacher_logits(teacher, prepared, folder, str(machine.device))
        )
        items = [replace(item, taught=one) for item, one in zip(items, taught, strict=True)]
    positions, seed = model.encoder.config.max_positions, config.train.seed
    if prepared.teacher is not None and config.distill.compared:
        positions = min(positions, prepared.teacher.loaded.config.encoder.max_positions)
    batches = TaskBatches(
        items, output, pad, batch, steps, seed, positions=positions, deletion=config.deletion
    )
    network = parallelize(model, machine.device, ranks, how, batch)
    best = folder / "best.safetensors"
    trainable = TrainableTaskModel(
        model, output, batches, prepared, machine, best, network=network, ranks=ranks
    )
    loop = Loop(
        trainable=trainable,
        config=settings,
        steps=steps,
        batch_sequences=batch,
        device=machine,
        folder=folder,
        on_step=on_step,
        ranks=ranks,
        remarks=remarks,
        scores_start=bool(prepared.fitted),
    )
    with explain_out_of_memory(machine, config.train.at_once or batch, config.train.recompute):
        outcome = loop.run()
    if not outcome.finished:
        return Finetuned(folder, steps, outcome, {})
    if not ranks.decide(file.exists):
        if ranks.size > 1:  # whole, where it was split
            trainable.module = model = build_task_model(prepared.start, task, config).to(
                machine.device
            )
        load_state(model, read_weights(trainable.best) if ranks.main else None, ranks)
        parts = (*prepared.dev, *prepared.tests)
        logits = trainable.best_logits if machine.autocast is None else {}
        trainable.device = replace(
            machine, autocast=None
        )  # as `predict` computes, and other programs
        task = task.closing(train, trainable.logits_of_items, config.train.seed)
        logits = logits | {
            part.name: trainable.logits(part) for part in parts if part.name not in logits
        }
        every = trainable.logits(parts[0], every=True) if config.exits else None
        if ranks.main:
            scores = score_parts(task, parts, logits)
            (folder / "predictions").mkdir(exist_ok=True)
            for part in parts:
                answers = task.answers(part.examples, part.items, logits[part.name])
                task.write(
                    part.examples, answers, folder / "predictions" / task.file_name(part.name)
                )
            exits = (
                None
                if every is None
                else calibrate(task, output, parts[0], every, config.exit_drop)
            )
            if exits is not None:
                write_json(folder / "exits.json", asdict(exits))
            output.settle(model.head)
            model.state_map = None
            written = build_scores_fields(scores, None if counted is None else counted.keep(folder))
            card = _write_card(prepared, place.identities()[-1], written, again)
            _write_model(folder / "model", model, replace(prepared, task=task), card, exits)
            write_json(file, written)
    one = trainable.diagnostic_state["one_answer"]
    scores = ranks.decide(lambda: read_scores(file))
    return Finetuned(folder, steps, outcome, scores, one, again)


def _require_calibrated(folder: Path, drop: float) -> None:
    """See to it that a finished run whose exits were calibrated with another drop ends once
    more."""
    ended = (folder / "scores.json", folder / "exits.json")
    if (
        not all(file.exists() for file in ended)
        or (was := read_json(ended[1], RunError).get("drop")) == drop
    ):
        return
    if (folder / "checkpoints").exists() and (folder / "best.safetensors").exists():
        log.info(f"calibrating the exits again, with exit_drop {drop:g} instead of {was}")
        ended[0].unlink()
    else:
        log.warning(
            f"{folder} has no checkpoints any more, so its exits stay as calibrated with "
            f"exit_drop {was}"
        )


def _write_card(
    prepared: PreparedTask, identity: Mapping[str, Any], scored: Mapping[str, Any], restarted: bool
) -> str:
    """The card of a finished run; `scored` is what scores.json holds."""
    parts = (prepared.train, *prepared.dev, *prepared.tests)
    sizes = {
        part.name: (
            len(part.examples),
            sum(len(row.ids) for item in part.items for row in item.rows),
        )
        for part in parts
    }
    dev = [part.name for part in prepared.dev]
    scores = {name: value for name, value in scored.items() if name != FIELD}
    return make_finetuned_card(
        prepared.task.output.head, identity, sizes, scores, dev, restarted, scored.get(FIELD)
    )


def _write_model(
    folder: Path, model: TaskModel, prepared: PreparedTask, card: str, exits: Exits | None
) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    task, output, length = prepared.task, prepared.task.output, prepared.config.length
    sequences = SequenceConfig(length=length)
    # A config names an objective, though a fine-tuned model has none.
    whole = Config(
        name=task.name, encoder=model.encoder.config, sequences=sequences, objectives=("mlm",)
    )
    about = {
        "task": task.name,
        "kind": output.head,
        "problem": output.name,
        "length": length,
        **task.settings(),
    }
    if exits is not None:
        about["exits"] = exits.record()
    words = prepared.start.tokenizer
    loaded = LoadedModel(model, whole, words, folder, output.labels, task=about, card=card)

    def write_beside(partial: Path) -> None:
        task.write_beside(partial)
        if prepared.config.examples:
            write_examples(partial, choose_examples(task, prepared.dev[0]))

    save_litebert(loaded, folder, beside=write_beside)
