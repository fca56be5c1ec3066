"""A positions kind of one's own, a bias of the scores, from the plan to the answer without a change
in litebert.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import litebert
from litebert.base.errors import ModelError
from litebert.base.registry import POSITIONS
from litebert.config import EncoderConfig
from litebert.finetuning.run import finetune
from litebert.model.attention_positions import AttentionPositions
from litebert.model.positions import Positions
from toys.finetuning import config as settings
from toys.finetuning import write_table
from toys.pretraining import config
from toys.refusals import refused


class LinearBias(AttentionPositions):
    """Every head lowers the score of a key by its distance, each at a slope of its own (Press et
    al. 2022).
    """

    slope_A: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        slope_A = 2.0 ** (-8 * torch.arange(1, config.heads + 1) / config.heads)
        self.register_buffer("slope_A", slope_A, persistent=False)

    def bias(self, length: int) -> Tensor:
        place_S = torch.arange(length, device=self.slope_A.device)
        return -self.slope_A[:, None, None] * (place_S - place_S[:, None]).abs()


class ALiBi(Positions):
    def attention(self) -> AttentionPositions:
        return LinearBias(self.config)


@pytest.fixture(autouse=True, scope="module")
def _register() -> None:
    POSITIONS.add("alibi", ALiBi)


@pytest.mark.thorough
def test_a_positions_kind_goes_all_the_way(
    tiny_data: Path, tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    plans = [
        run("plan", "albert-tiny", "--encoder.positions", name, "--json")
        for name in ("alibi", "rotary")
    ]
    assert [status for status, _, _ in plans] == [0, 0], plans
    assert len({json.loads(out)["parameters"]["total"] for _, out, _ in plans}) == 1, (
        "neither has parameters"
    )

    litebert.pretrain(
        config(encoder={"positions": "alibi"}, train={"precision": "auto"}),
        tiny_data,
        tmp_path / "run",
    )
    assert (
        litebert.evaluate(tmp_path / "run", shards=tiny_data, sequences=16).scores["mlm_loss"] > 0
    )

    table = write_table(tmp_path / "train.csv", 200)
    task = litebert.open_task("table", table, dev=table)
    done = finetune(tmp_path / "run", task, tmp_path / "tuned", settings(epochs=6, rate=1e-2))
    assert done.scores["accuracy"] > 0.9
    model = litebert.load(tmp_path / "tuned")
    assert model.config.encoder.positions == "alibi"
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    answers = model.predict([row["text"] for row in rows])
    assert (
        sum(answer["prediction"] == row["label"] for answer, row in zip(answers, rows, strict=True))
        > 180
    )

    with refused(ModelError, "encoder.positions=alibi"):
        litebert.convert(tmp_path / "run", tmp_path / "hf", to="hf")
