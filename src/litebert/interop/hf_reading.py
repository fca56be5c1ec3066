"""Hugging Face folders, read.

What a folder holds is told by the names in its weights, not by the class its config.json names: files often hold more
or less than that class. Only where classifiers of several classes have the same names is the class looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from litebert.config import (
    Config,
    EncoderConfig,
    MaskingConfig,
    Objective,
    ReplacedTokenConfig,
    SpanBoundaryConfig,
    replace,
)
from litebert.errors import ConfigError, ModelError
from litebert.interop.files import SBO, read_tensors, read_tokenizer, weights_file
from litebert.interop.loaded import LoadedModel, check, fill, sequences_for, untrained_notes
from litebert.interop.names import TASK_PARTS, TASKS, HeadName, Layout, Row
from litebert.interop.settings import encoder_config, layout_of, problem_of
from litebert.interop.weights import modernise, pairs, to_ours
from litebert.model.heads import SpanBoundaryHead, TaskModel
from litebert.model.pretrainer import Pretrainer
from litebert.recipes import SPANS
from litebert.storage import read_json


def read_hf(folder: Path, head: HeadName | None = None) -> LoadedModel:
    """Open a Hugging Face folder.

    Args:
        head: what its classifier is for, where its config.json does not name the class.

    Raises:
        ModelError: a file is damaged or missing, or the model is one that cannot be computed.
    """
    source = str(folder / "config.json")
    settings = read_json(folder / "config.json", ModelError)
    layout = layout_of(settings, source)
    file = weights_file(folder)
    tensors = modernise(layout, read_tensors(file), str(file))
    found = [part for part, rows in layout.parts.items() if part != "backbone" and _any(_names(rows), tensors)]
    kind = _kind(layout, settings, found, head, source)
    notes: list[str] = []
    if "dense" in found and "pooler" in found:  # older classifiers of RoBERTa's have both, and read one
        found.remove("pooler")
        tensors = {name: tensor for name, tensor in tensors.items() if name not in _names(layout.parts["pooler"])}
        notes.append(f"{folder} has a pooler that its classifier does not read; it is left out")
    if "pooler" not in found and ("sentence" in found or (kind and "pooler" in layout.heads[kind].parts)):
        found.append("pooler")  # then its absence is an error that names it
    config = encoder_config(layout, settings, found, source)
    if config.projects and "projection" not in found:
        found.append("projection")
    state = to_ours(pairs(layout, ["backbone", *found], config, layout.sentence or ""), tensors, str(file))

    model: Pretrainer | TaskModel
    untrained: tuple[Objective, ...] = ()
    labels: tuple[str, ...] = ()
    task: dict[str, Any] = {}
    if kind is None:
        boundary = _read_sbo(folder / SBO, config)
        state.update({f"objectives.sbo.{name}": tensor for name, tensor in boundary.items()})
        objectives, untrained = _objectives(layout, found, bool(boundary))
        whole = _whole_config(folder, config, objectives, boundary)
        model = Pretrainer(whole)
    else:
        whole = _whole_config(folder, config, ("mlm",), {})
        classes = len(state["head.classifier.bias"])
        model = TaskModel(config, kind, classes, layout.dense if "head.dense.bias" in state else None)
        labels = _labels(settings, classes) if kind in ("sequence", "tokens") else ()
        problem = problem_of(settings, source) if kind == "sequence" else None
        task = {"length": _longest(folder, config.max_positions)} | ({} if problem is None else {"problem": problem})
    fill(model, state, untrained, file)
    notes += untrained_notes(untrained, whole, folder)
    tokenizer = read_tokenizer(folder)
    return LoadedModel(model, whole, tokenizer, folder, labels, untrained, tuple(notes), task, layout.dense)


def _longest(folder: Path, positions: int) -> int:
    """To how many tokens `truncation=True` cuts; where the folder does not say, all there is room for."""
    file = folder / "tokenizer_config.json"
    longest = read_json(file, ModelError).get("model_max_length") if file.is_file() else None
    if not isinstance(longest, (int, float)) or longest < 1:
        return positions
    return int(min(longest, positions))  # theirs say 1e30 where they do not know


def _kind(
    layout: Layout, settings: Mapping[str, Any], found: Sequence[str], asked: HeadName | None, source: str
) -> HeadName | None:
    """The fine-tuning head of a folder, None where it has none."""
    parts = set(found) & set(TASK_PARTS)
    if not parts:
        return None
    heads = [name for name in TASKS if set(layout.heads[name].parts) - {"pooler"} == parts] or list(TASKS)
    classes = settings.get("architectures")
    named = classes if isinstance(classes, list) else []
    kind = next((name for name in heads if layout.heads[name].architecture in named), asked)
    if len(heads) == 1:
        kind = heads[0]
    if kind not in heads:
        possible = ", ".join(layout.heads[name].architecture for name in heads)
        raise ModelError(f"{source} does not say what its classifier is for; set architectures to one of {possible}")
    return kind


def _objectives(
    layout: Layout, found: Sequence[str], boundary: bool
) -> tuple[tuple[Objective, ...], tuple[Objective, ...]]:
    """The objectives of a pretrained folder, and those of them that it has no head of."""
    parts: dict[str, Objective | None] = {"mlm": "mlm", "sentence": layout.sentence, "discriminator": "rtd"}
    objectives: list[Objective] = [name for part, name in parts.items() if part in found and name is not None]
    if boundary:
        objectives.append("sbo")
    if not objectives or "rtd" in objectives:  # the generator it learned from has a folder of its own
        return ("mlm", *objectives), ("mlm",)
    return tuple(objectives), ()


def _read_sbo(file: Path, config: EncoderConfig) -> dict[str, Tensor]:
    """The span boundary head beside the weights, under its own names; empty where there is none."""
    if not file.is_file():
        return {}
    tensors = read_tensors(file)
    table = tensors.get("head.position.weight", torch.empty(0))
    if table.ndim != 2 or 0 in table.shape:
        raise ModelError(f"{file} has no table 'head.position.weight'; it is no span boundary head, remove it")
    with torch.device("meta"):
        expected = SpanBoundaryHead(config, *table.shape).state_dict(prefix="head.")
    check(expected, tensors, (), file)
    return {name: tensor.float() for name, tensor in tensors.items()}


def _whole_config(
    folder: Path, encoder: EncoderConfig, objectives: tuple[Objective, ...], boundary: Mapping[str, Tensor]
) -> Config:
    """A config of a model whose training is not known."""
    sbo, sequences, masking = SpanBoundaryConfig(), sequences_for(encoder), MaskingConfig()
    if boundary:  # a head of spans is scored on spans, and where no pair is asked for in one document
        positions, size = boundary["head.position.weight"].shape
        sbo = SpanBoundaryConfig(positions=positions, position_size=size)
        masking = SPANS
        if not {"sop", "nsp"} & set(objectives):
            sequences = replace(sequences, format="doc-sentences", short_probability=0.0)
    # Near a quarter, and in whole heads, so that there is such a generator for every encoder.
    width = max(1, round(encoder.heads / 4)) / encoder.heads
    try:
        return Config(
            name=folder.resolve().name,
            encoder=encoder,
            sequences=sequences,
            masking=masking,
            objectives=objectives,
            rtd=ReplacedTokenConfig(generator_width=width) if "rtd" in objectives else ReplacedTokenConfig(),
            sbo=sbo,
        )
    except ConfigError as error:
        raise ModelError(f"{folder}: {error}") from None


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
