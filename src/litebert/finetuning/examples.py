"""A handful of short development texts that stay with a model, so that people see what it can be
asked.

The playground of `litebert serve` offers them. They are chosen by their labels and lengths alone,
never by whether the model answers them right. `--no-examples` keeps none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.errors import ModelError
from litebert.finetuning.items import EncodedPart
from litebert.finetuning.task import Task
from litebert.json_reader import read_json
from litebert.storage import write_json

FILE = "examples.json"
MOST = 4
"""Examples that a model keeps."""
_LONGEST, _PREFERRED = 800, 140
"""Characters of an example: the most that are kept, and the number that a reader takes in at a
glance.
"""
_FIELDS = ("text", "pair", "words", "question", "context", "choices")
"""Fields of an input of the service."""


@dataclass(frozen=True)
class ModelExample:
    """An input in the form that the service takes, and its right answer."""

    inputs: Mapping[str, Any]
    """Some of `_FIELDS`."""
    label: str | None = None
    """The right answer in words; None if it has no short form, as the tags of a sentence."""

    @property
    def characters(self) -> int:
        """How many characters a reader would see."""
        parts = self.inputs.values()
        return sum(len(part) if isinstance(part, str) else sum(map(len, part)) for part in parts)

    @property
    def is_readable(self) -> bool:
        """True if there is something to read, and not too much."""
        return 0 < self.characters <= _LONGEST and all(self.inputs.values())


def choose_examples(task: Task[Any], part: EncodedPart) -> list[ModelExample]:
    """Choose at most `MOST` short examples of a part, of as many labels as there are; none if all
    are long.
    """
    shown = (task.show_example(example) for example in part.examples)
    short = [example for example in shown if example is not None and example.is_readable]
    short.sort(
        key=lambda example: abs(example.characters - _PREFERRED)
    )  # stable, so the same run keeps the same ones
    by_label: dict[str | None, list[ModelExample]] = {}
    for example in short:
        by_label.setdefault(example.label, []).append(example)
    chosen: list[ModelExample] = []
    while by_label and len(chosen) < MOST:
        for label in sorted(by_label, key=str):
            chosen += [by_label[label].pop(0)]
            if not by_label[label]:
                del by_label[label]
    return chosen[:MOST]


def write_examples(folder: Path, examples: Iterable[ModelExample]) -> None:
    """Write them into the folder of a model; without examples, no file."""
    listed = [{**example.inputs, "label": example.label} for example in examples]
    if listed:
        write_json(folder / FILE, {"examples": listed})


def read_examples(folder: Path) -> list[ModelExample]:
    """Read the examples in the folder of a model or of its run; none if it keeps none.

    Raises:
        ModelError: the file is damaged.
    """
    files = (folder / FILE, folder / "model" / FILE)
    file = next((path for path in files if path.is_file()), None)
    if file is None:
        return []
    listed = read_json(file, ModelError, "delete it").get("examples")
    if not isinstance(listed, list) or not all(isinstance(example, dict) for example in listed):
        raise ModelError(f"{file} has no list of examples; delete it")
    return [_read_example(example, file) for example in listed[:MOST]]


def _read_example(fields: Mapping[str, Any], file: Path) -> ModelExample:
    inputs = {name: fields[name] for name in _FIELDS if name in fields}
    texts = (
        part
        for value in inputs.values()
        for part in (value if isinstance(value, list) else [value])
    )
    label = fields.get("label")
    if not all(isinstance(text, str) for text in (*texts, label or "")):
        raise ModelError(f"{file} has an example that is not text; delete it")
    return ModelExample(inputs, label)
