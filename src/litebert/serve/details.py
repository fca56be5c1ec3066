"""Answers for a program or a page: the record of `litebert predict`, with positions in the text."""

from __future__ import annotations

import re
from typing import Any

from litebert.answer.predicting import Answered
from litebert.finetuning.task import Task
from litebert.tasks.tagging.scores import find_entities


def describe_answer(task: Task[Any], value: Any, entry: Answered) -> dict[str, Any]:
    """Return the record of an answer, with the positions of its characters in the input.

    Args:
        value: the input, in the form that `Task.example` takes.
    """
    record = task.record(entry.example, entry.answer) | entry.used
    if task.output.head == "tokens":
        return record | _locate_tags(
            value if isinstance(value, str) else " ".join(value),
            record,
            getattr(task, "plain", False),
        )
    if task.output.head == "span":
        return record | _locate_span(record["prediction"], entry.answer.candidates)
    return record


def _locate_tags(text: str, record: dict[str, Any], plain: bool) -> dict[str, Any]:
    """Return the characters of each word, and of the entities that the tags of words make."""
    offsets = [match.span() for match in re.finditer(r"\S+", text)]
    if len(offsets) != len(record["words"]):  # words that hold spaces
        end, offsets = 0, []
        for word in record["words"]:
            offsets.append((end, end + len(word)))
            end += len(word) + 1
    if plain:
        return {"offsets": offsets}
    entities = []
    for entity in sorted(find_entities(record["prediction"]), key=lambda entity: entity.start):
        start, end = offsets[entity.start][0], offsets[entity.end - 1][1]
        entities.append(
            {
                "type": entity.type,
                "start": start,
                "end": end,
                "text": text[start:end],
                "probability": min(record["probabilities"][entity.start : entity.end]),
            }
        )
    return {"offsets": offsets, "entities": entities}


def _locate_span(prediction: str, candidates: Any) -> dict[str, Any]:
    """Return the characters of an answer in its context; null if there is no answer."""
    if not prediction or not candidates:
        return {"start": None, "end": None}
    return {"start": candidates[0].begin, "end": candidates[0].begin + len(prediction)}
