"""Hugging Face folders, read and written.

What a folder holds is told by the names in its weights, not by the class its config.json names: files often hold more
or less than that class. Only a classifier, which every class calls by the same name, needs the class to be known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from litebert.config import Config, Objective
from litebert.data.tokenizer import Tokenizer
from litebert.errors import ConfigError, ModelError, nearest
from litebert.interop.files import (
    WEIGHTS,
    new_folder,
    read_json,
    read_tensors,
    read_tokenizer,
    weights_file,
    write_tensors,
)
from litebert.interop.loaded import LoadedModel, fill, sequences_for, untrained_notes
from litebert.interop.names import HeadName, Layout, Row
from litebert.interop.settings import encoder_config, layout_for, layout_of, settings_of
from litebert.interop.weights import modernise, pairs, slots, to_ours, to_theirs
from litebert.model.heads import TaskModel
from litebert.model.pretrainer import Pretrainer


def save_hf(
    model: Pretrainer | TaskModel,
    tokenizer: Tokenizer | None,
    folder: str | Path,
    *,
    head: HeadName | None = None,
    labels: Sequence[str] = (),
    untrained: Sequence[str] = (),
) -> tuple[str, ...]:
    """Write a Hugging Face folder, all of it or nothing, and return notes on what had to be written differently.

    Args:
        head: the class to write, from what the model has; by itself the one that holds most of it.
        labels: names of a fine-tuned model's classes.
        untrained: objectives whose head is left out.

    Raises:
        ModelError: no class of theirs holds the model, the folder exists, or it cannot be written.
    """
    config = model.encoder.config
    layout, notes = layout_for(config)
    has = _parts_of(model, untrained)
    head = _head_to_write(model, has, head)
    parts = ["backbone", *(["projection"] if layout.always_projects else []), *layout.heads[head].parts]
    notes += _left_out(has, parts, layout.heads[head].architecture)
    if "pooler" in parts and "pooler" not in has:
        parts.remove("pooler")
        notes.append(f"the model has no pooler; open it with {layout.heads[head].architecture}.from_pretrained"
                     "(folder, add_pooling_layer=False)")  # fmt: skip
    sentence = _sentence_of(model)
    if "sentence" in parts and sentence != layout.sentence:
        notes.append(
            f"the {sentence} head is written as {layout.heads[head].architecture}'s {layout.sentence} head, which has "
            f"the same shape; keep in mind that it tells {sentence}"
        )
    state = dict(model.state_dict())
    if layout.always_projects and not config.projects:
        word = model.encoder.embedding.word.weight
        state["encoder.embedding.project.weight"] = word.new_zeros(config.hidden_size, config.hidden_size)
        state["encoder.embedding.project.weight"].fill_diagonal_(1.0)
        state["encoder.embedding.project.bias"] = word.new_zeros(config.hidden_size)
    tensors = to_theirs(pairs(layout, parts, config, sentence), state)
    dropout, names = 0.1, tuple[str, ...]()
    if isinstance(model, TaskModel):
        dropout = model.head.dropout.p
        if head in ("sequence", "tokens"):
            names = tuple(labels) or tuple(f"LABEL_{index}" for index in range(model.classes))
    settings = settings_of(layout, config, head, len(slots(layout, config)), tokenizer, names, dropout)
    with new_folder(Path(folder)) as partial:
        write_tensors(partial / WEIGHTS, tensors)
        (partial / "config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        if tokenizer is not None:
            tokenizer.save(partial)
    return tuple(notes)


def _parts_of(model: Pretrainer | TaskModel, untrained: Sequence[str]) -> list[str]:
    parts = ["pooler"] if model.encoder.pooler is not None else []
    if isinstance(model, TaskModel):
        return [*parts, "span" if model.kind == "span" else "classifier"]
    return parts + ["mlm" if name == "mlm" else "sentence" for name in model.objectives if name not in untrained]


def _head_to_write(model: Pretrainer | TaskModel, has: Sequence[str], asked: HeadName | None) -> HeadName:
    possible: list[HeadName] = ["backbone"]
    if isinstance(model, TaskModel):
        possible.append(cast(HeadName, model.kind))
    elif "mlm" in has:
        possible.append("mlm")
        if "sentence" in has:
            possible.append("pretraining")
    if asked is not None and asked not in possible:
        raise ModelError(f"the model has no {asked} head to write; {nearest(asked, possible)}")
    return asked or possible[-1]


def _left_out(has: Sequence[str], parts: Sequence[str], architecture: str) -> list[str]:
    words = {"pooler": "pooler", "mlm": "mlm head", "sentence": "sentence head", "classifier": "classifier",
             "span": "span classifier"}  # fmt: skip
    return [f"the {words[part]} is left out: {architecture} has none" for part in has if part not in parts]


def _sentence_of(model: Pretrainer | TaskModel) -> str:
    """Our sentence objective; empty without one."""
    names = model.objectives if isinstance(model, Pretrainer) else ()
    return next((name for name in names if name in ("sop", "nsp")), "")


def read_hf(folder: Path, head: HeadName | None = None) -> LoadedModel:
    """Open a Hugging Face folder.

    Args:
        head: what its classifier is for, where its config.json does not name the class.

    Raises:
        ModelError: a file is damaged or missing, or the model is one that cannot be computed.
    """
    source = str(folder / "config.json")
    settings = read_json(folder / "config.json")
    layout = layout_of(settings, source)
    file = weights_file(folder)
    tensors = modernise(layout, read_tensors(file), str(file))
    found = [part for part, rows in layout.parts.items() if part != "backbone" and _any(_names(rows), tensors)]
    kind = _kind(layout, settings, found, head, source)
    pooler = "pooler" in found or "sentence" in found or kind in TaskModel.READS_POOLED
    config = encoder_config(layout, settings, pooler, source)
    parts = ["backbone", *(["projection"] if config.projects else []), *(["pooler"] if pooler else [])]
    parts += [part for part in found if part not in parts]
    state = to_ours(pairs(layout, parts, config, layout.sentence), tensors, str(file))

    objectives: tuple[Objective, ...] = ("mlm",)
    untrained: list[Objective] = []
    labels: tuple[str, ...] = ()
    if kind is None:
        known: dict[str, Objective] = {"mlm": "mlm", "sentence": layout.sentence}
        objectives = tuple(known[part] for part in found if part in known) or objectives
        untrained = [] if set(found) & set(known) else ["mlm"]
    try:
        whole = Config(
            name=folder.resolve().name, encoder=config, sequences=sequences_for(config), objectives=objectives
        )
    except ConfigError as error:
        raise ModelError(f"{source}: {error}") from None
    model: Pretrainer | TaskModel
    if kind is None:
        model = Pretrainer(whole)
    else:
        classes = len(state["head.classifier.bias"])
        model = TaskModel(config, kind, classes)
        labels = _labels(settings, classes) if kind in ("sequence", "tokens") else ()
    fill(model, state, untrained, file)
    return LoadedModel(
        model,
        whole,
        read_tokenizer(folder),
        folder,
        labels,
        tuple(untrained),
        tuple(untrained_notes(untrained, folder)),
    )


def _kind(
    layout: Layout, settings: Mapping[str, Any], found: Sequence[str], asked: HeadName | None, source: str
) -> HeadName | None:
    """The fine-tuning head of a folder, None where it has none."""
    if "span" in found:
        return "span"
    if "classifier" not in found:
        return None
    named = settings.get("architectures") or []
    heads = {item.architecture: name for name, item in layout.heads.items() if "classifier" in item.parts}
    kind = next((heads[name] for name in named if name in heads), asked)
    if kind not in heads.values():
        raise ModelError(
            f"{source} does not say what its classifier is for; set architectures to one of {', '.join(heads)}"
        )
    return kind


def _names(rows: Sequence[Row]) -> list[str]:
    """Every name of theirs in rows without a slot."""
    return [f"{name}.{leaf}" for row in rows for name in row.theirs for leaf in row.leaves]


def _any(names: Sequence[str], tensors: Mapping[str, Tensor]) -> bool:
    return any(name in tensors for name in names)


def _labels(settings: Mapping[str, Any], classes: int) -> tuple[str, ...]:
    """Names of the classes, unless they are only numbered."""
    named = settings.get("id2label")
    if not isinstance(named, dict) or set(named) != {str(index) for index in range(classes)}:
        return ()
    labels = tuple(str(named[str(index)]) for index in range(classes))
    return () if labels == tuple(f"LABEL_{index}" for index in range(classes)) else labels
