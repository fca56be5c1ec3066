"""What makes a fine-tuning run this run, as `finetune.json` holds it, and how often classes occur in its data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from litebert.config.finetuning import FinetuneConfig
from litebert.config.serialization import to_dict
from litebert.finetune.scoring import Part, metric_name
from litebert.finetune.start import Start
from litebert.finetune.task import Item, Task, full_name

IDENTITY = "finetune.json"
FREE = ("format", "model", "steps", "test_fingerprint", "config.train.save_every", "config.train.keep_checkpoints")
"""What may change between calls: it changes no weight, follows from the rest, or is compared apart."""


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
