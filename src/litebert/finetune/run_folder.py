"""The folder of a fine-tuning run: which run it holds, and what a collapsed one leaves behind.

`finetune.json` says what the run is: the config, the task, the steps, and hashes of the model and of the encoded data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from litebert.config.finetuning import FinetuneConfig, current_fields
from litebert.config.serialization import to_dict
from litebert.errors import RunError
from litebert.finetune.items import Item
from litebert.finetune.scoring import EncodedPart, metric_name
from litebert.finetune.start import InitialModel
from litebert.finetune.task import Task
from litebert.storage import written_whole
from litebert.train.metrics import read_json

IDENTITY, COLLAPSED = "finetune.json", "collapsed"
_MOVING = ".collapsed"
_FREE = ("save_every", "keep_checkpoints")
"""Fields of `train` that may change between calls, for they change no weight."""


def check_folder(folder: Path) -> None:
    """Refuse a folder that is a file, or holds what no fine-tuning wrote.

    Raises:
        RunError: it does.
    """
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; give --out a folder")
    if not folder.exists() or (folder / IDENTITY).exists() or (folder / _MOVING).is_dir():
        return
    ours = (COLLAPSED, f"{IDENTITY}.tmp")  # a kill may leave the second
    foreign = sorted(path.name for path in folder.iterdir() if path.name[0] != "." and path.name not in ours)
    if foreign and (folder / foreign[0] / IDENTITY).is_file():
        raise RunError(f"{folder} holds several seeds; give --seeds too, or another --out")
    if foreign:
        raise RunError(f"{folder} is no run and holds other files ({foreign[0]}); give --out a new or empty folder")


def identity(
    source: str | Path, start: InitialModel, task: Task[Any], config: FinetuneConfig, steps: int, train: Sequence[Item],
    dev: Sequence[EncodedPart], tests: Sequence[EncodedPart],
) -> dict[str, Any]:  # fmt: skip
    """What makes a run this run, as finetune.json holds it."""
    return {
        "format": 1,
        "task": task.full_name,
        "metric": metric_name(task),
        "model": str(source),
        "steps": steps,
        "config": to_dict(config),
        "threshold": None,  # every finetune.json of this format has one
        **task.identity(),
        "model_fingerprint": _digest_state(start),
        "data_fingerprint": _digest_items([*train, *(item for part in dev for item in part.items)], task.output.labels),
        "test_fingerprint": _digest_items([item for part in tests for item in part.items], ()),
        "dev_fingerprint": _digest_examples(dev),
    }


def open_folder(folder: Path, run: dict[str, Any]) -> None:
    """Start a run in a folder whose lock the caller holds, or check that it holds this very run.

    Raises:
        RunError: it holds another.
    """
    check_folder(folder)
    before = folder / COLLAPSED / IDENTITY
    if before.exists():
        _compare(folder, before, run)
    file = folder / IDENTITY
    if file.exists():
        _compare(folder, file, run)
        return
    with written_whole(file) as handle:
        handle.write((json.dumps(run, indent=2) + "\n").encode())


def _compare(folder: Path, file: Path, run: dict[str, Any]) -> None:
    there, here = read_json(file), json.loads(json.dumps(run))
    there["config"] = current_fields(there.get("config", {}))
    for settings in (there["config"], here["config"]):
        settings["train"] = {key: value for key, value in settings["train"].items() if key not in _FREE}
    for key in ("task", "metric", "config", "threshold", "data_fingerprint", "dev_fingerprint", "model_fingerprint"):
        if there.get(key) != here[key]:
            raise RunError(f"{folder} holds another run (its {key.replace('_', ' ')} differs); give another --out")
    if there.get("test_fingerprint") != here["test_fingerprint"]:
        raise RunError(f"{folder} holds a run with another test part; give its own, or answer this one with litebert "
                       "predict")  # fmt: skip


def set_aside(folder: Path) -> None:
    """Move what a run wrote into collapsed/."""
    aside = folder / _MOVING  # there already, where a kill fell into the moving
    aside.mkdir(exist_ok=True)
    for path in list(folder.iterdir()):
        if not path.name.startswith("."):
            path.rename(aside / path.name)
    aside.rename(folder / COLLAPSED)


def finish_setting_aside(folder: Path) -> None:
    """Go on where a kill fell into the moving."""
    if (folder / _MOVING).is_dir():
        set_aside(folder)


# ---- hashes --------------------------------------------------------------------------------------------------------


def _digest_items(items: Sequence[Item], labels: Sequence[str]) -> str:
    digest = hashlib.sha256(json.dumps(labels).encode())
    for item in items:
        for row in item.rows:
            digest.update(row.ids.tobytes() + row.types.tobytes())
        target = item.target
        digest.update(target.tobytes() if isinstance(target, np.ndarray) else repr(target).encode())
    return digest.hexdigest()


def _digest_examples(parts: Sequence[EncodedPart]) -> str:
    """Of examples as their files have them: the same for every tokenizer."""
    digest = hashlib.sha256()
    for part in parts:
        for example in part.examples:
            digest.update(repr(example).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def _digest_state(start: InitialModel) -> str:
    digest = hashlib.sha256(json.dumps(to_dict(start.encoder)).encode())
    for name, tensor in (start.state or {}).items():
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
