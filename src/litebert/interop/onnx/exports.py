"""Recognize and open an exported folder. Nothing here imports torch, for such a folder answers
without it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from litebert.base.errors import ModelError
from litebert.base.json_reader import read_json
from litebert.base.storage import file_record, hash_fault, index_text
from litebert.interop.loaded import (
    LoadedModel,
    Unread,
    choose_tokenizer,
    fresh_dense,
    require_fit,
)
from litebert.interop.names import find_exported_graph, refuse_weights
from litebert.interop.records import read_own_tokenizer, read_recipe, read_task

DIGESTS = "digests.json"
"""The file of an exported folder that records the files of its graph: bytes and sha256 of each."""


def is_exported(folder: Path) -> bool:
    """Return True if a folder holds a graph, its recipe.json, and no other weights."""
    return find_exported_graph(folder) is not None and (folder / "recipe.json").is_file()


def read_exported(folder: Path, tokenizer: str | Path | None = None) -> LoadedModel:
    """Open an exported folder, without its graph.

    Args:
        tokenizer: for a folder without a readable one; see `choose_tokenizer`.
    """
    config = read_recipe(folder / "recipe.json")
    task = read_task(file) if (file := folder / "task.json").is_file() else {}

    loaded = LoadedModel(
        Unread(refuse := partial(refuse_weights, folder), refuse, folder, task),
        config,
        choose_tokenizer(lambda: read_own_tokenizer(folder), tokenizer, folder),
        folder,
        labels=tuple(map(str, task.get("labels", []))),
        task=task,
        dense=task.get("dense") or fresh_dense(config),
        pooling=task.get("pooling", "cls"),
    )
    if tokenizer is not None:
        require_fit(loaded, tokenizer)
    return loaded


def guesses_masks(folder: Path) -> bool:
    """Return True if a folder was exported with the head that guesses masked tokens, whose class
    its config.json names.
    """
    file = folder / "config.json"
    names = read_json(file, ModelError).get("architectures") if file.is_file() else None
    return isinstance(names, list) and any(str(name).endswith("ForMaskedLM") for name in names)


def write_digests(graph: Path) -> None:
    """Write what `require_whole` compares with, beside the graph of an export."""
    # The graph, and its weights where they are in a file of their own.
    files = sorted(graph.parent.glob(f"{graph.name}*"))
    records = {file.name: file_record(file) for file in files}
    (graph.parent / DIGESTS).write_text(index_text(records), encoding="utf-8")


def require_whole(graph: Path) -> None:
    """Refuse an exported graph that is not the one that litebert wrote; a folder without digests
    opens unchecked.
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
