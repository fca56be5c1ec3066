"""Answers need none of the libraries of training: in these processes they cannot be imported."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import litebert
from answer.test_engines import ASKED, model_folder, same
from litebert.demo import unpack
from litebert.interop.loaded import VectorMap
from litebert.interop.sentence_modules import write_dense
from litebert.tokenizer import Tokenizer
from toys.families import FAMILIES, build_peer
from toys.folders import checkpoint, small_tokenizer, tiny
from toys.serving import SOURCE, serving
from toys.tokenizing import Kind, train

Light = Callable[..., Any]

_ABSENT = """
import sys
from importlib.machinery import PathFinder

ABSENT = {
    "torch", "pyarrow", "sklearn", "scipy", "matplotlib", "sentencepiece", "google", "sentencex",
    "threadpoolctl", "onnx", "onnxruntime", "openvino", "transformers",
}

class Present(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        absent = name.partition(".")[0] in ABSENT
        return None if absent else super().find_spec(name, path, target)

sys.meta_path[:] = [Present if finder is PathFinder else finder for finder in sys.meta_path]
"""
_BEGIN = """
import json, sys
import litebert
from litebert.cli import main

asked = json.loads(sys.argv[1])
"""
SHORT = ["a tree", "a hat"]
TEXTS = ["a wonderful film", "a dull story"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """PYTHONPATH, with which Python finds none of them."""
    folder = tmp_path_factory.mktemp("absent")
    (folder / "sitecustomize.py").write_text(_ABSENT)
    return os.pathsep.join([str(folder), str(SOURCE)])


@pytest.fixture
def light(place: str) -> Light:
    """Run a program there; it reads `asked`, and what it prints last is JSON."""

    def call(program: str, asked: Any) -> Any:
        words = [sys.executable, "-c", _BEGIN + program, json.dumps(asked, default=str)]
        environment = {**os.environ, "PYTHONPATH": place}
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return call


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return unpack(tmp_path_factory.mktemp("models"))


_DEMO = """
from dataclasses import asdict
from litebert.demo import unpack

models = unpack(asked["out"])
sentiment, vectors, words = (litebert.load(models[name]) for name in models)
files = ["--input", asked["texts"], "--out"]
statuses = [
    main(["predict", str(models["sentiment"]), *files, asked["out"] + "/answers.csv"]),
    main(["embed", str(models["vectors"]), *files, asked["out"] + "/vectors.npy"]),
    main(["embed", str(models["vectors"]), *files, asked["out"] + "/vectors.jsonl"]),
    main(["fill-mask", str(models["words"]), "The [MASK] was cold."]),
]
print(json.dumps([
    sentiment.predict(["a dull story"]),
    [asdict(weight) for weight in sentiment.explain(["a dull story"])[0]],
    vectors.encode(["a dull story"]).tolist(),
    [guess.id for guess in words.fill_mask("The [MASK] was cold.")[0]],
    words.score(["The winter was cold."])[0].log_likelihood,
    statuses,
]))
"""


def test_the_models_in_the_package_answer(
    light: Light, models: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "texts.csv").write_text("text\na [MASK] story\n")
    printed = light(_DEMO, {"out": tmp_path, "texts": tmp_path / "texts.csv"})
    sentiment, vectors, words = (litebert.load(folder) for folder in models.values())
    answers, weights, encoded, guesses, likelihood, statuses = printed
    assert statuses == [0, 0, 0, 0]
    same(answers, sentiment.predict(["a dull story"]))
    assert weights == [asdict(weight) for weight in sentiment.explain(["a dull story"])[0]]
    np.testing.assert_allclose(encoded, vectors.encode(["a dull story"]), atol=1e-6)
    assert guesses == [guess.id for guess in words.fill_mask("The [MASK] was cold.")[0]]
    (score,) = words.score(["The winter was cold."])
    assert likelihood == pytest.approx(score.log_likelihood, abs=1e-4)
    with open(tmp_path / "answers.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["prediction"] == sentiment.predict(["a [MASK] story"])[0]["prediction"]
    written = json.loads((tmp_path / "vectors.jsonl").read_text())["vector"]
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy")[0], written, atol=1e-6)


_PREDICT = """
print(json.dumps({
    name: litebert.load(folder).predict(json.loads(inputs)) for name, folder, inputs in asked
}))
"""


@pytest.mark.thorough
def test_every_kind_of_task_answers(light: Light, tiny_tokenizer: Path, tmp_path: Path) -> None:
    folders = {name: model_folder(tmp_path / name, tiny_tokenizer, name) for name in ASKED}
    asked = [(name, folder, json.dumps(ASKED[name][-1])) for name, folder in folders.items()]
    printed = light(_PREDICT, asked)
    for name, folder in folders.items():
        expected = json.loads(json.dumps(litebert.load(folder).predict(ASKED[name][-1])))
        same(printed[name], expected)


_EXPORT = """
status = main(["export", asked["model"], "--out", asked["out"]])
print(json.dumps([status, litebert.load(asked["out"]).predict(asked["texts"])]))
"""


def test_an_export_is_written_and_answers(
    light: Light, models: dict[str, Path], tmp_path: Path
) -> None:
    asked = {"model": models["sentiment"], "out": tmp_path / "small", "texts": TEXTS}
    status, answers = light(_EXPORT, asked)
    assert status == 0
    assert answers == litebert.load(tmp_path / "small").predict(TEXTS)


_READ = """
answers = {}
for folder in asked["folders"]:
    model = litebert.load(folder)
    answers[folder] = [model.encode(asked["texts"]).tolist(), []]
    if model.can_fill:
        answers[folder][1] = model.mask_reader.logits(asked["texts"])[0].tolist()
print(json.dumps(answers))
"""


def sentence_folder(folder: Path) -> Path:
    """A folder of sentence-transformers: BERT, the mean, a matrix and unit length."""
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense", "Normalize": "3_Norm"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    weight = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)
    write_dense(folder / "2_Dense", VectorMap(weight, np.ones(8, np.float32)))
    return folder


@pytest.mark.thorough
def test_folders_of_runs_and_of_other_programs_answer(light: Light, tmp_path: Path) -> None:
    kinds: dict[str, Kind] = {"Bert": "wordpiece", "Roberta": "bpe", "ModernBert": "bpe"}
    folders = []
    for family, head in (*dict.fromkeys(kinds, "mlm").items(), ("Bert", "backbone")):
        tokenizer: Tokenizer = train(kinds[family])
        ids = {"pad_token_id": tokenizer.pad_id} if "pad_token_id" in FAMILIES[family] else {}
        folder = tmp_path / f"{family}-{head}"
        peer = build_peer(family, head, vocab_size=tokenizer.vocab_size, **ids)
        peer.save_pretrained(folder)
        tokenizer.save(folder)
        folders.append(folder)
    sentence_folder(folders[-1])
    run, model = tmp_path / "run", tiny()
    checkpoint(run, 1, model)
    small_tokenizer().save(run / "tokenizer")
    folders.append(run)
    printed = light(_READ, {"folders": folders, "texts": SHORT})
    assert len(printed) == 5
    for folder in folders:
        loaded, (vectors, logits) = litebert.load(folder), printed[str(folder)]
        np.testing.assert_allclose(vectors, loaded.encode(SHORT), atol=1e-5)
        assert loaded.can_fill == bool(logits)
        if logits:
            expected = loaded.mask_reader.logits(SHORT)[0]
            np.testing.assert_allclose(logits, expected, atol=1e-4)


@pytest.mark.thorough
def test_the_service_answers(place: str, models: dict[str, Path], tmp_path: Path) -> None:
    named = [f"{name}={folder}" for name, folder in models.items()]
    with serving(tmp_path, *named, PYTHONPATH=place) as service, service.client() as client:
        assert "<title>" in client.get("/").text
        predicted = client.post("/predict", json={"inputs": TEXTS})
        encoded = client.post("/v1/embeddings", json={"model": "vectors", "input": TEXTS})
        filled = client.post("/fill-mask", json={"inputs": ["The [MASK] was cold."]})
    assert [answer["prediction"] for answer in predicted.json()["predictions"]] == [
        "positive",
        "negative",
    ]
    vectors = [item["embedding"] for item in encoded.json()["data"]]
    np.testing.assert_allclose(vectors, litebert.load(models["vectors"]).encode(TEXTS), atol=1e-5)
    assert filled.status_code == 200, filled.text


_HELPS = """
from litebert.cli import VERBS

print(json.dumps([verb for verb in VERBS if main([verb, "--help"])]))
"""


@pytest.mark.thorough
def test_every_verb_shows_its_help(light: Light) -> None:
    assert light(_HELPS, []) == []


_VERBS = """
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from litebert.interop.files import read_weights

said = []
for words in asked:
    with redirect_stderr(StringIO()) as text:
        status = main(words)
    said.append([status, text.getvalue()])
for ask in (
    lambda: litebert.load(asked[0][1], engine="torch").predict(["a text"]),
    lambda: litebert.load(asked[0][1]).explain(["a text"], method="gradients"),
    lambda: read_weights(Path("pytorch_model.bin")),
    lambda: litebert.pretrain,
):
    try:
        ask()
    except litebert.LitebertError as error:
        said.append([2, str(error)])
print(json.dumps(said))
"""


def test_what_is_missing_is_one_sentence(
    light: Light, models: dict[str, Path], tmp_path: Path
) -> None:
    texts, bare = tmp_path / "texts.txt", tmp_path / "bare"
    texts.write_text("a text\n")
    bare.mkdir()
    (bare / "spiece.model").write_bytes(
        (models["words"] / "tokenizer" / "spiece.model").read_bytes()
    )
    sentiment, words = str(models["sentiment"]), str(models["words"])
    files, out = ["--input", str(texts)], ["--out", str(tmp_path / "out")]
    cases = {
        "torch": ["predict", sentiment, *files, "--engine", "torch"],
        "pyarrow": ["embed", words, *files, "--out", str(tmp_path / "v.parquet")],
        "sentencepiece": ["tokenizer", "train", str(texts), *out],
        "pyarrow ": ["prepare", str(texts), "--tokenizer", words, *out],
        "torch ": ["finetune", words, "--task", "table", "--data", str(texts), *out],
        "sentencepiece ": ["tokenizer", "inspect", str(texts), "--tokenizer", str(bare)],
        "torch  ": ["convert", sentiment, *out],
    }
    said = light(_VERBS, list(cases.values()))
    packages = (*cases, *["torch"] * 4)  # the last four in Python
    for package, (status, text) in zip(packages, said, strict=True):
        assert (status, "Traceback" in text) == (2, False), text
        line = f"{package.strip()} is not installed; run: pip install 'litebert[train]'"
        assert text.strip().endswith(line), text
