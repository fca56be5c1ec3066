"""The method TF-IDF: a baseline, kept as a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from litebert.base.storage import write_json
from litebert.interop.cards import CARD
from litebert.interop.files import new_folder
from litebert.interop.records import MOST
from litebert.judge.baselines import FittedBaseline
from litebert.judge.baselines.models import LinearClasses, LinearNumber


def write_tfidf(
    fitted: FittedBaseline,
    folder: Path,
    card: str = "",
    more: Mapping[str, Any] = MappingProxyType({}),
    temperature: float = 1.0,
) -> None:
    """Write a model folder that answers as a fitted baseline of whole texts does. `more` are fields
    of its task.json, and its logits are divided by the temperature."""
    model, task = fitted.model, fitted.task
    assert isinstance(model, (LinearClasses, LinearNumber))
    about = {
        "task": task.name,
        "kind": task.output.head,
        "problem": task.output.name,
        "classes": task.output.width,
        "labels": list(task.output.labels),
        "length": MOST,
        **task.settings(),
        **more,
    }
    if isinstance(model, LinearNumber) and model.offset:
        about["offset"] = model.offset
    with new_folder(folder) as partial:
        tables = model.tables()
        divisor = np.float32(temperature)
        weight, bias = tables.weight / divisor, tables.bias / divisor
        tables._replace(weight=weight, bias=bias).write(partial)
        write_json(partial / "task.json", about)
        (partial / CARD).write_text(card, encoding="utf-8")
