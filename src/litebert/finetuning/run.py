"""Fine-tuning from data to saved model: `finetune_seeds` opens a task and decides, once for all
seeds, and `_train_seed` trains and scores one of them in the loop of pretraining.

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
                      with a teacher: its logits for every training row, or the mean of several; or
                      its vectors, which are in teacher-vectors/ until all are known
    head.safetensors  with `fit_head`: the classifier that was fitted before training
    exits.json        with `exits`: when a row leaves early, and what other rules would save and
                      cost
    reliability.json  calibration and precision of the answers to the first development part
    mislabeled.csv    with `mislabeled`: training rows whose label is likely wrong
    baseline.json     the scores of a TF-IDF model, on the same rows
    scores.json       the scores of model/, and of the baseline
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from litebert import hub
from litebert.base import launch, progress
from litebert.base.errors import ConfigError, DataError, RunError
from litebert.base.storage import write_json, write_whole
from litebert.config import FinetuneConfig
from litebert.finetuning.initial import build_task_model, load_initial
from litebert.finetuning.results import (
    IDENTITY,
    Finetuned,
    claim_folder,
    require_calibrated,
    write_results,
)
from litebert.finetuning.setup import (
    Change,
    Setup,
    describe_balance,
    resolve,
    resolve_amount,
)
from litebert.finetuning.teachers import (
    FOLDER,
    KEPT,
    list_sources,
    open_teachers,
    start_table,
)
from litebert.finetuning.trainable import attach_answers, make_loop
from litebert.finetuning.trials import FITTED, choose_start
from litebert.interop.files import read_tensors, write_tensors
from litebert.judge.baselines import (
    BASELINE,
    RunBaseline,
    advise,
    build_scores_fields,
    read_scores,
)
from litebert.judge.reliability import (
    MISLABELED,
    RELIABILITY,
    forget_texts,
    keep_mislabeled,
    require_mislabeled,
)
from litebert.judge.seeds import summarize
from litebert.tasks.rows import count_shared
from litebert.tasks.scoring import name_metric, score_parts
from litebert.tasks.similarity import Similarity, learns_map
from litebert.tasks.task import EXAMPLES, TaskFiles
from litebert.tasks.values import EncodedPart, Item
from litebert.text.records import Notes
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.coverage import Coverage
from litebert.train import checkpoint, metrics
from litebert.train import device as devices
from litebert.train.loop import Outcome
from litebert.train.memory import explain_out_of_memory, fit_micro_batch, require_memory
from litebert.train.parallel import load_state
from litebert.train.ranks import join_group
from litebert.train.run_folder import ASIDE, RunFolder
from litebert.train.teacher import match_layers
from litebert.train.trackers import TRACKED, require_trackers

log = logging.getLogger("litebert")

CONTENTS = (
    IDENTITY,
    "metrics.jsonl",
    "speed.jsonl",
    "checkpoints",
    "best.safetensors",
    "model",
    "predictions",
    "exits.json",
    RELIABILITY,
    MISLABELED,
    *TRACKED,
    BASELINE,
    "scores.json",
    "report.html",
    KEPT,
    FOLDER,
    FITTED,
)
"""All that a run writes."""
SHARED = 0.2
"""Share of the rows of a part that may be training rows too; more are no accident."""
FEW_STEPS = 100
"""A run of fewer steps seldom learns a task."""


def finetune(
    model: str | Path,
    data: TaskFiles[Any],
    out: str | Path,
    config: FinetuneConfig | Change | None = None,
    *,
    tokenizer: str | Path | None = None,
    teacher: str | Path | Sequence[str | Path] | None = None,
    overwrite: bool = False,
    device: str = "auto",
) -> Finetuned:
    """Fine-tune a model on a task. Called again, it continues, or returns the finished run.

    Args:
        model: a run, a litebert model or a Hugging Face folder; or a recipe's name, with
            `tokenizer`.
        data: the files of the task, as `open_task` opens them. `data.with_unlabeled(examples)` adds
            further examples for the teacher to answer.
        out: the run folder.
        config: by default the hyper-parameters that `recipes.finetuning.choose_default_preset`
            finds for the encoder and the task. What is None in a config is chosen. A function gets
            the default and returns what is wanted: `lambda config: replace(config, epochs=3)`.
        teacher: a model of the same task, or several, whose (mean) answers are learned as
            `config.distill` says; for pairs a model of sentence vectors. Also `baseline`.
        overwrite: delete the run in `out`, if there is one, and start again.
        device: auto, cpu, cuda, cuda:N, or mps on a Mac.

    Returns:
        The run, or with several seeds the run of the first.

    Raises:
        ConfigError: a setting, or unlabeled examples, that the task or the model cannot use.
        DataError: a file of the task cannot be used.
        ModelError: the model or the teacher cannot be opened, or the teacher does not fit the task.
        RunError: the folder is in use, or holds another run.
        NonFiniteError: a loss or gradient was not finite; no step was taken from it.
    """
    options: dict[str, Any] = {"tokenizer": tokenizer, "teacher": teacher}
    options |= {"overwrite": overwrite, "device": device}
    return finetune_seeds(model, data, out, config, **options)[0]


def finetune_seeds(
    model: str | Path,
    data: TaskFiles[Any],
    out: str | Path,
    config: FinetuneConfig | Change | None = None,
    *,
    tokenizer: str | Path | None = None,
    teacher: str | Path | Sequence[str | Path] | None = None,
    overwrite: bool = False,
    device: str = "auto",
) -> list[Finetuned]:
    """Fine-tune in `out`, or with several `config.seeds` in out/seed-0, out/seed-1, ..., with a
    summary in out/seeds.json; arguments and errors as of `finetune`.

    After a signal there are fewer runs than seeds, or the last is not finished.
    """
    out, sources = Path(out), list_sources(teacher)
    # Processes that are started again after a failure continue what they began.
    overwrite = overwrite and not launch.restarts()
    files = data.with_task(data.task.with_teacher()) if sources else data
    task, remarks = files.task, list(files.remarks)
    # How many seeds there are does not depend on the model, which gives the default.
    asked = config(FinetuneConfig()) if callable(config) else config or FinetuneConfig()
    seeds = asked.seeds
    with join_group() as ranks:
        folders = [replace(folder, ranks=ranks) for folder in list_folders(out, seeds)]

        def check_folders() -> None:
            if seeds > 1 and (out / IDENTITY).exists():
                raise RunError(
                    f"{out} holds a run of one seed; give another --out for {seeds} seeds"
                )
            if (out / "recipe.json").exists() and not (out / IDENTITY).exists():
                raise RunError(f"{out} holds a pretraining run; give --out a new or empty folder")
            for folder in folders:
                folder.check()
                if overwrite:
                    folder.list_removable()
                    for source in (model, *sources):
                        folder.protect(source)

        ranks.decide(check_folders)
        require_trackers(asked.tracker)
        if asked.mislabeled:
            require_mislabeled(task)
        if files.unlabeled is not None and not sources:
            raise ConfigError(
                "--unlabeled adds texts that only a teacher answers; name one with --teacher, "
                "or leave it out"
            )
        if not task.dev:
            raise DataError(
                f"the {task.name} task has no dev part, which chooses the best weights; give a dev "
                "file"
            )
        with metrics.collect_remarks(remarks):
            # The model is opened in the version that a run in the folder began with, and the run
            # keeps what it chose then.
            if not overwrite:
                hub.pin_to_record(out / IDENTITY)
            start = ranks.do(lambda: load_initial(model, tokenizer, task))
            identities = ranks.decide(
                lambda: (
                    [] if overwrite else [i for folder in folders for i in folder.read_identities()]
                )
            )
            with progress.task("reading the task"):
                resolved = resolve(config, start, files, identities[0] if identities else None)
                config, words = resolved.config, start.tokenizer
                length = config.length
                assert length is not None

                teachers = None
                if sources:
                    teachers = open_teachers(sources, task, words, length)
                    if teachers.reads_apart:  # so does who learns from it
                        if not task.pair:
                            raise ConfigError(
                                "the teacher compares two texts, and an example is one text; name "
                                "the second with --pair-column, or another --teacher"
                            )
                        task = replace(task, apart=True)
                        files = files.with_task(task)
                    distill = config.distill
                    if width := teachers.vector_width:
                        distill = replace(distill, width=width)
                    if distill.compared:
                        layered = teachers.require_network()
                        layered.require_layers(words, length)
                        shape = layered.loaded.config.encoder
                        distill = match_layers(distill, start.encoder, shape, layered.source)
                    config = replace(config, distill=distill)

                notes: list[str] = []
                unlabeled = None
                if files.unlabeled is not None:
                    if task.output.head != "sequence" and not isinstance(task.output, Similarity):
                        raise ConfigError(
                            "--unlabeled adds texts to tasks that answer with a class, labels, a "
                            f"number or a vector; this one answers with '{task.output.name}', so "
                            "leave it out"
                        )
                    if not (examples := list(files.unlabeled)):
                        raise ConfigError(
                            "--unlabeled names files without a single text; name others, or leave "
                            "it out"
                        )
                    with progress.task("tokenizing the unlabeled texts"):
                        items = task.encode(examples, words, length, Notes())
                    items = [Item(item.example, item.rows, None) for item in items]
                    unlabeled = EncodedPart("unlabeled", examples, items)
                train, *others = (
                    _encode_part(files, name, words, length, notes)
                    for name in ("train", *task.dev, *task.tests)
                )
                coverage = Coverage(words)
                for part in (train, *others):
                    coverage.add(row.ids for item in part.items for row in item.rows)
                coverage.warn()
                for part in others:
                    if (shared := count_shared(part, train)) > SHARED * len(part.items):
                        log.warning(
                            f"{shared:,} of {len(part.items):,} rows of {part.name} are training "
                            "rows too, so its scores say little about new rows; give other files, "
                            "or take these rows out of one part"
                        )
                balance = describe_balance(task.output, [item.target for item in train.items])
                for note in (*start.notes, *filter(None, [balance])):
                    notes.append(note)
                    log.info(note)
                rows = len(train.items) + (0 if unlabeled is None else len(unlabeled.items))
                config, amounts, tries = resolve_amount(config, start, task, rows)
                for choice in (*resolved.choices, *amounts):
                    log.info(choice)
        setup = Setup(
            source=str(model),
            task=task,
            file_names=files.file_names,
            start=start,
            config=config,
            train=train,
            dev=tuple(others[: len(task.dev)]),
            tests=tuple(others[len(task.dev) :]),
            unlabeled=unlabeled,
            teachers=None if teachers is None else teachers.with_examples(train.examples),
            baseline=RunBaseline(config, task, train, others) if config.baseline else None,
            chosen=(*resolved.recorded, *resolved.choices, *amounts),
            tries_rates=tries,
        )
        # Before hours of short runs and training, which a person may spare if the baseline will do.
        if (baseline := setup.baseline) is not None:
            kept = () if overwrite else [folder.path for folder in folders]
            ranks.decide(lambda: baseline.announce(kept))
        setup = choose_start(setup, folders, device, overwrite)
        remarks += [*notes, *setup.chosen]
        if setup.steps < FEW_STEPS and not setup.config.steps:
            epochs, batch = setup.config.epochs or 0, setup.batch
            remedies = f"--batch-size {max(1, min(8, batch // 2))} or --epochs {3 * epochs:g}"
            if not setup.fitted:  # else a larger rate would spoil the head
                rate = 3 * setup.config.train.optimizer.peak
                remedies = f"{remedies.replace(' or', ',')} or --lr {rate:.1g}"
            log.warning(
                f"{epochs:g} passes over {rows:,} rows in batches of {batch} are only "
                f"{setup.steps} steps, which may be too few to learn; try {remedies}"
            )

        runs: list[Finetuned] = []
        for number, folder in enumerate(folders):
            if seeds > 1:
                log.info(f"seed {number + 1} of {seeds}")
            seed = setup.config.train.seed + number
            seeded = replace(setup.config, train=replace(setup.config.train, seed=seed))
            run = _run_seed(replace(setup, config=seeded), folder, overwrite, device, list(remarks))
            runs.append(run)
            outcome = run.outcome
            if not outcome.finished or (outcome.signal is not None and len(runs) < seeds):
                return runs
        scores = [run.scores for run in runs]
        if seeds > 1 and ranks.main:
            summary = {"scores": scores, "summary": summarize(scores)}
            write_json(out / "seeds.json", build_scores_fields(summary, runs[0].baseline))
        metric, full = name_metric(task), 100.0 if task.percent else 1.0
        values = [score.get(metric, math.nan) for score in scores]
        fits = task.output.linear
        if advice := advise(metric, values, runs[0].baseline, runs[0].dev_rows, full, fits):
            log.warning(advice)
        return runs


def list_folders(out: Path, seeds: int) -> list[RunFolder]:
    """List the folders of the runs of so many seeds."""
    paths = [out] if seeds == 1 else [out / f"seed-{number}" for number in range(seeds)]
    return [
        RunFolder(path, IDENTITY, leftovers=(FITTED, KEPT), contents=CONTENTS) for path in paths
    ]


def _encode_part(
    files: TaskFiles[Any], name: str, tokenizer: Tokenizer, length: int, notes: list[str]
) -> EncodedPart:
    task, names, part_notes = files.task, files.file_names.get(name, []), Notes()
    label = name
    if names:
        label = f"{name} ({', '.join(names) if len(names) < 4 else f'{len(names)} files'})"
    with progress.task(f"reading and tokenizing {label}"):
        examples = files.read(name, part_notes)
        items = task.encode(examples, tokenizer, length, part_notes)
    for note in part_notes.notes():
        notes.append(f"{label}: {note}")
        log.info(notes[-1])
    if name == "train" and not learns_map(task.output):  # else texts without a target teach too
        items = [item for item in items if item.target is not None]
    if not items:
        raise DataError(
            f"the {name} part of the {task.name} task has no examples; give a file that has some"
        )
    return EncodedPart(name, examples, items)


# ---------------------------------------------------------------------------------------- one seed


def _run_seed(
    setup: Setup, folder: RunFolder, overwrite: bool, device: str, remarks: list[str]
) -> Finetuned:
    with metrics.collect_remarks(remarks), folder.lock():
        machine = devices.choose(setup.config.train.precision, folder.ranks.device(device))
        result = _train_seed(setup, folder, overwrite, machine, remarks)
        if result.collapsed and setup.config.restart and not result.restarted:
            # The same command will find the collapsed run and restart it.
            if result.outcome.signal is not None:
                outcome = replace(result.outcome, finished=False)
                return replace(result, outcome=outcome, scores={})
            folder.set_aside()
            # Overwriting would delete what was set aside.
            result = _train_seed(setup, folder, False, machine, remarks)
        if not result.collapsed:
            return result
        # It names no path: it goes to metrics.jsonl, which is equal to the byte for equal runs in
        # two folders.
        remedy = (
            "start from a pretrained model" if setup.start.state is None else "try a lower --lr"
        )
        log.warning(
            f"the model gives one and the same answer for all examples of {setup.dev[0].name}: it "
            f"scores no better than chance; train for more --epochs, or {remedy}"
        )
        if folder.ranks.main:
            with closing(metrics.MetricsLog(folder.path, result.outcome.step)) as rows:
                rows.note(result.outcome.step, remarks)
    return result


def _train_seed(
    setup: Setup, folder: RunFolder, overwrite: bool, machine: devices.Device, remarks: list[str]
) -> Finetuned:
    """Train and score one seed in a locked folder, or find it finished; `remarks` are collected."""
    ranks, path, config = folder.ranks, folder.path, setup.config
    scores_file = path / "scores.json"  # the last to be written
    is_restarted = ranks.decide(lambda: folder.has_predecessor) and not overwrite

    # Sizes: they must be numbers, and fit in memory.
    if 1 <= (warmup := config.train.schedule.warmup) >= setup.steps:
        raise ConfigError(
            f"train.schedule.warmup is {warmup:g} steps of a run of {setup.steps}; give a "
            "share of the run, such as 0.1"
        )
    output, items = setup.fit_targets(setup.train.items)
    items += setup.rows[len(items) :]
    most_rows = max(len(item.rows) for item in items)  # a choice among four texts has four
    if (compared := setup.compared_teacher) is not None:  # before the free memory is measured
        compared.layers.to(machine.device)
    if config.train.micro_batch == "auto":
        before = ranks.decide(lambda: [] if overwrite else folder.read_identities())
        if before:  # first that of a run that was set aside, which the restarted run follows
            micro_batch = before[0].get("config", {}).get("train", {}).get("micro_batch", 1)
        else:
            planned, shape = setup.as_pretraining(), setup.computing_teacher
            micro_batch = ranks.agree(fit_micro_batch(planned, machine, most_rows, shape, ranks))
        config = replace(config, train=replace(config.train, micro_batch=micro_batch))
        setup = replace(setup, config=config)
    require_memory(setup.as_pretraining(), machine, most_rows, ranks, setup.computing_teacher)

    # The network is built before the folder is claimed, so that a request which cannot be served
    # leaves no run.
    model = build_task_model(setup.start, setup.task, config, setup.fitted).to(machine.device)
    if overwrite:
        folder.clear()
    # For a new run only: one that is in the folder already keeps its fitted head, or has none.
    if ranks.main and not folder.identity_file.exists():
        # Of a run that was killed before it had an identity.
        (path / FITTED).unlink(missing_ok=True)
        if setup.fitted:
            with write_whole(path / FITTED) as aside:
                write_tensors(aside, setup.fitted)
    ranks.decide(lambda: claim_folder(folder, setup, items))

    # The folder may hold a finished run, with texts, and with exits that were calibrated for
    # another drop.
    if not config.examples and ranks.main:
        (path / "model" / EXAMPLES).unlink(missing_ok=True)
        forget_texts(path)
        (path / MISLABELED).unlink(missing_ok=True)  # written anew below, without texts
    if most := config.mislabeled:
        examples = setup.train.examples
        ranks.decide(lambda: keep_mislabeled(path, setup.task, examples, most, config.examples))
    if config.early_exits:
        ranks.decide(lambda: require_calibrated(path, config.early_exits_max_drop))
    is_scored = ranks.decide(scores_file.exists)
    if is_scored and not ranks.decide((path / "checkpoints").exists):
        # Cleaned of its checkpoints, it can be neither trained nor scored again.
        outcome = Outcome(setup.steps, True, None, {}, 0, 0.0)
        scores = ranks.decide(lambda: read_scores(scores_file))
        return Finetuned(path, setup.steps, outcome, scores, restarted=is_restarted)
    if (baseline := setup.baseline) is not None and not is_scored:
        ranks.decide(lambda: baseline.keep(path))

    if setup.teachers is not None:
        items = attach_answers(setup, items, path, machine, ranks)
        is_new = ranks.decide(lambda: checkpoint.find_newest(path / "checkpoints") is None)
        if is_new and learns_map(output) and setup.start.state is None:
            start_table(model, items)

    # Training: the loop continues from the newest checkpoint, and keeps the best weights.
    if is_restarted:
        rates = config.train.optimizer
        rate, muon_rate = rates.peak / 3, rates.muon_learning_rate / 3
        rates = replace(rates, learning_rate=rate, muon_learning_rate=muon_rate)
        setup = replace(setup, config=replace(config, train=replace(config.train, optimizer=rates)))
        # Logged here and not where the run is set aside, so that a command that was killed in
        # between reports it too.
        log.warning(
            f"the model gave one and the same answer for all examples of {setup.dev[0].name}; "
            f"this run restarts with a learning rate of {rate:.1e} (the first try is in {ASIDE}/)"
        )
    trainable, loop = make_loop(setup, model, output, items, path, machine, ranks, remarks)
    at_once = config.train.at_once or setup.batch
    with explain_out_of_memory(machine, at_once, config.train.recompute):
        outcome = loop.run()
    if not outcome.finished:
        return Finetuned(path, setup.steps, outcome, {})

    # Results: the best weights answer every part, in float32, as `predict` and other programs
    # compute. Logits of the development parts may be there already, if training was in float32 too.
    if not ranks.decide(scores_file.exists):
        weights = read_tensors(trainable.best) if ranks.main else None
        load_state(trainable.module, weights, ranks)
        logits = trainable.best_logits if machine.autocast is None else {}
        trainable.device = replace(machine, autocast=None)
        for part in (*setup.dev, *setup.tests):
            if part.name not in logits:
                logits = logits | {part.name: trainable.logits(part)}
        # Of several endings, such as maps of vectors, the one with the highest score is taken.
        endings = trainable.task.closing(items, trainable.logits_of_items, config.train.seed)
        ending = next(iter(endings))
        if len(endings) > 1:
            first, metric = setup.dev[0], name_metric(setup.task)
            by_part = {first.name: logits[first.name]}
            closings = {
                name: score_parts(task, (first,), by_part)[metric] for name, task in endings.items()
            }
            ending = max(closings, key=lambda name: closings[name])
            shown = ", ".join(f"{name} {score:.4g}" for name, score in closings.items())
            log.info(f"the vectors use the map {ending} ({metric} on {first.name}: {shown})")
        closed = replace(setup, task=endings[ending])
        exit_logits = trainable.logits(setup.dev[0], every=True) if config.early_exits else None
        if ranks.main:
            write_results(folder, closed, trainable, logits, exit_logits, is_restarted)
    collapsed = trainable.diagnostic_state["one_answer"]
    scores = ranks.decide(lambda: read_scores(scores_file))
    return Finetuned(path, setup.steps, outcome, scores, collapsed, is_restarted)
