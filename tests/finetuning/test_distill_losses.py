"""The losses of a teacher's answers, as formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from litebert.finetuning.batches import collate
from litebert.tasks.outputs import Output
from litebert.tasks.text_outputs import Number, OneChoice, OneClass, SeveralLabels
from litebert.tasks.token_outputs import OneSpan, Tags
from litebert.tasks.values import EncodedRow, Item, TaskBatch


def item(length: int, target: Any, taught: Any, rows: int = 1) -> Item:
    row = EncodedRow(np.arange(length, dtype=np.int32), np.zeros(length, np.int32))
    return Item(0, (row,) * rows, target, teacher_logits=np.array(taught, np.float32))


def kl(teacher: Any, student: Any, temperature: float) -> float:
    """T^2 sum p (log p - log q), written out."""

    def softmax(values: Any) -> np.ndarray:
        shifted: np.ndarray = np.exp(np.array(values, np.float64) / temperature)
        shares: np.ndarray = shifted / shifted.sum()
        return shares

    p, q = softmax(teacher), softmax(student)
    return float(temperature**2 * (p * (np.log(p) - np.log(q))).sum())


def lesson(output: Output, batch: TaskBatch, logits: torch.Tensor) -> tuple[float, int, int]:
    loss = output.distill_loss(logits, batch, 2.0)
    assert loss.correct is not None
    return float(loss.total), int(loss.count), int(loss.correct)


def test_classes_are_compared_by_the_divergence_of_their_probabilities() -> None:
    batch = collate([item(3, 1, [2.0, -1.0]), item(3, None, [0.5, 0.0])], OneClass(("a", "b")), 0)
    total, count, same = lesson(OneClass(("a", "b")), batch, torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
    assert total == pytest.approx(kl([2, -1], [1, 0], 2) + kl([0.5, 0], [0, 3], 2), rel=1e-5)
    assert (count, same) == (2, 1)


def test_several_labels_are_two_classes_each() -> None:
    output = SeveralLabels(("a", "b"))
    batch = collate([item(3, (1, 0), [2.0, -1.0])], output, 0)
    total, count, same = lesson(output, batch, torch.tensor([[1.0, 0.5]]))
    assert total == pytest.approx((kl([2, 0], [1, 0], 2) + kl([-1, 0], [0.5, 0], 2)) / 2, rel=1e-5)
    assert (count, same) == (1, 0)


def test_a_number_is_compared_on_the_scale_that_is_learned() -> None:
    output = Number(mean=10.0, std=2.0)
    batch = collate([item(3, 0.0, [14.0])], output, 0)
    assert lesson(output, batch, torch.tensor([[0.5]])) == pytest.approx(((2.0 - 0.5) ** 2, 1, 0))


def test_choices_are_compared_among_those_of_their_item() -> None:
    batch = collate(
        [item(3, 0, [1.0, 0.0, 2.0], rows=3), item(3, 1, [1.0, -1.0], rows=2)], OneChoice(), 0
    )
    logits = torch.tensor([[0.0], [1.0], [0.0], [2.0], [0.0]], requires_grad=True)
    loss = OneChoice().distill_loss(logits, batch, 2.0)
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert loss.total.item() == pytest.approx(
        kl([1, 0, 2], [0, 1, 0], 2) + kl([1, -1], [2, 0], 2), rel=1e-5
    )
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_tags_are_compared_where_a_word_has_one() -> None:
    output = Tags(("a", "b"))
    taught = [[9.0, 9.0], [1.0, 0.0], [9.0, 9.0]]
    batch = collate([item(3, np.array([-100, 0, -100]), taught)], output, 0)
    total, count, same = lesson(
        output, batch, torch.tensor([[[5.0, 1.0], [0.0, 2.0], *[[7.0, 1.0]] * 6]])
    )
    assert total == pytest.approx(kl([1, 0], [0, 2], 2), rel=1e-5)
    assert (count, same) == (1, 0)


def test_spans_are_compared_by_first_and_last_token() -> None:
    taught = np.array([[0.0, 1.0], [2.0, 0.0], [1.0, 3.0]])
    batch = collate([item(3, (1, 2), taught)], OneSpan(), 0)
    logits = torch.zeros(1, 8, 2)
    total, count, same = lesson(OneSpan(), batch, logits)
    flat = [0.0] * 3
    assert total == pytest.approx((kl([0, 2, 1], flat, 2) + kl([1, 0, 3], flat, 2)) / 2, rel=1e-5)
    assert (count, same) == (1, 0)
