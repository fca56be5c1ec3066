"""Hugging Face folders, read.

The names in its weights show what a folder holds, not the class that its config.json names: files
often hold more or less than that class. The class decides only if the classifiers of several
classes use the same names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from litebert.config import Config, EncoderConfig, SequenceConfig
from litebert.config.finetuning import HeadName
from litebert.errors import ConfigError, ModelError
from litebert.interop.files import read_tokenizer, read_weights, weights_file
from litebert.interop.layouts import TASK_HEADS, TASK_PARTS, Layout, Names
from litebert.interop.loaded import (
    LoadedModel,
    built,
    check,
    choose_tokenizer,
    fill,
    outputs_of,
    untrained_notes,
)
from litebert.interop.sentence_modules import modules_note
from litebert.interop.settings import encoder_config, layout_of, pooling_of, problem_of, unties
from litebert.interop.weights import generator_pairs, modernise, pairs, shared_again, to_ours
from litebert.json_reader import read_json
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from litebert.registry import OBJECTIVES
from litebert.tokenizer import Tokenizer

M = TypeVar("M", Pretrainer, TaskModel)


def read_hf(
    folder: Path, head: HeadName | None = None, tokenizer: str | Path | None = None
) -> LoadedModel:
    """Open a Hugging Face folder.

    Args:
        head: what its classifier is for, where its config.json does not name the class.
        tokenizer: for a folder without a readable one; see `choose_tokenizer`.

    Raises:
        ModelError: a file is damaged or missing, or the model is one that cannot be computed.
    """
    config = folder / "config.json"
    settings = read_json(config, ModelError)
    layout_of(
        settings, str(config)
    )  # a model that is not known is refused before megabytes are read
    file = weights_file(folder)
    words = choose_tokenizer(lambda: read_tokenizer(folder), tokenizer, folder)
    return opened(folder, config, settings, file, read_weights(file), words, head)


def opened(
    folder: Path,
    config_file: Path,
    settings: Mapping[str, Any],
    file: Path,
    tensors: Mapping[str, Tensor],
    tokenizer: Tokenizer | None,
    head: HeadName | None,
) -> LoadedModel:
    """The model of a config.json and tensors under the names of transformers; errors name the two
    files.

    Tensors of `generator.`, named like those of the backbone, are those of the generator that a
    discriminator learned from; it borrows the embeddings. Only files that hold both have them.
    """
    source = str(config_file)
    layout = layout_of(settings, source)
    tensors = modernise(layout, tensors, str(file), unties(layout, settings, layout.parts))
    found = _found(layout, tensors)
    head = _head(layout, settings, found, head, source)
    notes: list[str] = []
    if foreign := _foreign_heads(layout, tensors):
        tensors = {name: tensor for name, tensor in tensors.items() if name not in foreign}
        notes.append(
            f"{file} also holds {_listed(foreign)}, of a head that litebert does not know; "
            "it is left out"
        )
    if head is not None and (
        unread := [part for part in found if part not in _read_with(layout, head)]
    ):
        found = [part for part in found if part not in unread]
        kept = {name for part in ("backbone", *found) for name in _names(layout.parts[part])}
        dropped = {name for part in unread for name in _names(layout.parts[part])} - kept
        notes.append(
            f"{file} also holds {_listed(dropped & {*tensors})}, which "
            f"{layout.class_of(head)} does not read; "
            "it is left out"
        )
        tensors = {name: tensor for name, tensor in tensors.items() if name not in dropped}
    if (
        "dense" in found and "pooler" in found
    ):  # older classifiers of RoBERTa's have both, and read one
        found.remove("pooler")
        tensors = {
            name: tensor
            for name, tensor in tensors.items()
            if name not in _names(layout.parts["pooler"])
        }
        notes.append(f"{folder} has a pooler that its classifier does not read; it is left out")
    if "pooler" not in found and ("sentence" in found or (head and "pooler" in layout.heads[head])):
        found.append("pooler")  # then its absence is an error that names it
    config = encoder_config(layout, settings, found, source)
    if config.projects and "projection" not in found:
        found.append("projection")
    unshared, config = config, shared_again(layout, config, tensors)
    if config != unshared:
        how = ", ".join(
            f"encoder.{name}={getattr(config, name)}"
            for name in ("sharing", "groups")
            if getattr(config, name) != getattr(unshared, name)
        )
        notes.append(
            f"{folder} has equal weights in several layers; they are read as blocks that "
            f"layers share ({how})"
        )

    model: Pretrainer | TaskModel
    labels: tuple[str, ...] = ()
    task: dict[str, Any] = {}
    beside = {
        name: read_weights(folder / one.foreign_file)
        for name, one in OBJECTIVES.items()
        if head is None and one.foreign_file and (folder / one.foreign_file).is_file()
    }
    objectives, untrained = _objectives(layout, found, beside)
    whole = _whole_config(folder, config, objectives, beside, tensors)
    table = pairs(layout, ["backbone", *found], config, layout.sentence or "")
    if whole.generator is not None and not untrained:
        table += generator_pairs(layout, whole.generator)
    state = to_ours(table, tensors, str(file))
    pooling = pooling_of(layout, settings, source)
    if head is None:
        model = built(config_file, Pretrainer, whole, drawn=bool(untrained))
        for name, stored in beside.items():
            check(
                model.objectives[name].state_dict(),
                stored,
                (),
                folder / OBJECTIVES[name].foreign_file,
            )
            state.update(
                {f"objectives.{name}.{key}": tensor.float() for key, tensor in stored.items()}
            )
    else:
        classes, usual = len(state["head.classifier.bias"]), next(iter(outputs_of(head).values()))
        dense = layout.dense if "head.dense.bias" in state else None
        read = pooling if usual.reads_cls else "cls"
        model = built(
            config_file, TaskModel, config, usual.reads_cls, classes, dense, read, drawn=False
        )
        labels, untrained = _labels(settings, classes) if usual.classes is None else (), ()
        longest = _longest(folder, config.max_positions)
        task = {"kind": head, "length": longest, **problem_of(settings, head, source)}
    fill(model, state, untrained, file)
    notes += untrained_notes(untrained, whole, folder) + modules_note(folder)
    return LoadedModel(
        model,
        whole,
        tokenizer,
        folder,
        labels,
        untrained,
        tuple(notes),
        task,
        layout.dense,
        pooling,
    )


def _longest(folder: Path, positions: int) -> int:
    """To how many tokens `truncation=True` cuts; where the folder does not say, all there is room
    for.
    """
    file = folder / "tokenizer_config.json"
    longest = read_json(file, ModelError).get("model_max_length") if file.is_file() else None
    # Theirs say 1e30 where they do not know.
    return (
        int(min(longest, positions))
        if isinstance(longest, (int, float)) and longest >= 1
        else positions
    )


def _head(
    layout: Layout,
    settings: Mapping[str, Any],
    found: Sequence[str],
    asked: HeadName | None,
    source: str,
) -> HeadName | None:
    """The fine-tuning head of a folder, None where it has none."""
    parts = set(found) & set(TASK_PARTS)
    if not parts:
        return None
    heads = [name for name in TASK_HEADS if set(layout.heads[name]) - {"pooler"} == parts] or list(
        TASK_HEADS
    )
    if len(heads) == 1:
        return heads[0]
    classes = settings.get("architectures")
    named = classes if isinstance(classes, list) else []
    head = next((name for name in heads if layout.class_of(name) in named), asked)
    if head not in heads:
        possible = ", ".join(layout.class_of(name) for name in heads)
        raise ModelError(
            f"{source} does not say what its classifier is for; set architectures to one "
            f"of {possible}"
        )
    return head


def _objectives(
    layout: Layout, found: Sequence[str], beside: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The objectives of a pretrained folder, and those of them that it has no head of.

    Args:
        beside: objectives whose head is in a file of its own.
    """
    objectives = [
        name
        for name, one in OBJECTIVES.items()
        if name in beside
        or (one.foreign_part in found and (one.sentence is None or name == layout.sentence))
    ]
    needed = {
        need: None
        for name in objectives
        for need in OBJECTIVES[name].needs
        if need not in objectives
    }
    any_head = (name for name, one in OBJECTIVES.items() if one.foreign_part in layout.parts)
    untrained = (
        tuple(needed) if objectives else (next(any_head),)
    )  # what a head learned from has a folder of its own
    return (*untrained, *objectives), untrained


def _whole_config(
    folder: Path,
    encoder: EncoderConfig,
    objectives: tuple[str, ...],
    beside: Mapping[str, Mapping[str, Tensor]],
    tensors: Mapping[str, Tensor],
) -> Config:
    """A config of a model whose training is not known."""
    sequences = SequenceConfig(length=max(8, _longest(folder, encoder.max_positions)))
    fields: dict[str, Any] = {"encoder": encoder, "sequences": sequences, "objectives": objectives}
    try:
        for name in objectives:
            fields.update(OBJECTIVES[name].assume_fields(fields, beside.get(name, tensors)))
        return Config(name=folder.resolve().name, **fields)
    except ConfigError as error:
        raise ModelError(f"{folder}: {error}") from None


def _found(layout: Layout, tensors: Collection[str]) -> list[str]:
    """The parts beside the backbone of which a file holds something; heads may begin with the same
    names.
    """
    names = {part: _names(modules) for part, modules in layout.parts.items() if part != "backbone"}
    return [
        part
        for part, own in names.items()
        if own.difference(*(of for other, of in names.items() if other != part)) & {*tensors}
    ]


def _read_with(layout: Layout, head: HeadName) -> tuple[str, ...]:
    """The parts that may stand beside the backbone of a fine-tuned model."""
    return (*layout.heads[head], "pooler", "projection")


def _foreign_heads(layout: Layout, tensors: Collection[str]) -> set[str]:
    """The tensors of heads that no part of the layout knows; never what may belong to an
    encoder."""
    known = {name for modules in layout.parts.values() for name in _names(modules)} | {*layout.tied}
    # By module, for a bias that this shape lacks is a leaf of a head that is known.
    modules_known = {name.rpartition(".")[0] for name in known}
    outside = (
        name
        for name in tensors
        if name.rpartition(".")[0] not in modules_known
        and name not in known
        and not name.startswith(layout.backbone_prefix)
    )
    return {
        name
        for name in outside
        if name.endswith((".weight", ".bias")) and not _ENCODER_WORDS.search(name)
    }


_ENCODER_WORDS = re.compile(
    r"(^|[._])(encoder|embeddings?|embed|layers?|block|attention|attn|lora|adapters?|generator|"
    r"model|bert|albert|roberta|electra)([._]|$)"
)
"""Words in the names of weights that an encoder, or an addition to one, is made of."""


def _listed(names: Collection[str]) -> str:
    """The first of some names, and how many more there are."""
    first = min(names)
    return f"'{first}'" + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _names(modules: Sequence[Names]) -> set[str]:
    """Every name of theirs, of modules without a slot."""
    return {
        f"{name}.{leaf}" for module in modules for name in module.theirs for leaf in module.leaves
    }


def _labels(settings: Mapping[str, Any], classes: int) -> tuple[str, ...]:
    """Names of the classes, unless they are only numbered."""
    named = settings.get("id2label")
    if not isinstance(named, dict) or set(named) != {str(index) for index in range(classes)}:
        return ()
    labels = tuple(str(named[str(index)]) for index in range(classes))
    return () if labels == tuple(f"LABEL_{index}" for index in range(classes)) else labels
