"""Whatever a file holds, a reader of a task gives examples or says in one sentence what is
wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from litebert.base.errors import DataError
from toys.readers import READERS
from toys.tasks import ChoiceTask, Squad, Table, TaggingTask

FEW = settings(
    max_examples=25, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
KEYS = (
    "text",
    "label",
    "context",
    "question",
    "questions",
    "choices",
    "options",
    "answers",
    "article",
    "id",
    "data",
    "paragraphs",
    "qas",
    "answer_start",
    "is_impossible",
    "version",
    "x",
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["A", "2.0", "0", "v2"]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=12,
)
ROWS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8)


def reads(name: str, folder: Path, content: bytes) -> None:
    try:
        examples, notes, _ = READERS[name].read(folder, content)
    except DataError as error:
        message = str(error)
        assert message.strip()
        assert len(message.splitlines()) == 1, message
    else:
        assert isinstance(examples, list)
        assert all(len(note.splitlines()) == 1 for note in notes)


@pytest.mark.parametrize("name", READERS)
@FEW
@given(st.binary(max_size=80))
def test_any_bytes(name: str, tmp_path: Path, content: bytes) -> None:
    reads(name, tmp_path, content)


@pytest.mark.thorough
@pytest.mark.parametrize("name", READERS)
@FEW
@given(data=st.data())
def test_a_file_with_other_bytes_in_it(name: str, tmp_path: Path, data: st.DataObject) -> None:
    """Some bytes of a good file are replaced by others."""
    content = READERS[name].content
    first = data.draw(st.integers(0, len(content)))
    last = data.draw(st.integers(first, min(len(content), first + 12)))
    reads(name, tmp_path, content[:first] + data.draw(st.binary(max_size=12)) + content[last:])


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", [name for name in READERS if not READERS[name].file.endswith((".csv", ".tsv"))]
)
@FEW
@given(rows=st.lists(ROWS, max_size=3), version=st.sampled_from([None, "1.1", "v2.0", 2]))
def test_any_json(name: str, tmp_path: Path, rows: list[Any], version: Any) -> None:
    reads(name, tmp_path, "".join(json.dumps(row) + "\n" for row in rows).encode())
    questions = [{"context": "a b", "qas": [{"id": "0", "question": "a", **row}]} for row in rows]
    reads(
        name,
        tmp_path,
        json.dumps({"version": version, "data": [{"paragraphs": questions}]}).encode(),
    )
    reads(name, tmp_path, json.dumps({"version": version, "data": rows}).encode())


@pytest.mark.parametrize("name", READERS)
def test_json_nested_too_deeply(name: str, tmp_path: Path) -> None:
    reads(name, tmp_path, b"[" * 100_000)
    reads(name, tmp_path, b'{"text":' * 100_000)


TRAINING: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "table": ("train.csv", Table),
    "rows": ("train.jsonl", lambda path: Table(path, separator=";")),
    "tags": ("train.conll", lambda path: TaggingTask({"train": path})),
    "choices": ("train.jsonl", lambda path: ChoiceTask({"train": path})),
    "questions": ("train.json", lambda path: Squad(train=path)),
}
"""Tasks that look into their training file for labels, a version or what to hold out."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", TRAINING)
@FEW
@given(
    st.binary(max_size=60), st.lists(ROWS, max_size=4), st.text('ab,;\n\t "01.O-BI', max_size=40)
)
def test_any_training_file(
    name: str, tmp_path: Path, content: bytes, rows: list[Any], text: str
) -> None:
    file, task = TRAINING[name]
    for variant in (
        content,
        "".join(json.dumps(row) + "\n" for row in rows).encode(),
        f"text,label\n{text}".encode(),
    ):
        (tmp_path / file).write_bytes(variant)
        try:
            made = task(tmp_path / file)
            train, dev = made.read("train"), made.read("dev")
            assert len(train) + len(dev) > 0
        except DataError as error:
            message = str(error)
            assert len(message.splitlines()) == 1
