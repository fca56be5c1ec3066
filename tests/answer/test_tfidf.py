"""Models that count words and characters answer as the baseline that learned them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert import export, load
from litebert.base.errors import ConfigError, ModelError
from litebert.demo import locate
from litebert.fitting.tfidf import write_tfidf
from litebert.interop.tfidf import TFIDF, FeatureTokenizer, read_tfidf
from litebert.judge.baselines import fit_baseline
from litebert.serve.limits import Limits
from litebert.serve.served import Served
from litebert.serve.server import parse_models
from litebert.serve.wire import Group
from litebert.serve.worker import warm
from litebert.tasks.table import Table
from litebert.tasks.task import Task
from litebert.tasks.text_outputs import Number, OneClass, SeveralLabels
from litebert.tasks.texts import Example

WORDS = [
    "good",
    "bad",
    "Fine",
    "awful",
    "it",
    "is",
    "not",
    "a",
    "Äpfel",
    "3.5",
    "don't",
    "!",
    "…",
    "한국어",
]


def make_texts(count: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(0, 12))) for _ in range(count)]


def make_task(kind: str) -> tuple[Task[Any], list[Example]]:
    texts, pairs = make_texts(150), make_texts(150, 1)
    outputs: dict[str, Any] = {
        "two": OneClass(("no", "yes")),
        "four": OneClass(("a", "b", "c", "never")),
        "labels": SeveralLabels(("x", "y", "never")),
        "number": Number(),
        "far": Number(),
    }
    name = kind.removesuffix(" of pairs")
    draw, labels = random.Random(2), []
    for text in texts:
        good = text.count("good") + draw.random()
        far = 1e6 + good / 100
        made = {"two": int(good > 1), "four": int(good) % 3, "number": good, "far": far}
        labels.append((int(good > 1), int("bad" in text), 0) if name == "labels" else made[name])
    paired = kind != name
    examples = [
        Example(text, pair if paired else None, label)
        for text, pair, label in zip(texts, pairs, labels, strict=True)
    ]
    columns = ("text", "other") if paired else ("text",)
    return Table(outputs[name], pair=paired, texts=columns), examples


KINDS = [
    f"{name}{pairs}"
    for name in ("two", "four", "labels", "number", "far")
    for pairs in ("", " of pairs")
]


@pytest.fixture(scope="module", params=KINDS)
def learned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    task, examples = make_task(request.param)
    fitted = fit_baseline(task, examples)
    folder = tmp_path_factory.mktemp("tfidf") / "model"
    write_tfidf(fitted, folder, "")
    return task, fitted, folder


@settings(max_examples=20, deadline=None)
@given(texts=st.lists(st.text(max_size=60), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_it_answers_as_scikit_learn_does(learned: Any, texts: list[str], seed: int) -> None:
    task, fitted, folder = learned
    firsts = [text.replace("\0", " ") for text in [*texts, *make_texts(5, seed)]]
    seconds = make_texts(len(firsts), seed + 1)
    inputs = list(zip(firsts, seconds, strict=True)) if task.pair else firsts
    examples = [task.example(value, "") for value in inputs]
    expected = map(task.record, examples, fitted.answers(examples))
    for record, other in zip(load(folder).predict(inputs), expected, strict=True):
        if "probabilities" not in record:
            assert record["prediction"] == pytest.approx(other["prediction"], abs=1e-4, rel=1e-9)
            continue
        values = [[*row["probabilities"].values()] for row in (record, other)]
        np.testing.assert_allclose(values[0], values[1], atol=1e-5)


def test_its_words_decide(tmp_path: Path) -> None:
    task, examples = make_task("two")
    write_tfidf(fit_baseline(task, examples), tmp_path / "model", "")
    (weights,) = load(tmp_path / "model").explain(["it is good"])
    assert [weight.word for weight in weights] == ["it", "is", "good"]
    assert max(weights, key=lambda weight: weight.weight).word == "good"


def test_what_it_cannot_do_is_said(learned: Any, tmp_path: Path) -> None:
    _, _, folder = learned
    with pytest.raises(ConfigError, match="TF-IDF"):
        load(folder, engine="compiled")
    with pytest.raises(ConfigError, match="use the folder as it is"):
        export(folder, tmp_path / "small")
    with pytest.raises(ModelError, match="makes no vectors"):
        load(folder).encode(["a"])
    with pytest.raises(ConfigError, match="leave --dtype out"):
        load(folder, dtype="int8")


@pytest.mark.parametrize("damage", ["cut", "empty", "other"])
def test_damage_is_one_sentence(learned: Any, tmp_path: Path, damage: str) -> None:
    _, _, folder = learned
    copy = tmp_path / "model"
    copy.mkdir()
    for file in folder.iterdir():
        content = file.read_bytes()
        if file.name == TFIDF and damage != "other":
            content = content[: len(content) // 2] if damage == "cut" else b""
        (copy / file.name).write_bytes(content)
    if damage == "other":
        task = json.loads((copy / "task.json").read_text())
        (copy / "task.json").write_text(json.dumps({**task, "classes": 7, "labels": [*"abcdefg"]}))
    with pytest.raises(ModelError, match=r"tfidf\.safetensors|task\.json"):
        load(copy)


def test_a_service_answers_long_texts(learned: Any, tmp_path: Path) -> None:
    """Nothing is measured on a row as long as the model reads, which is without end."""
    task, _, folder = learned
    copytree(folder, tmp_path / "my model")
    (name,) = parse_models([str(tmp_path / "my model")])
    assert name == "my-model"
    settings = {"tokens": Limits.tokens, "threads": 1, "device": "cpu", "exit_confidence": "off"}
    served = Served(tmp_path / "my model", settings)
    assert warm(served)[2] < 5
    long = "it is good " * 5000
    (row,) = served.answer(Group("predict", (), [[long, "bad"] if task.pair else long]))
    assert b"prediction" in row.payload


def test_long_words_are_not_remembered(learned: Any) -> None:
    _, _, folder = learned
    tokenizer = read_tfidf(folder).tokenizer
    assert isinstance(tokenizer, FeatureTokenizer)
    tokenizer.encode(["good " + "x" * 100_000])
    assert [*tokenizer._remembered] == ["good"]


def test_a_model_of_the_package_is_served_by_its_name() -> None:
    served = parse_models(["sentiment", "texts=vectors"])
    assert served == {"sentiment": locate("sentiment"), "texts": locate("vectors")}
