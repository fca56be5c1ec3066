"""What a fine-tuning run writes beside its checkpoints: at the start its identity, finetune.json,
by which the same request finds its run again; at the end the scores, predictions and model.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from litebert import hub
from litebert.base.errors import RunError
from litebert.base.json_reader import read_json
from litebert.base.storage import write_json
from litebert.config import Config, SequenceConfig
from litebert.config.serialization import to_dict
from litebert.finetuning.initial import InitialModel
from litebert.finetuning.setup import Setup
from litebert.finetuning.trainable import TrainableTaskModel
from litebert.interop import LoadedModel, save_litebert
from litebert.interop.cards import make_finetuned_card
from litebert.judge.baselines import (
    FIELD,
    BaselineScores,
    build_scores_fields,
    read_baseline,
)
from litebert.judge.calibration import (
    calibrate_part,
    scale_logits,
    trace_part,
)
from litebert.judge.exits import calibrate
from litebert.judge.reliability import write_reliability
from litebert.judge.seeds import describe_standing
from litebert.judge.words import explain_by_occlusion, format_weights
from litebert.tasks.scoring import name_metric, score_parts
from litebert.tasks.task import choose_examples, write_examples
from litebert.tasks.text_outputs import Number
from litebert.tasks.values import Item, Logits
from litebert.train.loop import Outcome
from litebert.train.run_folder import RunFolder
from litebert.train.teacher import build_record, refuse_other_teacher

log = logging.getLogger("litebert")

IDENTITY = "finetune.json"
_PLANNED = ("seeds", "baseline", "mislabeled", "tracker")
"""Fields of the config that say nothing of the run of one seed."""
_FREE = (
    "format",
    "model",
    "model_revision",
    "teacher",
    "teacher_revision",
    "teacher_fingerprint",
    "steps",
    "chosen",
    "tokenizer_fingerprint",
    "test_fingerprint",
    "dev_rows",
    "config.choose",  # of earlier versions
    "config.early_exits_max_drop",
    "config.examples",
    "config.train.save_every",
    "config.train.keep_checkpoints",
    "config.train.parallel",  # of earlier versions
    "config.train.recompute",
)
"""Fields of finetune.json that may change between calls: they change no weight, follow from the
rest, or are compared apart."""
_HELD_OUT = ("data_fingerprint", "dev_fingerprint")
"""Fields that depend on which training rows are held out for dev."""
_EARLIER = "or an earlier litebert made it, which held out other rows"


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
    def dev_rows(self) -> int:
        return int(read_json(self.folder / "finetune.json", RunError).get("dev_rows", 0))

    @property
    def exits(self) -> dict[str, Any]:
        """The content of exits.json (`finetuning.exits.Exits`); empty without early exits."""
        file = self.folder / "exits.json"
        return read_json(file, RunError) if file.is_file() else {}


def claim_folder(folder: RunFolder, setup: Setup, items: Sequence[Item]) -> None:
    """Start a run in a folder, or check that the folder holds this very run, of these training
    rows.
    """
    run = _build_identity(setup, items)
    for before in folder.read_identities():
        refuse_other_teacher(folder.path, before, run["teacher"], run["teacher_fingerprint"])
        cause = () if "dev" in setup.file_names else _HELD_OUT
        folder.refuse_other({**before, "files": run["files"]}, run, _FREE, (cause, _EARLIER))
        if before.get("test_fingerprint") != run["test_fingerprint"]:
            raise RunError(
                f"{folder.path} holds a run with another test part; give its own, or answer this "
                "one with litebert predict"
            )
    if not folder.identity_file.exists():
        folder.claim(run)


def _build_identity(setup: Setup, items: Sequence[Item]) -> dict[str, Any]:
    task, start = setup.task, setup.start
    dev = [item for part in setup.dev for item in part.items]
    tests = [item for part in setup.tests for item in part.items]
    teachers = setup.teachers
    return {
        "format": 1,
        "task": task.full_name,
        "metric": name_metric(task),
        "model": setup.source,
        **hub.record_revision(setup.source, "model"),
        "files": setup.file_names,  # by part, their names; for people and tables, never compared
        "steps": setup.steps,
        "chosen": list(setup.chosen),  # for people, never compared
        "dev_rows": len(setup.dev[0].examples),
        "config": {k: v for k, v in to_dict(setup.config).items() if k not in _PLANNED},
        **task.identity(),
        **(build_record(None, None) if teachers is None else teachers.build_record()),
        "model_fingerprint": _compute_digest(_read_weights(start)),
        "tokenizer_fingerprint": start.tokenizer.fingerprint,
        "data_fingerprint": _compute_digest(_read_tokens([*items, *dev], task.output.labels)),
        "test_fingerprint": _compute_digest(_read_tokens(tests, ())),
        # Of examples as their files have them: the same for every tokenizer.
        "dev_fingerprint": _compute_digest(
            repr(example).encode("utf-8", "backslashreplace")
            for part in setup.dev
            for example in part.examples
        ),
    }


def _compute_digest(pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _read_weights(start: InitialModel) -> Iterator[bytes]:
    yield json.dumps(to_dict(start.encoder)).encode()
    if start.pooling != "cls":
        yield start.pooling.encode()
    for name, tensor in (*(start.state or {}).items(), *start.head.items()):
        yield name.encode() + tensor.contiguous().numpy().tobytes()


def _read_tokens(items: Sequence[Item], labels: Sequence[str]) -> Iterator[bytes]:
    yield json.dumps(labels).encode()
    for item in items:
        for row in item.rows:
            yield row.ids.tobytes() + row.types.tobytes()
        yield (
            item.target.tobytes()
            if isinstance(item.target, np.ndarray)
            else repr(item.target).encode()
        )
        if item.weight != 1:
            yield repr(item.weight).encode()


def write_results(
    run: RunFolder,
    setup: Setup,
    trainable: TrainableTaskModel,
    logits: Mapping[str, Logits],
    exit_logits: Logits | None,
    is_restarted: bool,
) -> None:
    """Write predictions, exits, the model and last the scores, in the main process.

    `logits` are those of the best weights by part; `exit_logits` those after each layer for the
    first development part, if exits are calibrated.
    """
    task, config, parts, folder = setup.task, setup.config, (*setup.dev, *setup.tests), run.path
    first, targets = parts[0], [item.target for item in parts[0].items]
    scores = score_parts(task, parts, logits)
    # Logits are divided by a temperature, so that probabilities mean what they say.
    calibration = calibrate_part(task.output, logits[first.name], targets)
    temperature = calibration.temperature if calibration and config.calibrate else 1.0
    logits = {name: scale_logits(values, temperature) for name, values in logits.items()}
    (folder / "predictions").mkdir(exist_ok=True)
    answers = [task.answers(part.examples, part.items, logits[part.name]) for part in parts]
    tuned = task.tune(first.examples, answers[0])
    for part, part_answers in zip(parts, answers, strict=True):
        file = folder / "predictions" / tuned.file_name(part.name)
        tuned.write(part.examples, part_answers, file)
    exits = None
    if exit_logits is not None:
        drop = config.early_exits_max_drop
        exit_logits = scale_logits(exit_logits, temperature)
        exits = calibrate(task, trainable.output, first, exit_logits, drop)
        write_json(folder / "exits.json", asdict(exits))
    # What is outside the network so far goes into its last map: every engine and every program that
    # reads the model computes the same answers.
    model, output = trainable.module, trainable.output
    if isinstance(output, Number):
        output = output.settle(model.head)
    if temperature != 1:
        model.head.classifier.weight.data.div_(temperature)
        model.head.classifier.bias.data.div_(temperature)
    model.state_map = None
    baseline = None if setup.baseline is None else setup.baseline.keep(folder)
    fields = build_scores_fields(scores, baseline)
    precision = trace_part(task.output, logits[first.name], targets)
    about = {
        "task": tuned.name,
        "kind": tuned.output.head,
        "problem": tuned.output.name,
        "length": setup.length,
        **tuned.settings(),
    }
    if isinstance(output, Number) and output.is_far:
        about["offset"] = output.mean
    # An empty list says that too few development rows have answers, and no field that none count.
    if task.output.calibrates:
        about["precision"] = [asdict(point) for point in precision]
    if exits is not None:
        about["exits"] = exits.record()
    # A config names an objective, though a fine-tuned model has none.
    sequences = SequenceConfig(length=setup.length)
    whole = Config(
        name=tuned.name, encoder=model.encoder.config, sequences=sequences, objectives=("mlm",)
    )
    sizes = {
        part.name: (
            len(part.examples),
            sum(len(row.ids) for item in part.items for row in item.rows),
        )
        for part in (setup.train, *parts)
    }
    metric, full = name_metric(task), 100.0 if task.percent else 1.0
    beside = None if baseline is None else baseline.scores.get(metric)
    standing = describe_standing(scores[metric], beside, sizes[first.name][0], full)
    identity, dev = run.read_identities()[-1], [part.name for part in setup.dev]
    head, measured = task.output.head, fields.get(FIELD)
    card = make_finetuned_card(head, identity, sizes, scores, dev, is_restarted, measured, standing)

    def write_beside(partial: Path) -> None:
        tuned.write_beside(partial)
        if config.examples:
            write_examples(partial, choose_examples(tuned, first))

    words, path = setup.start.tokenizer, folder / "model"
    loaded = LoadedModel(model, whole, words, path, tuned.output.labels, task=about, card=card)
    shutil.rmtree(path, ignore_errors=True)
    save_litebert(loaded, path, beside=write_beside)

    def explain(example: Any) -> str:
        weights = explain_by_occlusion(
            task, words, setup.length, example, trainable.logits_of_items
        )
        return format_weights(weights)

    if calibration is not None:
        # In a group of processes, only the main one is here, and logits are computed by all.
        explains = explain if trainable.ranks.size == 1 else None
        write_reliability(folder, task, first, answers[0], calibration, precision, config, explains)
    write_json(folder / "scores.json", fields)


def require_calibrated(folder: Path, drop: float) -> None:
    """See to it that a finished run whose exits were calibrated with another drop ends once
    more."""
    ended = (folder / "scores.json", folder / "exits.json")
    if (
        not all(file.exists() for file in ended)
        or (was := read_json(ended[1], RunError).get("drop")) == drop
    ):
        return
    if (folder / "checkpoints").exists() and (folder / "best.safetensors").exists():
        log.info(
            f"calibrating the exits again, with early_exits_max_drop {drop:g} instead of {was}"
        )
        ended[0].unlink()
    else:
        log.warning(
            f"{folder} has no checkpoints any more, so its exits stay as calibrated with "
            f"early_exits_max_drop {was}"
        )
