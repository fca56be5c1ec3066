"""The development texts that stay with a fine-tuned model, and how to keep none."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from litebert.base.errors import ModelError
from litebert.config import replace
from litebert.finetuning.run import finetune
from litebert.judge.reliability import RELIABILITY
from litebert.tasks import table as table_module
from litebert.tasks.choices import Choice
from litebert.tasks.squad.files import Gold, Question
from litebert.tasks.tagging.files import Sentence
from litebert.tasks.task import EXAMPLES, Task, choose_examples, read_examples, write_examples
from litebert.tasks.texts import Example
from litebert.tasks.values import EncodedPart, ModelExample
from toys.finetuning import config, recipe_file, write_table
from toys.refusals import refused
from toys.tasks import ChoiceTask, Squad, Table, TaggingTask


def table(*labels: str) -> Task[Example]:
    """The task of a saved classifier."""
    settings = {"kind": "sequence", "problem": "classes", "classes": len(labels), "labels": labels}
    return table_module.Table.from_settings(settings)


def choose_texts(texts: list[tuple[str, int]]) -> list[tuple[Any, str | None]]:
    """The texts and labels that are kept of development texts with the labels bad (0), good (1) and
    odd (2).
    """
    task = table("bad", "good", "odd")
    part = EncodedPart("dev", [Example(text, label=label) for text, label in texts], [])
    return [(example.inputs["text"], example.label) for example in choose_examples(task, part)]


def test_every_label_has_an_example_before_any_has_two() -> None:
    texts = [(f"{word} " * 20, 0) for word in ("one", "two", "ten", "six")] + [
        ("fine " * 20, 1),
        ("odd " * 300, 2),
    ]
    examples = choose_texts(texts)
    assert [label for _, label in examples] == ["bad", "good", "bad", "bad"]
    assert "odd" not in {label for _, label in examples}, "a long text is not kept"
    assert examples == choose_texts(texts)


def test_only_what_can_be_read_is_kept() -> None:
    assert choose_texts([("", 0), ("long " * 300, 1)]) == []


@pytest.mark.parametrize(
    ("task", "example", "inputs", "label"),
    [
        (table("no", "yes"), Example("a", "b", 1), {"text": "a", "pair": "b"}, "yes"),
        (
            ChoiceTask(),
            Choice("c", "q", ("x", "y"), 1, "1"),
            {"context": "c", "question": "q", "choices": ["x", "y"]},
            "y",
        ),
        (
            Squad(),
            Question("1", "q", "in 1931", (Gold("1931", 3),), False),
            {"question": "q", "context": "in 1931"},
            "1931",
        ),
        (
            Squad(),
            Question("1", "q", "c", (), True),
            {"question": "q", "context": "c"},
            "no answer",
        ),
        (
            TaggingTask({}, labels=()),
            Sentence(("a", "b"), None, (), ()),
            {"words": ["a", "b"]},
            None,
        ),
    ],
)
def test_each_task_shows_its_examples_as_the_service_takes_them(
    task: Task[Any], example: Any, inputs: dict[str, Any], label: str | None, tmp_path: Path
) -> None:
    shown = task.show_example(example)
    assert shown == ModelExample(inputs, label)
    assert shown is not None
    write_examples(tmp_path, [shown])
    assert read_examples(tmp_path) == [shown]


def test_a_model_keeps_a_few_development_texts_unless_none_are_wanted(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    files: dict[str, Any] = {
        "train": write_table(tmp_path / "train.csv", 40),
        "dev": write_table(tmp_path / "dev.csv", 20, seed=1),
    }

    def tune(out: Path, examples: bool) -> Path:
        settings = replace(config(epochs=0.5), examples=examples)
        finetune(recipe_file(tmp_path), Table(**files), out, settings, tokenizer=tiny_tokenizer)
        return out / "model" / EXAMPLES

    file = tune(tmp_path / "run", True)
    with files["dev"].open(newline="") as opened:
        labels = {row["text"]: row["label"] for row in csv.DictReader(opened)}
    examples = read_examples(tmp_path / "run")
    assert 1 <= len(examples) <= 4
    assert all(labels[example.inputs["text"]] == example.label for example in examples)
    assert read_examples(tmp_path / "run" / "model") == examples
    report = tmp_path / "run" / RELIABILITY
    mistakes = json.loads(report.read_text())["mistakes"]
    assert mistakes
    assert all(labels[mistake["inputs"]["text"]] == mistake["label"] for mistake in mistakes)
    assert not tune(tmp_path / "run", False).exists(), "the finished run forgets them"
    assert not any(row["inputs"] for row in json.loads(report.read_text())["mistakes"])
    assert not tune(tmp_path / "other", False).exists()
    assert read_examples(tmp_path / "other") == []
    report = tmp_path / "other" / RELIABILITY
    assert not any(row["inputs"] for row in json.loads(report.read_text())["mistakes"])
    assert file == tmp_path / "run" / "model" / EXAMPLES


@pytest.mark.parametrize(
    "fields", [{"examples": "text"}, {"examples": ["text"]}, {"examples": [{"text": 1}]}, {}]
)
def test_a_damaged_file_is_named(fields: Any, tmp_path: Path) -> None:
    (tmp_path / EXAMPLES).write_text(json.dumps(fields))
    with refused(ModelError, tmp_path / EXAMPLES, "delete it"):
        read_examples(tmp_path)
