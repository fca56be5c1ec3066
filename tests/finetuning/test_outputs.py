"""Losses of every output against plain formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional as F

from litebert.base.registry import OUTPUTS
from litebert.config.finetuning import FinetuneConfig
from litebert.finetuning.batches import collate
from litebert.tasks.text_outputs import Number, OneClass, SeveralLabels
from litebert.tasks.values import EncodedRow, Item, TaskBatch


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


def test_balanced_classes_weigh_as_in_scikit_learn() -> None:
    targets = [0, 0, 0, 0, 1, 2, 2]
    weighed = OneClass(("a", "b", "c")).weigh(FinetuneConfig(class_weights="balanced"), targets)
    weights = compute_class_weight("balanced", classes=np.arange(3), y=np.array(targets))
    logits = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    expected = F.cross_entropy(
        logits, torch.tensor(targets), torch.from_numpy(weights).float(), reduction="sum"
    )
    total, correct = weighed.total(logits, torch.tensor(targets))
    assert total.item() == pytest.approx(expected.item(), rel=1e-6)
    assert int(correct) == int((logits.argmax(-1) == torch.tensor(targets)).sum())


def test_balanced_labels_weigh_the_rows_that_have_them() -> None:
    everywhere = SeveralLabels(("a", "b")).weigh(
        FinetuneConfig(class_weights="balanced"), [(1, 0), (1, 1), (1, 0)]
    )
    assert isinstance(everywhere, OneClass)
    assert everywhere.weights == (1.0, 2.0)  # a label on every row has no rows to weigh against
    targets = [(1, 0), (0, 0), (0, 1), (0, 1), (0, 1)]
    weighed = SeveralLabels(("a", "b")).weigh(FinetuneConfig(class_weights="balanced"), targets)
    logits = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    right = torch.tensor(targets, dtype=torch.float32)
    expected = F.binary_cross_entropy_with_logits(
        logits, right, pos_weight=torch.tensor([4.0, 2 / 3]), reduction="sum"
    )
    assert weighed.total(logits, right)[0].item() == pytest.approx(expected.item() / 2, rel=1e-6)


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_the_focal_loss_is_that_of_the_paper(gamma: float) -> None:
    logits = torch.tensor([[1.0, 2.0, 0.5], [30.0, 1.0, 0.0]], requires_grad=True)
    likely = logits.softmax(-1)[[0, 1], [2, 0]]
    expected = -((1 - likely) ** gamma * likely.log())[0]  # the second row is certain: no loss
    output = OneClass(("a", "b", "c")).weigh(FinetuneConfig(focal_gamma=gamma), [])
    total, _ = output.total(logits, torch.tensor([2, 0]))
    assert total.item() == pytest.approx(expected.item(), rel=1e-5)
    total.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()

    both = torch.tensor([[1.0, -0.5]])
    p = both.sigmoid()[0]
    by_hand = -((1 - p[0]) ** gamma * p[0].log() + p[1] ** gamma * (1 - p[1]).log()) / 2
    several = SeveralLabels(("a", "b")).weigh(FinetuneConfig(focal_gamma=gamma), [])
    assert several.total(both, torch.tensor([[1.0, 0.0]]))[0].item() == pytest.approx(
        by_hand.item(), rel=1e-5
    )


def test_a_weight_of_a_row_is_as_many_rows() -> None:
    draw = torch.Generator().manual_seed(0)
    weights = torch.tensor([2.0, 1.0, 3.0, 0.0])
    places = torch.tensor([0, 0, 1, 2, 2, 2])
    balanced = FinetuneConfig(class_weights={"a": 3.0}, focal_gamma=1.0)
    several = torch.tensor([[1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 1, 1]], dtype=torch.float32)
    for output, width, targets in (
        (OneClass(("a", "b", "c")), 3, torch.tensor([0, 2, 1, 0])),
        (OneClass(("a", "b", "c")).weigh(balanced, []), 3, torch.tensor([0, 2, 1, 0])),
        (SeveralLabels(("a", "b", "c")), 3, several),
        (Number(), 1, torch.randn(4, generator=draw)),
    ):
        logits = torch.randn(4, width, generator=draw)
        repeated = output.total(logits[places], targets[places])[0]
        weighed = output.total(logits, targets, weights)[0]
        assert weighed.item() == pytest.approx(repeated.item(), rel=1e-5)
