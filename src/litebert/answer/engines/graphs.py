"""The ONNX graph of a model for the engines that run one: that of an exported folder, or one made
when first needed.

It is kept in `.answering/` beside the model, or where that cannot be written in the user's cache,
under a name made from the model's weights and config.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from litebert import hub
from litebert.base import progress
from litebert.base.errors import ModelError
from litebert.base.storage import LOCK, cache_folder, remove, sha256_of, write_whole
from litebert.config.serialization import to_json
from litebert.interop.names import find_exported_graph
from litebert.interop.onnx.exports import require_whole
from litebert.tasks.rows import PaddedRows

if TYPE_CHECKING:
    from litebert.interop import LoadedModel

log = logging.getLogger("litebert")

FOLDER = ".answering"
"""The folder beside a model for the graphs that compute its answers."""


def graph_of(loaded: LoadedModel) -> Path:
    """Return the file of a model's graph, and export it if need be."""
    if (exported := find_exported_graph(loaded.path)) is not None:
        require_whole(exported)
        return exported
    from litebert.interop.onnx import graph as onnx_graph

    def write(file: Path) -> None:
        file.write_bytes(onnx_graph.onnx_model(loaded).SerializeToString())
        _check(loaded, file)

    return make_once(loaded, ".onnx", write)


def make_once(loaded: LoadedModel, ending: str, write: Callable[[Path], None]) -> Path:
    """Write a file that is made from a model, or find it; processes wait for each other."""
    from filelock import FileLock  # whose import takes asyncio's

    from litebert.interop import files

    name = f"{files.weights_digest(loaded.path)[:20]}-{_maker_key(loaded)}{ending}"
    folders = _list_folders(loaded.path)
    if file := next((folder / name for folder in folders if _is_whole(folder / name)), None):
        return file
    with progress.task("exporting the model for its engine"):
        for folder in folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with FileLock(folder / LOCK):
                    if not _is_whole(folder / name):  # or another process has made it
                        with write_whole(folder / name) as aside:
                            write(aside)
                        with write_whole(_digest_file(folder / name)) as aside:
                            aside.write_text(_digest(folder / name), "utf-8")
                return folder / name
            except (
                OSError,
                NotImplementedError,
            ) as error:  # the latter where a file system has no locks
                log.debug(f"the graph cannot be kept in {folder}: {error}")
    raise ModelError(
        f"the graph of {loaded.path} cannot be written to {' or '.join(map(str, folders))}; "
        "free one of them"
    )


def _is_whole(path: Path) -> bool:
    """Return True if a file exists as it was written. Remove a damaged file, to make it again."""
    if not path.exists():
        return False
    record = _digest_file(path)
    if record.is_file():  # a process that is killed before it comes to it writes none
        if record.read_text("utf-8", "replace") == _digest(path):
            return True
        log.warning(f"{path} is damaged, so it is exported again")
    with suppress(OSError):  # in a folder that cannot be written; then it is kept elsewhere
        remove(path)
    return False


def _digest_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _digest(path: Path) -> str:
    return f"{sha256_of(path)}  {path.name}\n"


def require_numbers(outputs: Sequence[NDArray[Any]], file: Path) -> None:
    """Refuse outputs of a graph that are no numbers, which weights that are none give."""
    if any(np.isnan(array.sum()) and np.isnan(array).any() for array in outputs):
        raise ModelError(
            f"{file} gives answers that are not numbers, so its weights are damaged; export the "
            "model again"
        )


def _maker_key(loaded: LoadedModel) -> str:
    """Hash what tells graphs of the same weights apart: the config, the task, and the code."""
    from litebert.interop.onnx import graph as onnx_graph

    parts = [to_json(loaded.config), json.dumps(loaded.task_record, sort_keys=True, default=str)]
    modules = sorted(Path(onnx_graph.__file__).parent.glob("*.py"))
    parts += [module.read_text("utf-8") for module in modules]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _check(loaded: LoadedModel, file: Path) -> None:
    """Compare a new graph with PyTorch, as an export is, where ONNX Runtime is installed."""
    if find_spec("onnxruntime") is None:
        return
    from litebert.interop.onnx.folder import ALLOWED, differences

    difference, scale = differences(loaded, file, loaded.head)
    if not difference <= ALLOWED * max(1.0, scale):
        raise ModelError(
            f"the graph of {loaded.path} differs from PyTorch by {difference:.2g}; take "
            "the engine torch"
        )


def _list_folders(model: Path) -> list[Path]:
    """List the folders that may hold a model's graph, the best first, never the Hub's cache."""
    may_write = os.access(model, os.W_OK) and hub.find_origin(model) is None
    beside = [model / FOLDER] if may_write else []
    return [*beside, _answering_cache()]


def _answering_cache() -> Path:
    return cache_folder() / "answering"


def unreadable(file: Path, error: Exception) -> ModelError:
    """Return the error that an engine cannot run a graph, with the way out."""
    inside = [
        path
        for path in (file, *file.parents)
        if path.parent.name == FOLDER or path.parent == _answering_cache()
    ]
    way_out = f"delete {inside[0]}, which is made again" if inside else "export the model again"
    return ModelError(f"{file} cannot be run ({str(error).splitlines()[0]}); {way_out}")


def inputs_of(rows: PaddedRows, ranks: Mapping[str, int]) -> dict[str, NDArray[np.int64]]:
    """Return rows, cut to the longest, as the inputs of a graph by name; rows of choices have three
    axes.
    """
    longest = int(rows.mask.sum(1).max())
    padded = {
        "input_ids": rows.ids,
        "attention_mask": rows.mask.astype(np.int64),
        "token_type_ids": rows.types,
    }
    arrays = {name: array[:, :longest] for name, array in padded.items()}
    return {
        name: arrays[name][:, None] if rank == 3 else arrays[name] for name, rank in ranks.items()
    }


def logits_from(outputs: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the logits of a graph's outputs: one array, or one each for first and last tokens."""
    return outputs[0] if len(outputs) == 1 else np.stack(outputs, axis=-1)
