"""Hugging Face folders, read without torch: `read_contents` gives a folder's config and its weights
under litebert's names.

The names in its weights show what a folder holds, which is often more or less than the class that
its config.json names. The class decides only between classifiers with the same names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from litebert.base.errors import ConfigError, ModelError
from litebert.base.json_reader import read_json
from litebert.base.registry import OBJECTIVES
from litebert.config import Config, SequenceConfig
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
from litebert.interop.hf.weights import (
    find_sharing,
    generator_pairs,
    modernize,
    pairs,
    to_litebert,
)
from litebert.interop.loaded import (
    Contents,
    LoadedModel,
    Unread,
    note_untrained,
    outputs_of,
)
from litebert.interop.sentence_modules import modules_note
from litebert.kernels.network import Weights
from litebert.tokenizer import Tokenizer


def open_foreign(
    read: Callable[[], Contents], tokenizer: Callable[[], Tokenizer | None]
) -> LoadedModel:
    """A model of another program, whose network is read when it is first used."""
    once = _Reading(read)
    contents = once.contents
    assert contents is not None
    words = tokenizer()
    record: dict[str, Any] = {}
    if contents.head is not None:
        reading = contents.pooling if contents.reads_cls else "cls"
        record = {"kind": contents.head, "classes": contents.classes, "dense": contents.dense}
        record |= {"pooling": reading}
    return LoadedModel(
        Unread(
            partial(_open_network, once),
            partial(_read_state, once),
            contents.weights_file,
            record,
        ),
        contents.config,
        words,
        contents.folder,
        contents.labels,
        contents.untrained,
        contents.notes,
        contents.task,
        contents.family_dense,
        contents.pooling,
    )


class _Reading:
    """Reads a folder, and gives its first caller what it has read already."""

    def __init__(self, read: Callable[[], Contents]) -> None:
        self.read = read
        self.contents: Contents | None = read()

    def __call__(self) -> Contents:
        contents, self.contents = self.contents, None
        return self.read() if contents is None else contents

    def __getstate__(self) -> dict[str, Any]:
        return {"read": self.read, "contents": None}


def _open_network(read: Callable[[], Contents]) -> Any:
    from litebert.interop.networks import open_contents

    return open_contents(read)


def _read_state(read: Callable[[], Contents]) -> Weights:
    return read().state


def read_contents(folder: Path, head: HeadName | None = None) -> Contents:
    """Read a Hugging Face folder.

    Args:
        head: what its classifier is for, where its config.json does not name the class.
    """
    config = folder / "config.json"
    settings = read_json(config, ModelError)
    family_of(settings, str(config))  # before megabytes are read
    file = weights_file(folder)
    return translate(folder, config, settings, file, read_weights(file), head)


def translate(
    folder: Path,
    config_file: Path,
    settings: Mapping[str, Any],
    file: Path,
    weights: Weights,
    head: HeadName | None,
) -> Contents:
    """The contents of a config.json and weights under the names of transformers, the two files
    named in errors. Weights of `generator.` are those of the generator that a discriminator learned
    from, which borrows the embeddings.
    """
    source, notes = str(config_file), []
    family = family_of(settings, source)
    weights = modernize(family, weights, str(file), unties(family, settings, family.parts))
    named = {part: _names(modules) for part, modules in family.parts.items() if part != "backbone"}
    # A part is there if the file has a name that no other part has: names of heads may overlap.
    parts = [
        part
        for part, own in named.items()
        if own.difference(*(of for other, of in named.items() if other != part)) & {*weights}
    ]
    head = _find_head(family, settings, parts, head, source)

    if foreign := _foreign_heads(family, weights):
        weights = {name: array for name, array in weights.items() if name not in foreign}
        notes.append(
            f"{file} also holds {_list_names(foreign)}, of a head that litebert does not know; it "
            "is left out"
        )
    beside_head = () if head is None else (*family.heads[head], "pooler", "projection")
    if head is not None and (unread := [part for part in parts if part not in beside_head]):
        parts = [part for part in parts if part not in unread]
        names = {name for part in ("backbone", *parts) for name in _names(family.parts[part])}
        dropped = {name for part in unread for name in _names(family.parts[part])} - names
        notes.append(
            f"{file} also holds {_list_names(dropped & {*weights})}, which "
            f"{family.class_of(head)} does not read; it is left out"
        )
        weights = {name: array for name, array in weights.items() if name not in dropped}
    # Older classifiers of RoBERTa's have both, and read one.
    if "dense" in parts and "pooler" in parts:
        parts.remove("pooler")
        pooler = _names(family.parts["pooler"])
        weights = {name: array for name, array in weights.items() if name not in pooler}
        notes.append(f"{folder} has a pooler that its classifier does not read; it is left out")
    if "pooler" not in parts and ("sentence" in parts or (head and "pooler" in family.heads[head])):
        parts.append("pooler")  # then its absence is an error that names it

    unshared = encoder_config(family, settings, parts, source)
    encoder = find_sharing(family, unshared, weights)
    if encoder.projects and "projection" not in parts:
        parts.append("projection")
    if encoder != unshared:
        how = ", ".join(
            f"encoder.{name}={getattr(encoder, name)}"
            for name in ("sharing", "groups")
            if getattr(encoder, name) != getattr(unshared, name)
        )
        notes.append(
            f"{folder} has equal weights in several layers; they are read as blocks that layers "
            f"share ({how})"
        )

    beside = {
        name: read_weights(folder / objective.foreign_file)
        for name, objective in OBJECTIVES.items()
        if head is None and objective.foreign_file and (folder / objective.foreign_file).is_file()
    }
    objectives, untrained = _list_objectives(family, parts, beside)
    sequences = SequenceConfig(length=max(8, read_longest(folder, encoder.max_positions)))
    fields: dict[str, Any] = {"encoder": encoder, "sequences": sequences, "objectives": objectives}
    try:
        for name in objectives:
            fields.update(OBJECTIVES[name].assume_fields(fields, beside.get(name, weights)))
        config = Config(name=folder.resolve().name, **fields)
    except ConfigError as error:
        raise ModelError(f"{folder}: {error}") from None
    table = pairs(family, ["backbone", *parts], encoder, family.sentence or "")
    if config.generator is not None and not untrained:
        table += generator_pairs(family, config.generator)
    state = to_litebert(table, weights, str(file))
    contents = Contents(
        folder,
        config_file,
        file,
        config,
        state,
        head,
        beside,
        untrained=() if head else untrained,
        family_dense=family.dense,
        pooling=pooling_of(family, settings, source),
        notes=(
            *notes,
            *note_untrained(() if head else untrained, config, folder),
            *modules_note(folder),
        ),
    )
    if head is None:
        return contents
    usual, classes = next(iter(outputs_of(head).values())), len(state["head.classifier.bias"])
    longest = read_longest(folder, encoder.max_positions)
    return replace(
        contents,
        classes=classes,
        labels=_labels(settings, classes) if usual.classes is None else (),
        task={"kind": head, "length": longest, **problem_of(settings, head, source)},
        reads_cls=usual.reads_cls,
        dense=family.dense if "head.dense.bias" in state else None,
    )


def _find_head(
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


def _list_objectives(
    family: Family, parts: Sequence[str], beside: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
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


def _foreign_heads(family: Family, tensors: Collection[str]) -> set[str]:
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
    named = settings.get("id2label")
    if not isinstance(named, dict) or set(named) != {str(index) for index in range(classes)}:
        return ()
    labels = tuple(str(named[str(index)]) for index in range(classes))
    return () if labels == tuple(f"LABEL_{index}" for index in range(classes)) else labels
