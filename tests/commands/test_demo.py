"""`litebert demo`: the models of the package open offline, answer, and keep what they were."""

from __future__ import annotations

import hashlib
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import litebert
from litebert import demo
from litebert.base.errors import ModelError
from litebert.demo import MODELS, pack, unpack
from litebert.interop.files import read_tensors
from toys.refusals import names, refused

Run = Callable[..., tuple[int, str, str]]
MOST_BYTES = 6_000_000
CARDS = Path(__file__).resolve().parents[2] / "runs" / "demo_cards"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return unpack(tmp_path_factory.mktemp("demo"))


def test_the_archive_is_small() -> None:
    assert MODELS.stat().st_size <= MOST_BYTES


def test_a_card_says_what_a_person_needs(models: dict[str, Path]) -> None:
    for folder in models.values():
        card = (folder / "README.md").read_text(encoding="utf-8")
        _, front, text = card.split("---\n", 2)
        facts = yaml.safe_load(front)
        assert facts["license"] == "apache-2.0"
        assert not {"datasets", "base_model"} & set(facts), "the Hub takes its own names there"
        for part in ("real work", "## How it was made", "## Scores", "## Limits"):
            assert part in text
        assert not re.search(r"\.(txt|csv)\b|-1\.0", text)
        code = text.partition("```python\n")[2].partition("```")[0]
        subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)


def test_a_card_is_the_one_that_is_edited(models: dict[str, Path]) -> None:
    for name, folder in models.items():
        edited = CARDS / f"{name}.md"
        assert (folder / "README.md").read_bytes() == edited.read_bytes(), f"pack {edited} again"


def test_the_command_of_a_card_runs(
    models: dict[str, Path], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, folder in models.items():
        words = re.findall(r"`litebert (convert [^`]+)`", (folder / "README.md").read_text())
        copy = shutil.copytree(folder, tmp_path / name / "model")
        monkeypatch.chdir(copy)
        assert run(*words[0].split())[0] == 0
        assert (tmp_path / name / "for-transformers" / "config.json").is_file()


def test_the_sentiment_of_plain_texts_is_right(models: dict[str, Path]) -> None:
    texts = {
        "I love this camera, it is excellent.": "positive",
        "A wonderful, moving film.": "positive",
        "The worst movie I have ever seen.": "negative",
        "It broke after a week and the support was terrible.": "negative",
    }
    answers = litebert.load(models["sentiment"], device="cpu").predict(list(texts))
    assert [answer["prediction"] for answer in answers] == list(texts.values())


def test_vectors_know_what_is_alike(models: dict[str, Path]) -> None:
    encoder = litebert.load(models["vectors"], device="cpu")
    texts = [
        "A man is riding a horse.",
        "Somebody rides on a horse.",
        "The bank raised the rates of interest.",
    ]
    vectors = encoder.encode(texts)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    similar = vectors @ vectors.T
    assert similar[0, 1] > similar[0, 2] + 0.2
    assert similar[0, 1] > similar[1, 2] + 0.2


def test_a_model_of_the_package_opens_by_its_name(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    texts = ["A man is riding a horse.", "The bank raised the rates of interest."]
    expected = litebert.load(models["vectors"], device="cpu").encode(texts)
    for place in ("cache", "file/that/is/none"):  # the second time, no cache can be written
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / place))
        demo._find.cache_clear()
        np.testing.assert_array_equal(
            litebert.load("vectors", device="cpu").encode(texts), expected
        )
    (tmp_path / "rows.txt").write_text("\n".join(texts))
    out = tmp_path / "out.npy"
    status, _, err = run("embed", "--input", tmp_path / "rows.txt", "--out", out)
    assert status == 0
    names(err.splitlines()[0], "vectors")
    np.testing.assert_allclose(np.load(out), expected, atol=1e-6)
    monkeypatch.chdir(tmp_path)
    Path("vectors").mkdir()
    with refused(ModelError, "vectors"):  # a folder of that name is meant
        litebert.load("vectors")


def test_masked_words_are_words_that_fit(models: dict[str, Path]) -> None:
    (guesses,) = litebert.load(models["words"], device="cpu").fill_mask(
        "he opened the [MASK] and went out."
    )
    assert {guess.token.strip("\u2581 ") for guess in guesses} & {"door", "window", "gate"}


def test_answers_in_the_terminal(run: Run) -> None:
    status, out, _ = run("demo", "What a lovely film!", "he shut the [MASK].")
    assert status == 0
    assert "positive" in out
    assert "door" in out


def test_the_models_are_written_as_ordinary_folders(run: Run, tmp_path: Path) -> None:
    status, _, err = run("demo", "--out", tmp_path / "models", "--", "What a lovely film!")
    assert status == 0
    names(err, tmp_path / "models" / "sentiment")
    rows = tmp_path / "rows.txt"
    rows.write_text("What a lovely film!\n")
    status, out, _ = run("predict", tmp_path / "models" / "sentiment", "--input", rows)
    assert status == 0
    assert "positive" in out


@pytest.mark.parametrize(
    ("words", "place"),
    [((" ",), "TEXT"), (("--port", "99999"), "--port"), (("--out", "{file}"), "{file}")],
)
def test_wrong_words(run: Run, tmp_path: Path, words: tuple[str, ...], place: str) -> None:
    file = tmp_path / "file"
    file.write_text("")
    filled = [word.replace("{file}", str(file)) for word in words]
    status, _, err = run("demo", *filled, "--no-browser")
    assert status == 2
    names(err.splitlines()[-1], place.replace("{file}", str(file)))


def test_eight_bits_are_near_and_the_same_models_make_the_same_bytes(
    models: dict[str, Path], tmp_path: Path
) -> None:
    pack(models, tmp_path / "first.zip")
    pack(models, tmp_path / "second.zip")
    again = unpack(tmp_path / "again", tmp_path / "first.zip")
    digests = [
        hashlib.sha256((tmp_path / f"{name}.zip").read_bytes()).hexdigest()
        for name in ("first", "second")
    ]
    assert digests[0] == digests[1]
    torch.manual_seed(0)
    for name, folder in models.items():
        before = read_tensors(folder / "model.safetensors")
        after = read_tensors(again[name] / "model.safetensors")
        assert before.keys() == after.keys()
        for key, tensor in before.items():
            assert torch.allclose(tensor, after[key], atol=float(tensor.abs().max()) / 250), key


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    data = bytearray(MODELS.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "models.zip").write_bytes(data)
    with refused(ModelError, str(tmp_path / "models.zip")):
        unpack(tmp_path / "out", tmp_path / "models.zip")
    with refused(ModelError, str(tmp_path / "nothing.zip")):
        unpack(tmp_path / "out", tmp_path / "nothing.zip")


@pytest.mark.thorough
def test_the_playground_opens() -> None:
    """The page and an answer of each model come over HTTP."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["-m", "litebert", "demo", "--no-browser", "--port", str(port)]
    process = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models") as answer:
                    listed = answer.read().decode()
                break
            except OSError:
                assert process.poll() is None
                __import__("time").sleep(0.2)
        assert all(name in listed for name in ("sentiment", "words", "vectors"))
    finally:
        process.terminate()
        process.communicate()
    assert process.returncode in (0, 143)
