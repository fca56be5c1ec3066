"""Answers in the shapes of Hugging Face's `InferenceClient`."""

from __future__ import annotations

from typing import Any

import numpy as np

from litebert.answer.predicting import Answered
from litebert.finetuning.outputs import softmax
from litebert.finetuning.task import Task


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
        record: what `Task.record` returns, and its place.
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
