"""Vocabulary, sentence and fine-tuning heads."""

from __future__ import annotations

import math

import pytest
import torch

from litebert.errors import ModelError
from litebert.model.heads import SentenceHead, TaskModel, VocabularyHead
from model.points import PIECES, batch, randomise, shape


@pytest.mark.parametrize("width", [8, 16])
def test_vocabulary_head_follows_the_formula(width: int) -> None:
    head = VocabularyHead(shape(embedding_size=width)).double()
    randomise(head)
    x, table = torch.randn(5, 16, dtype=torch.float64), torch.randn(PIECES, width, dtype=torch.float64)
    inner = x @ head.dense.weight.T + head.dense.bias
    inner = 0.5 * inner * (1 + torch.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
    centred = inner - inner.mean(-1, keepdim=True)
    inner = centred / centred.square().mean(-1, keepdim=True).sqrt() * head.norm.weight + head.norm.bias
    assert torch.allclose(head(x, table), inner @ table.T + head.bias)


def test_vocabulary_head_owns_no_table() -> None:
    assert {name for name, _ in VocabularyHead(shape()).named_parameters()} == {
        "bias", "dense.weight", "dense.bias", "norm.weight", "norm.bias",
    }  # fmt: skip


def test_heads_keep_their_biases_in_an_encoder_without() -> None:
    config = shape(bias=False)
    assert VocabularyHead(config).dense.bias is not None
    assert SentenceHead(config).classifier.bias is not None


@pytest.mark.parametrize(
    ("kind", "classes", "expected"),
    [("sequence", 4, (3, 4)), ("tokens", 5, (3, 16, 5)), ("span", 2, (3, 16, 2)), ("choice", 1, (3, 1))],
)
def test_task_logits(kind: str, classes: int, expected: tuple[int, ...]) -> None:
    model = TaskModel(shape(), kind, classes).eval()
    randomise(model)
    made = batch()
    inputs = (made.input_ids, made.token_type_ids, made.attention_mask)
    logits = model(*inputs)
    assert logits.shape == expected
    output = model.encoder(*inputs)
    source = output.pooled if kind in ("sequence", "choice") else output.last
    assert source is not None
    assert torch.allclose(logits, source @ model.head.classifier.weight.T + model.head.classifier.bias, atol=1e-6)


def test_task_heads_drop_in_training_only() -> None:
    model = TaskModel(shape(), "sequence", 3)
    randomise(model)
    assert model.head.dropout.p == 0.1
    ids = torch.randint(5, PIECES, (64, 8))
    model.train()
    assert not torch.equal(model(ids), model(ids))
    model.eval()
    assert torch.equal(model(ids), model(ids))


@pytest.mark.parametrize("kind", ["sequence", "choice"])
def test_a_head_that_reads_the_pooler_refuses_an_encoder_without(kind: str) -> None:
    with pytest.raises(ModelError, match=rf"a {kind} head reads the pooled \[CLS\] state; set encoder.pooler=True"):
        TaskModel(shape(pooler=False), kind, 2)
    TaskModel(shape(pooler=False), "tokens", 2)
