"""Held-out scores on fixed masks, so that runs compare whatever they trained with.

Masks are single tokens at 15 %, drawn once from a fixed key; sequences are full length, and for masked words their
segments are in order, whichever sentence task a run trained on. A sentence head answers both sentence tasks: what a
model trained on one knows about the other is a finding of the ALBERT paper (table 5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast

import torch

from litebert.config import MaskingConfig, SequenceConfig
from litebert.data.batches import Batch, Batches
from litebert.data.shards import Shards, Split
from litebert.data.tokenizer import Tokenizer
from litebert.errors import ConfigError, DataError, ModelError
from litebert.interop import load
from litebert.model.objectives import Objective, SentenceOrder
from litebert.model.pretrainer import Pretrainer
from litebert.train.device import Device, choose

SEED = 20191  # any constant: the same masks for every run over the same data
EVALUATION_BATCH = 32
"""Sequences per forward pass."""
MASKING = MaskingConfig(rate=0.15, unit="token", span="single", copies=1)

SentenceTask = Literal["sop", "nsp"]


def evaluate_split(
    model: Pretrainer,
    split: Split,
    tokenizer: Tokenizer,
    device: Device,
    *,
    length: int,
    sequences: int = 512,
    batch: int = EVALUATION_BATCH,
    tasks: Sequence[SentenceTask] | None = None,
) -> dict[str, float]:
    """Score a model on up to `sequences` sequences of a split.

    Args:
        length: tokens per sequence.
        tasks: the sentence tasks to put to the model's sentence head; None is the one it was trained on.

    Returns:
        mlm_loss (nats per masked token), mlm_perplexity, mlm_accuracy, mlm_majority (accuracy of always guessing the
        most frequent masked piece), and per task {sop,nsp}_accuracy, _majority, _standard_error and _loss. A score
        that the split cannot give (no labelled pair) is left out.
    """
    trained = [objective.sentence for _, objective in model.each_objective() if objective.sentence is not None]
    wanted: Sequence[SentenceTask] = (trained if tasks is None else tasks) if trained else ()
    was_training = model.training
    model.eval()
    scores: dict[str, float] = {}

    def parts(task: SentenceTask | None) -> list[Batch]:
        batches = Batches(
            split, tokenizer, SequenceConfig(length=length, short_probability=0.0), MASKING, task, batch, SEED
        )
        rows = min(sequences, batches.examples)
        return [batches(i, slice(0, min(batch, rows - i * batch))) for i in range(math.ceil(rows / batch))]

    try:
        if "mlm" in model.objectives:
            scores.update(_mlm_scores(model, parts(None), device))
        for task in wanted:
            try:
                pairs = parts(task)
            except DataError:  # one document has no other to draw a random segment from
                continue
            scores.update(_sentence_scores(model, pairs, device, task))
    finally:
        model.train(was_training)
    return scores


def evaluate(
    model: str | Path,
    data: str | Path,
    *,
    sequences: int = 2048,
    length: int | None = None,
    device: str = "auto",
) -> dict[str, float]:
    """Held-out scores of a run folder, a litebert model folder or a Hugging Face folder, on both sentence tasks.

    Raises:
        ModelError, DataError: a folder cannot be used, or the data was prepared with another tokenizer.
        ConfigError: a size that cannot be.
    """
    if sequences < 1:
        raise ConfigError(f"sequences is {sequences}; it must be at least 1")
    loaded, shards = load(model), Shards.open(data, verify=True)
    if not isinstance(loaded.model, Pretrainer):
        raise ModelError(f"{model} holds a fine-tuned model; evaluate scores pretraining objectives")
    if set(loaded.untrained) >= set(loaded.model.objectives):
        raise ModelError(f"{model} has no trained objective to score; it holds the encoder alone")
    config = loaded.model.config
    if loaded.tokenizer is not None and loaded.tokenizer.fingerprint != shards.tokenizer.fingerprint:
        raise DataError(f"{data} was prepared with another tokenizer than {model}'s; prepare it with that one")
    if config.encoder.vocab_size != shards.tokenizer.vocab_size:
        raise DataError(
            f"{model} has {config.encoder.vocab_size} pieces and the tokenizer of {data} has "
            f"{shards.tokenizer.vocab_size}; prepare the data with the model's tokenizer"
        )
    machine = choose(config.train.precision, device)
    loaded.model.to(machine.device)
    scores = evaluate_split(
        loaded.model,
        shards.heldout,
        shards.tokenizer,
        machine,
        length=length or config.sequences.length,
        sequences=sequences,
        tasks=("sop", "nsp"),
    )
    # One sentence head answers both tasks, so where it is untrained neither score means anything.
    untrained = {"mlm": ("mlm_",), "sop": ("sop_", "nsp_"), "nsp": ("sop_", "nsp_")}
    left_out = tuple(prefix for name in loaded.untrained for prefix in untrained[name])
    return {name: score for name, score in scores.items() if not name.startswith(left_out)}


def _mlm_scores(model: Pretrainer, parts: Sequence[Batch], device: Device) -> dict[str, float]:
    total, count, correct = _sum_losses(model, parts, device, cast(Objective, model.objectives["mlm"]))
    frequencies = torch.bincount(torch.cat([part.masked_labels for part in parts]))
    loss = total / count
    return {
        "mlm_loss": loss,
        "mlm_perplexity": math.exp(min(loss, 700.0)),
        "mlm_accuracy": correct / count,
        "mlm_majority": int(frequencies.max()) / count,
    }


def _sentence_scores(model: Pretrainer, parts: Sequence[Batch], device: Device, task: SentenceTask) -> dict[str, float]:
    labels = torch.cat([part.sentence_labels for part in parts])
    ones, labelled = int((labels == 1).sum()), int((labels >= 0).sum())
    if labelled == 0:
        return {}
    head = next(module for module in model.objectives.values() if isinstance(module, SentenceOrder))
    total, count, correct = _sum_losses(model, parts, device, head)
    accuracy = correct / count
    smoothed = (correct + 1) / (count + 2)  # so that a perfect score on three pairs is not called certain
    return {
        f"{task}_loss": total / count,
        f"{task}_accuracy": accuracy,
        f"{task}_majority": max(ones, labelled - ones) / labelled,
        f"{task}_standard_error": math.sqrt(smoothed * (1 - smoothed) / count),
        f"{task}_pairs": float(labelled),
    }


@torch.no_grad()
def _sum_losses(
    model: Pretrainer, parts: Sequence[Batch], device: Device, objective: Objective
) -> tuple[float, int, int]:
    total, count, correct = 0.0, 0, 0
    for part in parts:
        batch = part.to(device.device)
        with device.autocast_context():
            output = model.encoder(batch.input_ids, batch.token_type_ids, batch.attention_mask)
            loss = objective.loss(output, batch, model.encoder)
        total += float(loss.total)
        count += int(loss.count)
        correct += int(loss.correct)
    return total, count, correct
