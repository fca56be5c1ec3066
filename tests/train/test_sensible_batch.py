"""`train.batch=auto`: what it becomes, and that a run keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.base.errors import ConfigError
from litebert.base.json_reader import read_json
from litebert.config import Config, FinetuneConfig, LoopConfig, replace
from litebert.config.serialization import from_dict
from litebert.train import measure
from litebert.train.device import choose
from litebert.train.measure import Rate
from litebert.train.ranks import Ranks
from toys.killed import Killed, kill
from toys.pretraining import config, pretrain, result
from toys.refusals import refused

MACHINE = choose("float32", "cpu")
ALONE = Ranks()


def auto(amount: str) -> Config:
    return config(train={"batch": "auto", "budget": amount})


@given(st.integers(10_000, 10**12))
def test_it_is_a_power_of_two_near_the_root_of_the_tokens(tokens: int) -> None:
    point = auto(f"{tokens} tokens")
    sequences = measure.choose_batch(point, MACHINE, ALONE)
    each = sequences * point.sequences.length
    assert each & (each - 1) == 0
    assert 2**-0.51 <= each / (1.5 * tokens**0.5) <= 2**0.51


def test_a_budget_in_time_is_turned_into_tokens_by_a_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = auto("10m")
    tokens = point.batch_sequences * point.sequences.length  # a second each, so 600 times
    monkeypatch.setattr(measure, "measure", lambda *_: Rate(((1.0, 1.0),), 0.1))
    chosen_batch = measure.choose_batch(point, MACHINE, ALONE)
    assert chosen_batch == measure.choose_batch(auto(f"{600 * tokens} tokens"), MACHINE, ALONE)


def test_steps_decide_nothing() -> None:
    assert auto("7 steps").batch_sequences * auto("7 steps").sequences.length == 4096
    assert measure.choose_batch(auto("7 steps"), MACHINE, ALONE) == auto("7 steps").batch_sequences


@pytest.mark.thorough
def test_a_run_records_it_and_keeps_it(tiny_data: Path, tmp_path: Path) -> None:
    point = replace(
        auto("3000 tokens"), train=replace(auto("3000 tokens").train, save_every="1 steps")
    )

    with pytest.raises(Killed):
        pretrain(point, tiny_data, tmp_path / "auto", on_step=kill)
    batch = from_dict(Config, read_json(tmp_path / "auto" / "recipe.json", ConfigError)).train.batch
    assert batch == "2 sequences"  # 64 tokens: the power of two next to 1.5 sqrt(3000), which is 82
    run = pretrain(point, tiny_data, tmp_path / "auto")
    assert run.config.train.batch == batch
    pretrain(replace(point, train=replace(point.train, batch=batch)), tiny_data, tmp_path / "given")
    assert result(tmp_path / "auto") == result(tmp_path / "given")


def test_only_pretraining_chooses() -> None:
    with refused(ConfigError, "train.batch"):
        LoopConfig(batch="auto")
    with refused(ConfigError, "train.batch"):
        replace(FinetuneConfig(), train=replace(FinetuneConfig().train, batch="auto"))
