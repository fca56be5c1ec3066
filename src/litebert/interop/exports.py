"""How an exported folder is told from others. Nothing here imports torch, for such a folder answers without it."""

from __future__ import annotations

from pathlib import Path

GRAPHS = ("model.onnx", "model_quantized.onnx")
"""What the graph of an exported folder is called."""
WEIGHTS, PICKLED = "model.safetensors", "pytorch_model.bin"
"""What the weights of any other folder are called."""


def exported_graph(folder: Path) -> Path | None:
    """The graph of an exported folder, which has no other weights; None of any other folder."""
    if any((folder / name).is_file() for name in (WEIGHTS, PICKLED)):
        return None
    return next((folder / name for name in GRAPHS if (folder / name).is_file()), None)
