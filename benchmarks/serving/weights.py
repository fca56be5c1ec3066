"""One set of random weights in the folders that the servers open."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import torch

import litebert
from litebert.config import Config, EncoderConfig, SequenceConfig
from litebert.interop import LoadedModel, save_litebert
from litebert.model.task_model import TaskModel
from litebert.text.sources import read_documents
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.training import train_tokenizer

BERT = EncoderConfig(
    vocab_size=30522,
    embedding_size=384,
    hidden_size=384,
    layers=6,
    heads=12,
    intermediate_size=1536,
    sharing="none",
    activation="gelu",
    pooler=False,
    init_std=0.05,
)
SHAPES = {
    "minilm": BERT,
    "albert": EncoderConfig(vocab_size=30522, pooler=False, init_std=0.04),
    "tiny": replace(
        BERT,
        embedding_size=32,
        hidden_size=32,
        layers=2,
        heads=2,
        intermediate_size=64,
        init_std=0.2,
    ),
}
"""MiniLM's (a BERT of 6 layers and H 384), albert-base's, and one for tests. Weights spread so
widely that vectors differ."""
LENGTH = 128


def words_of(path: Path | None) -> Tokenizer:
    """A vocabulary such as BERT's vocab.txt, or one of some documents of the built-in corpus."""
    if path is not None:
        return Tokenizer.load(path)
    texts = (document.text for document in itertools.islice(read_documents(["python-docs"]), 500))
    return train_tokenizer(texts, kind="wordpiece", vocab_size=4096)


LABELS = ("negative", "positive")


def build(name: str, words: Tokenizer, folder: Path, task: str = "vectors") -> None:
    """Write `litebert`, a model of vectors, or of classes; `float32` and `int8`, its exports; `hf`,
    the same for `transformers` and sentence-transformers; `onnx` and `onnx-int8`, exports that
    ONNX Runtime reads; `optimum`, a copy of the first, for optimum writes into its folder."""
    torch.manual_seed(0)
    has_classes = task == "classes"
    encoder = replace(SHAPES[name], pooler=has_classes)
    config = Config(
        name=name,
        encoder=encoder,
        sequences=SequenceConfig(length=LENGTH),
        objectives=("mlm",),
    )
    vectors = {
        "task": "pairs",
        "kind": "backbone",
        "problem": "similarity",
        "length": LENGTH,
        "vectors": {"pooling": "mean", "normalized": True},
    }
    classes = {"task": "table", "kind": "sequence", "problem": "classes", "length": LENGTH}
    model = TaskModel(encoder, has_classes, len(LABELS) if has_classes else 0).eval()
    loaded = LoadedModel(
        model,
        config,
        words,
        Path(),
        labels=LABELS if has_classes else (),
        task={**classes, "pair": False} if has_classes else vectors,
    )
    save_litebert(loaded, folder / "litebert")
    litebert.convert(folder / "litebert", folder / "hf", to="hf")
    for dtype in ("float32", "int8"):
        litebert.export(folder / "litebert", folder / dtype, dtype=dtype)
    litebert.export(folder / "litebert", folder / "onnx", format="onnx")
    litebert.export(folder / "litebert", folder / "onnx-int8", dtype="int8", format="onnx")
    shutil.copytree(folder / "onnx", folder / "optimum")
