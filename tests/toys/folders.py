"""Small models of ours, folders of them, and bare models saved with only what a test gives beside
them.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import nn

from litebert.config import Config, EncoderConfig, SequenceConfig
from litebert.config.finetuning import HeadName
from litebert.config.serialization import to_json
from litebert.interop import LoadedModel
from litebert.interop import models as interop
from litebert.interop.hf.writing import save_hf as write_hf
from litebert.model.pretrainer import Pretrainer
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.training import train_tokenizer


def tiny(objectives: tuple[str, ...] = ("mlm", "sop"), **changes: Any) -> Pretrainer:
    """H 8, two layers, 40 pieces."""
    shape: dict[str, Any] = {
        "vocab_size": 40,
        "embedding_size": 4,
        "hidden_size": 8,
        "layers": 2,
        "heads": 2,
        "intermediate_size": 16,
        "max_positions": 16,
    }
    encoder = EncoderConfig(**{**shape, **changes})
    return Pretrainer(
        Config(
            name="tiny", encoder=encoder, sequences=SequenceConfig(length=16), objectives=objectives
        )
    )


def small_tokenizer(vocab_size: int = 40) -> Tokenizer:
    """A unigram tokenizer of exactly so many pieces."""
    words = [
        "reading",
        "writing",
        "a",
        "model",
        "folder",
        "with",
        "some",
        "words",
        "that",
        "repeat",
        "often",
    ]
    texts = [" ".join(words[(i * j) % len(words)] for j in range(9)) for i in range(200)]
    return train_tokenizer(texts, kind="unigram", vocab_size=vocab_size)


def load_module(model: nn.Module, tokenizer: Tokenizer | None = None, **fields: Any) -> LoadedModel:
    """A model as if it had been opened.

    The config of a fine-tuned one says only its shape, unless `fields` has one.
    """
    encoder: Any = model.encoder
    shape: EncoderConfig = encoder.config
    whole = (
        model.config
        if isinstance(model, Pretrainer)
        else Config(
            name="tuned",
            encoder=shape,
            sequences=SequenceConfig(length=min(512, shape.max_positions)),
            objectives=("mlm",),
        )
    )
    return LoadedModel(
        **{"network": model, "config": whole, "tokenizer": tokenizer, "path": Path(), **fields}
    )


def save_litebert(
    model: nn.Module, tokenizer: Tokenizer | None, folder: str | Path, **fields: Any
) -> None:
    """A litebert folder of a model; `fields` are those of `LoadedModel`."""
    interop.save_litebert(load_module(model, tokenizer, **fields), folder)


def save_hf(
    model: nn.Module,
    tokenizer: Tokenizer | None,
    folder: str | Path,
    head: HeadName | None = None,
    **fields: Any,
) -> tuple[str, ...]:
    """A Hugging Face folder of a model, and the notes on it."""
    return write_hf(load_module(model, tokenizer, **fields), folder, head)


def checkpoint(run: Path, step: int, model: Pretrainer) -> Path:
    """A checkpoint with what opening a run reads of it."""
    folder = run / "checkpoints" / f"step-{step:08d}"
    folder.mkdir(parents=True)
    (run / "recipe.json").write_text(to_json(model.config), encoding="utf-8")
    save_file(model.state_dict(), folder / "model.safetensors")
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    index = {"format": 1, "files": {"model.safetensors": {"bytes": 0, "sha256": digest}}}
    (folder / "index.json").write_text(json.dumps(index), encoding="utf-8")
    return folder


def write_shards(folder: Path, count: int = 3) -> list[str]:
    """Split the weights of a folder into shards with an index, as save_pretrained does; their
    names.
    """
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = [f"model-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)]
    places = {tensor: names[i % count] for i, tensor in enumerate(tensors)}
    for name in names:
        held = {tensor: tensors[tensor] for tensor in tensors if places[tensor] == name}
        save_file(held, folder / name, {"format": "pt"})
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return names
