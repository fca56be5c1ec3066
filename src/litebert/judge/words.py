"""The words that decided an answer: how much less sure a model is without each.

Occlusion (Zeiler and Fergus 2014) works with every engine; `answer/gradients.py` has integrated
gradients. Shapes: W words, C numbers of the head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import ConfigError
from litebert.tasks.outputs import Output
from litebert.tasks.task import Task
from litebert.tasks.values import Item
from litebert.text.records import Notes
from litebert.tokenizer import Tokenizer

MOST_WORDS = 100
"""Parts of a text whose weight is computed; of a longer text, neighboring words make a part."""
Compute = Callable[[Sequence[Item]], Sequence[NDArray[np.float32]]]
"""Items -> the logits of each, in the form of `Output.of_item`."""


@dataclass(frozen=True)
class Span:
    field: str
    """`text` or `pair`."""
    start: int
    """Its first character in the text."""
    end: int


@dataclass(frozen=True)
class WordWeight(Span):
    word: str
    weight: float
    """The log-odds of the answer, or the number, with the word less those without it."""


def require_words(task: Task[Any]) -> None:
    if not task.output.linear:
        raise ConfigError(
            "explain is for classes, labels and numbers of whole texts, and this model answers "
            f"with {task.output.name}; leave it out"
        )


def list_words(tokenizer: Tokenizer, example: Any, length: int) -> list[Span]:
    """List the words in an example's first `length` tokens; of long texts, runs of words."""
    fields = ["text"] if example.pair is None else ["text", "pair"]
    words_of: dict[str, list[Span]] = {}
    for field in fields:
        ids, offsets = tokenizer.encode_offsets([getattr(example, field)])[0]
        starts = tokenizer.word_starts
        words = words_of.setdefault(field, [])
        for id_, (start, end) in zip(ids[:length].tolist(), offsets.tolist(), strict=False):
            begins = starts is None or bool(starts[id_]) or not words or words[-1].end < start
            if words and not begins:
                words[-1] = Span(field, words[-1].start, end)
            elif end > start:
                words.append(Span(field, start, end))
    run = max(1, -(-sum(map(len, words_of.values())) // MOST_WORDS))
    runs = [
        words[begin : begin + run]
        for words in words_of.values()
        for begin in range(0, len(words), run)
    ]
    return [Span(words[0].field, words[0].start, words[-1].end) for words in runs]


def compute_log_odds(
    output: Output, logits: Sequence[NDArray[np.float32]], decision: int
) -> NDArray[np.float64]:
    """Compute the log-odds of a class or a label, or the number, of each item, (N,)."""
    values = np.stack(list(logits)).astype(np.float64)
    if not output.exclusive:
        return values[:, decision]
    others = np.delete(values, decision, axis=1)
    highest = others.max(1)
    odds: NDArray[np.float64] = (
        values[:, decision] - highest - np.log(np.exp(others - highest[:, None]).sum(1))
    )
    return odds


def explain_by_occlusion(
    task: Task[Any], tokenizer: Tokenizer, length: int, example: Any, compute: Compute
) -> list[WordWeight]:
    """Compute the weight of each word of an example, in the order of the text, from a model's
    logits.
    """
    require_words(task)
    spans = list_words(tokenizer, example, length)
    variants = [example, *(_leave_out(example, span) for span in spans)]
    logits = list(compute(task.encode(variants, tokenizer, length, Notes())))
    odds = compute_log_odds(task.output, logits, int(np.argmax(logits[0])))
    return weigh_words(example, spans, (odds[0] - odds[1:]).tolist())


def weigh_words(example: Any, spans: Sequence[Span], weights: Sequence[float]) -> list[WordWeight]:
    return [
        WordWeight(
            span.field,
            span.start,
            span.end,
            getattr(example, span.field)[span.start : span.end],
            round(weight, 4),
        )
        for span, weight in zip(spans, weights, strict=True)
    ]


def _leave_out(example: Any, span: Span) -> Any:
    """Return an example without a word; two spaces around it become one."""
    text = getattr(example, span.field)
    before, after = text[: span.start], text[span.end :]
    if before[-1:].isspace() and after[:1].isspace():
        after = after[1:]
    return example._replace(**{span.field: before + after})


def format_weights(words: Sequence[WordWeight], most: int = 5) -> str:
    """Name the words of the largest weights: `bad +3.10, not -1.20`."""
    largest = sorted(words, key=lambda word: -abs(word.weight))[:most]
    return ", ".join(f"{word.word} {word.weight:+.2f}" for word in largest)
