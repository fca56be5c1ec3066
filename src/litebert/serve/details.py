"""Answers for a program or a page: the record of `litebert predict`, with positions in the text."""

from __future__ import annotations

from typing import Any

from litebert.answer.predicting import Answered
from litebert.finetuning.task import Task


def describe_answer(task: Task[Any], entry: Answered) -> dict[str, Any]:
    """Return the record of an answer, with the positions of its characters in the input."""
    record = task.record(entry.example, entry.answer) | entry.used
    if task.output.head == "span":
        return record | _locate_span(record["prediction"], entry.answer.candidates)
    return record


def _locate_span(prediction: str, candidates: Any) -> dict[str, Any]:
    """Return the characters of an answer in its context; null if there is no answer."""
    if not prediction or not candidates:
        return {"start": None, "end": None}
    return {"start": candidates[0].begin, "end": candidates[0].begin + len(prediction)}
