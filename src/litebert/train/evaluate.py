"""Held-out scores on fixed questions, so that runs can be compared whatever they trained with.

Masks are single tokens at 15%, drawn once from a fixed key; sequences are full length. A sentence
head answers both sentence tasks: a model trained on one knows something about the other (ALBERT,
table 5). Objectives that mean nothing without their own mask law or format
(`Objective.scored_on_training_masks`) are scored with that.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import torch

from litebert.base.errors import ConfigError, DataError, ModelError
from litebert.base.progress import track
from litebert.base.registry import OBJECTIVES
from litebert.change.vocabulary import with_rows_of
from litebert.config import PAIR_FORMATS, MaskingConfig, SequenceConfig, replace
from litebert.data.batches import Batches
from litebert.data.segments import AnySplit, SentenceTask
from litebert.data.shards import Shards
from litebert.interop import LoadedModel, read_folder
from litebert.model.objectives import Loss
from litebert.model.pretrainer import Pretrainer
from litebert.tokenizer import Tokenizer
from litebert.train.device import Device, choose, seed_step
from litebert.train.ranks import ALONE, Ranks

SEED = 20191  # any constant: the same masks for every run over the same data
EVALUATION_BATCH = 32
MASKING = MaskingConfig(rate=0.15, unit="token", span="single", copies=1)


Question = tuple[SequenceConfig, MaskingConfig, SentenceTask | None]
"""The text, the masks and the second segment that a score is about."""


def evaluate_split(
    model: Pretrainer,
    split: AnySplit,
    tokenizer: Tokenizer,
    device: Device,
    *,
    length: int,
    sequences: int = 512,
    transfer: bool = False,
    untrained: Collection[str] = (),
    ranks: Ranks = ALONE,
) -> dict[str, float]:
    """Score a model on up to `sequences` sequences of `length` tokens; a second call gives equal
    numbers.

    `transfer` asks a head also what the objectives in its `also_answers` ask. What is `untrained`,
    and what needs it, is not scored. All processes of `ranks` get the scores:
    `{objective}_{score}`, as `Objective.scores` tells, without those that the split cannot give. A
    run on one segment answers with one token type throughout.
    """
    scores: dict[str, float] = {}
    boundaries = any(objective.reads_boundaries for objective in model.named_objectives.values())
    was_training = model.training
    model.eval()
    try:
        for (layout, masking, task), names in _list_questions(
            model, length, transfer, untrained
        ).items():
            try:
                batches = Batches(
                    split,
                    tokenizer,
                    layout,
                    masking,
                    task,
                    EVALUATION_BATCH,
                    SEED,
                    boundaries=boundaries,
                )
            except DataError:
                if task is None:
                    raise
                continue  # one document has no other to draw a random segment from
            title = f"scoring {' and '.join(names)}"
            losses = _share_losses(model, batches, sequences, device, ranks, title)
            for prefix, name in names.items():
                if any(int(loss[name].count) for loss in losses):
                    results = model.named_objectives[name].scores([loss[name] for loss in losses])
                    scores.update({f"{prefix}_{key}": value for key, value in results.items()})
    finally:
        model.train(was_training)
    return scores


def _share_losses(
    model: Pretrainer, batches: Batches, sequences: int, device: Device, ranks: Ranks, title: str
) -> list[dict[str, Loss]]:
    count = min(sequences, batches.examples)
    sizes = [min(EVALUATION_BATCH, count - first) for first in range(0, count, EVALUATION_BATCH)]
    assigned = ranks.turns(len(sizes))
    total = sum(sizes[number] for number in assigned)
    losses: dict[int, dict[str, Loss]] = {}
    with track(assigned, title, total, "sequences", sizes.__getitem__) as turns:
        for number in turns:
            batch = batches(number, slice(0, sizes[number]))
            # Without pairs of segments, the model never saw the second token type.
            if model.config.sequences.format not in PAIR_FORMATS:
                batch = replace(batch, token_type_ids=torch.zeros_like(batch.token_type_ids))
            # Torch is seeded by the batch, and its state stays as it was.
            kind = device.device.type
            with torch.random.fork_rng([] if kind == "cpu" else [device.device], device_type=kind):
                seed_step(SEED, number)
                with torch.no_grad(), device.autocast_context():
                    losses[number] = model(batch.to(device.device))
            if ranks.size > 1:  # whose processes have other devices
                losses[number] = {name: loss.cpu() for name, loss in losses[number].items()}
    return ranks.union(losses)


def _list_questions(
    model: Pretrainer, length: int, transfer: bool, untrained: Collection[str]
) -> dict[Question, dict[str, str]]:
    """Map each question to the objectives that answer it, by the prefix of their scores."""
    common = SequenceConfig(length=length, short_probability=0.0), MASKING
    layout = replace(model.config.sequences, length=length, short_probability=0.0)
    trained_on = layout, replace(model.config.masking, copies=1)
    trained = [
        objective
        for objective in model.named_objectives.values()
        if not {objective.name, *objective.needs} & set(untrained)
    ]
    questions: dict[Question, dict[str, str]] = {}
    trained.sort(key=lambda each: (each.sentence is not None, each.scored_on_training_masks))
    for objective in trained:
        text = trained_on if objective.scored_on_training_masks else common
        for name in OBJECTIVES:
            if name == objective.name or (transfer and name in objective.also_answers):
                question = (*text, OBJECTIVES[name].sentence)
                questions.setdefault(question, {})[name] = objective.name
    return questions


def evaluate_pretrained(
    model: str | Path,
    shards: str | Path,
    *,
    sequences: int = 2048,
    length: int | None = None,
    device: str = "auto",
    tokenizer: str | Path | None = None,
) -> dict[str, float]:
    """Compute held-out scores of a run, a litebert or a Hugging Face folder, on both sentence
    tasks; `tokenizer` as in `read_folder`.
    """
    if sequences < 1:
        raise ConfigError(f"sequences is {sequences}; it must be at least 1")
    loaded, network, opened = open_pretrained(model, shards, tokenizer)
    config = network.config
    length, longest = length or config.sequences.length, config.encoder.max_positions
    if length > longest:
        raise ConfigError(
            f"--length {length} is more than the {longest} tokens {model} can read; give "
            "that or less"
        )
    machine = choose(config.train.precision, device)
    network.to(machine.device)
    return evaluate_split(
        network,
        opened.heldout,
        opened.tokenizer,
        machine,
        length=length,
        sequences=sequences,
        transfer=True,
        untrained=loaded.untrained,
    )


def open_pretrained(
    model: str | Path, data: str | Path, tokenizer: str | Path | None = None
) -> tuple[LoadedModel, Pretrainer, Shards]:
    """Open a pretrained model, and data that it can be scored on."""
    loaded, shards = read_folder(model, tokenizer=tokenizer), Shards.open(data, verify=True)
    if not isinstance(loaded.model, Pretrainer):
        raise ModelError(
            f"{model} holds a fine-tuned model; score it on labeled files with litebert evaluate "
            "--data, or name the pretrained model"
        )
    objectives = loaded.model.named_objectives
    if all(
        {name, *objective.needs} & set(loaded.untrained) for name, objective in objectives.items()
    ):
        absent = " and ".join(objectives[name].network_name for name in loaded.untrained)
        raise ModelError(
            f"{model} has nothing to score: it holds no weights of its {absent}; evaluate the run "
            "it was written from, or name a pretrained model"
        )
    loaded = with_rows_of(data, shards.tokenizer, loaded, model)
    assert isinstance(loaded.model, Pretrainer)
    return loaded, loaded.model, shards
