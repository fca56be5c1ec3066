"""Runs side by side, from folders written by hand: what a row holds, when a remark is due, what is
no run.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import litebert
from litebert.analysis.compare import (
    ComparedRun,
    compare,
    list_differences,
    make_settings_table,
    make_table,
)
from litebert.base.errors import RunError
from litebert.config import Config, EncoderConfig, SequenceConfig, replace
from litebert.config.serialization import to_json
from toys import pretraining
from toys.refusals import refused

SIZES: dict[str, Any] = {
    "embedding_size": 8,
    "hidden_size": 16,
    "intermediate_size": 32,
    "max_positions": 64,
}
SHAPE = EncoderConfig(vocab_size=100, layers=2, heads=2, **SIZES)
PLAIN = Config(
    name="plain", encoder=SHAPE, sequences=SequenceConfig(length=32), objectives=("mlm", "sop")
)
EMBEDDING = (100 + 2 + 64) * 8 + 16 + (8 * 16 + 16)
BLOCK = 4 * (16 * 16 + 16) + 32 + 2 * 16 * 32 + 48 + 32
ENCODER = EMBEDDING + BLOCK + 16 * 16 + 16
HEADS = {"mlm": 16 * 8 + 8 + 16 + 100, "sop": 34}
MLM = {"mlm_loss": 4.0, "mlm_accuracy": 0.3, "mlm_majority": 0.05}
SOP = {"sop_accuracy": 0.6, "sop_majority": 0.51, "sop_standard_error": 0.01}
HELDOUT = {**MLM, "mlm_perplexity": 54.6, **SOP}


def folder(
    path: Path,
    config: Config = PLAIN,
    *,
    scores: dict[str, Any] = HELDOUT,
    steps: int = 100,
    tokens: int = 3000,
    seconds: float | None = 60.0,
    data: str = "abc",
) -> Path:
    """A run of `steps` steps that was evaluated half-way, worse, and at its end."""
    path.mkdir(parents=True)
    (path / "recipe.json").write_text(to_json(config))
    about = {"format": 1, "steps": steps, "data_fingerprint": data}
    (path / "run.json").write_text(json.dumps(about))
    rows = [
        {"step": steps // 2, "kind": "train", "tokens": tokens // 2},
        {"step": steps // 2, "kind": "heldout", **dict.fromkeys(scores, 0.125)},
        {"step": steps, "kind": "train", "tokens": tokens},
        {"step": steps, "kind": "heldout", **scores},
        {"step": steps, "kind": "event", "message": "the end"},
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for step, share in ((steps // 2, 0.5), (steps, 1.0)):
        if seconds is not None:
            state = path / "checkpoints" / f"step-{step:08d}" / "state.json"
            state.parent.mkdir(parents=True)
            counts = {"step": step, "seconds": seconds * share, "tokens": tokens * share}
            state.write_text(json.dumps(counts))
            digest = hashlib.sha256(state.read_bytes()).hexdigest()
            index = {"format": 1, "files": {"state.json": {"bytes": 0, "sha256": digest}}}
            (state.parent / "index.json").write_text(json.dumps(index))
    return path


def test_a_row_is_what_the_folder_says(tmp_path: Path) -> None:
    path = folder(tmp_path / "run")
    (row,) = litebert.compare([path])
    assert [row] == [
        ComparedRun(
            run=str(path),
            recipe="plain",
            encoder_parameters=ENCODER,
            parameters=ENCODER + sum(HEADS.values()),
            step=100,
            steps=100,
            tokens=3000,
            seconds=60.0,
            tokens_per_second=50.0,
            scores=HELDOUT,
            data_fingerprint="abc",
            budget=PLAIN.train.budget,
            length=32,
            settings=row.settings,
        )
    ]
    assert row.settings["train.optimizer.learning_rate"] == str(PLAIN.train.optimizer.learning_rate)
    assert compare([]) == []


def test_a_table_shows_each_runs_own_scores_beside_guessing(tmp_path: Path) -> None:
    small = replace(SHAPE, pooler=False)
    scores = {**MLM, "mlm_accuracy": 0.2, "rtd_loss": 0.1, "rtd_accuracy": 0.9}
    scores |= {"rtd_base_rate": 0.87, "rtd_auc": 0.75, "rtd_piece_auc": 0.55}
    rtd = replace(PLAIN, name="detector", encoder=small, objectives=("mlm", "rtd"))
    sbo = replace(PLAIN, objectives=("mlm", "sbo"))
    spans = {**MLM, "mlm_accuracy": 0.4, "sbo_accuracy": 0.15, "sbo_majority": 0.06}
    paths = [
        folder(tmp_path / "a"),
        folder(tmp_path / "b", rtd, scores=scores, seconds=None),
        folder(tmp_path / "c", sbo, scores=spans, tokens=3_456_000),
    ]
    shown = make_table(compare(paths))
    named = [dict(zip(shown.columns, row, strict=True)) for row in shown.rows]
    for column, *cells in (
        ("recipe", "plain", "detector", "plain"),
        ("tokens/s", "50", "-", "57,600"),
        ("tokens, M", "0.00", "0.00", "3.46"),
        ("MLM accuracy (majority)", "30.0% (5.0%)", "20.0% (5.0%)", "40.0% (5.0%)"),
        ("sentence accuracy (majority)", "60.0% ± 1.0% (51.0%)", "-", "-"),
        ("RTD area (tokens alone)", "-", "0.750 (0.550)", "-"),
        ("RTD accuracy (base rate)", "-", "90.0% (87.0%)", "-"),
        ("SBO accuracy (majority)", "-", "-", "15.0% (6.0%)"),
    ):
        assert [row[column] for row in named] == cells
    assert "generator" in shown.note
    alone = make_table(compare(paths[:1]))
    assert not [column for column in alone.columns if "RTD" in column or "SBO" in column]
    assert "generator" not in alone.note


def test_runs_are_called_by_their_folder_where_that_is_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [folder(tmp_path / name) for name in ("x/one", "x/two", "y/two")]
    assert [row[0] for row in make_table(compare(paths[:2])).rows] == ["one", "two"]
    assert [row[0] for row in make_table(compare(paths)).rows] == [str(path) for path in paths]
    monkeypatch.chdir(paths[0])
    assert make_table(compare(["."])).rows[0][0] == "one"


def test_a_sentence_task_may_be_either(tmp_path: Path) -> None:
    scores = {**MLM, "nsp_accuracy": 0.7, "nsp_majority": 0.5}
    nsp = folder(tmp_path / "nsp", replace(PLAIN, objectives=("mlm", "nsp")), scores=scores)
    shown = make_table(compare([folder(tmp_path / "sop"), nsp]))
    assert [row[-1] for row in shown.rows] == ["60.0% ± 1.0% (51.0%)", "70.0% (50.0%)"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, []),
        ({"tokens": 4400, "seconds": 80.0}, []),
        ({"data": "xyz"}, ["different data"]),
        ({"tokens": 4600}, ["the same budget, 1000 steps, was 3,000 tokens for A and 4,600 for B"]),
        ({"tokens": 1900}, ["the same budget, 1000 steps, was 1,900 tokens for B and 3,000 for A"]),
        ({"seconds": 100.5}, ["the same budget, 1000 steps, was 60 seconds for A and 100.5 for B"]),
        (
            {"tokens": 9000, "config": replace(PLAIN, train=replace(PLAIN.train, budget="30m"))},
            ["the runs had different budgets: 3,000 tokens for A and 9,000 for B"],
        ),
        ({"seconds": None}, []),
        ({"data": "xyz", "tokens": 9000, "seconds": 1.0}, ["different data", "tokens", "seconds"]),
        (
            {"config": replace(PLAIN, sequences=SequenceConfig(length=64))},
            ["sequences of 32 and 64 tokens"],
        ),
    ],
)
def test_what_was_unlike_is_said(change: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    rows = compare([folder(tmp_path / "A"), folder(tmp_path / "B", **change)])
    lines = [text.replace(f"{tmp_path}/", "") for text in list_differences(rows)]
    assert len(lines) == len(words)
    for text, part in zip(lines, words, strict=True):
        assert part in text


def test_a_run_on_its_way_is_shown_where_it_was_scored(tmp_path: Path) -> None:
    path = folder(tmp_path / "run")
    lines = (path / "metrics.jsonl").read_text().splitlines()
    (path / "metrics.jsonl").write_text("\n".join(lines[:3]) + '\n{"step": 100, "ki')
    (row,) = compare([path])
    assert (row.step, row.steps, row.tokens) == (50, 100, 1500)
    assert set(row.scores.values()) == {0.125}
    assert list_differences([row]) == [f"{path} is at step 50 of 100"]
    assert "50 of 100" in make_table([row]).rows[0]


def test_a_run_without_scores_yet_is_shown(
    tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    new, begun = folder(tmp_path / "new", seconds=None), folder(tmp_path / "begun", seconds=None)
    (new / "metrics.jsonl").write_text("")
    (begun / "metrics.jsonl").write_text('{"step": 7, "kind": "train", "tokens": 210}\n')
    rows = compare([new, begun, folder(tmp_path / "done")])
    assert [(row.step, row.tokens) for row in rows] == [(0, 0), (7, 210), (100, 3000)]
    assert [bool(row.scores) for row in rows] == [False, False, True]
    status, out, _ = run("compare", new, begun)
    assert status == 0
    assert "0 of 100" in out
    assert "7 of 100" in out


def test_the_settings_that_differ_are_named(
    tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    optimizer = replace(PLAIN.train.optimizer, learning_rate=5e-4)
    other = replace(PLAIN, train=replace(PLAIN.train, seed=3, optimizer=optimizer))
    configs = {"a": PLAIN, "b": other, "c": PLAIN}
    paths = [folder(tmp_path / name, config) for name, config in configs.items()]
    shown = make_settings_table(compare(paths))
    rate = str(PLAIN.train.optimizer.learning_rate)
    assert shown.columns == ("setting", "a", "b", "c")
    assert set(shown.rows) == {
        ("train.seed", "0", "3", "0"),
        ("train.optimizer.learning_rate", rate, "0.0005", rate),
    }
    assert make_settings_table(compare(paths[::2])).rows == ()
    status, out, _ = run("compare", *paths, "--markdown")
    assert status == 0
    assert "\n\n| setting | a | b | c |\n" in out
    assert f"| train.optimizer.learning_rate | {rate} | 0.0005 | {rate} |" in out
    rows = json.loads(run("compare", *paths, "--json")[1])
    assert [row["settings"]["train.seed"] for row in rows] == ["0", "3", "0"]
    assert {"train.seed", "train.optimizer.learning_rate"} == {
        name for row in rows for name in row["differing"]
    }


def test_many_runs_are_shown_in_parts(
    tmp_path: Path, run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    seeds = [replace(PLAIN, train=replace(PLAIN.train, seed=seed)) for seed in range(20)]
    paths = [folder(tmp_path / f"run-number-{seed}", config) for seed, config in enumerate(seeds)]
    status, out, _ = run("compare", *paths)
    assert status == 0
    assert all(len(line) <= 80 for line in out.splitlines())
    for path in paths:
        assert re.search(rf"\b{path.name}\b", out.partition("What differs")[2])


def test_the_newest_whole_checkpoint_tells_the_time(tmp_path: Path) -> None:
    path = folder(tmp_path / "run")
    state = path / "checkpoints" / "step-00000100" / "state.json"
    state.write_text('{"seconds": 1, "tokens": 9}')
    assert compare([path])[0].seconds == 30


def test_a_part_of_ones_own_that_is_not_registered(tmp_path: Path) -> None:
    path = folder(tmp_path / "run")
    recipe = json.loads((path / "recipe.json").read_text())
    (path / "recipe.json").write_text(json.dumps({**recipe, "objectives": ["mlm", "mine"]}))
    with refused(RunError, path / "recipe.json", "'mine'", "LITEBERT_EXTENSIONS"):
        compare([path])


def test_runs_are_scored_on_one_text(
    tmp_path: Path, tiny_data: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    point = pretraining.config(train={"budget": "2 steps"})
    for name, seed in (("a", 0), ("b", 1)):
        variant = replace(point, train=replace(point.train, seed=seed))
        litebert.pretrain(variant, tiny_data, tmp_path / name)
    rows = compare([tmp_path / "a", tmp_path / "b"], tiny_data)
    for row in rows:
        assert row.scores == litebert.evaluate(row.run, shards=tiny_data).scores
    status, out, _ = run("compare", tmp_path / "a", "--shards", tiny_data, "--json")
    assert status == 0
    assert json.loads(out)[0]["scores"] == rows[0].scores


@pytest.mark.parametrize(
    ("spoil", "places"),
    [
        (shutil.rmtree, [""]),
        (lambda path: (path / "run.json").unlink(), ["run.json"]),
        (lambda path: (path / "recipe.json").unlink(), ["recipe.json"]),
        (lambda path: (path / "metrics.jsonl").unlink(), ["metrics.jsonl"]),
        (lambda path: (path / "run.json").write_text("{}"), ["run.json", "steps"]),
        (lambda path: (path / "run.json").write_text("["), ["run.json"]),
        (
            lambda path: (path / "recipe.json").write_text('{"nam": 1}'),
            ["recipe.json", "'nam'", "'name'"],
        ),
        (lambda path: (path / "metrics.jsonl").write_text("x\n"), ["metrics.jsonl:1"]),
    ],
)
def test_what_is_no_run_is_refused(spoil: Any, places: list[str], tmp_path: Path) -> None:
    good, path = folder(tmp_path / "good"), folder(tmp_path / "bad")
    spoil(path)
    with refused(RunError, path / places[0], *places[1:]):
        compare([good, path])


def test_no_torch_is_needed(tmp_path: Path) -> None:
    path = folder(tmp_path / "run")
    code = f"import sys, litebert; litebert.compare([{str(path)!r}]); "
    subprocess.run([sys.executable, "-c", code + "sys.exit('torch' in sys.modules)"], check=True)
