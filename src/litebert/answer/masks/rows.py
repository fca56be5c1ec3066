"""Masked rows that wait to be read: each distinct row once, in full batches without padding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from litebert.answer.vectors import BATCH_TOKENS

LOGITS = 1 << 25
"""Numbers of logits at a time."""
LogitsAt = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]
"""Rows (R, S) and flat positions (K,) -> float32 logits (K, V)."""


class MaskedRows:
    """Log-probabilities of tokens at masks. Two sentences that differ in one word share the row
    that masks it; rows of one length are read together.

    Shapes: R rows of S tokens, V vocabulary, K masked positions.
    """

    def __init__(self, logits_at: LogitsAt, vocab_size: int, tokens: int = BATCH_TOKENS) -> None:
        """`tokens`: most in a forward pass, which has one row at least."""
        self._logits_at, self._rows, self._tokens = logits_at, max(1, LOGITS // vocab_size), tokens
        # By length: each distinct row, with the position, the token and the number of every
        # question about it.
        self._waiting: defaultdict[int, dict[bytes, list[tuple[int, int, int]]]] = defaultdict(dict)
        self.values: list[float] = []
        """The answer to each question, in nats; complete after `finish`."""

    def ask(self, row: NDArray[np.int64], position: int, token: int) -> int:
        """Ask for a token's log-probability at a row's first mask; return its index in `values`."""
        waiting, key = self._waiting[len(row)], row.tobytes()
        if key not in waiting and len(waiting) == max(1, min(self._rows, self._tokens // len(row))):
            self._read(waiting)
        waiting.setdefault(key, []).append((position, token, len(self.values)))
        self.values.append(float("nan"))
        return len(self.values) - 1

    def finish(self) -> None:
        """Read the rows that still wait."""
        for waiting in self._waiting.values():
            if waiting:
                self._read(waiting)

    def _read(self, waiting: dict[bytes, list[tuple[int, int, int]]]) -> None:
        ids = np.frombuffer(b"".join(waiting), np.int64).reshape(len(waiting), -1)
        flat = [row * ids.shape[1] + about[0][0] for row, about in enumerate(waiting.values())]
        questions = [
            (row, token, number)
            for row, about in enumerate(waiting.values())
            for _, token, number in about
        ]
        logits = self._logits_at(ids, np.array(flat))
        rows, tokens, numbers = np.array(questions).T
        highest = logits.max(1, keepdims=True)
        norms = np.log(np.exp(logits - highest).sum(1)) + highest[:, 0]
        answers = logits[rows, tokens] - norms[rows]
        for number, value in zip(numbers.tolist(), answers.tolist(), strict=True):
            self.values[number] = value
        waiting.clear()
