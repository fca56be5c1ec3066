"""Exports open in optimum's and sentence-transformers' ONNX classes, and give the answers of
transformers.

These libraries need another version of transformers than the other tests, so they live in an
environment of their own, which is made from the package index; LITEBERT_PEERS names the Python of
one that exists.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from litebert.answer.model import load
from litebert.config.finetuning import HeadName
from litebert.interop import save_hf
from litebert.interop.onnx.folder import save_onnx
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from litebert.tokenizer import Tokenizer
from toys.environments import python_with
from toys.folders import load_module, save_litebert
from toys.points import config, randomize, shape

VERSIONS = (
    "optimum-onnx[onnxruntime]==0.1.0",
    "optimum==2.1.0",
    "transformers==4.57.6",
    "torch==2.13.0",
    "sentence-transformers==5.7.0",
    "onnxruntime==1.32.0",
    "onnx==1.23.2",
)
ALLOWED = 1e-4
TEXTS = ["red and green", "a blue text that is somewhat longer than the others", "yes"]
"""Those of peers/open_exports.py."""
HEADS: dict[HeadName, tuple[bool, int, tuple[str, ...]]] = {
    "sequence": (True, 3, ("red", "green", "blue")),
    "tokens": (False, 5, ("O", "B-X", "I-X", "B-Y", "I-Y")),
    "span": (False, 2, ()),
    "choice": (True, 1, ()),
}
MODERN = {
    "norm": "pre",
    "first_norm": False,
    "feedforward": "gated",
    "positions": "rotary",
    "bias": False,
    "embedding_norm": "after",
    "prediction": "hidden",
    "segment_types": 0,
    "pooler": False,
    "norm_eps": 1e-6,
    "activation": "gelu",
}
POINTS = {
    "albert": {},
    "bert": {"sharing": "none", "embedding_size": 16, "activation": "gelu"},
    "modernbert": MODERN,
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment with the peers."""
    return python_with(VERSIONS, tmp_path_factory.mktemp("peers") / "venv", "LITEBERT_PEERS")


@pytest.mark.slow
@pytest.mark.parametrize("family", POINTS)
def test_they_open_what_is_exported(
    family: str, python: str, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    tokenizer, point = Tokenizer.load(tiny_tokenizer), {**POINTS[family], "vocab_size": 400}
    pretrained = Pretrainer(config(("mlm",), **point)).eval()
    models: dict[HeadName, Pretrainer | TaskModel] = {"mlm": pretrained, "backbone": pretrained}
    for head, (reads_cls, classes, _) in HEADS.items():
        models[head] = TaskModel(shape(**point), reads_cls, classes).eval()
    for head, model in models.items():
        randomize(model, scale=0.15)
        labels, tuned = (HEADS[head][2], {"kind": head}) if head in HEADS else ((), {})
        opened = load_module(model, tokenizer, labels=labels, task=tuned)
        save_onnx(opened, tmp_path / "onnx" / head, head)
        save_hf(opened, tmp_path / "hf" / head, head)
    pairs = TaskModel(shape(**{**point, "pooler": False}), False, 0).eval()
    randomize(pairs, scale=0.15)
    vectors = {
        "task": "pairs",
        "kind": "backbone",
        "problem": "similarity",
        "length": 12,
        "vectors": {"pooling": "mean", "normalized": True},
    }
    save_litebert(pairs, tokenizer, tmp_path / "own", task=vectors)
    opened = load(tmp_path / "own")
    save_onnx(opened, tmp_path / "vectors" / "onnx")
    save_hf(opened, tmp_path / "vectors" / "hf")
    np.save(tmp_path / "vectors.npy", opened.encode(TEXTS))
    script = Path(__file__).with_name("peers") / "open_exports.py"
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    done = subprocess.run(
        [python, str(script), str(tmp_path)],
        env={**clean, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    gaps = json.loads(done.stdout.splitlines()[-1])
    assert gaps.keys() == {*models, "sentences", "vectors"}
    assert max(gaps.values()) < ALLOWED, gaps
