"""Hugging Face folders, written.

One folder holds one of their classes. A note reports each part of the model that is left out or
written differently; what no class computes is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from litebert.base.errors import ModelError, nearest
from litebert.base.registry import TASKS
from litebert.config import EncoderConfig, replace
from litebert.config.finetuning import HeadName
from litebert.interop.cards import CARD, make_card
from litebert.interop.files import new_folder, write_tensors
from litebert.interop.hf.families import HEADS, TASK_HEADS, Family
from litebert.interop.hf.settings import choose_family, folds, padding_id, read_longest, settings_of
from litebert.interop.hf.weights import pairs, to_foreign
from litebert.interop.loaded import LoadedModel
from litebert.interop.names import WEIGHTS
from litebert.interop.sentence_modules import carry_modules, vector_settings
from litebert.model.objectives import Objective
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from litebert.tokenizer import Tokenizer


def save_hf(
    loaded: LoadedModel, folder: str | Path, head: HeadName | None = None
) -> tuple[str, ...]:
    """Write a Hugging Face folder, all of it or nothing, and return notes on what had to be written
    differently.

    Args:
        head: the class to write, from what the model has; by itself the one that holds most of it.
            Of a model trained with a generator, `mlm` is that generator.
    """
    model, has, requested = loaded.model, parts_of(loaded), head
    objectives = model.named_objectives if isinstance(model, Pretrainer) else {}
    classifier = model if isinstance(model, TaskModel) else None
    dense = classifier.dense if classifier else None
    proposing = _proposing_objective(model)
    proposes = proposing.foreign_part if proposing else ""
    config, state = _weights_to_write(loaded, proposing, requested)
    family, notes = choose_family(config, has, dense)
    head = _head_to_write(family, loaded, has, proposes, requested)
    name, parts = family.class_of(head), list(family.heads[head])
    _require_same_computation(family, head, config, classifier)
    if proposes:
        notes += _note_generator(has, proposes, requested)
    _pooler_as_dense(state, has, parts, dense)
    sentence = next(
        (key for key, objective in objectives.items() if objective.foreign_part == "sentence"), ""
    )
    notes += _note_parts(family, head, parts, has, objectives, sentence)
    homeless = _homeless_objectives(loaded)
    notes += [
        f"the {objective.network_name} is {_place(objective.foreign_file)}"
        for objective in homeless
    ]
    if folds(config):
        config = _fold_map(state, config)
    notes += _fit_embeddings(state, family, config, loaded.tokenizer)
    notes += _settings_left_out(loaded.task)
    labels, label_notes = _labels_to_write(loaded, classifier)
    notes += label_notes
    tensors = _foreign_tensors(family, head, parts, config, sentence, state)
    lacks_pooler = "pooler" in family.heads[head] and "pooler" not in parts
    unpooled = {"add_pooling_layer": False} if lacks_pooler else {}
    with new_folder(Path(folder)) as partial:
        write_tensors(partial / WEIGHTS, tensors)
        for objective in homeless:
            if objective.foreign_file:
                beside = _without_prefix(state, f"objectives.{objective.name}.")
                write_tensors(partial / objective.foreign_file, beside)
        settings = _settings_to_write(family, config, head, loaded, labels)
        _write_json(partial / "config.json", settings)
        write_tokenizer(loaded, partial)
        (partial / CARD).write_text(
            make_card(loaded, name, head, notes, **unpooled), encoding="utf-8"
        )
        notes += carry_modules(loaded, partial, foreign=head == "backbone")
    return tuple(notes)


def _proposing_objective(model: Pretrainer | TaskModel) -> Objective | None:
    if not isinstance(model, Pretrainer):
        return None
    state = model.state_dict()
    generating = (
        objective
        for objective in model.named_objectives.values()
        if _without_prefix(state, f"objectives.{objective.name}.generator.")
    )
    return next(generating, None)


def _weights_to_write(
    loaded: LoadedModel, proposing: Objective | None, requested: HeadName | None
) -> tuple[EncoderConfig, dict[str, Tensor]]:
    """The config and the tensors of the encoder that is written: the model's, or its generator's
    where that is requested.
    """
    config, state = loaded.model.encoder.config, dict(loaded.model.state_dict())
    if proposing and requested == proposing.foreign_part:
        prefix = f"objectives.{proposing.name}."
        return loaded.config.generator or config, _generator_state(state, prefix)
    return config, state


def _require_same_computation(
    family: Family, head: HeadName, config: EncoderConfig, classifier: TaskModel | None
) -> None:
    name = family.class_of(head)
    if classifier and classifier.pooling == "mean" and head != "backbone" and not family.pooling:
        raise ModelError(
            f"{name} reads [CLS], and this head reads the mean of the states; write "
            "head=backbone, export the model to "
            "ONNX, keep the litebert folder, or fine-tune with head_reads=paper"
        )
    if {*family.gelu_parts} & {*family.heads[head]} and config.activation != "gelu":
        raise ModelError(
            f"{name} computes gelu in its head whatever the encoder does, and "
            "encoder.activation is "
            f"{config.activation}; write head=backbone, or keep the model as a litebert folder"
        )


def _note_generator(has: list[str], proposes: str, requested: HeadName | None) -> list[str]:
    """Say which of a discriminator and its generator is written; the other's part leaves `has`."""
    if requested == proposes:
        has[:] = [proposes]
        return [
            f"what is written is the generator; without head={proposes} it is the model that "
            "learned from it"
        ]
    if proposes in has:
        has.remove(proposes)
        return [
            f"the generator is left out; head={proposes} (--head {proposes}) writes it to "
            "a folder of its own"
        ]
    return []


def _note_parts(
    family: Family,
    head: HeadName,
    parts: list[str],
    has: Sequence[str],
    objectives: Mapping[str, Objective],
    sentence: str,
) -> list[str]:
    """Say which parts are left out or written as others; a pooler that is missing leaves `parts`.

    Args:
        parts: parts of the foreign class.
        has: parts of the model.
        sentence: the model's objective about two segments, empty where it has none.
    """
    name = family.class_of(head)
    networks = {objective.foreign_part: objective.network_name for objective in objectives.values()}
    notes = _note_left_out(has, head, parts, name, networks)
    if "pooler" in parts and "pooler" not in has:
        parts.remove("pooler")
        notes.append(
            f"the model has no pooler; open it with {name}.from_pretrained(folder, "
            "add_pooling_layer=False)"
        )
    if "sentence" in parts and sentence != family.sentence:
        notes.append(
            f"the {sentence} head is written as {name}'s {family.sentence} head, which has "
            f"the same shape; it still answers {sentence}"
        )
    return notes


def _homeless_objectives(loaded: LoadedModel) -> list[Objective]:
    """The trained objectives whose head no foreign class has; those of a teacher need the teacher
    and are left out.
    """
    model = loaded.model
    named = model.named_objectives if isinstance(model, Pretrainer) else {}
    return [
        objective
        for name, objective in named.items()
        if not objective.taught and not objective.foreign_part and name not in loaded.untrained
    ]


def _foreign_tensors(
    family: Family,
    head: HeadName,
    parts: Sequence[str],
    config: EncoderConfig,
    sentence: str,
    state: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    projection = ["projection"] if config.projects or family.always_projects else []
    table = pairs(family, ["backbone", *projection, *parts], config, sentence)
    tensors = to_foreign(table, state)
    if head == "backbone":  # its class is the backbone, and names nothing after itself
        tensors = _without_prefix(tensors, family.backbone_prefix)
    return tensors


def _labels_to_write(
    loaded: LoadedModel, classifier: TaskModel | None
) -> tuple[tuple[str, ...], list[str]]:
    """The names of the classes, numbered where the model has none that fit, and notes on them."""
    if classifier is None:
        return loaded.labels, []
    labels = loaded.labels
    notes = []
    if labels and len(labels) != classifier.classes:
        notes.append(
            f"the {len(labels)} labels ({', '.join(labels)}) are left out: transformers "
            f"names each number of a head, and this head gives {classifier.classes}"
        )
        labels = ()
    return labels or tuple(f"LABEL_{index}" for index in range(classifier.classes)), notes


def _settings_to_write(
    family: Family,
    config: EncoderConfig,
    head: HeadName,
    loaded: LoadedModel,
    labels: Sequence[str],
) -> dict[str, Any]:
    classifier = loaded.model if isinstance(loaded.model, TaskModel) else None
    dropout = classifier.head.dropout.p if classifier else 0.1
    pooling = classifier.pooling if classifier else loaded.pooling
    problem = loaded.task.get("problem")
    return settings_of(family, config, head, loaded.tokenizer, labels, dropout, problem, pooling)


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


def _head_to_write(
    family: Family,
    loaded: LoadedModel,
    has: Sequence[str],
    proposes: str,
    requested: HeadName | None,
) -> HeadName:
    """The head that was requested, else the one that holds most; `proposes` is the part of a
    generator.
    """
    if isinstance(loaded.model, TaskModel):
        possible: list[HeadName] = ["backbone", loaded.head]
    else:
        possible = [name for name, parts in family.heads.items() if {*parts} <= {*has, "pooler"}]
        possible.sort(
            key=lambda name: proposes not in family.heads[name]
        )  # a generator is written when asked for
    if requested is not None and requested not in possible:
        raise ModelError(
            f"the model has no {requested} head to write; {nearest(requested, possible)}"
        )
    return requested or possible[-1]


def _note_left_out(
    has: Sequence[str],
    head: HeadName,
    parts: Sequence[str],
    architecture: str,
    heads: Mapping[str, str],
) -> list[str]:
    words = {
        **heads,
        "pooler": "pooler",
        "sentence": "sentence head",
        "classifier": "classifier",
        "span": "span classifier",
    }
    written = {*parts, *([HEADS[head][-1]] if head in TASK_HEADS else [])}
    return [
        f"the {words[part]} is left out: {architecture} has none"
        for part in has
        if part not in written
    ]


def _place(file: str) -> str:
    return (
        f"in {file}, which transformers does not read"
        if file
        else "left out: transformers has no place for it"
    )


def _settings_left_out(task: Mapping[str, Any]) -> list[str]:
    usual = TASKS[task["task"]].usual if task.get("task") in TASKS else {}
    exits = (
        ["transformers has no early exits, so the exit rule stays behind"]
        if "exits" in task
        else []
    )
    return exits + [
        f"transformers keeps no {key} of a task, so {task[key]} stays behind; a litebert "
        "folder keeps it"
        for key, value in usual.items()
        if task.get(key, value) != value
    ]


def _generator_state(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The generator under the names of an encoder: the embeddings it borrows, then what is its own,
    and its head.
    """
    borrowed = {
        name: tensor for name, tensor in state.items() if name.startswith("encoder.embedding.")
    }
    unshared = _without_prefix(state, f"{prefix}generator.")
    head = {name: tensor for name, tensor in state.items() if name.startswith(f"{prefix}head.")}
    return {**borrowed, **{f"encoder.{name}": tensor for name, tensor in unshared.items()}, **head}


def write_tokenizer(loaded: LoadedModel, folder: Path) -> None:
    """The tokenizer's files, where there is one, with the length at which `truncation=True`
    cuts."""
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
    _write_json(file, settings)


def _write_json(file: Path, settings: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _without_prefix(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in state.items()
        if name.startswith(prefix)
    }


def _pooler_as_dense(
    state: dict[str, Tensor], has: list[str], parts: Sequence[str], dense: str | None
) -> None:
    """A dense map of the [CLS] state with tanh after it is a pooler, under either name."""
    if dense == "tanh" and "pooler" in parts:
        state.update(
            {f"encoder.pooler.{leaf}": state[f"head.dense.{leaf}"] for leaf in ("weight", "bias")}
        )
        has.append("pooler")
    elif "dense" in parts and "pooler" in has:
        state.update(
            {f"head.dense.{leaf}": state[f"encoder.pooler.{leaf}"] for leaf in ("weight", "bias")}
        )
        has.remove("pooler")


def _fold_map(state: dict[str, Tensor], config: EncoderConfig) -> EncoderConfig:
    """Replace the table by itself times its map E -> H; the config of what is
    then there.
    """
    word_VE, map_HE = (
        state["encoder.embedding.word.weight"],
        state.pop("encoder.embedding.project.weight"),
    )
    state["encoder.embedding.word.weight"] = (word_VE.double() @ map_HE.double().T).float()
    head = "objectives.mlm.head"
    if (own_HE := state.pop(f"{head}.project.weight", None)) is not None:
        state[f"{head}.word.weight"] = (
            state[f"{head}.word.weight"].double() @ own_HE.double().T
        ).float()
    return replace(config, embedding_size=config.hidden_size, always_project=False)


def _fit_embeddings(
    state: dict[str, Tensor], family: Family, config: EncoderConfig, tokenizer: Tokenizer | None
) -> list[str]:
    """Add what their embeddings always have, and begin the positions where they do; notes on what
    is moved.
    """
    word_VE = state["encoder.embedding.word.weight"]
    if config.segment_types == 0 and "segment_types" in family.keys:
        state["encoder.embedding.token_type.weight"] = word_VE.new_zeros(1, config.embedding_size)
    if family.always_projects and not config.projects:
        state["encoder.embedding.project.weight"] = torch.eye(
            config.hidden_size, device=word_VE.device
        )
        state["encoder.embedding.project.bias"] = word_VE.new_zeros(config.hidden_size)
    by = (
        padding_id(config, tokenizer) + 1 - config.position_offset if family.offset_positions else 0
    )
    if by == 0:
        return []
    position_PE = state["encoder.embedding.position.weight"]
    # No token reads the rows before padding's, so that they may go, and zeros may stand there.
    zeros = position_PE.new_zeros(max(by, 0), config.embedding_size)
    state["encoder.embedding.position.weight"] = torch.cat((zeros, position_PE[max(-by, 0) :]))
    name = family.class_of("backbone")
    return [
        f"the position table is moved by {by:+d} rows: {name} counts from the tokenizer's pad id on"
    ]
