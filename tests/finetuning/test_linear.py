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
from litebert.finetuning import heads
from litebert.interop.files import read_tensors
from litebert.model.pretrainer import Pretrainer
from litebert.tasks.values import Item
from litebert.tokenizer import Tokenizer
from litebert.train.metrics import read
from toys.finetuning import config, finetune, same_files, write_table
from toys.folders import save_hf
from toys.killed import Killed, kill_at
from toys.refusals import refused
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
    monkeypatch.setattr(heads, "_STRENGTHS", (4.0,) * 3)
    done = finetune(
        vectors, table, tmp_path / "run", replace(settings(rate=0.5), length=64, calibrate=False)
    )
    encoder = load(vectors)
    (texts, labels), (dev_texts, right) = (
        rows_of(tmp_path / "train.csv"),
        rows_of(tmp_path / "dev.csv"),
    )
    # Two classes with weights each have half of the penalty of one difference.
    plain = LogisticRegression(C=8.0, tol=1e-8, max_iter=1000)
    plain.fit(unit(encoder.encode(texts)), labels)
    expected = float((plain.predict(unit(encoder.encode(dev_texts))) == right).mean())
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
    probabilities = plain.predict_proba(unit(encoder.encode(dev_texts)))
    assert np.allclose(
        [[row["probabilities"][name] for name in ("no", "yes")] for row in answers],
        probabilities,
        atol=2e-3,
    )


def test_a_head_of_other_states_is_fitted_to_them_at_one_scale(
    vectors: Path, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers before the first step are those of scikit-learn on standardized states."""
    monkeypatch.setattr(heads, "_STRENGTHS", (4.0,) * 3)
    still = settings(
        fit_head=True, head_reads="mean", choose=(), rate=1e-12, steps=1, calibrate=False
    )
    finetune(vectors, table, tmp_path / "run", replace(still, length=64))
    encoder = load(vectors)
    texts, labels = rows_of(tmp_path / "train.csv")
    dev_texts, _ = rows_of(tmp_path / "dev.csv")
    plain = make_pipeline(StandardScaler(), LogisticRegression(C=8.0 / 32, tol=1e-8, max_iter=1000))
    plain.fit(encoder.encode(texts), labels)
    answers = load(tmp_path / "run").predict(dev_texts)
    assert np.allclose(
        [[row["probabilities"][name] for name in ("no", "yes")] for row in answers],
        plain.predict_proba(encoder.encode(dev_texts)),
        atol=2e-3,
    )


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


def unit(states: np.ndarray) -> np.ndarray:
    made: np.ndarray = states / np.linalg.norm(states, axis=1, keepdims=True)
    return made


def _rows(seed: int = 0) -> np.ndarray:
    return unit(np.random.default_rng(seed).normal(size=(80, 6)) + 0.3).astype(np.float32)


def items_of(targets: Any) -> list[Item]:
    return [Item(i, (), target) for i, target in enumerate(targets)]


@pytest.mark.parametrize("classes", [2, 3])
def test_fitted_heads_are_those_of_scikit_learn(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "_STRENGTHS", (4.0,) * 3)
    rows = _rows()
    targets = (rows[:, 0] > 0.1).astype(int) + (rows[:, 1] > 0.3) * (classes == 3)
    output = OUTPUTS["classes"](tuple("abc"[:classes]))
    fit = heads.fit_head(output, rows, items_of(targets.tolist()))
    plain = LogisticRegression(C=4.0 * (2 if classes == 2 else 1), tol=1e-8, max_iter=1000)
    plain.fit(rows, targets)
    logits = torch.from_numpy(np.stack(fit.logits(rows))).double()
    assert np.allclose(torch.softmax(logits, -1).numpy(), plain.predict_proba(rows), atol=2e-3)


def test_fitted_heads_of_several_labels_and_of_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "_STRENGTHS", (4.0,) * 3)
    rows = _rows()
    labels = np.stack([rows[:, 0] > 0.1, rows[:, 2] > 0.1], 1).astype(int)
    targets = [(*row, 0) for row in labels.tolist()]
    fit = heads.fit_head(OUTPUTS["labels"](("a", "b", "never")), rows, items_of(targets))
    plain = OneVsRestClassifier(LogisticRegression(C=4.0, tol=1e-8, max_iter=1000))
    plain.fit(rows, labels)
    likely = 1 / (1 + np.exp(-np.stack(fit.logits(rows))))
    assert np.allclose(likely[:, :2], plain.predict_proba(rows), atol=2e-3)
    assert likely[:, 2].max() < 0.05

    numbers = 1e4 + 50 * (rows[:, 1] * 0.5 - rows[:, 2])
    fit = heads.fit_head(OUTPUTS["number"](), rows, items_of(numbers.tolist()))
    ridge = Ridge(alpha=1 / 8).fit(rows, numbers)
    assert np.allclose(np.stack(fit.logits(rows))[:, 0], ridge.predict(rows), atol=0.05)


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


def test_numbers_of_a_linear_map_get_their_scale_back() -> None:
    """Also far from zero, where float32 would give all of them one value."""
    for offset in (0.0, 1e9):
        targets = [offset + number for number in (10.0, 12.5, 20.0)]
        output, scaled = OUTPUTS["number"]().fit(targets)
        column = np.array(scaled, np.float32)[:, None]
        numbers = [output.of_item(row[None], Item(0, (), None)) for row in column]
        for given in (output.rescale(column)[:, 0], np.concatenate(numbers)):
            assert np.allclose(given - offset, np.array(targets) - offset, atol=1e-4)


@pytest.mark.parametrize("rows", [3, 8])
def test_a_head_is_fitted_to_a_few_rows(
    vectors: Path, table: Table, tmp_path: Path, log_messages: list[str], rows: int
) -> None:
    """No short run chooses, and the few development rows choose nothing: the last weights stay."""
    train = tmp_path / "few.csv"
    texts = [f"{'good' if i % 2 else 'bad'} text {i}" for i in range(rows)]
    lines = [f"{text},{'yes' if i % 2 else 'no'}" for i, text in enumerate(texts)]
    train.write_text("text,label\n" + "\n".join(lines) + "\n")
    task = Table(str(train), dev=str(train))
    finetune(vectors, task, tmp_path / "run", lambda default: default)
    record = json.loads((tmp_path / "run" / "finetune.json").read_text())
    assert (tmp_path / "run" / "head.safetensors").exists()
    assert record["steps"] == 200
    assert record["config"]["head_reads"] == "unit"
    # 5e-5 at a width of 384, more where the network is narrower.
    rate = record["config"]["train"]["optimizer"]["learning_rate"]
    assert rate == pytest.approx(5e-5 * 12**1.5)
    assert not [line for line in log_messages if line.startswith("learning rate")]
    last = read_tensors(max((tmp_path / "run" / "checkpoints").glob("*/model.safetensors")))
    best = read_tensors(tmp_path / "run" / "best.safetensors")
    assert all(torch.equal(best[name], last[name]) for name in best)
