"""Rows that the loop writes: means over windows of steps, and held-out scores that are not taken
twice."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from litebert.data.batches import Batch
from litebert.model.objectives import Loss
from litebert.train import metrics
from litebert.train.loop import Loop, Window
from litebert.train.pretrain import TrainablePretrainer
from toys.pretraining import config, loop_of, pretrain


def sums(total: float, count: int, correct: int, **extras: float) -> Loss:
    numbers = {name: torch.tensor(value) for name, value in extras.items()}
    return Loss(torch.tensor(total), torch.tensor(count), torch.tensor(correct), numbers)


def reload_window(window: Window) -> Window:
    """The window after a checkpoint."""
    return Window.from_state(json.loads(json.dumps(window.state())), torch.device("cpu"))


def test_a_window_holds_means_over_its_steps() -> None:
    window = Window()
    window.end_step(torch.tensor(1.0))
    window.add("a", sums(6.0, 3, 1, found=2))
    window = reload_window(window)
    window.add("a", sums(2.0, 1, 1, found=1))
    window.add("b", sums(0.0, 0, 0, found=0.0))
    window.end_step(torch.tensor(2.0))
    # of what nothing was predicted there is no mean
    expected = {
        "loss": 4.0,
        "a_loss": 2.0,
        "a_accuracy": 0.5,
        "a_found": 0.75,
        "gradient_norm": 1.5,
    }
    assert window.compute_row({"a": 2.0, "b": 1.0}) == expected
    assert reload_window(window).compute_row({"a": 2.0, "b": 1.0}) == expected


def test_sums_are_those_of_python_to_the_last_digit() -> None:
    values = torch.rand(1000, generator=torch.Generator().manual_seed(0)) * 1e3
    window, exact, norms = Window(), 0.0, 0.0
    for value in values:
        window.add("a", Loss(value, torch.tensor(1), torch.tensor(0)))
        window.end_step(value / 3)
        exact, norms = exact + value.item(), norms + (value / 3).item()
    state = window.state()
    assert (state["total"], state["count"], state["gradient_norm"]) == (
        {"a": exact},
        {"a": 1000},
        norms,
    )
    assert isinstance(state["count"]["a"], int)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("every", "steps"),
    [
        ("4 steps", [4, 8, 12]),
        ("5 steps", [5, 12]),
        ("8 steps", [8, 12]),
        ("9 steps", [12]),
        ("40%", [5, 12]),
        ("99 steps", [12]),
    ],
)
def test_the_last_scores_are_not_taken_twice(
    every: str, steps: list[int], tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluation less than half an interval before the end waits for the end."""
    monkeypatch.setattr(TrainablePretrainer, "evaluate", lambda trainable: {"x": 1.0})
    pretrain(config(train={"evaluate_every": every}), tiny_data, tmp_path)
    rows = metrics.read(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows if row["kind"] == "heldout"] == steps


def test_speed_is_written_beside_the_metrics_and_to_the_bar(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for a run that goes on too; the share of the machine's peak once the run has
    lasted a second.
    """
    shown: list[str] = []

    def step(loop: Loop[Batch]) -> None:
        time.sleep(0.3)

    loop = loop_of(
        config(),
        tiny_data,
        tmp_path,
        steps=6,
        on_step=step,
        share_of_peak=lambda rate, depth: rate / 1e4,
    )
    original = loop._describe_progress

    def note_and_describe(rate: Any) -> str:
        shown.append(original(rate))
        return ""

    monkeypatch.setattr(loop, "_describe_progress", note_and_describe)
    loop.run()
    rows = metrics.read(tmp_path / "speed.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert all(0 < row["tokens_per_second"] < 8 * 32 / 0.3 for row in rows)
    assert rows == sorted(rows, key=lambda row: row["seconds"])
    assert rows[-1]["share_of_peak"] == rows[-1]["tokens_per_second"] / 1e4
    assert "tokens/s" in shown[-1]
    assert "%" in shown[-1]
