"""A run that learns nothing is reported, and what to try."""

from __future__ import annotations

import json
import random
from typing import Any

from litebert.train.plateau import DIVERGED_ROWS, PLATEAU_ROWS, PLATEAU_STEPS, watch_plateau
from toys.refusals import names


def say_all(
    losses: list[float | None], entropy: float = 6.0, every: int = 10
) -> list[tuple[int, str]]:
    """The remarks, and the row of each."""
    memory: dict[str, Any] = {}
    remarks = [
        (i, watch_plateau(memory, (i + 1) * every, loss, entropy)) for i, loss in enumerate(losses)
    ]
    assert json.loads(json.dumps(memory)) == memory, "it must go through a checkpoint"
    return [(i, remark) for i, remark in remarks if remark is not None]


def test_a_loss_on_the_unigram_entropy_is_said_once_and_what_to_try() -> None:
    [(row, remark)] = say_all([7.0, 6.5, 6.1, *[6.02] * 100])
    assert row == PLATEAU_ROWS - 1
    names(remark, "unigram entropy", "6.00", "train.optimizer.name=muon", "encoder.norm=pre")
    names(remark, "train.depth_schedule", "train.optimizer.learning_rate")


def test_a_loss_that_falls_and_one_that_is_not_there_are_no_plateau() -> None:
    assert say_all([9.0 * 0.98**i for i in range(200)]) == []
    assert say_all([None] * 500) == []


def test_leaving_the_plateau_is_said_and_coming_back_too() -> None:
    on, off = [6.0] * 60, [4.0] * 5
    (first, _), (left, words), (again, _) = say_all([*on, *off, *on])
    assert first == PLATEAU_ROWS - 1
    assert left == 60
    names(words, "left", "5.60", "6.00")
    assert 65 + PLATEAU_ROWS <= again < 85 + PLATEAU_ROWS


def test_a_noisy_plateau_is_a_plateau() -> None:
    draw = random.Random(0)
    assert [row for row, _ in say_all([draw.gauss(6.0, 0.12) for _ in range(200)])] == [
        PLATEAU_ROWS - 1
    ]


def test_a_loss_above_the_unigram_entropy_is_said_to_be_above() -> None:
    [(_, remark)] = say_all([9.0] * 100)
    names(remark, "9.00", "above", "6.00")


def test_a_loss_that_rises_has_diverged_and_is_no_plateau() -> None:
    """Reported well before a plateau would be, once, and again only when it has recovered."""
    (row, remark), (back, words) = say_all([*[5.0] * 50, *[108.0] * 100, *[4.0] * 60])
    assert 50 + DIVERGED_ROWS - 1 <= row < 50 + PLATEAU_ROWS
    names(
        remark, "diverged", "5.00", "6.00", "train.optimizer.learning_rate", "train.schedule.warmup"
    )
    assert "plateau" not in remark
    assert back > 150
    names(words, "recovered")


def test_few_steps_are_no_plateau_however_many_rows() -> None:
    remarks = say_all([6.0] * 400, every=1)
    assert [row for row, _ in remarks] == [PLATEAU_STEPS - 1]


def test_a_loss_worse_than_guessing_has_diverged_and_is_no_plateau() -> None:
    memory: dict[str, Any] = {}
    remarks = [watch_plateau(memory, 10 * row, 108.0, 6.0, random=9.0) for row in range(200)]
    [remark] = filter(None, remarks)
    names(remark, "108.00", "9.00", "diverged", "train.optimizer.learning_rate")
    assert watch_plateau(memory, 2010, 5.0, 6.0, random=9.0) is None
