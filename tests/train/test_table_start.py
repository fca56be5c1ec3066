"""A run whose token table starts from counts: what starts so, that it is part of the run, and what
kills change.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from litebert.base.errors import ConfigError, RunError
from litebert.change.vocabulary import project_table, require_tokenizer
from litebert.config import TableConfig
from litebert.data.cooccurrence import compute_token_vectors, count_neighbors
from litebert.data.shards import Shards
from litebert.interop import read_folder
from litebert.model.objectives import Objective
from litebert.train.device import choose
from litebert.train.initial_weights import build_further_recipe, start_table, take_table
from litebert.train.pretrain import build_pretrainer
from toys.killed import Killed, kill
from toys.pretraining import config, leave_at, pretrain, result
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

    with monkeypatch.context() as patch:
        patch.setattr("litebert.train.pretrain.start_table", kill)
        with pytest.raises(Killed):
            pretrain(point, tiny_data, tmp_path / "cut")

    assert not pretrain(point, tiny_data, tmp_path / "cut", on_step=leave_at(5)).outcome.finished
    # A run that continues counts nothing.
    monkeypatch.setattr("litebert.train.initial_weights.count_neighbors", kill)
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


# ---------------------------------------------------------------------- the table of another model


@pytest.fixture(scope="module")
def larger(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a wider model, with another kind of tokenizer."""
    from litebert.tokenizer.training import train_tokenizer
    from toys.prepare import run as prepare

    folder = tmp_path_factory.mktemp("larger")
    texts = tiny_corpus.read_text(encoding="utf-8").split("\n\n")
    train_tokenizer(texts, kind="wordpiece", vocab_size=300).save(folder / "tokenizer")
    data = folder / "data"
    prepare(tiny_corpus, data, folder / "tokenizer")
    pretrain(config(encoder={"embedding_size": 16}), data, folder / "run")
    return folder / "run"


def test_rows_keep_the_geometry_of_the_rows_that_spell_their_tokens() -> None:
    """A width that loses nothing keeps all angles between rows, whatever the axes and the scale."""
    draw = np.random.default_rng(0)
    table, counts = draw.normal(size=(7, 5)), draw.integers(0, 50, 6)
    sources = [[0], [1, 2], [], [3], [4, 5, 6], [6]]
    rows = project_table(table, sources, counts, width=8, std=0.1)
    spelled = np.stack([table[ids].mean(0) if ids else np.zeros(5) for ids in sources])
    weights = np.log1p(counts + 0.5) * np.array([bool(ids) for ids in sources])
    centered = spelled - np.average(spelled, axis=0, weights=weights)
    centered[2] = 0
    products, expected = rows @ rows.T, centered @ centered.T
    scale = np.trace(products) / np.trace(expected)
    assert np.allclose(products, expected * scale, atol=1e-5)
    assert not rows[2].any()
    assert not rows[:, 5:].any()  # beyond the width of the old rows
    assert rows[[0, 1, 3, 4, 5]].std() == pytest.approx(0.1, rel=1e-5)


def test_a_tokenizer_that_spells_nothing_gives_no_rows() -> None:
    rows = project_table(np.ones((3, 4)), [[], []], np.array([5, 2]), width=2, std=0.1)
    assert rows.shape == (2, 2)
    assert not rows.any()


def test_a_narrow_table_keeps_the_largest_axes() -> None:
    draw = np.random.default_rng(1)
    table = draw.normal(size=(40, 6)) * np.array([9, 1, 5, 0.1, 0.1, 0.1])
    counts, sources = np.full(40, 3), [[i] for i in range(40)]
    narrow = project_table(table, sources, counts, width=3, std=1.0)
    whole = project_table(table, sources, counts, width=6, std=1.0)
    cosines = [
        np.corrcoef((rows @ rows.T).ravel(), (whole @ whole.T).ravel())[0, 1]
        for rows in (narrow, narrow[:, :1])
    ]
    assert cosines[0] > 0.999 > cosines[1]


def test_a_run_starts_from_the_table_of_a_model_with_another_tokenizer(
    tiny_data: Path, tmp_path: Path, larger: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    shards, machine = Shards.open(tiny_data), choose("float32", "cpu")
    shape = {"vocab_size": shards.tokenizer.vocab_size}
    point = config(encoder=shape, table=COUNTS)
    counted, model = (build_pretrainer(point, machine) for _ in range(2))
    start_table(counted, shards)
    start_table(model, shards)
    take_table(model, shards, larger)
    before, after = counted.state_dict(), model.state_dict()
    changed = {name for name in after if not torch.equal(before[name], after[name])}
    assert changed == {"encoder.embedding.word.weight"}  # the biases stay those of the counts
    old = read_folder(larger)
    old_words, words = require_tokenizer(old), shards.tokenizer
    old_ids = {old_words.get_token(i): i for i in range(old_words.vocab_size)}
    shared = [
        (i, old_ids[words.get_token(i)[1:]])
        for i in range(words.vocab_size)
        if words.get_token(i).startswith("\u2581") and words.get_token(i)[1:] in old_ids
    ]
    assert len(shared) > 20
    wide = old.model.encoder.embedding.word.weight.detach()[[j for _, j in shared]]

    def compare_angles(state: dict[str, torch.Tensor]) -> float:
        rows = state["encoder.embedding.word.weight"][[i for i, _ in shared]]
        angles = (torch.nn.functional.normalize(x - x.mean(0)) for x in (rows, wide))
        return float(torch.corrcoef(torch.stack([(x @ x.T).flatten() for x in angles]))[0, 1])

    assert compare_angles(after) > 0.6 > 0.3 > compare_angles(before)


def test_a_run_from_a_table_survives_kills_and_remembers_the_model(
    tiny_data: Path, tmp_path: Path, larger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = config(table=TableConfig(model=str(larger)))
    pretrain(point, tiny_data, tmp_path / "whole")
    plain = pretrain(config(), tiny_data, tmp_path / "plain")
    assert plain.outcome.finished
    assert result(tmp_path / "plain") != result(tmp_path / "whole")

    with monkeypatch.context() as patch:
        patch.setattr("litebert.train.pretrain.take_table", kill)
        with pytest.raises(Killed):
            pretrain(point, tiny_data, tmp_path / "cut")
    cut = pretrain(point, tiny_data, tmp_path / "cut", on_step=leave_at(5))
    assert not cut.outcome.finished
    with refused(RunError, "--table-from", str(larger)):
        pretrain(config(), tiny_data, tmp_path / "cut")
    with refused(RunError, "--table-from"):
        pretrain(point, tiny_data, tmp_path / "plain")
    pretrain(point, tiny_data, tmp_path / "cut")
    assert result(tmp_path / "cut") == result(tmp_path / "whole")
    record = json.loads((tmp_path / "whole" / "run.json").read_text())
    assert record["table_from"] == str(larger.resolve())
    assert '"model"' not in (tmp_path / "whole" / "recipe.json").read_text()
