"""What the loop writes: means over windows of steps, and held-out scores that are not taken twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from litebert.model.objectives import Loss
from litebert.train import metrics
from litebert.train.loop import Window
from litebert.train.pretrain import PretrainingWork, pretrain
from toys.pretraining import config


def sums(total: float, count: int, correct: int, **extras: float) -> Loss:
    numbers = {name: torch.tensor(value) for name, value in extras.items()}
    return Loss(torch.tensor(total), torch.tensor(count), torch.tensor(correct), numbers)


def test_a_window_holds_means_over_its_steps() -> None:
    window = Window(steps=2, gradient_norm=3.0)
    window.add("a", sums(6.0, 3, 1, found=2))
    window.add("a", sums(2.0, 1, 1, found=1))
    window.add("b", sums(0.0, 0, 0, found=0.0))
    expected = {"loss": 4.0, "a_loss": 2.0, "a_accuracy": 0.5, "a_found": 0.75, "b_loss": 0.0, "b_accuracy": 0.0,
                "b_found": 0.0, "gradient_norm": 1.5}  # fmt: skip
    assert window.row({"a": 2.0, "b": 1.0}) == expected
    assert Window(**json.loads(json.dumps(vars(window)))).row({"a": 2.0, "b": 1.0}) == expected


def test_a_window_of_an_older_checkpoint_has_no_further_sums() -> None:
    window = Window(steps=1, gradient_norm=1.0, total={"a": 6.0}, count={"a": 3}, correct={"a": 1})
    assert window.row({"a": 1.0}).keys() == {"loss", "a_loss", "a_accuracy", "gradient_norm"}
    window.add("a", sums(2.0, 1, 1))
    assert window.row({"a": 1.0})["a_loss"] == 2.0


@pytest.mark.parametrize(
    ("every", "steps"),
    [("4 steps", [4, 8, 12]), ("5 steps", [5, 12]), ("8 steps", [8, 12]), ("9 steps", [12]), ("40%", [5, 12]),
     ("99 steps", [12])],
)  # fmt: skip
def test_the_last_scores_are_not_taken_twice(
    every: str, steps: list[int], tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluation less than half an interval before the end waits for the end."""
    monkeypatch.setattr(PretrainingWork, "evaluate", lambda work: {"x": 1.0})
    pretrain(config(train={"evaluate_every": every}), tiny_data, tmp_path)
    rows = metrics.read(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows if row["kind"] == "heldout"] == steps
