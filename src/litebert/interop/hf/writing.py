"""Hugging Face folders, written: one of their classes each. A note reports each part of the model
that is left out or written differently; what no class computes is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from litebert.base.errors import ModelError, nearest
from litebert.base.registry import TASKS
from litebert.config import EncoderConfig, replace
from litebert.config.finetuning import HeadName
from litebert.interop.cards import CARD, make_card
from litebert.interop.files import new_folder, write_settings, write_tensors
from litebert.interop.hf.families import HEADS, TASK_HEADS, Family
from litebert.interop.hf.settings import choose_family, folds, padding_id, read_longest, settings_of
from litebert.interop.hf.weights import pairs, to_foreign
from litebert.interop.loaded import LoadedModel
from litebert.interop.names import WEIGHTS
from litebert.interop.sentence_modules import carry_modules, vector_settings
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from litebert.tokenizer import Tokenizer


@dataclass(frozen=True)
class _Plan:
    """What a folder will hold, all of it computed before anything is written."""

    architecture: str
    head: HeadName
    tensors: Mapping[str, Tensor]
    beside: Mapping[str, Mapping[str, Tensor]]
    """Tensors of heads that no class has, by the file for them."""
    settings: Mapping[str, Any]
    lacks_pooler: bool
    """True where the class has a pooler and the model none."""
    notes: tuple[str, ...]


def save_hf(
    loaded: LoadedModel, folder: str | Path, head: HeadName | None = None
) -> tuple[str, ...]:
    """Write a Hugging Face folder, all of it or nothing, and return notes on what had to be written
    differently. `head` is the class to write, by default the one that holds most of the model; of a
    model trained with a generator, `mlm` is that generator.
    """
    plan = _plan_folder(loaded, head)
    unpooled = {"add_pooling_layer": False} if plan.lacks_pooler else {}
    with new_folder(Path(folder)) as partial:
        write_tensors(partial / WEIGHTS, plan.tensors)
        for file, tensors in plan.beside.items():
            write_tensors(partial / file, tensors)
        write_settings(partial / "config.json", plan.settings)
        write_tokenizer(loaded, partial)
        card = make_card(loaded, plan.architecture, plan.head, plan.notes, **unpooled)
        (partial / CARD).write_text(card, encoding="utf-8")
        return plan.notes + carry_modules(loaded, partial, foreign=plan.head == "backbone")


def _plan_folder(loaded: LoadedModel, requested: HeadName | None) -> _Plan:
    model, has = loaded.model, parts_of(loaded)
    classifier = model if isinstance(model, TaskModel) else None
    objectives = model.named_objectives if isinstance(model, Pretrainer) else {}
    config, state = model.encoder.config, dict(model.state_dict())

    # A generator is written when it is asked for.
    proposes = ""
    for key, objective in objectives.items():
        prefix = f"objectives.{key}."
        if own := _without_prefix(state, f"{prefix}generator."):
            proposes = objective.foreign_part
            if requested == proposes:
                config = loaded.config.generator or config
                borrowed = ("encoder.embedding.", f"{prefix}head.")
                state = {name: of for name, of in state.items() if name.startswith(borrowed)}
                state |= {f"encoder.{name}": tensor for name, tensor in own.items()}
            break

    dense = classifier.dense if classifier else None
    family, notes = choose_family(config, has, dense)
    possible: list[HeadName]
    if classifier:
        possible = ["backbone", loaded.head]
    else:
        possible = [key for key, parts in family.heads.items() if {*parts} <= {*has, "pooler"}]
        # A generator, which is written when it is asked for, comes first.
        possible.sort(key=lambda key: proposes not in family.heads[key])
    if requested is not None and requested not in possible:
        raise ModelError(
            f"the model has no {requested} head to write; {nearest(requested, possible)}"
        )
    head = requested or possible[-1]  # which holds most
    name, parts = family.class_of(head), list(family.heads[head])
    reads = classifier.pooling if classifier and head != "backbone" else "cls"
    if reads in ("unit", "apart") or (reads == "mean" and not family.pooling):
        raise ModelError(
            f"{name} reads [CLS], and this head reads means of the states; write head=backbone, "
            "export the model to ONNX, keep the litebert folder, or fine-tune with head_reads=paper"
        )
    if {*family.gelu_parts} & {*parts} and config.activation != "gelu":
        raise ModelError(
            f"{name} computes gelu in its head whatever the encoder does, and encoder.activation "
            f"is {config.activation}; write head=backbone, or keep the model as a litebert folder"
        )
    if proposes and requested == proposes:
        has = [proposes]
        notes.append(
            f"what is written is the generator; without head={proposes} it is the model that "
            "learned from it"
        )
    elif proposes in has:
        has.remove(proposes)
        notes.append(
            f"the generator is left out; head={proposes} (--head {proposes}) writes it to a folder "
            "of its own"
        )

    # A dense map of the [CLS] state with tanh after it is a pooler, under either name.
    as_pooler = dense == "tanh" and "pooler" in parts
    if as_pooler or ("dense" in parts and "pooler" in has):
        names = ("head.dense", "encoder.pooler")
        source, target = names if as_pooler else reversed(names)
        state |= {f"{target}.{leaf}": state[f"{source}.{leaf}"] for leaf in ("weight", "bias")}
        has = [part for part in has if part != "pooler"] + ["pooler"] * as_pooler

    # Parts that are left out, or written as others.
    words = {objective.foreign_part: objective.network_name for objective in objectives.values()}
    words |= {"pooler": "pooler", "sentence": "sentence head"}
    words |= {"classifier": "classifier", "span": "span classifier"}
    written = {*parts, *([HEADS[head][-1]] if head in TASK_HEADS else [])}
    notes += [
        f"the {words[part]} is left out: {name} has none" for part in has if part not in written
    ]
    lacks_pooler = "pooler" in parts and "pooler" not in has
    if lacks_pooler:
        parts.remove("pooler")
        notes.append(
            f"the model has no pooler; open it with {name}.from_pretrained(folder, "
            "add_pooling_layer=False)"
        )
    sentence = next((key for key, of in objectives.items() if of.foreign_part == "sentence"), "")
    if "sentence" in parts and sentence != family.sentence:
        notes.append(
            f"the {sentence} head is written as {name}'s {family.sentence} head, which has the "
            f"same shape; it still answers {sentence}"
        )
    homeless = [  # the heads of a teacher's objectives are of no use without the teacher
        objective
        for key, objective in objectives.items()
        if not (objective.taught or objective.foreign_part or key in loaded.untrained)
    ]
    for objective in homeless:
        file = objective.foreign_file
        place = f"in {file}, which transformers does not read"
        notes.append(
            f"the {objective.network_name} is "
            f"{place if file else 'left out: transformers has no place for it'}"
        )

    config, moved = _fit_embeddings(state, family, config, loaded.tokenizer)
    notes += moved
    task = loaded.task
    if "exits" in task:
        notes.append("transformers has no early exits, so the exit rule stays behind")
    usual = TASKS[task["task"]].usual if task.get("task") in TASKS else {}
    notes += [
        f"transformers keeps no {key} of a task, so {task[key]} stays behind; a litebert folder "
        "keeps it"
        for key, value in usual.items()
        if task.get(key, value) != value
    ]
    labels = loaded.labels
    if classifier:
        if labels and len(labels) != classifier.classes:
            notes.append(
                f"the {len(labels)} labels ({', '.join(labels)}) are left out: transformers names "
                f"each number of a head, and this head gives {classifier.classes}"
            )
            labels = ()
        labels = labels or tuple(f"LABEL_{index}" for index in range(classifier.classes))

    projection = ["projection"] if config.projects or family.always_projects else []
    table = pairs(family, ["backbone", *projection, *parts], config, sentence)
    tensors = to_foreign(table, state)
    if head == "backbone":  # its class is the backbone, and names nothing after itself
        tensors = _without_prefix(tensors, family.backbone_prefix)
    beside = {
        objective.foreign_file: _without_prefix(state, f"objectives.{objective.name}.")
        for objective in homeless
        if objective.foreign_file
    }
    dropout = classifier.head.dropout.p if classifier else 0.1
    pooling = classifier.pooling if classifier else loaded.pooling
    problem = task.get("problem")
    settings = settings_of(
        family, config, head, loaded.tokenizer, labels, dropout, problem, pooling
    )
    return _Plan(name, head, tensors, beside, settings, lacks_pooler, tuple(notes))


def _fit_embeddings(
    state: dict[str, Tensor], family: Family, config: EncoderConfig, tokenizer: Tokenizer | None
) -> tuple[EncoderConfig, list[str]]:
    """Multiply a table by its map where they have none, add what their embeddings always have, and
    move the positions to where they begin: the config of the result, and notes on the moves.
    """
    embedding, head = "encoder.embedding", "objectives.mlm.head"
    if folds(config):
        for table, map_ in (
            (embedding, state.pop(f"{embedding}.project.weight")),
            (head, state.pop(f"{head}.project.weight", None)),
        ):
            if map_ is not None:
                word_VE = state[f"{table}.word.weight"]
                state[f"{table}.word.weight"] = (word_VE.double() @ map_.double().T).float()
        config = replace(config, embedding_size=config.hidden_size, always_project=False)
    word_VE = state[f"{embedding}.word.weight"]
    if config.segment_types == 0 and "segment_types" in family.keys:
        state[f"{embedding}.token_type.weight"] = word_VE.new_zeros(1, config.embedding_size)
    if family.always_projects and not config.projects:
        identity = torch.eye(config.hidden_size, device=word_VE.device)
        state[f"{embedding}.project.weight"] = identity
        state[f"{embedding}.project.bias"] = word_VE.new_zeros(config.hidden_size)
    if not family.offset_positions:
        return config, []
    by = padding_id(config, tokenizer) + 1 - config.position_offset
    if by == 0:
        return config, []
    position_PE = state[f"{embedding}.position.weight"]
    # No token reads the rows before padding's, so that they may go, and zeros may stand there.
    zeros = position_PE.new_zeros(max(by, 0), config.embedding_size)
    state[f"{embedding}.position.weight"] = torch.cat((zeros, position_PE[max(-by, 0) :]))
    name = family.class_of("backbone")
    return config, [
        f"the position table is moved by {by:+d} rows: {name} counts from the tokenizer's pad id on"
    ]


def parts_of(loaded: LoadedModel) -> list[str]:
    """The parts of the tables of names that a model has beside its encoder."""
    model = loaded.model
    parts = ["pooler"] if model.encoder.pooler is not None else []
    if isinstance(model, TaskModel):
        return [*parts, *([HEADS[loaded.head][-1]] if model.classes else [])]
    trained = [
        objective.foreign_part
        for name, objective in model.named_objectives.items()
        if name not in loaded.untrained
    ]
    return parts + [part for part in trained if part]


def write_tokenizer(loaded: LoadedModel, folder: Path) -> None:
    """The tokenizer's files, if any, with the length at which `truncation=True` cuts."""
    tokenizer, shape = loaded.tokenizer, loaded.config.encoder
    if tokenizer is None:
        return
    tokenizer.save(folder, token_types=shape.segment_types >= 2)
    length = loaded.task.get("length")
    if length is None:
        with suppress(ModelError):  # of modules that are carried along, and nothing here computes
            vectors = vector_settings(loaded)
            length = vectors and (vectors.length or loaded.config.sequences.length)
    if length is None:
        length = read_longest(loaded.path, shape.max_positions)
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    settings["model_max_length"] = min(shape.max_positions, int(length))
    # "[SEP]" in a text is text, but where a program has to find a "[MASK]" or added tokens in it.
    if loaded.task and {*tokenizer.special_ids} == {*tokenizer.engine.roles.values()}:
        settings["split_special_tokens"] = True
    write_settings(file, settings)


def _without_prefix(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in state.items()
        if name.startswith(prefix)
    }
