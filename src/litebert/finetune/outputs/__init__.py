"""What a task may answer with: a class of a text, several labels, a number, a tag per word, a span, a choice."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from litebert.errors import ModelError
from litebert.finetune.outputs.choice import OneChoice
from litebert.finetune.outputs.classes import OneClass, SeveralLabels
from litebert.finetune.outputs.number import Number
from litebert.finetune.outputs.output import Answer, Output
from litebert.finetune.outputs.span import OneSpan
from litebert.finetune.outputs.tags import Tags

__all__ = [
    "OUTPUTS", "Answer", "Number", "OneChoice", "OneClass", "OneSpan", "Output", "SeveralLabels", "Tags",
    "saved_output",
]  # fmt: skip

OUTPUTS: Mapping[str, type[Output]] = MappingProxyType(
    {output.name: output for output in (OneClass, SeveralLabels, Number, Tags, OneSpan, OneChoice)}
)


def saved_output(settings: Mapping[str, Any]) -> Output:
    """The output of a saved model, from the `kind` of its head, its `classes`, and its `problem` and `labels` where
    these are known: else a text has one class, or a number where its head gives one.

    Raises:
        ModelError: no output is like that.
    """
    classes = settings["classes"]
    found = {output.name: output for output in OUTPUTS.values() if output.head == settings["kind"]}
    usual = next(iter(found)) if len(found) == 1 else OneClass.name if classes > 1 else Number.name
    name = settings.get("problem") or usual
    if name not in found:
        raise ModelError(f"the model answers with '{name}', which no output here does; register the task that has it")
    labels = settings.get("labels") or [f"LABEL_{i}" for i in range(classes)]
    made = found[name](tuple(labels)) if found[name].labelled else found[name]()
    if made.width != classes:
        raise ModelError(f"the model's head gives {classes} numbers, and '{name}' is read from {made.width}")
    return made
