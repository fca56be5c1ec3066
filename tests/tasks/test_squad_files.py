"""SQuAD files: both versions read, wrong offsets counted, and every malformed file named with its
place.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from litebert.base.errors import DataError
from litebert.tasks.token_outputs import OneSpan
from toys.refusals import names, refused
from toys.tasks import Squad

CONTEXT = "Zoë's café, in São Paulo, sold 1,200 cups. It closed in 1999."


def qa(name: Any = "q", answers: Any = (), **more: Any) -> dict[str, Any]:
    listed = (
        [{"text": text, "answer_start": start} for text, start in answers]
        if answers is not ...
        else ...
    )
    entry = {"id": name, "question": "who sold", "answers": listed, **more}
    return {key: value for key, value in entry.items() if value is not ...}


def whole(*qas: Any, context: Any = CONTEXT, **more: Any) -> dict[str, Any]:
    return {
        "version": "1.1",
        "data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(qas)}]}],
        **more,
    }


def squad_file(path: Path, content: Any) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def at(text: str) -> tuple[str, int]:
    return text, CONTEXT.index(text)


def test_version_1(tmp_path: Path) -> None:
    file = squad_file(
        tmp_path / "a.json", whole(qa("q1", [at("café"), at("São Paulo")]), qa("q2", [at("1999")]))
    )
    task = Squad(train=file, dev=file)
    first, second = task.read("train")
    assert (first.id, first.text, first.context) == ("q1", "who sold", CONTEXT)
    assert [gold.text for gold in first.answers] == ["café", "São Paulo"]
    assert second.placed_answer == ("1999", CONTEXT.index("1999"))
    assert (task.version, task.dev, task.notes) == (1, ("dev",), [])
    assert (task.output, task.metric) == (OneSpan(), "f1")


@pytest.mark.parametrize(
    ("content", "version"),
    [
        (whole(qa(answers=[at("1999")], is_impossible=False), version="x"), 2),
        (whole(qa(answers=[at("1999")]), version="v2.0"), 2),
        (whole(qa(answers=[at("1999")]), version="2.0"), 2),
        (whole(qa(answers=[at("1999")]), version="1.1"), 1),
        (whole(qa(answers=[('"is_impossible":', 1)]), context=' "is_impossible": true'), 1),
    ],
)
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
    assert [question.is_labeled for question in read] == [True, True, False, True]


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
    misplaced, unlearnt = task.notes
    names(misplaced, "answer_start", 5)
    names(unlearnt, 4)
    assert len(task.read("dev")) == 6, "scored by their text all the same"
    (misplaced,) = task.notes
    names(misplaced, "answer_start", 5)
    assert task.read("train")[0].placed_answer == at("1999")


def test_ids_and_starts_as_other_tools_write_them(tmp_path: Path) -> None:
    content = whole(qa(107265, answers=[("1999", str(at("1999")[1]))]))
    (question,) = Squad(dev=squad_file(tmp_path / "a.json", content)).read("dev")
    assert question.id == "107265"
    assert question.placed_answer is not None
    paragraphs = content["data"][0]["paragraphs"]  # simpletransformers
    assert Squad(dev=squad_file(tmp_path / "b.json", paragraphs)).read("dev") == [question]


@pytest.mark.parametrize(
    ("content", "places"),
    [
        (b'{"data": [\n\n1 2]}', ["a.json:3"]),
        (b'\xef\xbb\xbf"\xc3\xa9" 2', ["a.json:1", 5]),
        (b"[" + b"1" * 5000 + b"]", [4300]),  # the digits that a number may have
        (b"[" * 100_000, []),
        (b"[]", []),
        ({"data": []}, []),
        ({"data": {}}, ["data", "'{}'"]),
        ({"data": [3]}, ["data[0]", "'paragraphs'"]),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, ["data[0].paragraphs[0]", "'context'"]),
        (whole(qa(), context=None), ["paragraphs[0]", "context", "'None'"]),
        (whole(qa(), 7), ["paragraphs[0].qas[1]", "'id'"]),
        (whole(qa(7.5)), ["qas[0]", "id", "'7.5'"]),
        (whole(qa(question=...)), ["qas[0]", "'question'"]),
        (whole(qa(answers=[("x", "c")])), ["answers[0]", "answer_start", "'c'"]),
        (whole(qa(answers=[("x", True)])), ["answer_start", "'True'"]),
        (whole(qa(answers=[(None, 3)])), ["answers[0]", "text", "'None'"]),
        (
            whole({**qa(), "answers": {"text": ["x"], "answer_start": [1]}}),
            ["qas[0]", "answers", "{'text': ['x']"],
        ),
        (whole(qa(is_impossible="no")), ["is_impossible", "'no'"]),
        (whole(qa("q", [at("1999")], is_impossible=True)), ["qas[0]", "'q'"]),
        (
            whole(qa("q", [at("1999")]), qa("r"), qa("q")),
            ["qas[2]", "'q'", "data[0].paragraphs[0].qas[0]"],
        ),
        (whole(qa("q")), []),
    ],
)
def test_malformed_files(tmp_path: Path, content: Any, places: list[Any]) -> None:
    task = Squad(dev=squad_file(tmp_path / "a.json", content))
    with refused(DataError, tmp_path / "a.json", *places):
        task.read("dev")
