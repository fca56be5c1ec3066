"""The results of a fine-tuning run: the scores, the predictions and the model that it leaves."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from litebert.config import Config, SequenceConfig
from litebert.errors import RunError
from litebert.finetuning.baselines import BaselineScores, read_baseline
from litebert.finetuning.baselines.scores import FIELD, build_scores_fields
from litebert.finetuning.calibration import (
    calibrate_part,
    fold_temperature,
    record_points,
    scale_logits,
    trace_part,
)
from litebert.finetuning.examples import choose_examples, write_examples
from litebert.finetuning.exits import Exits, calibrate
from litebert.finetuning.prepared import PreparedTask
from litebert.finetuning.reliability import write_reliability
from litebert.finetuning.scoring import Logits, name_metric, score_parts
from litebert.finetuning.seeds import describe_standing
from litebert.finetuning.trainable import TrainableTaskModel
from litebert.finetuning.words import explain_by_occlusion, format_weights
from litebert.interop import LoadedModel, save_litebert
from litebert.interop.cards import make_finetuned_card
from litebert.json_reader import read_json
from litebert.model.task_model import TaskModel
from litebert.storage import write_json
from litebert.train.loop import Outcome
from litebert.train.run_folder import RunFolder

log = logging.getLogger("litebert")


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
        """Rows of the first development part; 0 where the run does not say."""
        return int(read_json(self.folder / "finetune.json", RunError).get("dev_rows", 0))

    @property
    def exits(self) -> dict[str, Any]:
        """The content of exits.json of a finished run with early exits (`finetuning.exits.Exits`);
        empty for others.
        """
        file = self.folder / "exits.json"
        return read_json(file, RunError) if file.is_file() else {}


def write_results(
    run: RunFolder,
    prepared: PreparedTask,
    trainable: TrainableTaskModel,
    logits: Mapping[str, Logits],
    exit_logits: Logits | None,
    is_restarted: bool,
) -> None:
    """Write predictions, exits, the model and last the scores, in the main process.

    Args:
        prepared: its task answers as the trained model does (`Task.closing`).
        logits: those of the best weights, by part.
        exit_logits: those after each layer for the first development part, if exits are calibrated.
    """
    task, parts, folder = prepared.task, (*prepared.dev, *prepared.tests), run.path
    scores = score_parts(task, parts, logits)
    targets = [item.target for item in parts[0].items]
    calibration = calibrate_part(task.output, logits[parts[0].name], targets)
    temperature = 1.0
    if calibration is not None and prepared.config.calibrate:
        temperature = calibration.temperature
    logits = {name: scale_logits(values, temperature) for name, values in logits.items()}
    (folder / "predictions").mkdir(exist_ok=True)
    answers = [task.answers(part.examples, part.items, logits[part.name]) for part in parts]
    tuned = task.tune(parts[0].examples, answers[0])
    for part, part_answers in zip(parts, answers, strict=True):
        file = folder / "predictions" / tuned.file_name(part.name)
        tuned.write(part.examples, part_answers, file)
    exits = None
    if exit_logits is not None:
        drop = prepared.config.early_exits_max_drop
        exit_logits = scale_logits(exit_logits, temperature)
        exits = calibrate(task, trainable.output, parts[0], exit_logits, drop)
        write_json(folder / "exits.json", asdict(exits))
    model = trainable.module
    trainable.output.settle(model.head)
    fold_temperature(model.head, temperature)
    model.state_map = None
    baseline = None if prepared.baseline is None else prepared.baseline.keep(folder)
    fields = build_scores_fields(scores, baseline)
    card = _build_card(prepared, run.read_identities()[-1], fields, is_restarted)
    precision = trace_part(task.output, logits[parts[0].name], targets)
    # An empty list says that too few development rows have answers, and no field that none count.
    calibrated = {"precision": record_points(precision)} if task.output.calibrates else {}
    _write_model(folder / "model", model, replace(prepared, task=tuned), card, exits, calibrated)
    if calibration is not None:
        first, config = parts[0], prepared.config
        # In a group of processes, only the main one is here, and logits are computed by all.
        explain = _make_explainer(prepared, trainable) if trainable.ranks.size == 1 else None
        write_reliability(folder, task, first, answers[0], calibration, precision, config, explain)
    write_json(folder / "scores.json", fields)


def _make_explainer(prepared: PreparedTask, trainable: TrainableTaskModel) -> Callable[[Any], str]:
    """Make the function that names the words that decided the answer to an example."""

    def explain(example: Any) -> str:
        words = explain_by_occlusion(
            prepared.task,
            prepared.start.tokenizer,
            prepared.config.length,
            example,
            trainable.logits_of_items,
        )
        return format_weights(words)

    return explain


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


def _build_card(
    prepared: PreparedTask, identity: Mapping[str, Any], scored: Mapping[str, Any], restarted: bool
) -> str:
    """Build the card of a finished run; `scored` is what scores.json holds."""
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
    metric = name_metric(prepared.task)
    score, beside = scores[metric], scored.get(FIELD, {}).get("scores", {}).get(metric)
    return make_finetuned_card(
        *(prepared.task.output.head, identity, sizes, scores, dev, restarted, scored.get(FIELD)),
        describe_standing(score, beside, sizes[dev[0]][0], 100.0 if prepared.task.percent else 1.0),
    )


def _write_model(
    folder: Path,
    model: TaskModel,
    prepared: PreparedTask,
    card: str,
    exits: Exits | None,
    calibrated: Mapping[str, Any],
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
        **calibrated,
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
