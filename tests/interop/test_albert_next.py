"""albert-next-mini, pretrained and fine-tuned by commands and converted, answers elsewhere as it
does here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from litebert import load
from toys.environments import python_with
from toys.finetuning import write_table

TEXTS = ["bado kumi", "fero lana tipu sema bado", "du"]


@pytest.fixture(scope="module")
def pretrained_folder(
    tiny_data: Path, tmp_path_factory: pytest.TempPathFactory, once: Callable[..., None]
) -> Path:
    folder = tmp_path_factory.mktemp("pretrained")
    once(
        "pretrain",
        "albert-next-mini",
        "--shards",
        tiny_data,
        "--out",
        folder / "run",
        "--budget",
        "3 steps",
        "--train.batch",
        "4 sequences",
    )
    once("convert", folder / "run", "--out", folder / "hf", "--to", "hf")
    return folder


@pytest.fixture(scope="module")
def fine_tuned(
    pretrained_folder: Path, tmp_path_factory: pytest.TempPathFactory, once: Callable[..., None]
) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    train, dev = write_table(folder / "train.csv", 24), write_table(folder / "dev.csv", 8, seed=1)
    once(
        "finetune",
        pretrained_folder / "run",
        "--task",
        "table",
        "--data",
        train,
        "--dev",
        dev,
        "--text-column",
        "text",
        "--label-column",
        "label",
        "--epochs",
        1,
        "--out",
        folder / "run",
    )
    once("convert", folder / "run", "--out", folder / "hf", "--to", "hf")
    return folder


@pytest.fixture(scope="module")
def once() -> Callable[..., None]:
    """Run a command in a process of its own, as a person types it."""

    def command(*words: object) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "litebert", *map(str, words)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    return command


@pytest.mark.thorough
def test_pipelines_of_transformers(pretrained_folder: Path, fine_tuned: Path) -> None:
    fill: Any = transformers.pipeline("fill-mask", model=str(pretrained_folder / "hf"), top_k=3)
    (guesses,) = load(pretrained_folder / "run").fill_mask(f"{TEXTS[1]} [MASK]", top=3)
    for guess, expected in zip(
        guesses, fill(f"{TEXTS[1]} {fill.tokenizer.mask_token}"), strict=True
    ):
        assert guess.id == expected["token"]
        assert guess.probability == pytest.approx(expected["score"], abs=1e-5)
    classify: Any = transformers.pipeline(
        "text-classification", model=str(fine_tuned / "hf"), top_k=None
    )
    for answer, expected in zip(
        load(fine_tuned / "run").predict(TEXTS), classify(TEXTS), strict=True
    ):
        assert answer["prediction"] == expected[0]["label"]
        assert answer["probabilities"] == pytest.approx(
            {e["label"]: e["score"] for e in expected}, abs=1e-5
        )


@pytest.mark.thorough
def test_onnx_runtime(
    pretrained_folder: Path, fine_tuned: Path, once: Callable[..., None], tmp_path: Path
) -> None:
    for package in ("onnx", "onnxruntime"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    import onnxruntime

    def probabilities(folder: Path, texts: list[str]) -> tuple[dict[str, Any], Any]:
        words: Any = transformers.AutoTokenizer.from_pretrained(folder)
        session = onnxruntime.InferenceSession(folder / "model.onnx")
        batch = {
            name: np.asarray(rows, np.int64) for name, rows in words(texts, padding=True).items()
        }
        (logits,) = session.run(
            None, {node.name: batch[node.name] for node in session.get_inputs()}
        )
        return batch, np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)

    once("export", fine_tuned / "hf", "--out", tmp_path / "classes", "--format", "onnx")
    _, expected = probabilities(tmp_path / "classes", TEXTS)
    for row, answer in zip(expected, load(fine_tuned / "run").predict(TEXTS), strict=True):
        assert row == pytest.approx(list(answer["probabilities"].values()), abs=1e-5)

    once("export", pretrained_folder / "hf", "--out", tmp_path / "masks", "--format", "onnx")
    model: Any = load(pretrained_folder / "run")
    batch, expected = probabilities(tmp_path / "masks", [f"{TEXTS[0]} [MASK]"])
    (place,) = np.flatnonzero(batch["input_ids"][0] == model.tokenizer.mask_id)
    for guess in model.fill_mask(f"{TEXTS[0]} [MASK]", top=3)[0]:
        assert expected[0, place, guess.id] == pytest.approx(guess.probability, abs=1e-5)


@pytest.mark.slow
def test_sentence_transformers(pretrained_folder: Path, tmp_path: Path) -> None:
    """It runs in another environment, which the variable LITEBERT_SENTENCES names where one
    exists."""
    packages = ("sentence-transformers==5.7.0", "torch==2.13.0")
    python = python_with(packages, tmp_path / "venv", "LITEBERT_SENTENCES")
    script = (
        "import sys, numpy; from sentence_transformers import SentenceTransformer; "
        "numpy.save(sys.argv[2], SentenceTransformer(sys.argv[1], "
        "device='cpu').encode(sys.argv[3:]))"
    )
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    words = [
        python,
        "-c",
        script,
        str(pretrained_folder / "hf"),
        str(tmp_path / "theirs.npy"),
        *TEXTS,
    ]
    subprocess.run(words, check=True, env={**clean, "HF_HUB_OFFLINE": "1"})
    vectors = load(pretrained_folder / "run").encode(TEXTS)
    assert np.load(tmp_path / "theirs.npy") == pytest.approx(vectors, abs=1e-5)
