"""`litebert export --static`: a table of token vectors that answers with NumPy alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import litebert
from litebert.answer.static import export_static, load_static
from litebert.base.errors import ConfigError, DataError, ModelError
from litebert.model.task_model import TaskModel
from litebert.tasks.values import EncodedRow
from litebert.tokenizer import Tokenizer
from toys.folders import save_litebert
from toys.points import randomize, shape
from toys.refusals import names, refused

Run = Callable[..., tuple[int, str, str]]
TEXTS = ["bado toto kumi.", "", "Kumi mimi lala so ti bado, kumi!", "fa so"]


@pytest.fixture(scope="module")
def model(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = Tokenizer.load(tiny_tokenizer)
    network = TaskModel(shape(vocab_size=words.vocab_size, pooler=False), False, 0).eval()
    randomize(network, scale=0.15)
    place = tmp_path_factory.mktemp("static") / "model"
    vectors = {"pooling": "mean", "normalized": True}
    task = {"task": "pairs", "kind": "backbone", "problem": "similarity", "length": 16}
    save_litebert(network, words, place, task={**task, "vectors": vectors})
    return place


def test_it_opens_everywhere_with_equal_vectors(model: Path, tmp_path: Path, run: Run) -> None:
    status, _, err = run("export", model, "--static", "--vector-size", 8, "--out", tmp_path / "s")
    assert status == 0, err
    vectors = load_static(tmp_path / "s").encode(TEXTS)
    assert vectors.shape == (4, 8)
    assert not vectors[1].any()

    # By hand: the tokens alone, their principal components by another routine, and Zipf's weights.
    from sklearn.decomposition import PCA

    words = Tokenizer.load(model / "tokenizer")
    table = load_file(tmp_path / "s" / "model.safetensors")["embeddings"]
    shares = 1 / np.arange(1, words.vocab_size + 1)
    weights = 1e-4 / (1e-4 + shares / shares.sum())
    rows = [
        EncodedRow(np.array([words.cls_id, i, words.sep_id], np.int32), np.zeros(3, np.int32))
        for i in range(words.vocab_size)
    ]
    alone = litebert.load(model).sentence_encoder.of_rows(rows)
    components = PCA(8, svd_solver="full").fit_transform(alone)
    np.testing.assert_allclose(np.abs(table / weights[:, None]), np.abs(components), atol=1e-4)
    for text, vector in zip(TEXTS, vectors, strict=True):
        total = table[words.encode([text])[0]].sum(0)
        np.testing.assert_allclose(vector, total / max(np.linalg.norm(total), 1e-30), atol=1e-5)

    peers = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed"
    )
    peer = peers.SentenceTransformer(str(tmp_path / "s"), device="cpu")
    np.testing.assert_allclose(peer.encode(TEXTS), vectors, atol=1e-5)


def test_it_answers_without_torch(model: Path, tmp_path: Path, run: Run) -> None:
    assert run("export", model, "--static", "--out", tmp_path / "s")[0] == 0
    code = (
        "import sys\nfrom litebert.answer.static import load_static\n"
        f"print(load_static({str(tmp_path / 's')!r}).encode(['bado'] * 3).shape)\n"
        "print({'torch', 'transformers', 'pyarrow'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["(3, 16)", "set()"]


def test_mistakes_get_a_sentence(model: Path, tmp_path: Path, run: Run) -> None:
    for words, places in {
        ("--vector-size", 17): (17, 16),
        ("--vector-size", 0): (0, 16),
        ("--dtype", "int8"): ("--static", "--dtype"),
        ("--head", "backbone"): ("--static", "--head"),
    }.items():
        status, _, err = run("export", model, "--static", "--out", tmp_path / "s", *words)
        assert status == 2
        names(err.splitlines()[-1], *places)
    assert run("export", model, "--static", "--out", tmp_path / "s")[0] == 0
    encoder = load_static(tmp_path / "s")
    with refused(DataError, 3):
        encoder.encode([3])  # type: ignore[list-item]
    with refused(DataError):
        encoder.encode("bado")
    with refused(DataError, "half a character"):
        encoder.encode(["bado", "\ud800"])
    for verb in (
        ("embed", "--input", "-"),
        ("evaluate", "--data", "a.csv"),
        ("export", "--out", tmp_path / "onnx"),
    ):
        status, _, err = run(verb[0], tmp_path / "s", *verb[1:])
        assert status == 2
        names(err.splitlines()[-1], tmp_path / "s", "load_static")
    with refused(ConfigError, "vector_size", "8"):
        export_static(model, tmp_path / "t", size="8")  # type: ignore[arg-type]
    save_file({"other": np.zeros((2, 2), np.float32)}, tmp_path / "s" / "model.safetensors")
    with refused(ModelError, tmp_path / "s"):
        load_static(tmp_path / "s")
    with refused(ModelError, tmp_path / "absent"):
        load_static(tmp_path / "absent")
