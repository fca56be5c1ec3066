"""Windows over a context, and the best of the spans in them that may answer a question.

Shapes: n tokens of a context, or of the window over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.finetuning.token_outputs import BEST, OneSpan
from litebert.tasks.squad.files import Gold


class Window(NamedTuple):
    """The part of a context in a sequence."""

    first: int
    """The position in the sequence where it begins."""
    spans: NDArray[np.int32]
    """(n, 2): the first character of each token in the context, and the end after its last."""
    owned: NDArray[np.bool_]
    """(n,): True if no other window gives the token more context. An answer may only start there.
    """


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
        """The sum of both logits, which ranks candidates."""
        return self.start + self.end


class Answer(NamedTuple):
    value: str
    """The best text, even if no answer is likelier; empty only if the context has no text."""
    odds: float
    """The score of no answer (the lowest of all windows) minus the score of the best text."""
    null: tuple[float, float]
    """The start and end logits of no answer."""
    candidates: tuple[Candidate, ...]
    """The best candidates, each text once, the best first."""


def split_windows(n: int, size: int, stride: int) -> Iterator[tuple[int, int, NDArray[np.bool_]]]:
    """Split n tokens into windows (begin, end, owned) of at most `size`, at least one.

    A window owns the tokens to which it gives the most context (BERT's rule of maximum context):
    the smaller of the left and right context, plus a hundredth of the window's tokens. The first of
    equal windows owns the token.
    """
    step = min(stride, (size + 1) // 2)
    count = 1 + max(0, -(-(n - size) // step))
    bounds = [(i * step, min(i * step + size, n)) for i in range(count)]
    best = np.full(n, -1.0)
    owner = np.zeros(n, np.int32)
    for i, (begin, end) in enumerate(bounds):
        position = np.arange(end - begin)
        context = np.minimum(position, position[::-1]) + 0.01 * (end - begin)
        better = context > best[begin:end]
        best[begin:end][better] = context[better]
        owner[begin:end][better] = i
    for i, (begin, end) in enumerate(bounds):
        yield begin, end, owner[begin:end] == i


def find_tokens(gold: Gold, spans: NDArray[np.int32]) -> tuple[int, int] | None:
    """Return the first and last token that reach into an answer; None if no token does."""
    first = int(np.searchsorted(spans[:, 1], gold.start, "right"))
    last = int(np.searchsorted(spans[:, 0], gold.start + len(gold.text), "left")) - 1
    return (first, last) if first <= last else None


def find_answer(
    context: str, windows: Sequence[tuple[Window, NDArray[np.float64]]], output: OneSpan
) -> Answer:
    """Find the best span that starts in a window that owns its start; logits are float64 (n, 2)."""
    null = min(((float(logits[0, 0]), float(logits[0, 1])) for _, logits in windows), key=sum)
    candidates = []
    for window, logits in windows:
        inside = logits[window.first : window.first + len(window.spans)]
        allowed = np.stack((np.where(window.owned, inside[:, 0], -np.inf), inside[:, 1]), axis=1)
        for first, last in output.answers([allowed])[0]:
            begin = int(window.spans[first, 0])
            raw = context[begin : window.spans[last, 1]]
            text = raw.strip()
            if not text:  # a token may be nothing but a space
                continue
            begin += len(raw) - len(raw.lstrip())
            start, end = float(inside[first, 0]), float(inside[last, 1])
            candidates.append(Candidate(text, start, end, begin))
    best_of_text: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=lambda candidate: -candidate.score):
        best_of_text.setdefault(candidate.text, candidate)
    if not best_of_text:
        return Answer("", 0.0, null, ())
    ranked = tuple(best_of_text.values())
    return Answer(ranked[0].text, sum(null) - ranked[0].score, null, ranked[:BEST])
