"""A run whose token table starts from counts: what starts so, that it is part of the run, and what
kills change.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from litebert.config import TableConfig
from litebert.data.batches import Batch
from litebert.data.cooccurrence import compute_token_vectors, count_neighbors
from litebert.data.shards import Shards
from litebert.errors import ConfigError, RunError
from litebert.model.objectives import Objective
from litebert.train.device import choose
from litebert.train.initial_weights import build_further_recipe, start_table
from litebert.train.loop import Loop
from litebert.train.pretrain import build_pretrainer, pretrain
from toys.pretraining import config, result
from toys.refusals import refused

COUNTS = TableConfig(start="cooccurrence")


def test_the_table_and_the_output_biases_start_from_counts(tiny_data: Path) -> None:
    shards, machine = Shards.open(tiny_data), choose("float32", "cpu")
    point = config(encoder={"vocab_size": shards.tokenizer.vocab_size}, table=COUNTS)
    random, model = build_pretrainer(point, machine), build_pretrainer(point, machine)
    start_table(model, shards)
    counts = count_neighbors(shards.train, point.encoder.vocab_size, COUNTS)
    vectors = torch.from_numpy(compute_token_vectors(counts, point.encoder.embedding_size, 0.1))
    before, after = random.state_dict(), model.state_dict()
    changed = {name for name in after if not torch.equal(before[name], after[name])}
    assert changed == {"encoder.embedding.word.weight", "objectives.mlm.head.bias"}
    counted = vectors.any(dim=1)
    word = model.encoder.embedding.word.weight
    assert torch.equal(word[counted], vectors[counted])
    mask = shards.tokenizer.mask_id
    assert torch.equal(word[mask], random.encoder.embedding.word.weight[mask])
    ids = np.concatenate([shards.train.read_document(i)[0] for i in range(shards.train.documents)])
    most = int(np.bincount(ids).argmax())
    share = float((ids == most).mean())
    assert float(after["objectives.mlm.head.bias"][most]) == pytest.approx(np.log(share), rel=1e-4)


@pytest.mark.parametrize("objectives", [("mlm", "sbo"), ("mlm", "rtd")])
def test_every_output_over_the_vocabulary_starts_so(
    objectives: tuple[str, ...], tiny_data: Path
) -> None:
    shards, machine = Shards.open(tiny_data), choose("float32", "cpu")
    shape = {"vocab_size": shards.tokenizer.vocab_size}
    model = build_pretrainer(config(encoder=shape, objectives=objectives, table=COUNTS), machine)
    start_table(model, shards)
    biases = [
        value
        for name, value in model.objectives.named_parameters()
        if value.shape == (shape["vocab_size"],)
    ]
    networks = [
        name
        for name, objective in model.named_objectives.items()
        if isinstance(objective, Objective) and name != "rtd"
    ]
    assert len(biases) == len(networks)
    assert all(float(bias.detach().exp().sum()) == pytest.approx(1, abs=0.2) for bias in biases)


def test_a_run_that_was_killed_at_its_start_or_later_ends_with_the_same_bits(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = config(table=COUNTS)
    pretrain(point, tiny_data, tmp_path / "whole")

    def kill(*arguments: Any) -> None:
        raise SystemExit(9)

    with monkeypatch.context() as patch:
        patch.setattr("litebert.train.pretrain.start_table", kill)
        with pytest.raises(SystemExit):
            pretrain(point, tiny_data, tmp_path / "cut")

    def leave(loop: Loop[Batch]) -> None:
        if loop.step == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    assert not pretrain(point, tiny_data, tmp_path / "cut", on_step=leave).outcome.finished
    monkeypatch.setattr(
        "litebert.train.initial_weights.count_neighbors", kill
    )  # a run that continues counts nothing
    pretrain(point, tiny_data, tmp_path / "cut")
    assert result(tmp_path / "cut") == result(tmp_path / "whole")


def test_the_start_is_part_of_the_run(tiny_data: Path, tmp_path: Path) -> None:
    pretrain(config(table=COUNTS), tiny_data, tmp_path / "run")
    with refused(RunError, "table.start"):
        pretrain(config(), tiny_data, tmp_path / "run")
    with refused(RunError, "table.window"):
        pretrain(
            config(table=TableConfig(start="cooccurrence", window=2)), tiny_data, tmp_path / "run"
        )


def test_a_run_from_other_weights_counts_nothing(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = config(table=COUNTS)
    pretrain(point, tiny_data, tmp_path / "first")
    assert build_further_recipe(tmp_path / "first").table == TableConfig()
    monkeypatch.setattr("litebert.train.initial_weights.count_neighbors", None)
    pretrain(point, tiny_data, tmp_path / "second", from_model=tmp_path / "first")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"start": "cooccurrence", "window": 0}, "table.window"),
        ({"start": "cooccurrence", "std": 0.0}, "table.std"),
        ({"start": "cooccurrence", "std": float("nan")}, "table.std"),
        ({"window": 3}, "table.window"),
        ({"context": "document"}, "table.context"),
    ],
)
def test_values_that_cannot_be_are_refused(fields: dict[str, Any], name: str) -> None:
    with refused(ConfigError, name):
        TableConfig(**fields)


def test_the_command_line_says_what_it_counted(
    tiny_data: Path, tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    sizes = ["--encoder.hidden-size", "16", "--encoder.heads", "2", "--encoder.embedding-size", "8"]
    words = ["pretrain", "albert-tiny", "--shards", str(tiny_data), "--budget", "2 steps", *sizes]
    status, _, err = run(*words, "--table.start", "cooccurrence", "--out", str(tmp_path / "run"))
    assert status == 0
    assert f"{Shards.open(tiny_data).train.tokens:,}" in err
    status, _, err = run(*words, "--table.start", "counts", "--out", str(tmp_path / "other"))
    assert status == 2
    assert "--table.start" in err
