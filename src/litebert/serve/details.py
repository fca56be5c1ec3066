"""Answers for a program or a page: the record of `litebert predict`, with positions in the text."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from litebert.answer.predicting import Answered
from litebert.finetuning.outputs import softmax
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


def list_answer(
    task: Task[Any],
    record: dict[str, Any],
    entry: Answered,
    top: int | None = None,
    function: str | None = None,
    by_word: bool = False,
    ignored: tuple[str, ...] = ("O",),
) -> Any:
    """Return an answer as Hugging Face's `InferenceClient` reads it.

    Args:
        record: what `describe_answer` returns.
        top: the number of labels, or of answers to a question.
        function: what makes scores of logits: softmax, sigmoid or none; as the model by default.
        by_word: list the tags of words, not the entities.
        ignored: tags and types that are left out.
    """
    output = task.output
    if output.head == "tokens":
        name = "entity" if by_word else "entity_group"
        found: Any = zip(
            *(record[part] for part in ("prediction", "probabilities", "words", "offsets")),
            strict=True,
        )
        if not by_word and "entities" in record:
            found = (
                (one["type"], one["probability"], one["text"], (one["start"], one["end"]))
                for one in record["entities"]
            )
        return [
            {name: tag, "score": share, "word": word, "start": start, "end": end}
            for tag, share, word, (start, end) in found
            if tag not in ignored
        ]
    if output.head == "span":
        candidates, null = entry.answer.candidates, sum(entry.answer.null)
        shares = softmax(np.array([*(one.score for one in candidates), null])).tolist()
        places = [(one.text, one.begin) for one in candidates]
        if not record["prediction"]:
            places, shares = [("", 0)], shares[-1:]
        found = [
            {"answer": text, "score": share, "start": begin, "end": begin + len(text)}
            for (text, begin), share in zip(places, shares, strict=False)
        ]
        return found[0] if top in (None, 1) else found[:top]
    logits = entry.logits.astype(np.float64)
    chosen = function or {"classes": "softmax", "choice": "softmax", "number": "none"}.get(
        output.name, "sigmoid"
    )
    scores = logits if chosen == "none" else 0.5 * (1 + np.tanh(logits / 2))
    if chosen == "softmax":
        scores = softmax(logits)
    labels = output.labels or [f"LABEL_{number}" for number in range(len(scores))]
    likely = sorted(zip(labels, scores.tolist(), strict=True), key=lambda pair: -pair[1])[:top]
    return [{"label": label, "score": score} for label, score in likely]


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
