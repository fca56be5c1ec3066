"""Read SQuAD files, 1.1 and 2.0: questions over paragraphs, with gold answers and their positions.

A file is a single JSON value, often on a single line, so a location in it is a path such as
`data[3].paragraphs[0].qas[2]`. It is read whole: the largest holds 130,000 questions in 42 MB.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from litebert.base.errors import DataError
from litebert.base.json_reader import parse_json
from litebert.text.records import (
    Notes,
    RowSource,
    clean,
    describe_json_error,
    format_value,
    read_lines,
)


class Gold(NamedTuple):
    """An answer that a person gave."""

    text: str
    start: int
    """The position of its first character in the context, as the file says."""


class Question(NamedTuple):
    id: str
    text: str
    context: str
    answers: tuple[Gold, ...]
    impossible: bool
    """True if the context holds no answer. Without this and without answers, it is not known."""
    article: int = 0
    """The number of the article in its file that holds the context."""

    @property
    def is_labeled(self) -> bool:
        """True if predictions can be scored against an answer, or against no answer."""
        return bool(self.answers) or self.impossible

    @property
    def placed_answer(self) -> Gold | None:
        """The first answer that is where the file says; None if there is none."""
        return next((gold for gold in self.answers if is_placed(gold, self.context)), None)


def is_placed(gold: Gold, context: str) -> bool:
    return bool(gold.text) and gold.start >= 0 and context.startswith(gold.text, gold.start)


def read_questions(path: RowSource, notes: Notes, encoding: str = "utf-8") -> list[Question]:
    """Read the questions of a file, in order. In version 2 an empty list of answers means that
    there is no answer, unless no question of the file has an answer or `is_impossible`.
    """
    content = _load(path, notes, encoding)
    version = content.get("version") if isinstance(content, dict) else None
    is_v2 = isinstance(version, str) and version.lower().removeprefix("v").startswith("2")
    empty_is_impossible = is_v2 and any(
        isinstance(entry, dict) and (entry.get("answers") or entry.get("is_impossible") is not None)
        for *_, entry in _iterate_entries(content, str(path))
    )
    location_of: dict[str, str] = {}
    questions = []
    for location, article, context, entry in _iterate_entries(content, str(path)):
        context = clean(context, notes)
        name = clean(_read_field(entry, "id", str, location), notes)
        text = clean(_read_field(entry, "question", str, location), notes)
        answers = []
        if entry.get("answers") is not None:
            for i, answer in enumerate(_read_field(entry, "answers", list, location)):
                answer_location = f"{location}.answers[{i}]"
                answer_text = clean(_read_field(answer, "text", str, answer_location), notes)
                start = _read_field(answer, "answer_start", int, answer_location)
                answers.append(Gold(answer_text, start))
        if entry.get("is_impossible") is None:
            impossible = empty_is_impossible and entry.get("answers") == []
        else:
            impossible = _read_field(entry, "is_impossible", bool, location)
        if impossible and answers:
            raise DataError(
                f"{location} ({format_value(name)}) has answers, though is_impossible is true; "
                "correct answers or is_impossible"
            )
        question = Question(name, text, context, tuple(answers), impossible, article)
        if question.id in location_of:
            first = location_of[question.id]
            raise DataError(
                f"{location} has the id {format_value(question.id)} of {first}; give each question "
                "a different id"
            )
        location_of[question.id] = location.removeprefix(f"{path}: ")
        questions.append(question)
    if not questions:
        raise DataError(f"{path} holds no questions; give a file with some")
    return questions


def may_be_unanswerable(path: Path, encoding: str = "utf-8") -> bool:
    """Return True if a file names SQuAD 2.0, or marks whether questions can be answered."""
    text = _read_text(path, Notes(), encoding)
    return re.search(r'"is_impossible"\s*:|"version"\s*:\s*"v?2', text) is not None


def _iterate_entries(content: Any, name: str) -> Iterator[tuple[str, int, str, Any]]:
    if not isinstance(content, list):
        content = _read_field(content, "data", list, f"{name}: the file")
    for i, article in enumerate(content):
        article_location = f"{name}: data[{i}]"
        if isinstance(article, dict) and "qas" in article:  # a paragraph alone
            article = {"paragraphs": [article]}
        paragraphs = _read_field(article, "paragraphs", list, article_location)
        for j, paragraph in enumerate(paragraphs):
            location = f"{article_location}.paragraphs[{j}]"
            context = _read_field(paragraph, "context", str, location)
            for k, entry in enumerate(_read_field(paragraph, "qas", list, location)):
                yield f"{location}.qas[{k}]", i, context, entry


_TYPE_NAMES = {str: "a text", list: "a list", int: "a whole number", bool: "true or false"}


def _read_field(entry: Any, key: str, type_: type, location: str) -> Any:
    if not isinstance(entry, dict) or key not in entry:
        raise DataError(f"{location} has no '{key}'; give a file in the form of SQuAD")
    value = entry[key]
    if key == "id" and type(value) is int:
        value = str(value)
    if key == "answer_start" and isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if type(value) is not type_:
        raise DataError(
            f"{location}: {key} is {str(value)[:40]!r}, not {_TYPE_NAMES[type_]}; fix it"
        )
    return value


def _read_text(path: RowSource, notes: Notes, encoding: str) -> str:
    return "\n".join(line for _, line in read_lines(path, notes, encoding))


def _load(path: RowSource, notes: Notes, encoding: str) -> Any:
    text = _read_text(path, notes, encoding)
    if not text.strip():
        raise DataError(f"{path} is empty; give a file with questions")
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        remedy = "it is cut short, so fetch it again" if cut else "fix it, or fetch it again"
        raise DataError(
            f"{path}:{error.lineno} is not JSON ({describe_json_error(error)}); {remedy}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path} is not JSON of a SQuAD file ({describe_json_error(error)}); fetch it again"
        ) from error
