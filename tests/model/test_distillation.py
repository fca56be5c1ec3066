"""Distances between a network and its teacher, against their formulas written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from litebert.model.distillation import (
    divergence,
    divergence_from,
    likeliest,
    relation_distance,
    state_distance,
)


def softmax(values: np.ndarray) -> np.ndarray:
    shifted = np.exp(values - values.max(-1, keepdims=True))
    found: np.ndarray = shifted / shifted.sum(-1, keepdims=True)
    return found


def test_the_divergence_with_a_temperature() -> None:
    own, theirs = torch.randn(3, 7, generator=torch.manual_seed(0)), torch.randn(3, 7)
    p, q = (softmax(one.double().numpy() / 2.5) for one in (theirs, own))
    expected = 2.5**2 * (p * (np.log(p) - np.log(q))).sum(-1)
    assert divergence(own, theirs, 2.5).numpy() == pytest.approx(expected, rel=1e-4)
    assert divergence(own, own, 2.5).numpy() == pytest.approx(0, abs=1e-6)


def test_its_gradient_is_the_difference_of_probabilities() -> None:
    own, theirs = torch.randn(3, 7, requires_grad=True), torch.randn(3, 7)
    divergence(own, theirs, 2.0).sum().backward()  # type: ignore[no-untyped-call]
    expected = 2.0 * ((own / 2).softmax(-1) - (theirs / 2).softmax(-1))
    assert own.grad is not None
    torch.testing.assert_close(own.grad, expected.detach(), atol=1e-5, rtol=1e-4)


def test_the_divergence_from_the_likeliest_counts_all_others_as_one() -> None:
    own, theirs = torch.randn(4, 9, generator=torch.manual_seed(0)), 3 * torch.randn(4, 9)
    taught = likeliest(theirs, 3, 2.0)
    assert taught.tokens.tolist() == theirs.topk(3).indices.tolist()
    p, q = (softmax(one.double().numpy() / 2.0) for one in (theirs, own))
    expected = []
    for row, kept in enumerate(taught.tokens.tolist()):
        left = [place for place in range(9) if place not in kept]
        mine, its = ([*one[row][kept], one[row][left].sum()] for one in (q, p))
        expected.append(
            4.0 * sum(b * (np.log(b) - np.log(a)) for a, b in zip(mine, its, strict=True))
        )
    found = divergence_from(taught, own, 2.0)
    assert found.numpy() == pytest.approx(expected, abs=5e-3)  # of half precision
    assert (found <= divergence(own, theirs, 2.0) + 5e-3).all()
    whole = likeliest(theirs, 100, 2.0)
    torch.testing.assert_close(
        divergence_from(whole, own, 2.0), divergence(own, theirs, 2.0), atol=1e-3, rtol=1e-3
    )


@pytest.mark.parametrize("sure", [5.0, 13.0, 20.0, 60.0])
def test_its_gradient_is_right_where_the_student_is_wrongly_sure(sure: float) -> None:
    """Of others than the likeliest, to which it leaves next to nothing: those pull with the
    teacher's probability.
    """
    taught = likeliest(torch.tensor([[3.0, 2.0, 1.5, 1.0]]), 2, 1.0)
    own = torch.tensor([[sure, sure, 0.0, -1.0]], requires_grad=True)
    divergence_from(taught, own, 1.0).sum().backward()  # type: ignore[no-untyped-call]
    p, q = taught.log_probabilities.double().exp()[0], own.detach().double().softmax(-1)[0]
    rest = 1 - p.sum()
    wanted = [*(q[:2] - p), *(q[2:] - rest * q[2:] / q[2:].sum())]
    assert own.grad is not None
    assert own.grad[0].tolist() == pytest.approx([float(one) for one in wanted], abs=1e-5)


def test_the_distance_of_states_is_of_normalised_ones() -> None:
    own, theirs, linear = torch.randn(2, 3, 4), torch.randn(2, 3, 6), nn.Linear(4, 6)
    mine, its = (
        (one - one.mean(-1, keepdim=True)) / (one.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        for one in (own, theirs)
    )
    expected = ((mine @ linear.weight.T + linear.bias - its) ** 2).mean(-1)
    torch.testing.assert_close(state_distance(own, theirs, linear), expected)
    torch.testing.assert_close(
        state_distance(own, 5 * theirs, linear), expected, atol=1e-3, rtol=1e-3
    )


def relations(x_SH: np.ndarray, heads: int) -> list[np.ndarray]:
    """softmax(X X^T / sqrt(D)) of each head, from all features side by side."""
    return [softmax(part @ part.T / part.shape[1] ** 0.5) for part in np.split(x_SH, heads, axis=1)]


def test_relations_are_compared_after_regrouping_the_heads() -> None:
    """A student of two heads of size 4 and a teacher of three heads of size 4, compared by four
    heads.
    """
    torch.manual_seed(0)
    own = tuple(torch.randn(1, 2, 5, 4) for _ in range(3))
    theirs = tuple(torch.randn(1, 3, 5, 4) for _ in range(3))
    mask = torch.tensor([[1, 1, 1, 1, 0]])
    found = relation_distance(own, theirs, 4, mask)[0, :4]  # type: ignore[arg-type]
    expected = np.zeros(4)
    for mine, its in zip(own, theirs, strict=True):
        flat = [one[0].transpose(0, 1).reshape(5, -1)[:4].double().numpy() for one in (mine, its)]
        for q, p in zip(relations(flat[0], 4), relations(flat[1], 4), strict=True):
            expected += (p * (np.log(p) - np.log(q))).sum(-1) / 4
    assert found.numpy() == pytest.approx(expected, rel=1e-4)
