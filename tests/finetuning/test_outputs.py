"""Losses of every output against plain formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from litebert.finetuning.batches import TaskBatch, collate
from litebert.finetuning.items import EncodedRow, Item
from litebert.registry import OUTPUTS


def batch(
    problem: str, targets: list[object], lengths: tuple[int, ...], rows: tuple[int, ...]
) -> TaskBatch:
    row = [
        EncodedRow(np.arange(length, dtype=np.int32), np.zeros(length, np.int32))
        for length in lengths
    ]
    return collate(
        [Item(i, (row[i],) * rows[i], target) for i, target in enumerate(targets)],
        OUTPUTS[problem](),
        0,
    )


def test_classes() -> None:
    data = batch("classes", [2, 0], (3, 5), (1, 1))
    logits = torch.tensor([[1.0, 2.0, 0.5], [3.0, 1.0, 0.0]])
    loss = OUTPUTS["classes"]().loss(logits, data)
    assert loss.total.item() == pytest.approx(
        -(logits.log_softmax(-1)[0, 2] + logits.log_softmax(-1)[1, 0]).item()
    )
    assert (int(loss.count), int(loss.correct)) == (2, 1)


def test_numbers() -> None:
    loss = OUTPUTS["number"]().loss(
        torch.tensor([[1.0], [2.0]]), batch("number", [3.0, 2.5], (3, 5), (1, 1))
    )
    assert loss.total.item() == pytest.approx(4.25)
    assert int(loss.count) == 2


def test_several_labels() -> None:
    data = batch("labels", [(1, 0), (1, 1)], (3, 5), (1, 1))
    logits = torch.tensor([[2.0, -1.0], [0.5, -0.5]])
    p = torch.sigmoid(logits)
    by_hand = -(p[0, 0].log() + (1 - p[0, 1]).log()) / 2 - (p[1, 0].log() + p[1, 1].log()) / 2
    loss = OUTPUTS["labels"]().loss(logits, data)
    assert loss.total.item() == pytest.approx(by_hand.item(), rel=1e-6)
    assert (int(loss.count), int(loss.correct)) == (2, 1)


def test_tokens() -> None:
    data = batch(
        "tokens", [np.array([-100, 1, -100]), np.array([-100, 0, 2, -100])], (3, 4), (1, 1)
    )
    logits = torch.randn(2, 8, 3, generator=torch.Generator().manual_seed(0))
    likely = logits.log_softmax(-1)
    loss = OUTPUTS["tokens"]().loss(logits, data)
    assert loss.total.item() == pytest.approx(
        -(likely[0, 1, 1] + likely[1, 1, 0] + likely[1, 2, 2]).item()
    )
    assert int(loss.count) == data.predictions == 3


def test_spans_never_end_in_padding() -> None:
    data = batch("span", [(1, 2), (0, 3)], (3, 4), (1, 1))
    logits = torch.randn(2, 8, 2, generator=torch.Generator().manual_seed(0))
    first, second = logits[0, :3].log_softmax(0), logits[1, :4].log_softmax(0)
    by_hand = -(first[1, 0] + first[2, 1] + second[0, 0] + second[3, 1]) / 2
    loss = OUTPUTS["span"]().loss(logits, data)
    assert loss.total.item() == pytest.approx(by_hand.item(), rel=1e-6)
    assert OUTPUTS["span"]().arrange(logits, data)[0, 3:].isneginf().all()


def test_choices_of_different_number() -> None:
    data = batch("choice", [1, 2], (3, 4), (2, 4))
    logits = torch.tensor([[1.0], [2.0], [0.0], [1.0], [5.0], [2.0]])
    arranged = OUTPUTS["choice"]().arrange(logits, data)
    assert arranged.shape == (2, 4)
    loss = OUTPUTS["choice"]().loss(logits, data)
    by_hand = F.cross_entropy(torch.tensor([[1.0, 2.0]]), torch.tensor([1])) + F.cross_entropy(
        torch.tensor([[0.0, 1.0, 5.0, 2.0]]), torch.tensor([2])
    )
    assert loss.total.item() == pytest.approx(by_hand.item(), rel=1e-6)
    assert (int(loss.count), int(loss.correct)) == (2, 2)
