"""Early exits, from `finetune --early-exits` to `predict`: what is trained, calibrated, recorded
and answered.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import litebert
from answer.test_engines import needs
from litebert.answer.engines.exits import EarlyExit, Exit
from litebert.answer.engines.graphs import FOLDER
from litebert.answer.model import load
from litebert.base.errors import ConfigError, ModelError
from litebert.base.registry import ENGINES
from litebert.change.conversion import convert
from litebert.judge.exits import NEVER, ExitRule, calibrate, find_exits
from litebert.model.task_model import TaskModel
from litebert.tasks.outputs import Output
from litebert.tasks.rows import PaddedRows
from litebert.tasks.text_outputs import Number, OneClass, SeveralLabels
from litebert.tasks.texts import Example
from litebert.tasks.values import EncodedPart, EncodedRow, Item
from litebert.text.records import Notes
from toys.finetuning import config, finetune, recipe_file, same_files, write_table
from toys.killed import Killed, kill_at
from toys.refusals import names, refused
from toys.tasks import Table

pytestmark = pytest.mark.thorough


Run = Callable[..., tuple[int, str, str]]
DEEP = "sharing = '{}'\n"


@pytest.fixture(scope="module", params=["all", "none"])
def run_with_exits(
    request: pytest.FixtureRequest, tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The run of a classifier with exits after each of four layers, shared and not."""
    from litebert.cli import main

    folder = tmp_path_factory.mktemp(request.param)
    write_table(folder / "train.csv", 200)
    write_table(folder / "dev.csv", 80, seed=1)
    recipe = recipe_file(folder, DEEP.format(request.param))
    recipe.write_text(recipe.read_text().replace("layers = 2", "layers = 4"))
    words = [
        "finetune",
        recipe,
        "--task",
        "table",
        "--data",
        folder / "train.csv",
        "--dev",
        folder / "dev.csv",
        "--tokenizer",
        tiny_tokenizer,
        "--out",
        folder / "run",
        "--early-exits",
        "--epochs",
        "4",
        "--length",
        "32",
        "--train.optimizer.learning-rate",
        "3e-3",
        "--train.precision",
        "float32",
    ]
    assert main([str(word) for word in words]) == 0
    return folder / "run"


def read_texts(run: Path) -> list[str]:
    with open(run.parent / "dev.csv", newline="") as file:
        return [row["text"] for row in csv.DictReader(file)]


def rows_of(run: Path) -> PaddedRows:
    """The development part as one padded batch."""
    model = load(run)
    items = model.predictor.task.encode(
        [Example(text, None, None) for text in read_texts(run)],
        model.predictor.tokenizer,
        32,
        Notes(),
    )
    return PaddedRows(
        [row for item in items for row in item.rows], model.predictor.tokenizer.pad_id, 64
    )


def early(run: Path, rule: ExitRule) -> EarlyExit:
    model = load(run)
    return EarlyExit(ENGINES["compiled"](model, "cpu"), rule, model.predictor.task.output, 4)


def test_a_run_records_what_its_rule_saves_and_costs(run_with_exits: Path) -> None:
    calibration = json.loads((run_with_exits / "exits.json").read_text())
    scores = json.loads((run_with_exits / "scores.json").read_text())
    assert calibration["full"] == scores["accuracy"] == calibration["layers"][-1]
    assert len(calibration["layers"]) == 4
    assert calibration["score"] >= calibration["full"] - 0.005
    assert 0.25 <= calibration["share"] <= 1
    record = json.loads((run_with_exits / "model" / "task.json").read_text())["exits"]
    assert record == {key: calibration[key] for key in ("patience", "threshold", "share")}
    assert "exits" in (run_with_exits / "report.html").read_text()
    rows = [
        json.loads(line) for line in (run_with_exits / "metrics.jsonl").read_text().splitlines()
    ]
    assert max(row["accuracy"] for row in rows if row["kind"] == "heldout") == scores["accuracy"]


def test_answers_leave_as_they_were_calibrated(
    run_with_exits: Path, run: Run, tmp_path: Path
) -> None:
    record = json.loads((run_with_exits / "exits.json").read_text())
    status, out, _ = run(
        "evaluate", run_with_exits, "--data", run_with_exits.parent / "dev.csv", "--json"
    )
    report = json.loads(out)
    assert status == 0
    assert report["scores"]["accuracy"] == pytest.approx(record["score"])
    assert report["share"] == pytest.approx(record["share"])
    answers = load(run_with_exits).predict(read_texts(run_with_exits))
    assert np.mean([answer["layers"] for answer in answers]) / 4 == pytest.approx(record["share"])
    status, _, _ = run(
        "predict",
        run_with_exits,
        "--input",
        run_with_exits.parent / "dev.csv",
        "--out",
        tmp_path / "o.csv",
    )
    assert status == 0
    with open(tmp_path / "o.csv", newline="") as file:
        assert [int(row["layers"]) for row in csv.DictReader(file)] == [
            answer["layers"] for answer in answers
        ]


def test_off_is_the_ordinary_model_bit_for_bit(
    run_with_exits: Path, run: Run, tmp_path: Path
) -> None:
    """A folder without the record of exits is an ordinary model."""
    ordinary = tmp_path / "ordinary"
    convert(run_with_exits, ordinary, to="litebert")
    record = json.loads((ordinary / "task.json").read_text())
    del record["exits"]
    (ordinary / "task.json").write_text(json.dumps(record))
    for folder, out in ((run_with_exits, "off.jsonl"), (ordinary, "ordinary.jsonl")):
        words = (
            "--input",
            run_with_exits.parent / "dev.csv",
            "--out",
            tmp_path / out,
            *["--exit-confidence", "off"],
        )
        assert run("predict", folder, *words)[0] == 0
    assert (tmp_path / "off.jsonl").read_bytes() == (tmp_path / "ordinary.jsonl").read_bytes()
    assert "layers" not in load(ordinary).predict(["ba"])[0]
    rows = rows_of(run_with_exits)
    off, same = (
        load(folder, exit_confidence="off").predictor.runtime.logits(rows)
        for folder in (run_with_exits, ordinary)
    )
    assert np.array_equal(off, same)


def test_thresholds_at_both_ends(run_with_exits: Path) -> None:
    rows = rows_of(run_with_exits)
    full = early(run_with_exits, ExitRule(1, NEVER))
    assert np.array_equal(
        full.logits(rows),
        load(run_with_exits, exit_confidence="off").predictor.runtime.logits(rows),
    )
    assert full.share == 1
    first = early(run_with_exits, ExitRule(1, 0.0))
    network = load(run_with_exits).model
    assert isinstance(network, TaskModel)
    ids, types, mask = map(torch.from_numpy, rows)
    with torch.no_grad():
        every = network(ids, types, mask, every=True)
        assert torch.equal(every[-1], network(ids, types, mask))
        _, state, *_ = network.encoder.states(ids, types, mask)
        last = network.encoder.read_out(state)
        expected = network.head(last.last[:, 0] if last.pooled is None else last.pooled)
    assert np.allclose(first.logits(rows), expected, atol=1e-6)
    assert np.allclose(every[0], expected, atol=1e-6)
    assert first.share == 1 / 4


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 3), st.floats(0.4, 1.0))
def test_packing_does_not_change_an_answer(
    run_with_exits: Path, seed: int, patience: int, threshold: float
) -> None:
    """Each row alone, never padded or packed, leaves after the same layer with the same logits."""
    engine = early(run_with_exits, ExitRule(patience, threshold))
    draw = np.random.default_rng(seed)
    chosen = [
        EncodedRow(draw.integers(5, 400, n).astype(np.int32), np.zeros(n, np.int32))
        for n in draw.integers(3, 40, 24)
    ]
    logits = engine.logits_and_layers(PaddedRows(chosen, 0, 64))
    alone = [engine.logits_and_layers(PaddedRows([row], 0, len(row.ids)))[0] for row in chosen]
    margin = np.abs(np.stack([row.max() for row in map(certainties, logits)]) - threshold)
    clear = margin > 1e-4  # where rounding decides, either is right
    assert np.allclose(logits[clear], np.stack(alone)[clear], atol=2e-5)


# ---------------------------------------------------------------------- the engines that run graphs


@pytest.mark.parametrize("engine", ["onnx"])
def test_an_engine_of_graphs_computes_all_layers_or_nothing(
    engine: str, run_with_exits: Path
) -> None:
    chosen: Exit
    for chosen in ("auto", 0.7):
        with refused(
            ConfigError, "exit_confidence", chosen, engine, "--exit-confidence off", "torch"
        ):
            _ = load(run_with_exits, engine=engine, exit_confidence=chosen).predictor
    assert not (run_with_exits / "model" / FOLDER).exists(), "no graph is made for what is refused"
    needs(engine)
    full = load(run_with_exits, exit_confidence="off").predict(read_texts(run_with_exits))
    graph = load(run_with_exits, engine=engine, exit_confidence="off").predict(
        read_texts(run_with_exits)
    )
    for answer, other in zip(full, graph, strict=True):
        assert answer.keys() == other.keys()
        assert other["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-5)
    shutil.rmtree(run_with_exits / "model" / FOLDER)


def test_an_exported_model_computes_all_layers(
    run_with_exits: Path, run: Run, tmp_path: Path
) -> None:
    needs("onnx")
    assert run("export", run_with_exits, "--out", tmp_path / "out", "--format", "onnx")[0] == 0
    full = load(run_with_exits, exit_confidence="off").predict(read_texts(run_with_exits))
    for answer, other in zip(
        full, load(tmp_path / "out").predict(read_texts(run_with_exits)), strict=True
    ):
        assert answer.keys() == other.keys()
        assert other["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-5)
    with refused(ConfigError, "exit_confidence", 0.9, "onnx"):
        _ = load(tmp_path / "out", exit_confidence=0.9).predictor


def test_the_commands_name_the_option_that_computes_all_layers(
    run_with_exits: Path, run: Run
) -> None:
    needs("onnx")
    words = (
        "evaluate",
        run_with_exits,
        "--data",
        run_with_exits.parent / "dev.csv",
        "--engine",
        "onnx",
    )
    status, _, error = run(*words)
    assert status == 2
    names(error, "onnx", "--exit-confidence off")
    assert run(*words, "--exit-confidence", "off")[0] == 0
    status, _, error = run(*words, "--exit-confidence", "off", "--device", "cuda")
    assert (status, "cuda" in error, "onnx" in error) == (2, True, True)
    shutil.rmtree(run_with_exits / "model" / FOLDER)


def certainties(row: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = np.exp(row[:-1].astype(np.float64) - row[:-1].max())
    likely: NDArray[np.float64] = shifted / shifted.sum()
    return likely


def test_converted_it_opens_elsewhere_as_the_full_model(
    run_with_exits: Path, tmp_path: Path
) -> None:
    convert(run_with_exits, tmp_path / "hf", to="hf")
    answers = load(tmp_path / "hf").predict(read_texts(run_with_exits))
    full = load(run_with_exits, exit_confidence="off").predict(read_texts(run_with_exits))
    assert [answer.keys() for answer in answers] == [answer.keys() for answer in full]
    for answer, other in zip(answers, full, strict=True):
        assert list(answer["probabilities"].values()) == pytest.approx(
            list(other["probabilities"].values()), abs=1e-5
        )


def test_another_drop_calibrates_a_finished_run_again(tiny_tokenizer: Path, tmp_path: Path) -> None:
    table = Table(
        write_table(tmp_path / "train.csv", 60), write_table(tmp_path / "dev.csv", 30, seed=1)
    )

    def go(drop: float) -> tuple[dict[str, Any], bytes]:
        chosen = config(epochs=1, early_exits=True, early_exits_max_drop=drop)
        done = finetune(
            recipe_file(tmp_path), table, tmp_path / "run", chosen, tokenizer=tiny_tokenizer
        )
        record = json.loads((tmp_path / "run" / "model" / "task.json").read_text())["exits"]
        assert {key: done.exits[key] for key in record} == record
        return done.exits, (tmp_path / "run" / "model" / "model.safetensors").read_bytes()

    (first, weights), (loose, same) = go(0.0), go(100.0)
    assert weights == same
    assert (first["drop"], loose["drop"]) == (0.0, 100.0)
    assert loose["share"] == 0.5, "every text may leave after the first of two layers"
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert go(0.0)[0] == loose


def test_killed_and_started_again_it_ends_with_the_same_bits(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    table = Table(
        write_table(tmp_path / "train.csv", 120), write_table(tmp_path / "dev.csv", 30, seed=1)
    )
    chosen = config(epochs=1, early_exits=True, dropout=0.1)

    def go(name: str, **more: Any) -> Any:
        return finetune(
            recipe_file(tmp_path), table, tmp_path / name, chosen, tokenizer=tiny_tokenizer, **more
        )

    go("whole")
    for instant in (2, 7):
        with pytest.raises(Killed):
            go("cut", on_step=kill_at(instant))
    go("cut")
    same_files(
        tmp_path / "cut", tmp_path / "whole", "metrics.jsonl", "exits.json", "model/task.json"
    )


# --------------------------------------------------------------------- the rule and its calibration


def test_when_a_row_leaves() -> None:
    """Rows are the answers (label, certainty) after four layers, reckoned by hand."""
    rows = [
        [(0, 0.9), (0, 0.9), (0, 0.9), (0, 0.9)],
        [(0, 0.9), (1, 0.9), (1, 0.6), (1, 0.9)],
        [(0, 0.6), (0, 0.6), (0, 0.9), (0, 0.9)],
    ]
    logits_LNC = np.array(
        [[[np.log(p), np.log(1 - p)][:: 1 - 2 * label] for label, p in row] for row in rows]
    )
    logits_LNC = logits_LNC.transpose(1, 0, 2).astype(np.float32)
    output = OneClass(("a", "b"))
    views = [output.steady(logits_LNC[i - 1] if i else None, logits_LNC[i]) for i in range(4)]
    for patience, threshold, left in (
        (1, 0.8, [1, 1, 3]),
        (2, 0.8, [2, 4, 4]),
        (2, 0.0, [2, 3, 2]),
        (4, 0.0, [4, 4, 4]),
        (1, NEVER, [4, 4, 4]),
        (1, 0.0, [1, 1, 1]),
    ):
        assert find_exits(ExitRule(patience, threshold), views).tolist() == left, (
            patience,
            threshold,
        )


def test_certainty_of_each_kind_of_answer() -> None:
    before, now = (
        np.array([[3.0, -1.0], [0.0, 2.0]], np.float32),
        np.array([[3.0, 1.0], [0.0, 2.0]], np.float32),
    )
    same, certain = SeveralLabels(("a", "b")).steady(before, now)
    assert same.tolist() == [False, True]
    assert certain == pytest.approx([1 / (1 + np.exp(-1.0)), 0.5])
    same, certain = Number().steady(before[:, :1], now[:, 1:])
    assert same.all()
    assert certain == pytest.approx([1 / 3, 1 / 3])
    assert Number().steady(None, now[:, :1])[1].tolist() == [0, 0]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.5, 3.0, 100.0]))
def test_calibration_keeps_the_score_of_its_rows(seed: int, drop: float) -> None:
    draw, rows, depth = np.random.default_rng(seed), 60, 5
    truth = draw.integers(0, 2, rows)
    signal = np.linspace(0.3, 2.0, depth)[:, None] * (2 * truth - 1) + draw.normal(
        size=(depth, rows)
    )
    logits = np.stack((-signal, signal), axis=-1).astype(np.float32)

    class Truth:
        metric, percent, name = "accuracy", False, "made up"

        def answers(self, examples: Any, items: Any, chosen: Any) -> Any:
            return np.stack(chosen).argmax(-1)

        def score(self, examples: Any, answers: Any) -> dict[str, float]:
            return {"accuracy": float((answers == truth).mean())}

    output: Output = OneClass(("a", "b"))
    part = EncodedPart("dev", [None] * rows, [Item(i, (), None) for i in range(rows)])
    task: Any = Truth()
    calibration = calibrate(task, output, part, list(logits.transpose(1, 0, 2)), drop)
    assert calibration.score >= calibration.full - drop / 100
    assert calibration.full == pytest.approx(
        float((signal[-1] > 0).astype(int).__eq__(truth).mean())
    )
    views = [output.steady(logits[i - 1] if i else None, logits[i]) for i in range(depth)]
    left = find_exits(ExitRule(calibration.patience, calibration.threshold), views)
    assert calibration.share == pytest.approx(left.mean() / depth)
    assert calibration.score == pytest.approx(
        float((logits[left - 1, np.arange(rows)].argmax(-1) == truth).mean())
    )
    if drop == 100.0:
        assert calibration.share == 1 / depth
    assert calibration.curve[0]["share"] == 1
    assert all(
        point["share"] > other["share"]
        for point, other in zip(calibration.curve, calibration.curve[1:], strict=False)
    )


# --------------------------------------------------------------- other answers, and what is refused


@pytest.mark.parametrize("kind", ["number", "labels"])
def test_numbers_and_labels_leave_early_too(
    kind: str, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    write_table(tmp_path / "classes.csv", 120)
    with (
        open(tmp_path / "classes.csv", newline="") as source,
        open(tmp_path / "train.jsonl", "w") as file,
    ):
        for row in csv.DictReader(source):
            label: Any = (
                {"yes": 30.0, "no": 10.0}[row["label"]] if kind == "number" else [row["label"]]
            )
            file.write(json.dumps({"text": row["text"], "label": label}) + "\n")
    table = Table(tmp_path / "train.jsonl")
    done = finetune(
        recipe_file(tmp_path),
        table,
        tmp_path / "run",
        config(epochs=3, early_exits=True),
        tokenizer=tiny_tokenizer,
    )
    record = json.loads((tmp_path / "run" / "exits.json").read_text())
    assert record["score"] >= done.scores[table.metric] - 0.005
    layers: dict[Exit, set[int]] = {0.0: {1}, 2.0: {2}}
    threshold: Exit
    for threshold in (0.0, 2.0, "auto"):
        answers = load(tmp_path / "run", exit_confidence=threshold).predict(["ba de", "fi"])
        used = {answer["layers"] for answer in answers}
        assert used == layers.get(threshold, used)


def test_what_cannot_leave_early_is_refused(tiny_tokenizer: Path, tmp_path: Path, run: Run) -> None:
    train = tmp_path / "train.conll"
    train.write_text("ba B-X\nde O\n\nfi O\nba B-X\n\n" * 8)
    recipe = recipe_file(tmp_path)
    words = ("--tokenizer", tiny_tokenizer, "--early-exits")
    status, _, error = run(
        "finetune", recipe, "--task", "tagging", "--data", train, "--out", tmp_path / "a", *words
    )
    assert (status, "exits" in error, "tokens" in error) == (2, True, True)
    recipe.write_text(recipe.read_text().replace("layers = 2", "layers = 1"))
    data = write_table(tmp_path / "train.csv", 40)
    status, _, error = run(
        "finetune", recipe, "--task", "table", "--data", data, "--out", tmp_path / "b", *words
    )
    assert (status, "exits" in error, "1 layer" in error) == (2, True, True)
    with refused(ConfigError, "early_exits_max_drop", -1.0):
        litebert.FinetuneConfig(early_exits_max_drop=-1.0)


def test_thresholds_that_mean_nothing_are_refused(run_with_exits: Path, tmp_path: Path) -> None:
    with refused(ConfigError, "exit_confidence", -0.5):
        _ = load(run_with_exits, exit_confidence=-0.5).predictor
    with refused(ConfigError, "exit_confidence", "'on'"):
        _ = load(run_with_exits, exit_confidence="on").predictor  # type: ignore[arg-type]
    plain = tmp_path / "plain"
    convert(run_with_exits, plain, to="litebert")
    record = json.loads((plain / "task.json").read_text())
    (plain / "task.json").write_text(
        json.dumps({**record, "exits": {"patience": 0, "threshold": 1}})
    )
    with refused(ModelError, plain / "task.json", "exits"):
        load(plain)
    del record["exits"]
    (plain / "task.json").write_text(json.dumps(record))
    with refused(ConfigError, "exit_confidence", 0.9, "--early-exits"):
        _ = load(plain, exit_confidence=0.9).predictor
