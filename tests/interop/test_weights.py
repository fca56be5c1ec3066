"""The interpreter of the name tables: both directions, every family's table, and its refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from litebert.base.errors import ModelError
from litebert.base.registry import FAMILIES
from litebert.config import EncoderConfig
from litebert.interop.hf.families import ALBERT, BERT, TASK_PARTS, Family
from litebert.interop.hf.weights import (
    groups_agree,
    modernize,
    pairs,
    slots,
    to_foreign,
    to_litebert,
)
from litebert.model.encoder import Encoder
from toys.folders import tiny
from toys.refusals import refused

SHAPE: dict[str, Any] = {
    "vocab_size": 40,
    "embedding_size": 4,
    "hidden_size": 8,
    "layers": 6,
    "heads": 2,
    "intermediate_size": 16,
    "max_positions": 16,
}
PARTS = ("backbone", "projection", "pooler", "mlm", "sentence")


Arrays = dict[str, NDArray[np.float32]]


def arrays_of(tensors: dict[str, Tensor]) -> Arrays:
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def same(first: Arrays, second: Arrays) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(first[name], second[name]) for name in first
    )


@pytest.mark.parametrize("sharing", ["none", "all", "attention", "feedforward", "groups"])
def test_there_and_back_is_the_identity(sharing: Any) -> None:
    model = tiny(sharing=sharing, layers=6, groups=3 if sharing == "groups" else 1)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    table = pairs(ALBERT, PARTS, model.encoder.config, "sop")
    foreign = arrays_of(to_foreign(table, model.state_dict()))
    assert same(arrays_of(model.state_dict()), to_litebert(table, foreign, "x"))


def test_shared_blocks_are_written_once_per_slot_and_own_their_memory() -> None:
    model = tiny(sharing="attention", layers=3)
    foreign = to_foreign(pairs(ALBERT, PARTS, model.encoder.config, "sop"), model.state_dict())
    group = "albert.encoder.albert_layer_groups.{}.albert_layers.0"
    attention = [foreign[f"{group.format(i)}.attention.dense.weight"] for i in range(3)]
    feedforward = [foreign[f"{group.format(i)}.ffn.weight"] for i in range(3)]
    assert torch.equal(attention[0], attention[2])
    assert not torch.equal(feedforward[0], feedforward[2])
    pointers = [tensor.untyped_storage().data_ptr() for tensor in foreign.values()]
    assert len(set(pointers)) == len(pointers)


@given(layers=st.integers(1, 40), groups=st.integers(1, 40))
def test_slots_hold_the_blocks_their_layers_apply(layers: int, groups: int) -> None:
    groups = min(groups, layers)
    config = EncoderConfig(**{**SHAPE, "layers": layers}, sharing="groups", groups=groups)
    held = slots(ALBERT, config)
    # The rule of transformers' AlbertTransformer.forward.
    applied = [held[int(i / (layers / len(held)))] for i in range(layers)]
    assert applied == list(zip(config.attention_of(), config.feedforward_of(), strict=True))
    assert slots(BERT, config) == applied


def test_where_their_rounding_differs() -> None:
    assert not groups_agree(18, 14)
    assert all(
        groups_agree(layers, groups)
        for layers in (1, 2, 3, 4, 6, 8, 12, 24, 48)
        for groups in range(1, layers + 1)
    )


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_tables_name_every_parameter_once(family: Family) -> None:
    width = 4 if "projection" in family.parts else 8
    objectives: tuple[str, ...] = ("mlm", family.sentence) if family.sentence else ("mlm",)
    pooler = "pooler" in family.parts
    model = tiny(objectives, sharing="none", embedding_size=width, pooler=pooler, **family.computes)
    parts = [part for part in PARTS if part in family.parts]
    table = pairs(family, parts, model.encoder.config, family.sentence or "")
    assert sorted(pair.name for pair in table) == sorted(model.state_dict())
    foreign = [name for pair in table for name in pair.foreign]
    assert len(set(foreign)) == len(foreign)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_every_part_is_of_some_class_and_every_class_of_parts(family: Family) -> None:
    used = {part for head in family.heads.values() for part in head}
    assert used | {"backbone", "projection"} == family.parts.keys() | {"projection"}
    assert set(family.fixed_by_part) <= used
    assert (family.dense is None) == ("dense" not in used)
    heads: Any = ("sequence", "tokens", "span", "choice")
    assert all(set(family.heads[head]) <= {"pooler", *TASK_PARTS} for head in heads)


def bare() -> tuple[Encoder, Arrays]:
    model = tiny(sharing="none", embedding_size=8)
    table = pairs(BERT, ("backbone", "pooler"), model.encoder.config)
    return model.encoder, arrays_of(to_foreign(table, model.state_dict()))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_old_spellings_are_read(family: Family) -> None:
    model = tiny(("mlm",), sharing="none", embedding_size=8, pooler=False, **family.computes)
    table = pairs(family, ("backbone", "mlm"), model.encoder.config)
    foreign = arrays_of(to_foreign(table, model.state_dict()))
    old = {}
    for name, tensor in foreign.items():
        stem, _, leaf = name.rpartition(".")
        if "norm" in stem.lower():
            leaf = {"weight": "gamma", "bias": "beta"}[leaf]
        old[f"{stem}.{leaf}"] = tensor
    for name, target in family.tied.items():
        old[name] = foreign[target].copy()
    assert same(modernize(family, old, "x"), foreign)
    # A bare backbone has no prefix.
    backbone = {
        name: tensor for name, tensor in foreign.items() if name.startswith(family.backbone_prefix)
    }
    bare = {
        name.removeprefix(family.backbone_prefix): old_tensor
        for name, old_tensor in backbone.items()
    }
    assert same(modernize(family, bare, "x"), backbone)


def test_tied_repeats_must_be_equal() -> None:
    _, foreign = bare()
    word = foreign["bert.embeddings.word_embeddings.weight"]
    key = "cls.predictions.decoder.weight"
    assert same(modernize(BERT, {**foreign, key: word.copy()}, "x"), foreign)
    with refused(ModelError, "model.bin", f"'{key}'", "'bert.embeddings.word_embeddings.weight'"):
        modernize(BERT, {**foreign, key: word + 1}, "model.bin")
    # Some files keep the vocabulary's bias under the decoder's name alone.
    bias = np.arange(40, dtype=np.float32)
    moved = modernize(BERT, {**foreign, "cls.predictions.decoder.bias": bias}, "x")
    assert np.array_equal(moved["cls.predictions.bias"], bias)


def test_unknown_and_missing_keys_are_named_with_the_nearest() -> None:
    encoder, foreign = bare()
    table = pairs(BERT, ("backbone", "pooler"), encoder.config)
    misspelt = dict(foreign)
    misspelt["bert.pooler.dens.weight"] = misspelt.pop("bert.pooler.dense.weight")
    with refused(ModelError, "f", "'bert.pooler.dense.weight'", "'bert.pooler.dens.weight'"):
        to_litebert(table, misspelt, "f")
    with refused(ModelError, "f", "'bert.embeddings.word_embeddings.weight'", 38):
        to_litebert(table, {"x": np.zeros(1, np.float32)}, "f")
    with refused(ModelError, "f", "'bert.pooler.dense.extra'", 1, "'bert.pooler.dense.weight'"):
        to_litebert(
            table,
            {
                **foreign,
                "bert.pooler.dense.extra": np.zeros(1, np.float32),
                "other": np.zeros(1, np.float32),
            },
            "f",
        )


def test_shapes_that_do_not_stack_are_refused() -> None:
    encoder, foreign = bare()
    table = pairs(BERT, ("backbone", "pooler"), encoder.config)
    name = "bert.encoder.layer.0.attention.self.key.weight"
    for wrong in (foreign[name][:, 1:], np.float32(1).reshape(())):
        with refused(ModelError, "f", "'bert.encoder.layer.0.attention.self.query.weight'"):
            to_litebert(table, {**foreign, name: wrong}, "f")
