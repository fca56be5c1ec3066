"""Engines: the same answers from each, of exported folders too; the choice among them; what is read
and held.
"""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import product
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import litebert
from litebert.answer import predicting
from litebert.answer.engines.graphs import FOLDER
from litebert.answer.engines.runtime import Capabilities, Runtime
from litebert.answer.engines.speed import measure_engines
from litebert.answer.files import predict_file
from litebert.answer.predicting import FIRST
from litebert.base.errors import ConfigError, DataError, MissingExtraError, ModelError
from litebert.cli import main
from litebert.demo import unpack
from litebert.kernels import network
from litebert.tasks.rows import PaddedRows
from litebert.tasks.task import Row
from toys.answers import made, texts
from toys.refusals import refused

LINES = texts(9, most=9)
ASKED: dict[str, tuple[int, tuple[str, ...], dict[str, Any], list[Any]]] = {
    "classes": (3, ("red", "green", "blue"), {"kind": "sequence"}, LINES),
    "labels": (3, ("red", "green", "blue"), {"kind": "sequence", "problem": "labels"}, LINES),
    "number": (1, (), {"kind": "sequence", "problem": "number"}, LINES),
    "pairs": (
        2,
        ("no", "yes"),
        {"kind": "sequence", "pair": True},
        list(zip(LINES, texts(9, seed=3), strict=True)),
    ),
    "tokens": (3, ("O", "B-X", "I-X"), {"kind": "tokens"}, LINES),
    "span": (2, (), {"kind": "span"}, list(zip(LINES, texts(9, seed=2), strict=True))),
    "choice": (
        1,
        (),
        {"kind": "choice"},
        [(LINES[0], LINES[1], LINES[2:5]), (LINES[5], LINES[6], LINES[7:9])],
    ),
}
BYTES = "int8" in network.list_dtypes()
PACKAGES = {"onnx": "onnxruntime"}


def needs(engine: str) -> None:
    for package in ("onnx", PACKAGES.get(engine, "onnx")):
        if engine in PACKAGES and find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


def model_folder(folder: Path, tokenizer: Path, name: str) -> Path:
    classes, labels, task, _ = ASKED[name]
    return made(folder, tokenizer, task["kind"], classes, labels, **task)


def same(answers: object, expected: object, near: float = 1e-4) -> None:
    """The same keys, texts and lengths, at any depth, and numbers that are near."""
    if isinstance(expected, dict):
        assert isinstance(answers, dict)
        assert answers.keys() == expected.keys()
        for key, value in expected.items():
            same(answers[key], value, near)
    elif isinstance(expected, (list, tuple)):
        assert isinstance(answers, (list, tuple))
        assert len(answers) == len(expected)
        for answer, value in zip(answers, expected, strict=True):
            same(answer, value, near)
    elif isinstance(expected, Real):
        assert answers == pytest.approx(expected, abs=near)
    else:
        assert answers == expected


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["compiled", "onnx"])
@pytest.mark.parametrize("name", ASKED)
def test_every_engine_gives_the_same_answers(
    engine: str, name: str, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    needs(engine)
    folder = model_folder(tmp_path / "m", tiny_tokenizer, name)
    exact = litebert.load(folder, engine="torch").predict(ASKED[name][-1])
    same(litebert.load(folder, engine=engine).predict(ASKED[name][-1]), exact)
    assert engine == "compiled" or len(list((folder / FOLDER).glob("*.onnx"))) == 1


@pytest.mark.skipif(not BYTES, reason="this processor does not multiply bytes in vectors")
@pytest.mark.parametrize("name", ASKED)
def test_in_8_bits_answers_are_near(name: str, tiny_tokenizer: Path, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "m", tiny_tokenizer, name)
    exact = litebert.load(folder).predict(ASKED[name][-1])
    answers = litebert.load(folder, dtype="int8").predict(ASKED[name][-1])
    assert answers != exact
    for answer, other in zip(answers, exact, strict=True):
        assert answer.keys() == other.keys()
        if isinstance(other.get("probabilities"), dict):
            assert answer["probabilities"] == pytest.approx(other["probabilities"], abs=0.05)


def test_8_bits_are_refused_where_they_cannot_be_had(
    tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = model_folder(tmp_path / "m", tiny_tokenizer, "classes")
    with refused(ConfigError, "float16", "compiled", "float32", "int8"):
        litebert.load(folder, dtype="float16")  # type: ignore[arg-type]
    monkeypatch.setattr(network, "list_dtypes", lambda: ["float32"])
    with refused(ConfigError, "int8", "--dtype"):
        litebert.load(folder, dtype="int8")
    monkeypatch.undo()
    monkeypatch.setattr(network, "library", lambda source: None)
    with refused(ConfigError, "compiled answers", "--engine torch"):
        litebert.load(folder, dtype="int8")
    assert litebert.load(folder).engine == "torch"


def test_weights_that_are_written_over_in_place_do_not_reach_a_model_in_memory(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    folder = model_folder(tmp_path / "m", tiny_tokenizer, "classes")
    model = litebert.load(folder, engine="compiled")
    expected = model.predict(LINES)
    file = folder / "model.safetensors"
    with file.open("r+b") as opened:  # as cp and rsync --inplace write
        opened.write(bytes(file.stat().st_size))
    assert model.predict(LINES) == expected
    assert len(model.encode(LINES)) == len(LINES)


@pytest.mark.parametrize("engine", [None, "onnx"])
def test_an_exported_folder_answers_without_weights(
    engine: str | None, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    needs(engine or "onnx")
    needs("onnx")
    folder = model_folder(tmp_path / "m", tiny_tokenizer, "classes")
    expected = litebert.load(folder).predict(LINES)
    litebert.load(folder, engine="onnx").predict(LINES)
    next((folder / FOLDER).glob("*.onnx")).rename(folder / "model.onnx")
    (folder / "model.safetensors").unlink()
    same(litebert.load(folder, engine=engine).predict(LINES), expected)


@pytest.mark.parametrize("engine", PACKAGES)
def test_a_missing_package_is_named(
    engine: str, tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = model_folder(tmp_path / "m", tiny_tokenizer, "classes")
    monkeypatch.setitem(__import__("sys").modules, PACKAGES[engine], None)
    with refused(MissingExtraError, PACKAGES[engine], f"litebert[{engine}]"):
        litebert.load(folder, engine=engine).predict(LINES)


def test_the_command_takes_an_engine(
    tiny_tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs("onnx")
    folder = model_folder(tmp_path / "m", tiny_tokenizer, "classes")
    (tmp_path / "in.txt").write_text("\n".join(LINES) + "\n")
    written = {}
    for words in (
        ["--engine", "torch"],
        ["--engine", "onnx"],
    ):
        out = tmp_path / "out.csv"
        assert (
            main(
                [
                    "predict",
                    str(folder),
                    "--input",
                    str(tmp_path / "in.txt"),
                    "--out",
                    str(out),
                    *words,
                ]
            )
            == 0
        )
        written[" ".join(words)] = list(csv.reader(out.read_text().splitlines()))
    first = written["--engine torch"]
    for rows in written.values():
        assert [row[0] for row in rows] == [row[0] for row in first]
    assert (
        main(["predict", str(folder), "--input", str(tmp_path / "in.txt"), "--engine", "onnxx"])
        == 2
    )
    assert "'onnx'" in capsys.readouterr().err


def test_an_exported_folder_without_its_packages_names_the_extras(
    tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = model_folder(tmp_path / "m", tiny_tokenizer, "classes")
    (folder / "model.safetensors").rename(folder / "model.onnx")
    for package in PACKAGES.values():
        monkeypatch.setitem(__import__("sys").modules, package, None)
    with refused(ModelError, folder, "litebert[onnx]"):
        measure_engines(litebert.load(folder))
    with refused(ModelError, folder, "onnx"):
        litebert.load(folder, engine="torch").encode(LINES)
    with refused(ModelError, folder, "ONNX", "--head backbone"):
        litebert.load(folder).encode(LINES)


# ------------------------------------------------------------------------ the path around an engine


class Lengths(Runtime):
    """Answers with the number of tokens of each row, and keeps the shapes of its rows."""

    def __init__(self, tokens: int) -> None:
        self.capabilities = Capabilities(tokens=tokens)
        self.shapes = list[tuple[int, int]]()

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        self.shapes.append(rows.ids.shape)
        lengths: NDArray[np.float32] = rows.mask.sum(1, dtype=np.float32)[:, None]
        return lengths


def counting(
    folder: Path, tokenizer: Path, tokens: int = 512
) -> tuple[predicting.Predictor, Lengths]:
    loaded, engine = litebert.load(model_folder(folder, tokenizer, "number")), Lengths(tokens)
    assert loaded.tokenizer is not None
    return predicting.Predictor(loaded.tokenizer, loaded.predictor.task, engine, 64, 64), engine


@pytest.mark.parametrize("ahead", [False, True])
def test_answers_keep_their_order_over_windows_and_batches(
    ahead: bool, tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predicting, "FIRST", 16)
    monkeypatch.setattr(predicting, "WINDOW", 64)
    answers, engine = counting(tmp_path / "m", tiny_tokenizer)
    texts = [" ".join(["ba"] * (1 + i * 7 % 23)) for i in range(500)]
    lengths = [len(ids) + 2 for ids in answers.tokenizer.encode(texts)]
    rows = [Row(answers.task.example(text, ""), {"text": text}) for text in texts]
    answered = list(answers.answer_rows(rows, ahead=ahead))
    assert [record["prediction"] for _, record in answered] == lengths
    assert [row.extras["text"] for row, _ in answered] == texts
    assert sum(rows for rows, _ in engine.shapes) == 500
    assert all(rows * (size - 7) <= 512 for rows, size in engine.shapes), (
        "up to a multiple of eight tokens"
    )


def test_only_windows_are_held(
    tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predicting, "FIRST", 16)
    monkeypatch.setattr(predicting, "WINDOW", 64)
    answers, _ = counting(tmp_path / "m", tiny_tokenizer)
    read = 0

    def rows() -> Iterator[Row[Any]]:
        nonlocal read
        for _ in range(2000):
            read += 1
            yield Row(answers.task.example("ba", ""))

    most = 0
    for answered, _ in enumerate(answers.answer_rows(rows(), ahead=True), 1):
        most = max(most, read - answered)
    assert read == 2000
    assert most <= 3 * 64, "one window is answered, one computed or waiting, and one read"


@pytest.mark.parametrize("wrong", [1, FIRST, FIRST + 5])
def test_what_stands_before_a_malformed_row_is_answered(
    wrong: int, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    folder = model_folder(tmp_path / "m", tiny_tokenizer, "classes")
    source, out = tmp_path / "in.jsonl", io.StringIO()
    source.write_text('{"text": "ba"}\n' * wrong + "{\n" + '{"text": "ba"}\n')
    with refused(DataError, f"{source}:{wrong + 1}"):
        predict_file(litebert.load(folder), source, out, form="jsonl")
    assert len(out.getvalue().splitlines()) == wrong


def test_an_interruption_keeps_what_was_answered(
    tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = litebert.load(model_folder(tmp_path / "m", tiny_tokenizer, "classes"))
    source, out = tmp_path / "in.txt", tmp_path / "out.csv"
    source.write_text("ba de\n" * 3 * FIRST)
    compute, answered = model.predictor.runtime.logits, 0

    def interrupt_later(rows: PaddedRows) -> NDArray[np.float32]:
        nonlocal answered
        if answered >= FIRST:
            raise KeyboardInterrupt
        answered += len(rows.ids)
        return compute(rows)

    monkeypatch.setattr(model.predictor.runtime, "logits", interrupt_later)
    with pytest.raises(KeyboardInterrupt):
        predict_file(model, source, out)
    assert len(out.read_text().splitlines()) == 1 + FIRST


def test_one_text_starts_no_thread(
    tiny_tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    model = litebert.load(model_folder(tmp_path / "m", tiny_tokenizer, "classes"))
    expected = model.predict(LINES)
    monkeypatch.setattr(threading.Thread, "start", lambda _: pytest.fail("a thread was started"))
    same([model.predict([text])[0] for text in LINES], expected)


_FORKED = """
import multiprocessing, os, signal, sys
from litebert import load

texts = ["a fine film with a dull end " * n for n in range(1, 17)] * 4
signal.alarm(120)
model, used = load(sys.argv[1], engine=sys.argv[2], device="cpu"), sys.argv[3] == "used"
if used:
    model.encode(texts)
if os.fork() == 0:
    signal.alarm(60)
    model.encode(texts)
    sys.exit(0)  # as gunicorn ends its workers, which frees what they hold
assert os.wait()[1] == 0
with multiprocessing.get_context("fork").Pool(2) as pool:
    (first, second) = pool.map(model.encode, [texts, texts[::-1]])
assert abs(first - model.encode(texts)).max() < 1e-5, "the parent goes on"
"""


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize(
    ("engine", "use"),
    list(product(("compiled", "torch", "onnx"), ("used", "opened"))),
)
def test_a_forked_process_answers_like_its_parent(engine: str, use: str, tmp_path: Path) -> None:
    """Neither the threads of OpenMP nor those of an engine's own are there."""
    needs(engine)
    words = [sys.executable, "-c", _FORKED, str(unpack(tmp_path)["vectors"]), engine, use]
    subprocess.run(words, env={**os.environ, "OMP_NUM_THREADS": "2"}, check=True)


def test_other_devices_are_refused_by_engines_of_the_cpu(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    needs("onnx")
    folder = model_folder(tmp_path / "m", tiny_tokenizer, "classes")
    with refused(ConfigError, "onnx", "cuda"):
        litebert.load(folder, engine="onnx", device="cuda").predict(LINES)
