"""Warm a model before it takes requests: make its engines, and measure how long requests take."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from litebert.serve.payloads import Longest
from litebert.serve.wire import Group

if TYPE_CHECKING:
    from litebert.serve.served import Served

EXAMPLE = (
    "the quick brown fox jumps over the lazy dog and runs back to the river before the sun "
    "goes down again"
)
"""The text on which the speed of a model is first measured."""
VARIANTS = 16
"""Forms of the example on which an engine of fewer bits is compared with float32."""


def warm(served: Served) -> tuple[list[tuple[int, float]], float, float]:
    """Make the engines, and measure requests.

    Engines that need more than the weights are made first, and one of fewer bits is compared with
    float32. So no client waits for it.

    Returns:
        How many short inputs took how many seconds, each the best of three. The characters of one
        input. The seconds of the longest step of a request that fills a row.
    """
    value, operation = _make_example(served)
    if served.engine != "torch":
        _make_engines(served)
    trials = []
    for rows in (1, 1, 4):  # what is done once is not counted
        best = math.inf
        for _ in range(3):
            start = time.perf_counter()
            served.answer(Group(operation, (), [value] * rows))
            best = min(best, time.perf_counter() - start)
        trials.append((rows, best))
    if "fill-mask" in served.does:
        for token in range(served.tokenizer.vocab_size):
            served.tokenizer.get_word(token)  # a table, so that no answer decodes
    return trials[1:], float(len(EXAMPLE)), _measure_step(served, value, operation)


def _measure_step(served: Served, value: Any, operation: str) -> float:
    """Measure the seconds of the least that a request of long texts takes at a time: one row of
    full length.
    """
    long = " ".join([EXAMPLE] * (1 + served.length // len(EXAMPLE.split())))
    texts = [long, value[1], *value[2:]] if isinstance(value, list) else f"{long} [MASK]"
    if operation == "fill-mask":
        most = max(1, served.length // 3)  # in the length, whatever the tokenizer
        texts = f"{' '.join(long.split()[:most])} [MASK]"
    best = math.inf
    for _ in range(2):
        longest = Longest()
        with served.steps.of(1e-9, longest):
            served.answer(Group(operation, (), [texts]))
        best = min(best, longest.seconds)
    return best


def _make_engines(served: Served) -> None:
    """Make the engine of answers and that of vectors."""
    for operation in ("predict", "embed"):
        if operation in served.does:
            values = [
                _make_example(served, turn)[0] if operation == "predict" else _turn_example(turn)
                for turn in range(VARIANTS)
            ]
            served.answer(Group(operation, (), values))


def _make_example(served: Served, turn: int = 0) -> tuple[Any, str]:
    """Return an input and the operation that answers it."""
    text = _turn_example(turn)
    if served.predictor is not None:
        task, words = served.predictor.task, text.split()
        forms: list[Any] = [
            text,
            [" ".join(words[:10]), " ".join(words[10:])],
            [" ".join(words[:8]), " ".join(words[8:12]), words[12:14]],
        ]
        for value in forms:
            try:
                task.example(value, "")
            except (TypeError, ValueError):
                continue
            return value, "predict"
    if "embed" in served.does:
        return text, "embed"
    return (f"{text} [MASK]", "fill-mask") if "fill-mask" in served.does else (text, "tokenize")


def _turn_example(turn: int) -> str:
    """Return the example, beginning with another of its words."""
    words = EXAMPLE.split()
    return " ".join(words[turn % len(words) :] + words[: turn % len(words)])
