"""The folder of a fine-tuning run: which run it holds, what a collapsed one leaves behind, how often classes occur.

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
from litebert.finetune.scoring import Part, metric_name
from litebert.finetune.start import Start
from litebert.finetune.task import Item, Task, full_name
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
    source: str | Path, start: Start, task: Task[Any], config: FinetuneConfig, steps: int, train: Sequence[Item],
    dev: Sequence[Part], tests: Sequence[Part],
) -> dict[str, Any]:  # fmt: skip
    """What makes a run this run, as finetune.json holds it."""
    return {
        "format": 1,
        "task": full_name(task),
        "metric": metric_name(task),
        "model": str(source),
        "steps": steps,
        "config": to_dict(config),
        "threshold": getattr(task, "threshold", None),
        "model_fingerprint": _digest_state(start),
        "data_fingerprint": _digest_items([*train, *(item for part in dev for item in part.items)], task.labels),
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


def _digest_examples(parts: Sequence[Part]) -> str:
    """Of examples as their files have them: the same for every tokenizer."""
    digest = hashlib.sha256()
    for part in parts:
        for example in part.examples:
            digest.update(repr(example).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def _digest_state(start: Start) -> str:
    digest = hashlib.sha256(json.dumps(to_dict(start.encoder)).encode())
    for name, tensor in (start.state or {}).items():
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


# ---- words ---------------------------------------------------------------------------------------------------------

_NAMED = 10
"""Labels whose share is said, at most."""


def balance(task: Task[Any], items: Sequence[Item]) -> str | None:
    """How often each label occurs, and what always giving the commonest would score; None where there are none."""
    if task.problem == "classes":
        counts = np.bincount([item.target for item in items], minlength=len(task.labels))
        what, total = "training examples", len(items)
    elif task.problem == "labels":
        counts = np.sum([item.target for item in items], axis=0)
        what, total = "training examples", len(items)
    elif task.problem == "tokens":
        judged = np.concatenate([item.target for item in items])
        counts = np.bincount(judged[judged >= 0], minlength=len(task.labels))
        what, total = "training words", int(counts.sum())
    else:
        return None
    order = np.argsort(-counts, kind="stable") if len(counts) > _NAMED else np.arange(len(counts))
    shares = [f"{task.labels[i]} {counts[i] / max(1, total):.1%}" for i in order[:_NAMED]]
    if len(counts) > _NAMED:
        rarest = counts[order[-1]] / max(1, total)
        shares.append(f"and {len(counts) - _NAMED} rarer labels, down to {rarest:.2%}")
    return f"{total:,} {what}: {', '.join(shares)}"
