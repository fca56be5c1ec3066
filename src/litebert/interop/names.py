"""The names of the weights in a model folder, and which of them it has."""

from __future__ import annotations

from pathlib import Path

from litebert.base.errors import ModelError

WEIGHTS, PICKLED = "model.safetensors", "pytorch_model.bin"
INDEX = ".index.json"
"""Ends the name of the list of weights that lie in several files, its shards."""
ALL_WEIGHTS = (WEIGHTS, WEIGHTS + INDEX, PICKLED, PICKLED + INDEX)
"""The weights of a folder for PyTorch, of which the first that is there is read."""
GRAPHS = ("model.onnx", "model_quantized.onnx")
"""The names of the graph of an exported folder."""


def holds_weights(folder: Path) -> bool:
    """True where a folder has weights of PyTorch."""
    return any((folder / name).is_file() for name in ALL_WEIGHTS)


def find_exported_graph(folder: Path) -> Path | None:
    """The graph of an exported folder, which has no other weights; None of any other folder."""
    if holds_weights(folder):
        return None
    return next((folder / name for name in GRAPHS if (folder / name).is_file()), None)


def without_weights(folder: Path) -> ModelError:
    """The error that an exported folder has no weights."""
    return ModelError(
        f"{folder} is an ONNX export, without the weights for PyTorch; the engines "
        "onnx and openvino can answer with it, and for everything else give the folder it was "
        "exported from"
    )
