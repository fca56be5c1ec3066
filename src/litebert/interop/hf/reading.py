"""Hugging Face folders, read.

The names in its weights show what a folder holds, not the class that its config.json names: files
often hold more or less than that class. The class decides only if the classifiers of several
classes use the same names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from litebert.base.errors import ConfigError, ModelError
from litebert.base.json_reader import read_json
from litebert.base.registry import OBJECTIVES
from litebert.config import Config, EncoderConfig, Pooling, SequenceConfig
from litebert.config.finetuning import HeadName
from litebert.interop.files import read_weights, weights_file
from litebert.interop.hf.families import TASK_HEADS, TASK_PARTS, Family, Names
from litebert.interop.hf.settings import (
    encoder_config,
    family_of,
    pooling_of,
    problem_of,
    read_longest,
    unties,
)
from litebert.interop.hf.weights import find_sharing, generator_pairs, modernize, pairs, to_litebert
from litebert.interop.loaded import LoadedModel, choose_tokenizer, note_untrained, outputs_of
from litebert.interop.networks import build_network, check_tensors, fill
from litebert.interop.records import read_tokenizer
from litebert.interop.sentence_modules import modules_note
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from litebert.tokenizer import Tokenizer


def read_hf(
    folder: Path, head: HeadName | None = None, tokenizer: str | Path | None = None
) -> LoadedModel:
    """Open a Hugging Face folder.

    Args:
        head: what its classifier is for, where its config.json does not name the class.
        tokenizer: for a folder without a readable one; see `choose_tokenizer`.
    """
    config = folder / "config.json"
    settings = read_json(config, ModelError)
    family_of(
        settings, str(config)
    )  # a model that is not known is refused before megabytes are read
    file = weights_file(folder)
    words = choose_tokenizer(lambda: read_tokenizer(folder), tokenizer, folder)
    return open_model(folder, config, settings, file, read_weights(file), words, head)


@dataclass(frozen=True)
class _Files:
    """The config.json and the weights of a folder, and the family that they belong to."""

    folder: Path
    config: Path
    settings: Mapping[str, Any]
    weights: Path
    family: Family


@dataclass(frozen=True)
class _Contents:
    """The parts of a model that a file of weights holds, and their tensors."""

    head: HeadName | None
    """The fine-tuning head; None where it has none."""
    parts: Sequence[str]
    """The parts beside the backbone."""
    tensors: Mapping[str, Tensor]
    notes: Sequence[str]


def open_model(
    folder: Path,
    config_file: Path,
    settings: Mapping[str, Any],
    file: Path,
    tensors: Mapping[str, Tensor],
    tokenizer: Tokenizer | None,
    head: HeadName | None,
) -> LoadedModel:
    """Build the model of a config.json and tensors under the names of transformers; errors name the
    two files.

    Tensors of `generator.`, named like those of the backbone, are those of the generator that a
    discriminator learned from; it borrows the embeddings. Only files that hold both have them.
    """
    source = str(config_file)
    family = family_of(settings, source)
    files = _Files(folder, config_file, settings, file, family)
    tensors = modernize(family, tensors, str(file), unties(family, settings, family.parts))
    contents = _select_parts(files, tensors, head)
    config, contents = _read_shape(files, contents)
    head, parts, tensors = contents.head, contents.parts, contents.tensors
    beside = {  # heads of objectives that have a file of their own
        name: read_weights(folder / objective.foreign_file)
        for name, objective in OBJECTIVES.items()
        if head is None and objective.foreign_file and (folder / objective.foreign_file).is_file()
    }
    objectives, untrained = _objectives(family, parts, beside)
    whole = _whole_config(folder, config, objectives, beside, tensors)
    table = pairs(family, ["backbone", *parts], config, family.sentence or "")
    if whole.generator is not None and not untrained:
        table += generator_pairs(family, whole.generator)
    state = to_litebert(table, tensors, str(file))
    pooling = pooling_of(family, settings, source)
    model: Pretrainer | TaskModel
    labels: tuple[str, ...] = ()
    task: dict[str, Any] = {}
    if head is None:
        model = build_network(config_file, Pretrainer, whole, drawn=bool(untrained))
        state |= _beside_state(model, beside, folder)
    else:
        model = _build_task_model(files, head, config, state, pooling)
        usual, untrained = next(iter(outputs_of(head).values())), ()
        labels = _labels(settings, model.classes) if usual.classes is None else ()
        longest = read_longest(folder, config.max_positions)
        task = {"kind": head, "length": longest, **problem_of(settings, head, source)}
    fill(model, state, untrained, file)
    notes = (*contents.notes, *note_untrained(untrained, whole, folder), *modules_note(folder))
    return LoadedModel(
        model, whole, tokenizer, folder, labels, untrained, notes, task, family.dense, pooling
    )


def _select_parts(files: _Files, tensors: Mapping[str, Tensor], head: HeadName | None) -> _Contents:
    """Find out which parts a file holds and leave out those that its class does not read."""
    family, folder = files.family, files.folder
    parts = _find_parts(family, tensors)
    head = _head(family, files.settings, parts, head, str(files.config))
    notes: list[str] = []
    if foreign := _foreign_heads(family, tensors):
        tensors = {name: tensor for name, tensor in tensors.items() if name not in foreign}
        notes.append(
            f"{files.weights} also holds {_list_names(foreign)}, of a head that litebert does not "
            "know; it is left out"
        )
    beside = () if head is None else (*family.heads[head], "pooler", "projection")
    if head is not None and (unread := [part for part in parts if part not in beside]):
        parts = [part for part in parts if part not in unread]
        names = {name for part in ("backbone", *parts) for name in _names(family.parts[part])}
        dropped = {name for part in unread for name in _names(family.parts[part])} - names
        notes.append(
            f"{files.weights} also holds {_list_names(dropped & {*tensors})}, which "
            f"{family.class_of(head)} does not read; it is left out"
        )
        tensors = {name: tensor for name, tensor in tensors.items() if name not in dropped}
    # Older classifiers of RoBERTa's have both, and read one.
    if "dense" in parts and "pooler" in parts:
        parts.remove("pooler")
        pooler = _names(family.parts["pooler"])
        tensors = {name: tensor for name, tensor in tensors.items() if name not in pooler}
        notes.append(f"{folder} has a pooler that its classifier does not read; it is left out")
    if "pooler" not in parts and ("sentence" in parts or (head and "pooler" in family.heads[head])):
        parts.append("pooler")  # then its absence is an error that names it
    return _Contents(head, parts, tensors, notes)


def _read_shape(files: _Files, contents: _Contents) -> tuple[EncoderConfig, _Contents]:
    """The encoder's config, with blocks shared that the file holds as equal copies."""
    family, notes = files.family, list(contents.notes)
    config = encoder_config(family, files.settings, contents.parts, str(files.config))
    parts = list(contents.parts)
    if config.projects and "projection" not in parts:
        parts.append("projection")
    unshared, config = config, find_sharing(family, config, contents.tensors)
    if config != unshared:
        how = ", ".join(
            f"encoder.{name}={getattr(config, name)}"
            for name in ("sharing", "groups")
            if getattr(config, name) != getattr(unshared, name)
        )
        notes.append(
            f"{files.folder} has equal weights in several layers; they are read as blocks that "
            f"layers share ({how})"
        )
    return config, replace(contents, parts=parts, notes=notes)


def _beside_state(
    model: Pretrainer, beside: Mapping[str, Mapping[str, Tensor]], folder: Path
) -> dict[str, Tensor]:
    """The entries of a state dict for heads that have a file of their own."""
    state: dict[str, Tensor] = {}
    for name, stored in beside.items():
        expected, file = model.objectives[name].state_dict(), folder / OBJECTIVES[name].foreign_file
        check_tensors(expected, stored, (), file)
        state.update({f"objectives.{name}.{key}": tensor.float() for key, tensor in stored.items()})
    return state


def _build_task_model(
    files: _Files,
    head: HeadName,
    config: EncoderConfig,
    state: Mapping[str, Tensor],
    pooling: Pooling,
) -> TaskModel:
    usual = next(iter(outputs_of(head).values()))
    classes = len(state["head.classifier.bias"])
    dense = files.family.dense if "head.dense.bias" in state else None
    reading = pooling if usual.reads_cls else "cls"
    fitting = (config, usual.reads_cls, classes, dense, reading)
    return build_network(files.config, TaskModel, *fitting, drawn=False)


def _head(
    family: Family,
    settings: Mapping[str, Any],
    all_parts: Sequence[str],
    requested: HeadName | None,
    source: str,
) -> HeadName | None:
    parts = set(all_parts) & set(TASK_PARTS)
    if not parts:
        return None
    heads = [name for name in TASK_HEADS if set(family.heads[name]) - {"pooler"} == parts] or list(
        TASK_HEADS
    )
    if len(heads) == 1:
        return heads[0]
    classes = settings.get("architectures")
    named = classes if isinstance(classes, list) else []
    head = next((name for name in heads if family.class_of(name) in named), requested)
    if head not in heads:
        possible = ", ".join(family.class_of(name) for name in heads)
        raise ModelError(
            f"{source} does not say what its classifier is for; set architectures to one "
            f"of {possible}"
        )
    return head


def _objectives(
    family: Family, parts: Sequence[str], beside: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The objectives of a pretrained folder, and those of them that it has no head of.

    Args:
        beside: objectives whose head is in a file of its own.
    """
    objectives = [
        name
        for name, objective in OBJECTIVES.items()
        if name in beside
        or (
            objective.foreign_part in parts
            and (objective.sentence is None or name == family.sentence)
        )
    ]
    needed = {
        need: None
        for name in objectives
        for need in OBJECTIVES[name].needs
        if need not in objectives
    }
    any_head = (name for name, kind in OBJECTIVES.items() if kind.foreign_part in family.parts)
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
    sequences = SequenceConfig(length=max(8, read_longest(folder, encoder.max_positions)))
    fields: dict[str, Any] = {"encoder": encoder, "sequences": sequences, "objectives": objectives}
    try:
        for name in objectives:
            fields.update(OBJECTIVES[name].assume_fields(fields, beside.get(name, tensors)))
        return Config(name=folder.resolve().name, **fields)
    except ConfigError as error:
        raise ModelError(f"{folder}: {error}") from None


def _find_parts(family: Family, tensors: Collection[str]) -> list[str]:
    """The parts beside the backbone of which a file holds something; heads may begin with the same
    names.
    """
    names = {part: _names(modules) for part, modules in family.parts.items() if part != "backbone"}
    return [
        part
        for part, mentioned in names.items()
        if mentioned.difference(*(of for other, of in names.items() if other != part)) & {*tensors}
    ]


def _foreign_heads(family: Family, tensors: Collection[str]) -> set[str]:
    """The tensors of heads that no part of the family knows; never what may belong to an
    encoder."""
    leaves = {name for modules in family.parts.values() for name in _names(modules)}
    names = leaves | {*family.tied}
    # By module, for a bias that this shape lacks is a leaf of a head that is known.
    modules = {name.rpartition(".")[0] for name in names}
    outside = (
        name
        for name in tensors
        if name.rpartition(".")[0] not in modules
        and name not in names
        and not name.startswith(family.backbone_prefix)
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


def _list_names(names: Collection[str]) -> str:
    first = min(names)
    return f"'{first}'" + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _names(modules: Sequence[Names]) -> set[str]:
    return {
        f"{name}.{leaf}" for module in modules for name in module.foreign for leaf in module.leaves
    }


def _labels(settings: Mapping[str, Any], classes: int) -> tuple[str, ...]:
    """Names of the classes, unless they are only numbered."""
    named = settings.get("id2label")
    if not isinstance(named, dict) or set(named) != {str(index) for index in range(classes)}:
        return ()
    labels = tuple(str(named[str(index)]) for index in range(classes))
    return () if labels == tuple(f"LABEL_{index}" for index in range(classes)) else labels
