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
from litebert.finetuning.items import Item
from litebert.finetuning.scoring import EncodedPart, metric_name
from litebert.finetuning.start import InitialModel
from litebert.finetuning.task import Task

IDENTITY = "finetune.json"
FREE = ("format", "model", "steps", "test_fingerprint", "config.train.save_every", "config.train.keep_checkpoints")
"""What may change between calls: it changes no weight, follows from the rest, or is compared apart."""


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
