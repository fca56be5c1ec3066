"""Distances between a network and its teacher, against their formulas written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from litebert.model.teacher import (
    divergence,
    relation_distance,
    state_distance,
)


def softmax(values: np.ndarray) -> np.ndarray:
    shifted = np.exp(values - values.max(-1, keepdims=True))
    probabilities: np.ndarray = shifted / shifted.sum(-1, keepdims=True)
    return probabilities


def test_the_divergence_with_a_temperature() -> None:
    student, teacher = torch.randn(3, 7, generator=torch.manual_seed(0)), torch.randn(3, 7)
    p, q = (softmax(logits.double().numpy() / 2.5) for logits in (teacher, student))
    expected = 2.5**2 * (p * (np.log(p) - np.log(q))).sum(-1)
    assert divergence(student, teacher, 2.5).numpy() == pytest.approx(expected, rel=1e-4)
    assert divergence(student, student, 2.5).numpy() == pytest.approx(0, abs=1e-6)


def test_its_gradient_is_the_difference_of_probabilities() -> None:
    student, teacher = torch.randn(3, 7, requires_grad=True), torch.randn(3, 7)
    divergence(student, teacher, 2.0).sum().backward()  # type: ignore[no-untyped-call]
    expected = 2.0 * ((student / 2).softmax(-1) - (teacher / 2).softmax(-1))
    assert student.grad is not None
    torch.testing.assert_close(student.grad, expected.detach(), atol=1e-5, rtol=1e-4)


def test_the_distance_of_states_is_of_normalized_ones() -> None:
    student, teacher, linear = torch.randn(2, 3, 4), torch.randn(2, 3, 6), nn.Linear(4, 6)
    student_normal, teacher_normal = (
        (states - states.mean(-1, keepdim=True))
        / (states.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        for states in (student, teacher)
    )
    expected = ((student_normal @ linear.weight.T + linear.bias - teacher_normal) ** 2).mean(-1)
    torch.testing.assert_close(state_distance(student, teacher, linear), expected)
    torch.testing.assert_close(
        state_distance(student, 5 * teacher, linear), expected, atol=1e-3, rtol=1e-3
    )


def relations(x_SH: np.ndarray, heads: int) -> list[np.ndarray]:
    """softmax(X X^T / sqrt(D)) of each head, from all features side by side."""
    return [softmax(part @ part.T / part.shape[1] ** 0.5) for part in np.split(x_SH, heads, axis=1)]


def test_relations_are_compared_after_regrouping_the_heads() -> None:
    """A student of two heads of size 4 and a teacher of three heads of size 4, compared by four
    heads.
    """
    torch.manual_seed(0)
    student = tuple(torch.randn(1, 2, 5, 4) for _ in range(3))
    teacher = tuple(torch.randn(1, 3, 5, 4) for _ in range(3))
    mask = torch.tensor([[1, 1, 1, 1, 0]])
    distances = relation_distance(student, teacher, 4, mask)[0, :4]  # type: ignore[arg-type]
    expected = np.zeros(4)
    for student_part, teacher_part in zip(student, teacher, strict=True):
        flat = [
            part[0].transpose(0, 1).reshape(5, -1)[:4].double().numpy()
            for part in (student_part, teacher_part)
        ]
        for q, p in zip(relations(flat[0], 4), relations(flat[1], 4), strict=True):
            expected += (p * (np.log(p) - np.log(q))).sum(-1) / 4
    assert distances.numpy() == pytest.approx(expected, rel=1e-4)
