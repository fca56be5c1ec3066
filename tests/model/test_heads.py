"""Vocabulary, sentence and fine-tuning heads."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from litebert.base.errors import ModelError
from litebert.config import HeadActivation
from litebert.model.heads import ClassifierHead, VocabularyHead
from litebert.model.operations import ACTIVATIONS
from litebert.model.task_model import TaskModel
from toys.points import PIECES, batch, randomize, shape
from toys.refusals import refused


@pytest.mark.parametrize("width", [8, 16])
def test_vocabulary_head_follows_the_formula(width: int) -> None:
    head = VocabularyHead(shape(embedding_size=width)).double()
    randomize(head)
    x = torch.randn(5, 16, dtype=torch.float64)
    table = torch.randn(PIECES, width, dtype=torch.float64)
    inner = x @ head.dense.weight.T + head.dense.bias
    inner = 0.5 * inner * (1 + torch.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
    centered = inner - inner.mean(-1, keepdim=True)
    inner = (
        centered / centered.square().mean(-1, keepdim=True).sqrt() * head.norm.weight
        + head.norm.bias
    )
    assert torch.allclose(head(x, table), inner @ table.T + head.bias)


def test_vocabulary_head_owns_no_table() -> None:
    assert {name for name, _ in VocabularyHead(shape()).named_parameters()} == {
        "bias",
        "dense.weight",
        "dense.bias",
        "norm.weight",
        "norm.bias",
    }


def test_heads_keep_their_biases_in_an_encoder_without() -> None:
    config = shape(bias=False)
    assert VocabularyHead(config).dense.bias is not None
    assert ClassifierHead(config, 2).classifier.bias is not None


@pytest.mark.parametrize(
    ("reads_cls", "classes", "expected"),
    [(True, 4, (3, 4)), (False, 5, (3, 16, 5)), (True, 1, (3, 1))],
)
def test_task_logits(reads_cls: bool, classes: int, expected: tuple[int, ...]) -> None:
    model = TaskModel(shape(), reads_cls, classes).eval()
    randomize(model)
    made = batch()
    inputs = (made.input_ids, made.token_type_ids, made.attention_mask)
    logits = model(*inputs)
    assert logits.shape == expected
    output = model.encoder(*inputs)
    source = output.pooled if reads_cls else output.last
    assert source is not None
    assert torch.allclose(
        logits, source @ model.head.classifier.weight.T + model.head.classifier.bias, atol=1e-6
    )


def test_task_heads_drop_in_training_only() -> None:
    model = TaskModel(shape(), True, 3)
    randomize(model)
    assert model.head.dropout.p == 0.1
    ids = torch.randint(5, PIECES, (64, 8))
    model.train()
    assert not torch.equal(model(ids), model(ids))
    model.eval()
    assert torch.equal(model(ids), model(ids))


ACTIVATION = {
    "tanh": torch.tanh,
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: (
        0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "relu": lambda x: x.clamp(min=0),
    "silu": lambda x: x / (1 + torch.exp(-x)),
}


@pytest.mark.parametrize("dense", ACTIVATIONS)
@pytest.mark.parametrize("classes", [4, 1])
def test_a_head_with_a_dense_map_reads_the_first_state(classes: int, dense: HeadActivation) -> None:
    model = TaskModel(shape(pooler=False), True, classes, dense).eval()
    randomize(model)
    made = batch()
    inputs = (made.input_ids, made.token_type_ids, made.attention_mask)
    first = model.encoder(*inputs).last[:, 0]
    head: Any = model.head
    activation: Any = ACTIVATION[dense]
    inner = activation(first @ head.dense.weight.T + head.dense.bias)
    expected = inner @ head.classifier.weight.T + head.classifier.bias
    assert expected.shape == (3, classes)
    assert torch.allclose(model(*inputs), expected, atol=1e-6)


def test_tanh_after_a_dense_map_is_a_pooler() -> None:
    pooled = TaskModel(shape(), True, 3).eval()
    dense = TaskModel(shape(pooler=False), True, 3, "tanh").eval()
    randomize(pooled)
    names = {"encoder.pooler.weight": "head.dense.weight", "encoder.pooler.bias": "head.dense.bias"}
    dense.load_state_dict(
        {names.get(name, name): tensor for name, tensor in pooled.state_dict().items()}
    )
    ids = batch(padded=False).input_ids
    assert torch.allclose(pooled(ids), dense(ids), atol=1e-6)


def test_dropout_stands_before_and_after_the_dense_map() -> None:
    head = ClassifierHead(shape(), 2, "relu", dropout=0.5)
    assert head.dense is not None
    torch.nn.init.eye_(head.dense.weight)
    torch.nn.init.ones_(head.classifier.weight)
    torch.manual_seed(0)
    logits = head(torch.ones(4000, 16))[:, 0].detach()
    # Each of 16 inputs is kept twice with probability 1/2 and scaled by 2 each time: mean 16,
    # variance 16 * 3.
    assert abs(float(logits.mean()) - 16) < 0.5
    assert abs(float(logits.var()) - 48) < 5


@pytest.mark.parametrize(
    ("changes", "reads_cls", "classes", "dense", "pooling"),
    [
        ({"pooler": False}, True, 2, None, "cls"),  # neither pooler nor dense map
        ({}, True, 2, "tanh", "cls"),  # both
        ({}, True, 2, None, "mean"),
        ({"pooler": False}, True, 2, "tanh", "mean"),
        ({"pooler": False}, False, 2, None, "mean"),
        ({}, False, 2, "tanh", "cls"),
        ({}, True, 0, None, "cls"),
        ({"prediction": "hidden"}, True, 2, None, "cls"),
        ({"prediction": "hidden"}, False, 2, None, "cls"),
        ({"prediction": "hidden", "pooler": False}, True, 2, "gelu", "cls"),
    ],
)
def test_an_impossible_head_is_refused(
    changes: dict[str, Any], reads_cls: bool, classes: int, dense: Any, pooling: Any
) -> None:
    with refused(ModelError, f"dense={dense!r}", f"pooling={pooling!r}", "encoder.pooler"):
        TaskModel(shape(**changes), reads_cls, classes, dense, pooling)


@pytest.mark.parametrize(
    ("changes", "reads_cls", "classes", "dense", "pooling"),
    [
        ({}, True, 2, None, "cls"),
        ({"pooler": False}, True, 2, "tanh", "cls"),
        ({"pooler": False}, True, 2, None, "mean"),
        ({}, False, 2, None, "cls"),
        ({"pooler": False}, False, 0, None, "cls"),
        ({"prediction": "hidden", "pooler": False}, True, 2, None, "cls"),
        ({"prediction": "hidden", "pooler": False}, True, 2, None, "mean"),
        ({"prediction": "hidden", "pooler": False}, False, 2, None, "cls"),
    ],
)
def test_a_possible_head_is_built(
    changes: dict[str, Any], reads_cls: bool, classes: int, dense: Any, pooling: Any
) -> None:
    model = TaskModel(shape(**changes), reads_cls, classes, dense, pooling)
    ids = batch(padded=False).input_ids
    assert len(model(ids)) == len(ids)
