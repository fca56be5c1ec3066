"""Reading SQuAD files: questions over paragraphs, with gold answers and their positions.

The official JSON, 1.1 and 2.0. A file is one JSON value, often one line, so places in it are named
as `data[3].paragraphs[0].qas[2]`. It is read whole: the largest holds 130,000 questions in 42 MB.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from litebert.errors import DataError
from litebert.json_reader import parse_json
from litebert.text.records import Notes, clean, describe_json_error, format_value, read_lines


class Gold(NamedTuple):
    """An answer as people gave it."""

    text: str
    start: int
    """Its first character in the context, as the file says."""


class Question(NamedTuple):
    """A question about a text."""

    id: str
    text: str
    context: str
    answers: tuple[Gold, ...]
    impossible: bool
    """The context holds no answer. With neither answers nor this, what is right is not known."""
    article: int = 0
    """Which article of its file the context is from."""

    @property
    def known(self) -> bool:
        """Whether it can be scored."""
        return bool(self.answers) or self.impossible

    @property
    def placed(self) -> Gold | None:
        """The first answer that is where the file says."""
        return next((gold for gold in self.answers if stands(gold, self.context)), None)


def stands(gold: Gold, context: str) -> bool:
    """Whether the text of an answer is found at its start."""
    return bool(gold.text) and gold.start >= 0 and context.startswith(gold.text, gold.start)


def read_questions(path: Path, found: Notes, encoding: str = "utf-8") -> list[Question]:
    """The questions of a file, in order; answers that are not where the file says are counted in
    `found`.

    In version 2 an empty list of answers means that there is no answer; but in a file where no
    question has an answer or `is_impossible`, it means that the answers were left out.

    Raises:
        DataError: the file is missing, empty, not in the encoding, not JSON, of another form, or
            has an id twice; the message names the line, or the place.
    """
    whole = _load(path, found, encoding)
    version = whole.get("version") if isinstance(whole, dict) else None
    second = isinstance(version, str) and version.lower().removeprefix("v").startswith("2")
    second = second and any(_is_labelled(entry) for *_, entry in _entries(whole, str(path)))
    places: dict[str, str] = {}
    questions = []
    for where, article, context, entry in _entries(whole, str(path)):
        question = _question(entry, clean(context, found), article, second, where, found)
        if question.id in places:
            there = places[question.id]
            raise DataError(
                f"{where} has the id {format_value(question.id)} of {there}; give each question "
                "an id of its own"
            )
        places[question.id] = where.removeprefix(f"{path}: ")
        questions.append(question)
    if not questions:
        raise DataError(f"{path} holds no questions; give a file with some")
    return questions


def may_be_unanswerable(path: Path, encoding: str = "utf-8") -> bool:
    """Whether a file is SQuAD 2.0: it names that version, or marks whether questions can be
    answered.
    """
    return (
        re.search(r'"is_impossible"\s*:|"version"\s*:\s*"v?2', _text(path, Notes(), encoding))
        is not None
    )


def _is_labelled(entry: Any) -> bool:
    return isinstance(entry, dict) and bool(
        entry.get("answers") or entry.get("is_impossible") is not None
    )


def _question(
    entry: Any, context: str, article: int, second: bool, where: str, found: Notes
) -> Question:
    name = clean(_field(entry, "id", str, where), found)
    text = clean(_field(entry, "question", str, where), found)
    answers = []
    if entry.get("answers") is not None:
        for i, answer in enumerate(_field(entry, "answers", list, where)):
            place = f"{where}.answers[{i}]"
            words = clean(_field(answer, "text", str, place), found)
            answers.append(Gold(words, _field(answer, "answer_start", int, place)))
    if entry.get("is_impossible") is None:
        impossible = second and entry.get("answers") == []
    else:
        impossible = _field(entry, "is_impossible", bool, where)
    if impossible and answers:
        raise DataError(
            f"{where} ({format_value(name)}) has answers, though is_impossible is true; "
            "fix one of the two"
        )
    return Question(name, text, context, tuple(answers), impossible, article)


def _entries(whole: Any, name: str) -> Iterator[tuple[str, int, str, Any]]:
    """(place, article, context, question as the file has it)."""
    for i, article in enumerate(_field(whole, "data", list, f"{name}: the file")):
        article_place = f"{name}: data[{i}]"
        for j, paragraph in enumerate(_field(article, "paragraphs", list, article_place)):
            place = f"{article_place}.paragraphs[{j}]"
            context = _field(paragraph, "context", str, place)
            for k, entry in enumerate(_field(paragraph, "qas", list, place)):
                yield f"{place}.qas[{k}]", i, context, entry


_KINDS = {str: "a text", list: "a list", int: "a whole number", bool: "true or false"}


def _field(entry: Any, key: str, kind: type, where: str) -> Any:
    if not isinstance(entry, dict) or key not in entry:
        raise DataError(f"{where} has no '{key}'; give a file in the form of SQuAD")
    value = entry[key]
    if type(value) is not kind:
        raise DataError(f"{where}: {key} is {str(value)[:40]!r}, not {_KINDS[kind]}; fix it")
    return value


def _text(path: Path, found: Notes, encoding: str) -> str:
    return "\n".join(line for _, line in read_lines(path, found, encoding))


def _load(path: Path, found: Notes, encoding: str) -> Any:
    text = _text(path, found, encoding)
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
