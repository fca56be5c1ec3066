"""A length of sequences that changes with the steps of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from litebert.base.errors import ConfigError
from litebert.data.shards import Shards
from litebert.model.pretrainer import Pretrainer
from litebert.train.device import choose
from litebert.train.measure import count_steps, measure
from litebert.train.schedule import Plan
from litebert.train.supply import PretrainingBatches, make_in_processes
from toys.killed import Killed
from toys.pretraining import config, pretrain, result
from toys.refusals import refused

GROWING = {"length_schedule": ((0.25, 8), (0.5, 16))}


@pytest.mark.thorough
def test_sequences_grow_and_a_run_continues_bit_for_bit(tiny_data: Path, tmp_path: Path) -> None:
    train = {"save_every": "1 steps", "budget": "8 steps", "depth_schedule": ((0.5, 1),), **GROWING}
    widths: list[tuple[int, int]] = []

    def seen(loop: Any) -> None:
        widths.append(tuple(loop.trainable.batch(loop.step - 1, slice(0, 8)).input_ids.shape))
        if loop.step in kills[:1]:
            kills.pop()
            raise Killed

    point, kills = config(train=train), list[int]()
    whole = pretrain(point, tiny_data, tmp_path / "whole", on_step=seen)
    assert [rows for rows, _ in widths] == [8] * 8
    assert [most for _, most in widths] == [8] * 2 + [16] * 2 + [32] * 4
    for step in (2, 5):
        kills.append(step)
        with pytest.raises(Killed):
            pretrain(point, tiny_data, tmp_path / "cut", on_step=seen)
    pretrain(point, tiny_data, tmp_path / "cut")
    assert result(tmp_path / "cut") == result(tmp_path / "whole")
    assert (
        pretrain(point, tiny_data, tmp_path / "cut", add_budget="2 steps", on_step=seen).steps == 10
    )
    assert [most for _, most in widths[-2:]] == [32] * 2

    batches = PretrainingBatches(whole.config, Shards.open(tiny_data), Plan((8,)))
    with make_in_processes(whole.config, tiny_data, [slice(2, 5)], 2, batches.place) as make:
        assert make is not None
        for step in range(1, 8):
            assert make(step)[0].input_ids.tolist() == batches(step, slice(2, 5)).input_ids.tolist()


def test_a_budget_pays_for_the_tokens_and_the_time_of_short_sequences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = config(train={"budget": "8k tokens", "depth_schedule": ((0.4, 1),), **GROWING})
    assert point.stages() == ((0.25, 1, 8), (0.4, 1, 16), (0.5, 2, 16), (1.0, 2, 32))
    assert point.mean_length == pytest.approx(0.25 * 8 + 0.25 * 16 + 0.5 * 32)
    assert count_steps(point, None) == round(8000 / (8 * 22))
    seen: list[tuple[int, int | None]] = []
    forward = Pretrainer.forward

    def spy(self: Pretrainer, batch: Any, layers: int | None = None) -> Any:
        seen.append((batch.input_ids.shape[1], layers))
        return forward(self, batch, layers)

    monkeypatch.setattr(Pretrainer, "forward", spy)
    rate = measure(point, choose("float32", "cpu"), seconds=0.0)
    assert [share for share, _ in rate.step_seconds] == pytest.approx([0.25, 0.15, 0.1, 0.5])
    assert [*dict.fromkeys(seen)] == [(8, 1), (16, 1), (16, 2), (32, 2), (32, None)]


@pytest.mark.parametrize("lengths", [((0.5, 7),), ((0.5, 33),), ((0.2, 16), (0.5, 8))])
def test_lengths_that_cannot_be_are_refused(lengths: Any) -> None:
    with refused(
        ConfigError,
        "train.length_schedule",
        [length for _, length in lengths],
        "sequences.length",
        32,
    ):
        config(train={"length_schedule": lengths})
    with refused(ConfigError, "train.length_schedule", [0.5, 0.5]):
        config(train={"length_schedule": ((0.5, 8), (0.5, 16))})
