"""What a task may answer with: a class of a text, several labels, a number, a choice, a tag per word, a span."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from litebert.errors import ModelError
from litebert.finetuning.outputs.output import Answer, Output
from litebert.finetuning.outputs.texts import Number, OneChoice, OneClass, SeveralLabels
from litebert.finetuning.outputs.tokens import OneSpan, Tags

__all__ = ["Answer", "Number", "OneChoice", "OneClass", "OneSpan", "Output", "SeveralLabels", "Tags", "saved_output"]

OUTPUTS = (OneClass, SeveralLabels, Number, Tags, OneSpan, OneChoice)


def saved_output(settings: Mapping[str, Any], outputs: Sequence[type[Output]] = OUTPUTS) -> Output:
    """The output of a saved model, from the `kind` of its head, its `classes`, and its `problem` and `labels` where
    these are known: else the first of `outputs` that has the head, but a number where a text's head gives one.

    Raises:
        ModelError: no output is like that.
    """
    classes = settings["classes"]
    found = {output.name: output for output in outputs if output.head == settings["kind"]}
    usual = Number.name if classes == 1 and Number.name in found else next(iter(found), "")
    name = settings.get("problem") or usual
    if name not in found:
        raise ModelError(f"the model answers with '{name}', which no output here does; register the task that has it")
    labels = tuple(settings.get("labels") or (f"LABEL_{i}" for i in range(classes)))
    made = found[name](labels) if found[name].classes is None else found[name]()
    if made.width != classes:
        raise ModelError(f"the model's head gives {classes} numbers, and '{name}' is read from {made.width}")
    return made
