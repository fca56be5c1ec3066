"""What a task may answer with: a class of a text, several labels, a number, a choice, a tag per word, a span."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from litebert.errors import ModelError
from litebert.finetune.outputs.output import Answer, Output
from litebert.finetune.outputs.texts import Number, OneChoice, OneClass, SeveralLabels
from litebert.finetune.outputs.tokens import OneSpan, Tags

__all__ = ["Answer", "Number", "OneChoice", "OneClass", "OneSpan", "Output", "SeveralLabels", "Tags", "saved_output"]

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
    labels = tuple(settings.get("labels") or (f"LABEL_{i}" for i in range(classes)))
    made = found[name](labels) if found[name].classes is None else found[name]()
    if made.width != classes:
        raise ModelError(f"the model's head gives {classes} numbers, and '{name}' is read from {made.width}")
    return made
