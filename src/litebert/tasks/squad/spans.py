"""What a question's rows hold of its context, and the spans in them that answer it best.

Answers are cut from the raw text by the offsets of tokens and never put together from pieces.

Shapes: n tokens of a context or of the part of it in a window, L longest answer in tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.finetuning.token_outputs import BEST, OneSpan
from litebert.tasks.squad.files import Gold


class Window(NamedTuple):
    """Which part of a context a row holds."""

    first: int
    """Where in the row it begins."""
    spans: NDArray[np.int32]
    """(n, 2): the characters of the context that each token reaches over."""
    owned: NDArray[np.bool_]
    """(n,): no other window holds the token with more context; only there may an answer start."""


class Candidate(NamedTuple):
    """A text that may be the answer."""

    text: str
    start: float
    """Logit of its first token."""
    end: float
    """Logit of its last token."""
    begin: int = 0
    """Its first character in the context."""

    @property
    def score(self) -> float:
        """What it is ranked by."""
        return self.start + self.end


class Answer(NamedTuple):
    """What the model says about one question."""

    value: str
    """The best text, whatever no answer is worth; empty only where the context has no text."""
    odds: float
    """Score of no answer (the lowest among the windows) minus that of the best text."""
    null: tuple[float, float]
    """Start and end logit of no answer."""
    candidates: tuple[Candidate, ...]
    """Best first, each text once."""


def windows(n: int, size: int, stride: int) -> Iterator[tuple[int, int, NDArray[np.bool_]]]:
    """(begin, end, owned) of the windows of at most `size` tokens over n; one even where n is 0.

    A token belongs to the window where the smaller of its left and right context is largest, plus a
    hundredth of the window's tokens; to the first of equal ones (BERT's rule of maximum context).
    """
    step = min(stride, (size + 1) // 2)
    count = 1 + max(0, -(-(n - size) // step))
    bounds = [(i * step, min(i * step + size, n)) for i in range(count)]
    best = np.full(n, -1.0)
    owner = np.zeros(n, np.int32)
    for i, (begin, end) in enumerate(bounds):
        place = np.arange(end - begin)
        worth = np.minimum(place, place[::-1]) + 0.01 * (end - begin)
        better = worth > best[begin:end]
        best[begin:end][better] = worth[better]
        owner[begin:end][better] = i
    for i, (begin, end) in enumerate(bounds):
        yield begin, end, owner[begin:end] == i


def tokens_of(gold: Gold, spans: NDArray[np.int32]) -> tuple[int, int] | None:
    """The first and last token that reach into an answer."""
    first = int(np.searchsorted(spans[:, 1], gold.start, "right"))
    last = int(np.searchsorted(spans[:, 0], gold.start + len(gold.text), "left")) - 1
    return (first, last) if first <= last else None


def best_answer(
    context: str, windows: Sequence[tuple[Window, NDArray[np.float64]]], output: OneSpan
) -> Answer:
    """The best of all spans in the windows of one context that begin in a token their window
    owns."""
    null = min(((float(logits[0, 0]), float(logits[0, 1])) for _, logits in windows), key=sum)
    candidates = []
    for window, logits in windows:
        inside = logits[window.first : window.first + len(window.spans)]
        allowed = np.stack((np.where(window.owned, inside[:, 0], -np.inf), inside[:, 1]), axis=1)
        for first, last in output.answers([allowed])[0]:
            begin = int(window.spans[first, 0])
            raw = context[begin : window.spans[last, 1]]
            if text := raw.strip():  # a token may be nothing but a space
                begin += len(raw) - len(raw.lstrip())
                candidates.append(
                    Candidate(text, float(inside[first, 0]), float(inside[last, 1]), begin)
                )
    once: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=lambda candidate: -candidate.score):
        once.setdefault(candidate.text, candidate)
    if not once:
        return Answer("", 0.0, null, ())
    best = next(iter(once.values()))
    return Answer(best.text, sum(null) - best.score, null, tuple(once.values())[:BEST])
