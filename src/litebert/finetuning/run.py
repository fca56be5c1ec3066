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
                      with a teacher: its logits for every training row, or the mean of several; or
                      its vectors, which are in teacher-vectors/ until all are known
    head.safetensors  with `fit_head`: the classifier that was fitted before training
    exits.json        with `exits`: when a row leaves early, and what other rules would save and
                      cost
    reliability.json  calibration and precision of the answers to the first development part
    mislabeled.csv    with `mislabeled`: training rows whose label is likely wrong
    baseline.json     the scores of a model that counts words and characters, on the same rows
    scores.json       the scores of model/, and of the baseline
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from litebert import hub, launch
from litebert.config import replace
from litebert.config.finetuning import FinetuneConfig
from litebert.errors import ConfigError, RunError
from litebert.finetuning.baselines import RunBaseline, advise
from litebert.finetuning.baselines.scores import BASELINE, build_scores_fields
from litebert.finetuning.defaults import take_recorded_choices
from litebert.finetuning.initial import InitialModel, load_initial
from litebert.finetuning.mislabeled import MISLABELED, require_mislabeled
from litebert.finetuning.phases import FinetuningRun
from litebert.finetuning.prepared import FinetuneRequest, OnStep, PreparedTask, prepare_task
from litebert.finetuning.reliability import RELIABILITY
from litebert.finetuning.results import Finetuned
from litebert.finetuning.scoring import name_metric
from litebert.finetuning.seeds import summarize
from litebert.finetuning.start import FITTED, choose_start
from litebert.finetuning.task import TaskFiles
from litebert.finetuning.teachers import KEPT, list_sources
from litebert.finetuning.vector_teacher import FOLDER
from litebert.recipes.finetuning import choose_default_preset
from litebert.storage import write_json
from litebert.train import device as devices
from litebert.train import metrics
from litebert.train.ranks import Ranks, join_group
from litebert.train.run_folder import RunFolder
from litebert.train.trackers import TRACKED, require_trackers

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


def finetune(
    model: str | Path,
    files: TaskFiles[Any],
    out: str | Path,
    config: FinetuneConfig | None = None,
    *,
    tokenizer: str | Path | None = None,
    teacher: str | Path | Sequence[str | Path] | None = None,
    unlabeled: Sequence[Any] | None = None,
    overwrite: bool = False,
    device: str = "auto",
    on_step: OnStep | None = None,
    baseline: bool = True,
    mislabeled: int = 0,
    trackers: Sequence[str] = (),
) -> Finetuned:
    """Fine-tune a model on a task. Called again, it continues, or returns the finished run.

    Args:
        model: a run, a litebert model or a Hugging Face folder; or a recipe's name, with
            `tokenizer`.
        files: the files of the task, as `open_task` opens them.
        out: the run folder.
        config: by default the recipe that `recipes.finetuning.choose_default_preset` finds for
            the encoder and the task.
        teacher: a model of the same task, or several, whose (mean) answers are learned as
            `config.distill` says; for pairs a model of sentence vectors. Also `baseline`.
        unlabeled: further examples for the teacher to answer.
        overwrite: delete the run in `out`, if there is one, and start again.
        device: auto, cpu, cuda, cuda:N, or mps on a Mac.
        on_step: called after every step.
        baseline: also fit the baseline on the same rows; see `Finetuned.baseline`.
        mislabeled: how many training rows whose label is likely wrong to write into mislabeled.csv.
        trackers: tensorboard, wandb, mlflow or trackio, which also get the metrics.

    Raises:
        ConfigError: unlabeled examples that the task cannot use.
        DataError: a file of the task cannot be used.
        ModelError: the model or the teacher cannot be opened, or the teacher does not fit the task.
        RunError: the folder is in use, or holds another run.
        NonFiniteError: a loss or gradient was not finite; no step was taken from it.
    """
    return finetune_seeds(
        *(model, files, out, config),
        tokenizer=tokenizer,
        teacher=teacher,
        unlabeled=unlabeled,
        overwrite=overwrite,
        device=device,
        on_step=on_step,
        baseline=baseline,
        mislabeled=mislabeled,
        trackers=trackers,
    )[0]


def finetune_seeds(
    model: str | Path,
    files: TaskFiles[Any],
    out: str | Path,
    config: FinetuneConfig | None = None,
    *,
    seeds: int = 1,
    tokenizer: str | Path | None = None,
    teacher: str | Path | Sequence[str | Path] | None = None,
    unlabeled: Sequence[Any] | None = None,
    start: InitialModel | None = None,
    overwrite: bool = False,
    device: str = "auto",
    on_step: OnStep | None = None,
    remarks: Sequence[str] = (),
    baseline: bool = True,
    mislabeled: int = 0,
    trackers: Sequence[str] = (),
) -> list[Finetuned]:
    """Fine-tune in `out`, or with several seeds in out/seed-0, out/seed-1, ..., counted on from the
    config's seed.

    A summary goes to out/seeds.json. After a signal there are fewer runs than seeds, or the last is
    not finished.

    Arguments and errors are those of `finetune`, and:

    Args:
        start: the model as `load_initial` returned it, if the caller has opened it already.
        remarks: warnings so far, which become events in the metrics of each run.
    """
    request = FinetuneRequest(
        model=model,
        files=files,
        out=Path(out),
        config=config,
        seeds=seeds,
        tokenizer=tokenizer,
        teachers=list_sources(teacher),
        unlabeled=unlabeled,
        start=start,
        # Processes that are started again after a failure continue what they began.
        overwrite=overwrite and not launch.restarts(),
        device=device,
        on_step=on_step,
        baseline=RunBaseline(config) if baseline else None,
        mislabeled=mislabeled,
        trackers=tuple(trackers),
    )
    with join_group() as ranks:
        return _run_seeds(_with_teacher(request), ranks, remarks)


def run_folder(out: str | Path) -> RunFolder:
    """Return the folder of a fine-tuning run."""
    return RunFolder(Path(out), IDENTITY, leftovers=(FITTED, KEPT), contents=CONTENTS)


def _with_teacher(request: FinetuneRequest) -> FinetuneRequest:
    """Return the request with the task as it is learned from its teachers, if it has some."""
    return replace(request, files=request.files.with_teacher()) if request.teachers else request


def _run_seeds(
    request: FinetuneRequest, ranks: Ranks, remarks: Sequence[str] = ()
) -> list[Finetuned]:
    """Check the folders and open the task, once for all seeds, and run each seed."""
    folders = _check_folders(request, ranks)
    require_trackers(request.trackers)
    if request.mislabeled:
        require_mislabeled(request.files.task, request.mislabeled)
    warnings = list(remarks)
    prepared = _open_task(request, folders, warnings)
    prepared.remark_on_steps()
    runs: list[Finetuned] = []
    for seed, folder in enumerate(folders, prepared.config.train.seed):
        if request.seeds > 1:
            log.info(f"seed {len(runs) + 1} of {request.seeds}")
        runs.append(_run_seed(request, prepared.with_seed(seed), folder, list(warnings)))
        outcome = runs[-1].outcome
        if not outcome.finished or (outcome.signal is not None and len(runs) < request.seeds):
            return runs
    if request.seeds > 1 and ranks.main:
        scores = [run.scores for run in runs]
        summary = {"scores": scores, "summary": summarize(scores)}
        write_json(request.out / "seeds.json", build_scores_fields(summary, runs[0].baseline))
    _advise(request, runs)
    return runs


def _check_folders(request: FinetuneRequest, ranks: Ranks) -> list[RunFolder]:
    """Return the folder of each seed, if these runs can begin or continue there.

    Raises:
        ConfigError: there is no seed.
        RunError: a folder holds something else, or a model that the runs need and would delete.
    """
    if request.seeds < 1:
        raise ConfigError(f"seeds is {request.seeds}; it must be at least 1")
    folders = [replace(run_folder(path), ranks=ranks) for path in request.folders]

    def check() -> None:
        out = request.out
        if len(folders) > 1 and (out / IDENTITY).exists():
            raise RunError(
                f"{out} holds a run of one seed; give another --out for {len(folders)} seeds"
            )
        if (out / "recipe.json").exists() and not (out / IDENTITY).exists():
            raise RunError(f"{out} holds a pretraining run; give --out a new or empty folder")
        for folder in folders:
            folder.check()
            if request.overwrite:
                folder.list_removable()
                folder.protect(request.model)
                for teacher in request.teachers:
                    folder.protect(teacher)

    ranks.decide(check)
    return folders


def _open_task(
    request: FinetuneRequest, folders: Sequence[RunFolder], remarks: list[str]
) -> PreparedTask:
    """Open the model, the task and the teacher, and make the choices that the config leaves open,
    or take them from a run in the folders.

    Args:
        remarks: gets the warnings, and the sentences about these choices.
    """
    ranks, task = folders[0].ranks, request.files.task
    if not request.overwrite:
        hub.pin_to_record(request.out / IDENTITY)
    with metrics.collect_remarks(remarks):
        start = request.start or load_initial(request.model, request.tokenizer, task)
        config = request.config or choose_default_preset(start.encoder, start.dense, task.point)
        identities = ranks.decide(
            lambda: (
                []
                if request.overwrite
                else [identity for folder in folders for identity in folder.read_identities()]
            )
        )
        chosen: list[str] = []
        if identities and config.choose:
            config = take_recorded_choices(config, identities[0].get("config", {}))
            chosen = identities[0].get("chosen", [])
        prepared = prepare_task(request, start, config, chosen)
    # Before hours of short runs and training, which a user may spare if the baseline will do.
    ranks.decide(lambda: prepared.announce_baseline(() if request.overwrite else request.folders))
    prepared = choose_start(prepared, folders, request.device, request.overwrite)
    remarks += [*prepared.notes, *prepared.chosen]
    return prepared


def _run_seed(
    request: FinetuneRequest, prepared: PreparedTask, folder: RunFolder, remarks: list[str]
) -> Finetuned:
    """Run one seed to its end, and once more if it collapsed."""
    with metrics.collect_remarks(remarks), folder.lock():
        precision, device = prepared.config.train.precision, folder.ranks.device(request.device)
        machine = devices.choose(precision, device)
        run = FinetuningRun(request, prepared, folder, machine, remarks)
        result = run.execute(run.settle_sizes())
        if result.collapsed and prepared.config.restart and not result.restarted:
            # The same command will find the collapsed run and restart it.
            if result.outcome.signal is not None:
                outcome = replace(result.outcome, finished=False)
                return replace(result, outcome=outcome, scores={})
            folder.set_aside()
            # Overwriting would delete what was set aside.
            request = replace(request, overwrite=False)
            run = FinetuningRun(request, prepared, folder, machine, remarks)
            result = run.execute(run.settle_sizes())
        if result.collapsed:
            _warn_of_collapse(result, prepared, folder, remarks)
    return result


def _warn_of_collapse(
    result: Finetuned, prepared: PreparedTask, folder: RunFolder, remarks: list[str]
) -> None:
    """Warn of a model that gives one answer to everything, in the log and in the run's metrics."""
    # It names no path: it goes to metrics.jsonl, which is equal to the byte for equal runs in two
    # folders.
    remedy = "start from a pretrained model" if prepared.start.state is None else "try a lower --lr"
    log.warning(
        f"the model gives one and the same answer for all examples of {prepared.dev[0].name}: it "
        f"scores no better than chance; train for more --epochs, or {remedy}"
    )
    if folder.ranks.main:
        with closing(metrics.MetricsLog(folder.path, result.outcome.step)) as rows:
            rows.note(result.outcome.step, remarks)


def _advise(request: FinetuneRequest, runs: Sequence[Finetuned]) -> None:
    """Warn if the runs do not score better than the baseline."""
    metric, full = name_metric(request.files.task), 100.0 if request.files.task.percent else 1.0
    scores = [run.scores.get(metric, math.nan) for run in runs]
    baseline, rows = runs[0].baseline, runs[0].dev_rows
    if sentence := advise(metric, scores, baseline, rows, full, request.model):
        log.warning(sentence)
