"""Recognize an exported folder. Nothing here imports torch, for such a folder answers without
it.
"""

from __future__ import annotations

from pathlib import Path

from litebert.errors import ModelError
from litebert.json_reader import read_json
from litebert.storage import file_record, hash_fault, index_text

GRAPHS = ("model.onnx", "model_quantized.onnx")
"""The names of the graph of an exported folder."""
WEIGHTS, PICKLED = "model.safetensors", "pytorch_model.bin"
"""The names of the weights of any other folder."""
DIGESTS = "digests.json"
"""The file of an exported folder that records the files of its graph: bytes and sha256 of each."""


def find_exported_graph(folder: Path) -> Path | None:
    """Find the graph of an exported folder, which has no other weights; None of any other
    folder.
    """
    if any((folder / name).is_file() for name in (WEIGHTS, PICKLED)):
        return None
    return next((folder / name for name in GRAPHS if (folder / name).is_file()), None)


def write_digests(graph: Path) -> None:
    """Write what `require_whole` compares with, beside the graph of an export."""
    # The graph, and its weights where they are in a file of their own.
    files = sorted(graph.parent.glob(f"{graph.name}*"))
    records = {file.name: file_record(file) for file in files}
    (graph.parent / DIGESTS).write_text(index_text(records), encoding="utf-8")


def require_whole(graph: Path) -> None:
    """Refuse an exported graph that is not the one that litebert wrote; a folder without digests
    opens unchecked.

    Raises:
        ModelError: a file of it differs.
    """
    digests = graph.parent / DIGESTS
    if not digests.is_file():
        return
    # What litebert wrote: a backup that a person put beside the graph is no part of it.
    recorded = read_json(digests, ModelError, "export the model again").get("files")
    recorded = recorded if isinstance(recorded, dict) else {}
    names = {Path(name).name for name in recorded if name.startswith(graph.name)}
    for name in sorted({graph.name, *names}):
        if fault := hash_fault(graph.parent, name, DIGESTS):
            raise ModelError(
                f"{graph.parent} {fault}; export the model again, or delete {DIGESTS} if the "
                "graph was changed on purpose"
            )
