"""Pairs whose texts are read apart: one model in every engine, in exports and on the line."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import litebert
from litebert.base.errors import ConfigError, ModelError
from litebert.cli import main
from litebert.demo import unpack
from litebert.finetuning.heads import fit_head
from litebert.fitting import methods
from litebert.serve.steps import Steps
from litebert.tasks.rows import PaddedRows
from litebert.tasks.scoring import compute_logits
from litebert.tasks.text_outputs import Number, OneClass
from litebert.tasks.values import EncodedRow, Item

WORDS = ["red", "green", "blue", "tall", "small", "old", "new", "fast", "slow", "loud"]


def list_pairs(count: int, seed: int = 0) -> list[tuple[str, str, str]]:
    """Pairs of four words, and whether the second has the words of the first."""
    draw, rows = random.Random(seed), []
    for _ in range(count):
        chosen = draw.sample(WORDS, 4)
        same = draw.random() < 0.5
        other = draw.sample(chosen, 4) if same else draw.sample(WORDS, 4)
        rows.append((" ".join(chosen), " ".join(other), "same" if same else "other"))
    return rows


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("models"))["vectors"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    with open(folder / "pairs.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("sentence1", "sentence2", "label"), *list_pairs(120)])
    return litebert.fit(folder / "pairs.csv", model=encoder, methods=["frozen"]).folder


def answer(folder: Path, pairs: Sequence[Any], **options: Any) -> np.ndarray[Any, Any]:
    answers = litebert.load(folder, **options).predict(pairs)
    return np.array([[*answer["probabilities"].values()] for answer in answers])


def test_texts_of_a_pair_are_compared(model: Path) -> None:
    pairs = [row[:2] for row in list_pairs(80, 1)]
    said = [answer["prediction"] for answer in litebert.load(model).predict(pairs)]
    right = [row[2] for row in list_pairs(80, 1)]
    assert np.mean([a == b for a, b in zip(said, right, strict=True)]) > 0.8


def test_the_head_reads_both_vectors_their_distance_and_their_product(model: Path) -> None:
    """An independent computation of the documented formula."""
    pairs = [row[:2] for row in list_pairs(9, 2)]
    loaded = litebert.load(model, engine="torch", device="cpu")
    u, v = (
        torch.from_numpy(loaded.vectors_by("mean", True).encode([pair[i] for pair in pairs]))
        for i in (0, 1)
    )
    network: Any = loaded.model
    classifier = network.head.classifier
    logits = classifier(torch.cat((u, v, (u - v).abs(), u * v), 1))
    expected = F.softmax(logits, 1).detach().numpy()
    for options in ({"engine": "torch"}, {"engine": "compiled"}, {"engine": "onnx"}):
        assert np.abs(answer(model, pairs, **options) - expected).max() < 1e-4


def test_exports_answer_alike(model: Path, tmp_path: Path) -> None:
    pairs = [row[:2] for row in list_pairs(40, 3)]
    expected = answer(model, pairs)
    litebert.export(model, tmp_path / "onnx", format="onnx")
    litebert.export(model, tmp_path / "int8")
    assert np.abs(answer(tmp_path / "onnx", pairs) - expected).max() < 1e-4
    assert np.abs(answer(tmp_path / "int8", pairs) - expected).max() < 0.05
    card = (tmp_path / "onnx" / "README.md").read_text(encoding="utf-8")
    assert 'tokenizer(["A first text.", "A second text."], padding=True' in card
    with pytest.raises(ModelError, match="head=backbone"):
        litebert.convert(model, tmp_path / "hf", to="hf")


def test_words_that_decided_are_of_both_texts(model: Path) -> None:
    loaded = litebert.load(model)
    (words,) = loaded.explain([("red old tall fast", "red old tall slow")])
    assert [word.field for word in words] == ["text"] * 4 + ["pair"] * 4
    with pytest.raises(ConfigError, match="occlusion"):
        loaded.explain([("red", "old")], "gradients")


def test_two_texts_on_the_line_are_a_pair(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(model), "red old tall", "tall old red"]) == 0
    assert "red old tall | tall old red" in capsys.readouterr().out
    assert main(["predict", str(model), "red old tall"]) == 2
    assert "give (first text, second text)" in capsys.readouterr().err


def test_a_pass_never_divides_a_pair() -> None:
    rows = [EncodedRow(np.full(4, i, np.int32), np.zeros(4, np.int32)) for i in range(20)]
    items = [Item(i, (rows[2 * i], rows[2 * i + 1]), 0) for i in range(10)]
    steps = Steps()

    def compute(some: PaddedRows) -> np.ndarray[Any, Any]:
        assert len(some) % 2 == 0
        first = some.ids[:, 0].reshape(-1, 2)
        assert (first[:, 0] + 1 == first[:, 1]).all()
        return first[:, :1].astype(np.float32)

    with steps.of(1e-9, lambda: None):
        out = compute_logits(steps.passes(compute), items, Number(), 0, together=2)
    assert [int(logits[0]) for logits in out] == [*range(0, 20, 2)]


@pytest.mark.parametrize("output", [OneClass(("a", "b")), Number()], ids=["classes", "number"])
def test_scales_of_the_fit_are_a_part_of_the_weights(output: Any) -> None:
    """The head that is fitted on scaled features answers from the plain ones."""
    draw = np.random.default_rng(0)
    u, v = (draw.normal(size=(200, 16)).astype(np.float32) for _ in range(2))
    u, v = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (u, v))
    cosines = (u * v).sum(1)
    targets = cosines if output.ranks else (cosines > 0).astype(int)
    features = np.concatenate((u, v, np.abs(u - v), u * v), 1)
    items = [Item(i, (), target) for i, target in enumerate(targets.tolist())]
    head = fit_head(output, features[:150], items[:150], apart=True)
    assert head.weight.shape[1] == 64
    logits = np.stack(head.logits(features[150:]))
    if output.ranks:
        assert np.corrcoef(logits[:, 0], targets[150:])[0, 1] > 0.95
    else:
        assert (logits.argmax(1) == targets[150:]).mean() > 0.9


def test_a_network_of_pairs_is_trained_apart(
    tmp_path: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, steps in (("LEAST_STEPS", 24), ("FEWEST_STEPS", 8), ("NETWORK_EPOCHS", 1)):
        monkeypatch.setattr(methods, name, steps)
    with open(tmp_path / "pairs.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("sentence1", "sentence2", "label"), *list_pairs(60)])
    result = litebert.fit(tmp_path / "pairs.csv", model=encoder, methods=["finetune"])
    record = litebert.load(result.folder).task_record
    assert record["pooling"] == "apart"
    pairs = [row[:2] for row in list_pairs(5)]
    engines = [answer(result.folder, pairs, engine=name) for name in ("compiled", "torch")]
    assert np.abs(engines[0] - engines[1]).max() < 1e-4


def test_who_learns_from_a_model_of_pairs_reads_them_apart(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(tmp_path / "pairs.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "pair", "label"), *list_pairs(200)])
    start = unpack(tmp_path / "models")["sentiment"]
    words = ["finetune", start, "--data", tmp_path / "pairs.csv", "--pair-column", "pair"]
    words += ["--teacher", model, "--out", tmp_path / "student", "--epochs", 1]
    assert main([str(word) for word in words]) == 0
    student = litebert.load(tmp_path / "student")
    assert student.task_record["pooling"] == "apart"
    pairs = [row[:2] for row in list_pairs(80, 1)]
    right = [row[2] for row in list_pairs(80, 1)]
    found = [answer["prediction"] for answer in student.predict(pairs)]
    assert np.mean([one == label for one, label in zip(found, right, strict=True)]) > 0.7
    assert (tmp_path / "student" / "head.safetensors").is_file()  # fitted on both texts
    single = [str(word) for word in words if word not in ("--pair-column", "pair")]
    single[single.index("--out") + 1] = str(tmp_path / "single")
    assert main(single) == 2
    assert "--pair-column" in capsys.readouterr().err


def test_others_begin_with_the_encoder_of_a_model_of_pairs(model: Path, tmp_path: Path) -> None:
    """Whose head none of them reads."""
    rows = [("text", "label"), *((" ".join(pair[:2]), pair[2]) for pair in list_pairs(40))]
    with open(tmp_path / "texts.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    words = ["finetune", str(model), "--task", "table", "--data", str(tmp_path / "texts.csv")]
    assert main([*words, "--out", str(tmp_path / "tuned"), "--steps", "2"]) == 0
    assert litebert.load(tmp_path / "tuned").predict(["red old"])
    with open(tmp_path / "pairs.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("sentence1", "sentence2", "label"), *list_pairs(20)])
    with pytest.raises(ConfigError, match="single texts of one class"):
        litebert.fit(tmp_path / "pairs.csv", model=model, methods=["contrastive"])
