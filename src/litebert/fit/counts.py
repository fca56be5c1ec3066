"""The way of counted words and characters: a baseline, kept as a model."""

from __future__ import annotations

from pathlib import Path

from litebert.base.storage import write_json
from litebert.interop.cards import CARD
from litebert.interop.files import new_folder
from litebert.interop.records import MOST
from litebert.judge.baselines import FittedBaseline
from litebert.judge.baselines.models import LinearClasses, LinearNumber


def write_counts(fitted: FittedBaseline, folder: Path, card: str) -> None:
    """Write a model folder that answers as a fitted baseline of whole texts does."""
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
    }
    if isinstance(model, LinearNumber) and model.offset:
        about["offset"] = model.offset
    with new_folder(folder) as partial:
        model.counts().write(partial)
        write_json(partial / "task.json", about)
        (partial / CARD).write_text(card, encoding="utf-8")
