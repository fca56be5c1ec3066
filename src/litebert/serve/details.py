"""Answers for a program or a page: what `litebert predict` writes, and where in the text it
stands."""

from __future__ import annotations

import re
from typing import Any

from litebert.answer.predicting import Answered
from litebert.finetuning.task import Task
from litebert.tasks.tagging.scores import find_entities


def detailed(task: Task[Any], value: Any, found: Answered) -> dict[str, Any]:
    """The record of an answer, with characters of the text it was asked about.

    Args:
        value: the input, in the form that `Task.example` takes.
    """
    record = task.record(found.example, found.answer) | found.used
    if task.output.head == "tokens":
        return record | _tagged(
            value if isinstance(value, str) else " ".join(value),
            record,
            getattr(task, "plain", False),
        )
    if task.output.head == "span":
        return record | _placed(record["prediction"], found.answer.candidates)
    return record


def _tagged(text: str, record: dict[str, Any], plain: bool) -> dict[str, Any]:
    """The characters of each word, and the entities that the tags of words make."""
    places = [match.span() for match in re.finditer(r"\S+", text)]
    if len(places) != len(record["words"]):  # words that hold spaces
        ends, places = 0, []
        for word in record["words"]:
            places.append((ends, ends + len(word)))
            ends += len(word) + 1
    if plain:
        return {"offsets": places}
    listed = []
    for one in sorted(find_entities(record["prediction"]), key=lambda one: one.start):
        start, end = places[one.start][0], places[one.end - 1][1]
        likely = min(record["probabilities"][one.start : one.end])
        listed.append(
            {
                "type": one.type,
                "start": start,
                "end": end,
                "text": text[start:end],
                "probability": likely,
            }
        )
    return {"offsets": places, "entities": listed}


def _placed(prediction: str, candidates: Any) -> dict[str, Any]:
    """The characters of an answer in its context; null where there is none."""
    if not prediction or not candidates:
        return {"start": None, "end": None}
    return {"start": candidates[0].begin, "end": candidates[0].begin + len(prediction)}
