"""The names of the weights in a model folder, and the header of those that litebert writes, without
torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from litebert.base.errors import ModelError
from litebert.base.json_reader import parse_json

FIT = "fit.json"
"""The record of a run of `litebert fit`."""
WEIGHTS, PICKLED = "model.safetensors", "pytorch_model.bin"
INDEX = ".index.json"
"""Ends the name of the list of weights that lie in several files, its shards."""
ALL_WEIGHTS = (WEIGHTS, WEIGHTS + INDEX, PICKLED, PICKLED + INDEX)
"""The weights of a folder for PyTorch, of which the first that is there is read."""
GRAPHS = ("model.onnx", "model_quantized.onnx")


def holds_weights(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ALL_WEIGHTS)


def find_exported_graph(folder: Path) -> Path | None:
    """The graph of an exported folder, which has no other weights; None of any other folder."""
    if holds_weights(folder):
        return None
    return next((folder / name for name in GRAPHS if (folder / name).is_file()), None)


def refuse_weights(folder: Path) -> NoReturn:
    """Raise the error that an exported folder has no weights."""
    raise ModelError(
        f"{folder} is an ONNX export, without the weights for PyTorch; the engine onnx can "
        "answer with it, and for everything else give the folder it was exported from"
    )


# A safetensors file has room for texts by name. All that litebert knows stands as JSON under one
# name, because the library writes several names in an order that changes from process to process.
_NAME, DIGEST = "litebert", "digest"
OF_HEADER = (_NAME, DIGEST, "format")
"""Names in a header that are no facts of the model."""


class RawTensor(NamedTuple):
    """A tensor as its bytes."""

    name: str
    dtype: str
    """NumPy's name of it, such as float32."""
    shape: tuple[int, ...]
    data: Any
    """A contiguous buffer."""


def digest_of(tensors: Iterable[RawTensor]) -> str:
    """The sha256 of tensors, with their names, types and shapes, in whatever order they come."""
    digest = hashlib.sha256()
    for tensor in sorted(tensors, key=lambda tensor: tensor.name):
        digest.update(json.dumps([tensor.name, tensor.dtype, tensor.shape]).encode())
        digest.update(tensor.data)
    return digest.hexdigest()


def header_of(facts: Mapping[str, str], digest: str) -> dict[str, str]:
    """The texts for the header of a file: some facts, and the digest of its tensors."""
    return {_NAME: json.dumps({**facts, DIGEST: digest}, sort_keys=True)}


def facts_of(header: Mapping[str, str]) -> dict[str, str]:
    """The facts in a header, the digest under `digest`; other programs' texts stay as they are."""
    facts = parse_json(header[_NAME]) if _NAME in header else {}
    if not isinstance(facts, dict):
        raise ValueError(f"its {_NAME} is not an object")
    return {**header, **facts}
