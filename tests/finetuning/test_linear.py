"""The head that is fitted on frozen states before training, compared with scikit-learn on the
vectors of `embed`.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from litebert import load
from litebert.base.errors import ConfigError, ModelError
from litebert.base.registry import OUTPUTS
from litebert.change.conversion import convert
from litebert.config import Config, EncoderConfig, SequenceConfig, replace
from litebert.config.finetuning import FinetuneConfig
from litebert.finetuning import trials as start
from litebert.finetuning.setup import Setup
from litebert.model.pretrainer import Pretrainer
from litebert.tasks.values import Item
from litebert.tokenizer import Tokenizer
from litebert.train.metrics import read
from toys.finetuning import config, finetune, same_files, write_table
from toys.folders import save_hf
from toys.killed import Killed, kill, kill_at
from toys.refusals import names, refused
from toys.tasks import Table, task_of


@pytest.fixture
def vectors(tiny_tokenizer: Path, tmp_path: Path) -> Path:
    """An encoder with a pooler in a folder that says that vectors are the mean of its states."""
    words = Tokenizer.load(tiny_tokenizer)
    shape = EncoderConfig(
        vocab_size=words.vocab_size,
        embedding_size=32,
        hidden_size=32,
        layers=2,
        heads=2,
        intermediate_size=64,
        max_positions=64,
        sharing="none",
        activation="gelu",
        init_std=0.3,
    )
    torch.manual_seed(3)
    model = Pretrainer(
        Config(name="x", encoder=shape, sequences=SequenceConfig(length=64), objectives=("mlm",))
    )
    save_hf(model, words, tmp_path / "vectors")
    kinds = {"Transformer": "", "Pooling": "1_Pooling"}
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for kind, path in kinds.items()
    ]
    (tmp_path / "vectors" / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "vectors" / "1_Pooling").mkdir()
    (tmp_path / "vectors" / "1_Pooling" / "config.json").write_text(
        '{"pooling_mode_mean_tokens": true}'
    )
    return tmp_path / "vectors"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(
        write_table(tmp_path / "train.csv", 150), write_table(tmp_path / "dev.csv", 60, seed=1)
    )


BOTH = ("head", "rate")


def settings(**changes: Any) -> FinetuneConfig:
    return config(**{"epochs": 1, "choose": ("head",), **changes})


def rows_of(path: Path) -> tuple[list[str], list[str]]:
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [row["text"] for row in rows], [row["label"] for row in rows]


def test_a_model_of_vectors_never_ends_below_a_linear_model_of_them(
    vectors: Path, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a rate that destroys the network, the best weights are those of the start."""
    monkeypatch.setattr(start, "STRENGTHS", (1e-6, 0.1))
    done = finetune(
        vectors, table, tmp_path / "run", replace(settings(rate=0.5), length=64, calibrate=False)
    )
    encoder = load(vectors)
    (texts, labels), (dev_texts, right) = (
        rows_of(tmp_path / "train.csv"),
        rows_of(tmp_path / "dev.csv"),
    )
    plain = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=200))
    plain.fit(encoder.encode(texts), labels)
    expected = float((plain.predict(encoder.encode(dev_texts)) == right).mean())
    assert expected > 0.6, "the vectors tell something"
    scores = [
        row["accuracy"]
        for row in read(tmp_path / "run" / "metrics.jsonl")
        if row["kind"] == "heldout"
    ]
    assert scores[0] == pytest.approx(expected)
    assert max(scores[1:]) < expected
    assert done.scores["accuracy"] == pytest.approx(expected)

    answers = load(tmp_path / "run").predict(dev_texts)
    probabilities = plain.predict_proba(encoder.encode(dev_texts))
    assert np.allclose(
        [[row["probabilities"][name] for name in ("no", "yes")] for row in answers],
        probabilities,
        atol=1e-4,
    )


@pytest.mark.thorough
def test_two_starts_are_tried_and_the_run_is_that_of_the_start_taken(
    vectors: Path,
    table: Table,
    tmp_path: Path,
    log_messages: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its bytes are those of a run that was given the rate and the start."""
    monkeypatch.setattr(start, "STRENGTHS", (1e-6, 0.1))
    chosen = finetune(vectors, table, tmp_path / "run", settings(epochs=14, choose=BOTH))
    record = json.loads((tmp_path / "run" / "finetune.json").read_text())
    line = next(line for line in log_messages if line.startswith("learning rate"))
    assert line in record["chosen"]
    names(
        line,
        "fitted 3e-05",
        "random",
        f"{record['config']['train']['optimizer']['learning_rate']:.0e}",
    )
    takes_fitted = "from a fitted head" in line
    assert record["config"]["fit_head"] == takes_fitted
    assert (tmp_path / "run" / "head.safetensors").exists() == takes_fitted
    rate = record["config"]["train"]["optimizer"]["learning_rate"]
    same_choices = settings(
        epochs=14, rate=rate, choose=(), head_reads="mean", fit_head=takes_fitted
    )
    assert finetune(vectors, table, tmp_path / "given", same_choices).scores == chosen.scores
    same_files(tmp_path / "run", tmp_path / "given")


@pytest.mark.parametrize(
    ("fitted_ahead", "noise", "takes_fitted"),
    [(0.1, 0.01, True), (-0.1, 0.01, False), (0.01, 0.1, True), (-0.01, 0.1, False)],
)
def test_the_start_with_the_lower_loss_is_taken(
    vectors: Path,
    table: Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fitted_ahead: float,
    noise: float,
    takes_fitted: bool,
) -> None:
    """In the longer runs; the short ones, where a fitted head is always ahead, decide the rates."""
    monkeypatch.setattr(start, "STRENGTHS", (1e-6, 0.1))
    lengths: list[int] = []

    def train(
        self: Any, setup: Setup, rate: float, steps: int, bar: object
    ) -> np.ndarray[Any, Any]:
        lengths.append(steps)
        alternating = noise * np.resize([1, -1], 16)
        if steps == min(lengths):
            return 0.4 + 0.0 * alternating + (0.0 if setup.fitted else 0.1) + abs(rate - 3e-4)
        return 0.35 + (-fitted_ahead + alternating if setup.fitted else 0 * alternating)

    monkeypatch.setattr("litebert.finetuning.trials._Trials.train_shortly", train)
    with pytest.raises(Killed):
        finetune(vectors, table, tmp_path / "run", settings(epochs=14, choose=BOTH), on_step=kill)
    chosen_config = json.loads((tmp_path / "run" / "finetune.json").read_text())["config"]
    assert chosen_config["fit_head"] == takes_fitted
    assert chosen_config["train"]["optimizer"]["learning_rate"] == 3e-4
    short, long = sorted(set(lengths))
    assert (lengths.count(short), lengths.count(long), long) == (6, 2, 4 * short)


@pytest.mark.thorough
@pytest.mark.parametrize("instant", [1, 5])
def test_a_killed_run_starts_from_the_same_head(
    vectors: Path, table: Table, tmp_path: Path, instant: int
) -> None:
    """Before the first checkpoint and after it."""
    finetune(vectors, table, tmp_path / "whole", settings())
    with pytest.raises(Killed):
        finetune(vectors, table, tmp_path / "cut", settings(), on_step=kill_at(instant))
    assert finetune(vectors, table, tmp_path / "cut", settings()).outcome.finished
    same_files(
        tmp_path / "cut", tmp_path / "whole", "metrics.jsonl", "finetune.json", "head.safetensors"
    )


def test_a_head_of_a_run_that_never_began_is_no_head_of_the_next(
    vectors: Path, table: Table, tmp_path: Path
) -> None:
    """A run that was killed before it had an identity leaves its head; this one starts drawn."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "head.safetensors").write_bytes(b"of another run")
    finetune(vectors, table, folder, settings(choose=()))
    assert not (folder / "head.safetensors").exists()


def test_where_a_head_of_means_converts(vectors: Path, table: Table, tmp_path: Path) -> None:
    """No class of transformers computes it, which is said before anything is written."""
    finetune(vectors, table, tmp_path / "run", settings())
    with refused(ModelError, "BertForSequenceClassification", "head=backbone", "head_reads=paper"):
        convert(tmp_path / "run", tmp_path / "hf", to="hf")
    assert not (tmp_path / "hf").exists()
    finetune(vectors, table, tmp_path / "paper", config(epochs=1, fit_head=True))
    convert(tmp_path / "paper", tmp_path / "hf", to="hf")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["architectures"] == [
        "BertForSequenceClassification"
    ]


def test_tasks_without_a_head_of_whole_texts_refuse_it(vectors: Path, tmp_path: Path) -> None:
    (tmp_path / "tags.conll").write_text("bado O\nkumi B-X\n\n" * 10)
    task = task_of("tagging", tmp_path / "tags.conll")
    for changes in ({"fit_head": True}, {"head_reads": "mean"}):
        with refused(ConfigError, "fit_head", "head_reads"):
            finetune(vectors, task, tmp_path / "run", config(epochs=1, **changes))


def _states(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(80, 6)) * [1, 2, 5, 0.1, 1, 1] + 3


@pytest.mark.parametrize("classes", [2, 3])
def test_fitted_heads_are_those_of_scikit_learn(classes: int) -> None:
    states = _states().astype(np.float32)
    targets = (states[:, 0] + states[:, 2] > 6).astype(int) + (states[:, 1] > 4) * (classes == 3)
    held = np.arange(80) % 5 == 0
    half, whole = start.fit_head(
        OUTPUTS["classes"](tuple("abc"[:classes])), states, targets.tolist(), held
    )
    for fit, rows in ((half, ~held), (whole, held | True)):
        plain = make_pipeline(StandardScaler(), LogisticRegression(C=fit.strength, max_iter=200))
        plain.fit(states[rows], targets[rows])
        logits = torch.from_numpy(states @ fit.weight.T + fit.bias).double()
        assert np.allclose(
            torch.softmax(logits, -1).numpy(), plain.predict_proba(states), atol=1e-4
        )
    assert half.loss < half.prior


def test_fitted_heads_of_several_labels_and_of_numbers() -> None:
    states = _states().astype(np.float32)
    held = np.arange(80) % 5 == 0
    labels = np.stack([states[:, 0] > 3, states[:, 2] > 3], 1).astype(int)
    _, whole = start.fit_head(
        OUTPUTS["labels"](("a", "b", "never")), states, [(*row, 0) for row in labels.tolist()], held
    )
    plain = make_pipeline(
        StandardScaler(), OneVsRestClassifier(LogisticRegression(C=whole.strength, max_iter=200))
    )
    plain.fit(states, labels)
    likely = 1 / (1 + np.exp(-(states @ whole.weight.T + whole.bias)))
    assert np.allclose(likely[:, :2], plain.predict_proba(states), atol=1e-4)
    assert likely[:, 2].max() < 0.01

    numbers = states[:, 1] * 0.5 - states[:, 2]
    _, whole = start.fit_head(OUTPUTS["number"](), states, numbers.tolist(), held)
    ridge = make_pipeline(StandardScaler(), Ridge(alpha=1 / whole.strength)).fit(states, numbers)
    assert np.allclose(
        (states @ whole.weight.T + whole.bias)[:, 0], ridge.predict(states), atol=1e-3
    )


def test_a_linear_model_on_frozen_states_is_scored_before_training(
    vectors: Path, table: Table, tmp_path: Path, log_messages: list[str]
) -> None:
    """Its score is that of a run from the fitted head, before the first step."""
    finetune(vectors, table, tmp_path / "run", settings(fit_head=True, choose=(), steps=1))
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    first = next(row for row in map(json.loads, rows) if row["kind"] == "heldout")
    assert first["step"] == 0
    line = next(line for line in log_messages if "linear model on frozen states" in line)
    assert line.split("accuracy ")[1].split()[0] == f"{first['accuracy']:.4g}"
    record = json.loads((tmp_path / "run" / "finetune.json").read_text())
    assert line in record["chosen"]


def test_few_rows_judge_a_fitted_head_by_cross_validation() -> None:
    """All rows are judged, and a head with weights is taken, whatever the losses."""
    states = _states()[:20].astype(np.float32)
    targets = np.resize([0, 1], 20)
    held = np.arange(20) % 5 == 0
    half, whole = start.fit_head(OUTPUTS["classes"](("a", "b")), states, targets.tolist(), held)
    assert (half.judged, half.few, half.helps) == (20, True, True)
    assert whole.strength > start.STRENGTHS[0]
    assert whole.loss >= whole.prior, "these labels are noise"
    rng = np.random.default_rng(1)
    plenty = rng.normal(size=(300, 6)).astype(np.float32)
    noise = rng.integers(0, 2, 300)
    held = np.arange(300) % 5 == 0
    half, _ = start.fit_head(OUTPUTS["classes"](("a", "b")), plenty, noise.tolist(), held)
    assert (half.judged, half.few) == (60, False)
    assert half.helps == (half.loss < half.prior)
    # So are many, of which none could be held out; equal rows are in one fold.
    groups = np.repeat(np.arange(150), 2)
    twice, labels = rng.normal(size=(150, 100)).astype(np.float32)[groups], noise[groups].tolist()
    apart, divided = (
        start.fit_head(OUTPUTS["classes"](("a", "b")), twice, labels, np.zeros(300, bool), numbers)[
            1
        ]
        for numbers in (groups, None)
    )
    assert (apart.judged, apart.few) == (300, True)
    assert divided.loss < 0.6 < apart.loss, "labels that are noise are learned by heart"


def test_numbers_of_a_linear_map_get_their_scale_back() -> None:
    """Also far from zero, where float32 would give all of them one value."""
    for offset in (0.0, 1e9):
        targets = [offset + number for number in (10.0, 12.5, 20.0)]
        output, scaled = OUTPUTS["number"]().fit(targets)
        column = np.array(scaled, np.float32)[:, None]
        numbers = [output.of_item(row[None], Item(0, (), None)) for row in column]
        for given in (output.rescale(column)[:, 0], np.concatenate(numbers)):
            assert np.allclose(given - offset, np.array(targets) - offset, atol=1e-4)


def test_a_rate_that_overfits_in_a_longer_run_gives_way_to_a_smaller_one(
    vectors: Path, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "STRENGTHS", (1e-6, 0.1))
    lengths: list[int] = []

    def train(
        self: Any, setup: Setup, rate: float, steps: int, bar: object
    ) -> np.ndarray[Any, Any]:
        lengths.append(steps)
        if steps == min(lengths):
            return np.full(16, 0.5 if setup.fitted else 0.8)
        return np.full(16, 0.5 if setup.fitted and rate < 1e-4 else 0.8)

    monkeypatch.setattr("litebert.finetuning.trials._Trials.train_shortly", train)
    with pytest.raises(Killed):
        finetune(vectors, table, tmp_path / "run", settings(epochs=14, choose=BOTH), on_step=kill)
    record = json.loads((tmp_path / "run" / "finetune.json").read_text())
    assert record["config"]["fit_head"], record["chosen"][-1]
    assert record["config"]["train"]["optimizer"]["learning_rate"] == 3e-5
    assert lengths.count(max(lengths)) == 4, "three rates from the fitted head, one from the other"


@pytest.mark.parametrize("rows", [3, 8])
def test_a_head_is_fitted_to_a_few_rows(
    vectors: Path, table: Table, tmp_path: Path, log_messages: list[str], rows: int
) -> None:
    """With three rows nothing is held out, and the folds are as many as the rows."""
    train = tmp_path / "few.csv"
    texts = [f"{'good' if i % 2 else 'bad'} text {i}" for i in range(rows)]
    lines = [f"{text},{'yes' if i % 2 else 'no'}" for i, text in enumerate(texts)]
    train.write_text("text,label\n" + "\n".join(lines) + "\n")
    task = Table(str(train), dev=str(train))
    finetune(vectors, task, tmp_path / "run", settings(choose=BOTH, steps=30))
    assert (tmp_path / "run" / "head.safetensors").exists()
    assert any(f"in {min(5, rows)} folds" in line for line in log_messages)


def test_plenty_of_rows_are_judged_by_those_that_are_held_out(
    vectors: Path, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few of the others a head is fitted to."""
    monkeypatch.setattr("litebert.finetuning.trials.MOST_ROWS", 40)
    counts: list[tuple[int, int]] = []
    fit_head = start.fit_head

    def fit(output: Any, states: Any, targets: Any, held: Any, groups: Any) -> Any:
        counts.append((len(targets), int(held.sum())))
        return fit_head(output, states, targets, held, groups)

    monkeypatch.setattr("litebert.finetuning.trials.fit_head", fit)
    finetune(vectors, table, tmp_path / "run", settings(fit_head=True, choose=(), steps=1))
    (count, held), rows = counts[0], len(table.read("train"))
    assert held == int(0.2 * rows)
    assert count <= max(40, held + 1)
