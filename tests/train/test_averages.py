"""Averaged weights: what they are, that training does not see them, and that everything else
does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from litebert import cost
from litebert.config import Config
from litebert.train import averages, metrics
from litebert.train.evaluate import evaluate
from litebert.train.pretrain import pretrain
from toys.pretraining import config, result


class Killed(Exception):
    """Stands for the instant a run is killed."""


def point(average: float, **train: Any) -> Config:
    return config(
        train={"average": average, "save_every": "1 steps", "evaluate_every": "50%", **train}
    )


def saved(run: Path, file: str) -> dict[str, Tensor]:
    return load_file(max((run / "checkpoints").glob("step-*")) / f"{file}.safetensors")


def test_a_run_gives_the_average_and_trains_as_without(tiny_data: Path, tmp_path: Path) -> None:
    seen: list[dict[str, Tensor]] = []

    def watch(loop: Any) -> None:
        seen.append(
            {name: one.detach().clone() for name, one in loop.trainable.module.named_parameters()}
        )

    plain = pretrain(point(0.0), tiny_data, tmp_path / "plain")
    pretrain(point(0.25), tiny_data, tmp_path / "averaged", on_step=watch)
    expected = seen[0]
    for step, weights in enumerate(seen, 1):
        expected = {
            name: one + (weights[name] - one) / min(step, 3) for name, one in expected.items()
        }
    found, beside = saved(tmp_path / "averaged", "model"), saved(tmp_path / "averaged", "optimizer")
    for name, average in expected.items():
        torch.testing.assert_close(found[name], average)
        assert not torch.equal(found[name], seen[-1][name])
    own = {
        name.removeprefix("weights."): one
        for name, one in beside.items()
        if name.startswith("weights.")
    }
    trained = saved(tmp_path / "plain", "model")
    assert own.keys() == trained.keys()
    assert all(torch.equal(own[name], one) for name, one in trained.items())

    (*_, last) = (
        row
        for row in metrics.read(tmp_path / "averaged" / "metrics.jsonl")
        if row["kind"] == "heldout"
    )
    scores = evaluate(tmp_path / "averaged", tiny_data, sequences=16, device="cpu")
    assert last["mlm_loss"] == scores["mlm_loss"] != plain.outcome.scores["mlm_loss"]


@pytest.mark.parametrize("step", [4, 7])
def test_a_run_that_was_killed_continues_bit_for_bit(
    step: int, tiny_data: Path, tmp_path: Path
) -> None:
    def kill(loop: Any) -> None:
        if loop.step == step:
            raise Killed

    pretrain(point(0.5), tiny_data, tmp_path / "whole")
    with pytest.raises(Killed):
        pretrain(point(0.5), tiny_data, tmp_path / "cut", on_step=kill)
    pretrain(point(0.5), tiny_data, tmp_path / "cut")
    assert result(tmp_path / "cut") == result(tmp_path / "whole")
    for name in ("whole", "cut"):
        pretrain(point(0.5), tiny_data, tmp_path / name, extend="2 steps")
    assert result(tmp_path / "cut") == result(tmp_path / "whole")


def test_whole_weights_are_put_together_for_checkpoints_alone(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, whole_state = list[Any](), averages.whole_state
    monkeypatch.setattr(
        averages, "whole_state", lambda *given: asked.append(given) or whole_state(*given)
    )
    pretrain(point(0.5, save_every="1h"), tiny_data, tmp_path / "run")
    assert len(asked) == len(list((tmp_path / "run" / "checkpoints").glob("step-*"))) == 1


def test_it_takes_as_much_memory_as_the_weights() -> None:
    plain, averaged = (cost.memory(config(train={"average": share})) for share in (0.0, 0.1))
    assert averaged.weights == 2 * plain.weights
