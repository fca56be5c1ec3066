"""SQuAD files: both versions read, wrong offsets counted, and every malformed file named with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from litebert.errors import DataError
from litebert.tasks.squad.task import Squad

CONTEXT = "Zoë's café, in São Paulo, sold 1,200 cups. It closed in 1999."


def qa(name: str = "q", answers: Any = (), **more: Any) -> dict[str, Any]:
    listed = [{"text": text, "answer_start": start} for text, start in answers] if answers is not ... else ...
    entry = {"id": name, "question": "who sold", "answers": listed, **more}
    return {key: value for key, value in entry.items() if value is not ...}


def whole(*qas: Any, context: Any = CONTEXT, **more: Any) -> dict[str, Any]:
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(qas)}]}], **more}


def squad_file(path: Path, content: Any) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def at(text: str) -> tuple[str, int]:
    return text, CONTEXT.index(text)


def test_version_1(tmp_path: Path) -> None:
    file = squad_file(tmp_path / "a.json", whole(qa("q1", [at("café"), at("São Paulo")]), qa("q2", [at("1999")])))
    task = Squad(train=file, dev=file)
    first, second = task.read("train")
    assert (first.id, first.text, first.context) == ("q1", "who sold", CONTEXT)
    assert [gold.text for gold in first.answers] == ["café", "São Paulo"]
    assert second.placed == ("1999", CONTEXT.index("1999"))
    assert (task.version, task.dev, task.notes) == (1, ("dev",), [])
    assert (task.kind, task.problem, task.metric, task.labels) == ("span", "span", "f1", ())


@pytest.mark.parametrize(
    ("content", "version"),
    [
        (whole(qa(answers=[at("1999")], is_impossible=False), version="x"), 2),
        (whole(qa(answers=[at("1999")]), version="v2.0"), 2),
        (whole(qa(answers=[at("1999")]), version="2.0"), 2),
        (whole(qa(answers=[at("1999")]), version="1.1"), 1),
        (whole(qa(answers=[("\"is_impossible\":", 1)]), context=' "is_impossible": true'), 1),
    ],
)  # fmt: skip
def test_the_version_is_found(tmp_path: Path, content: Any, version: int) -> None:
    file = squad_file(tmp_path / "a.json", content)
    assert Squad(dev=file).version == version
    assert Squad(test=file).version == version
    assert Squad(dev=file, version=1).version == 1


def test_questions_without_an_answer(tmp_path: Path) -> None:
    content = whole(
        qa("no", is_impossible=True, plausible_answers=[{"text": "café", "answer_start": 6}]),
        qa("yes", [at("1999")], is_impossible=False),
        qa("unknown", ..., is_impossible=False),
        qa("told by the version", version=2),
        version="v2.0",
    )
    task = Squad(test=squad_file(tmp_path / "a.json", content))
    read = task.read("test")
    assert [question.impossible for question in read] == [True, False, False, True]
    assert [question.known for question in read] == [True, True, False, True]


def test_answers_that_stand_elsewhere_are_counted_and_not_learnt(tmp_path: Path) -> None:
    text, start = at("São Paulo")
    content = whole(
        qa("shifted", [(text, start + 1)]),
        qa("far", [(text, 9999)]),
        qa("before", [(text, -3)]),
        qa("second", [(text, start - 1), at("1999")]),
        qa("empty", [("", 3)]),
        qa("good", [(text, start)]),
    )
    file = squad_file(tmp_path / "a.json", content)
    task = Squad(train=file, dev=file)
    assert [question.id for question in task.read("train")] == ["second", "good"]
    assert task.notes == [
        "answers do not stand at their answer_start (5)",
        "questions have no answer to learn and were left out (4)",
    ]
    assert len(task.read("dev")) == 6, "scored by their text all the same"
    assert task.notes == ["answers do not stand at their answer_start (5)"]
    assert task.read("train")[0].placed == at("1999")


def test_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    content = json.dumps(whole(qa("q", [at("1999")])), indent=1).replace("\n", "\r\n")
    assert Squad(dev=squad_file(tmp_path / "a.json", b"\xef\xbb\xbf" + content.encode())).read("dev")[0].id == "q"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"data": [\n\n1 2]}', r"a\.json:3 is not JSON \(Expecting ',' delimiter at character 3\); mend it"),
        (b'\xef\xbb\xbf"\xc3\xa9" 2', r"a\.json:1 is not JSON \(Extra data at character 5\); mend it"),
        (b"[" + b"1" * 5000 + b"]", "is not JSON of a SQuAD file .*digits"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "the file has no 'data'"),
        ({"data": []}, "no questions"),
        ({"data": {}}, "data is '{}', not a list"),
        ({"data": [3]}, r"data\[0\] has no 'paragraphs'"),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, r"data\[0\]\.paragraphs\[0\] has no 'context'"),
        (whole(qa(), context=None), r"paragraphs\[0\]: context is 'None', not a text"),
        (whole(qa(), 7), r"paragraphs\[0\]\.qas\[1\] has no 'id'"),
        (whole(qa(7)), r"qas\[0\]: id is '7', not a text"),
        (whole(qa(question=...)), r"qas\[0\] has no 'question'"),
        (whole(qa(answers=[("x", "3")])), r"answers\[0\]: answer_start is '3', not a whole number"),
        (whole(qa(answers=[("x", True)])), "answer_start is 'True', not a whole number"),
        (whole(qa(answers=[(None, 3)])), r"answers\[0\]: text is 'None', not a text"),
        (whole({**qa(), "answers": {"text": ["x"], "answer_start": [1]}}), "answers is .* not a list"),
        (whole(qa(is_impossible="no")), "is_impossible is 'no', not true or false"),
        (whole(qa("q", [at("1999")], is_impossible=True)), r"\('q'\) is called impossible and has answers"),
        (whole(qa("q", [at("1999")]), qa("r"), qa("q")), r"qas\[2\] has the id 'q' of data\[0\]\..*\.qas\[0\];"),
        (whole(qa("q")), "no question in .* has an answer to learn or score by"),
    ],
)  # fmt: skip
def test_malformed_files(tmp_path: Path, content: Any, says: str) -> None:
    task = Squad(dev=squad_file(tmp_path / "a.json", content))
    with pytest.raises(DataError, match=says) as error:
        task.read("dev")
    assert str(tmp_path / "a.json") in str(error.value)
    assert "\n" not in str(error.value)
