"""Long work in steps of bounded time, between which short batches are computed.

One thread of a worker computes short batches, another long ones, one at a time, so no model needs
to be safe for threads. The long one offers its turn after every step, and gets one step at least
after every short batch. Tokenizers are safe for threads, so it reads texts beside the short
batches, without a turn, the longest in parts.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.tasks.rows import PaddedRows
from litebert.tokenizer import Tokenizer

NEWEST = 0.3
"""How much the newest pass counts in the speed of the passes."""
Compute = Callable[[PaddedRows], NDArray[np.float32]]
Aside = Callable[[], AbstractContextManager[None]]


class Turns:
    """Decides which of the two threads works."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy = False
        self._short_waits = self._long_waits = self._long_is_next = False
        self.paused = 0.0
        """Seconds for which long work has waited in all."""

    @contextmanager
    def short(self) -> Iterator[None]:
        """Compute a short batch, after the step that long work is at."""
        with self._changed:
            self._short_waits = True
            self._changed.wait_for(
                lambda: not self._busy and not (self._long_waits and self._long_is_next)
            )
            self._short_waits, self._busy = False, True
        try:
            yield
        finally:
            with self._changed:
                self._busy, self._long_is_next = False, True
                self._changed.notify_all()

    @contextmanager
    def long(self) -> Iterator[None]:
        """Compute long work, which calls `step` wherever a short batch may pass."""
        self._take()
        try:
            yield
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def step(self) -> None:
        """Let a short batch pass, if one waits."""
        if self._short_waits:
            with self._changed:
                self._busy = self._long_is_next = False
                self._changed.notify_all()
            self._take()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Do a part of the long work that needs no turn, while short batches are computed."""
        with self._changed:
            self._busy = self._long_is_next = False
            self._changed.notify_all()
        try:
            yield
        finally:
            self._take()

    def _take(self) -> None:
        begun = time.perf_counter()
        with self._changed:
            self._long_waits = True
            self._changed.wait_for(
                lambda: not self._busy and (self._long_is_next or not self._short_waits)
            )
            self._long_waits, self._busy, self._long_is_next = False, True, False
        self.paused += time.perf_counter() - begun


class Steps:
    """Passes of as many tokens as fit into a step, by the speed of those before."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._speed = math.nan

    @contextmanager
    def of(
        self,
        seconds: float,
        step: Callable[[], None],
        aside: Aside = nullcontext,
    ) -> Iterator[None]:
        """Call `step` about every so many seconds in this thread, and tokenize within `aside`."""
        self._local.seconds, self._local.step, self._local.aside = seconds, step, aside
        try:
            yield
        finally:
            del self._local.seconds, self._local.step, self._local.aside

    def aside(self) -> AbstractContextManager[None]:
        """Return the context of work that needs no turn, if this thread works in turns."""
        aside: Aside = getattr(self._local, "aside", nullcontext)
        return aside()

    def end(self) -> None:
        """End a step, if this thread works in steps."""
        if (step := getattr(self._local, "step", None)) is not None:
            step()

    def passes(self, compute: Compute) -> Compute:
        """Wrap `compute` to compute fewer rows at a time, whose results (R, ...) are joined."""

        def compute_parts(rows: PaddedRows) -> NDArray[np.float32]:
            count, width = len(rows), rows.size
            parts, begin = list[NDArray[np.float32]](), 0
            while begin < count or not parts:
                most = self._rows(width, count) // rows.together * rows.together
                end = min(count, begin + max(rows.together, most))
                began = time.perf_counter()
                parts.append(compute(rows if end - begin == count else rows.part(begin, end)))
                self._measure((end - begin) * width, time.perf_counter() - began)
                begin = end
                self.end()
            return parts[0] if len(parts) == 1 else _join(parts)

        return compute_parts

    def parts(self, lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield the begin and the end of as many rows as fit into a step, which is measured."""
        begin = 0
        while begin < len(lengths):
            most, end, tokens = self._rows(1, sum(lengths)), begin, 0
            while end < len(lengths) and (end == begin or tokens + lengths[end] <= most):
                tokens, end = tokens + lengths[end], end + 1
            began = time.perf_counter()
            yield begin, end
            self._measure(tokens, time.perf_counter() - began)
            begin = end
            self.end()

    def _rows(self, width: int, count: int) -> int:
        """Count the rows of a pass: all if this thread does not work in steps, and at least one."""
        seconds = getattr(self._local, "seconds", math.inf)
        if math.isinf(seconds):
            return count
        tokens = seconds * self._speed if self._speed > 0 else 0.0  # not measured yet
        return max(1, int(tokens // max(1, width)))

    def _measure(self, tokens: int, seconds: float) -> None:
        speed = tokens / max(seconds, 1e-6)
        before = speed if math.isnan(self._speed) else self._speed
        self._speed = (1 - NEWEST) * before + NEWEST * speed


def _join(parts: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Concatenate parts along the rows. States of tokens may end where only padding follows."""
    if parts[0].ndim == 3:
        most = max(part.shape[1] for part in parts)
        parts = [np.pad(part, ((0, 0), (0, most - part.shape[1]), (0, 0))) for part in parts]
    return np.concatenate(parts)


PART = 4096
"""Characters of a part, about: it ends at a space between words, over which no token reaches."""
CACHED = 4
"""Long texts whose tokens are cached: a query comes back with every batch of its request."""
_END = re.compile(r"(?<=\w)(?= \w)")
"""Matches where a text is cut: the tokens of the two sides are those of the whole, as they need not
be at a line break, a mark or a sign, or before these in byte-level BPE.
"""


class LongTexts:
    """Tokenizes long texts, each part within `aside`."""

    def __init__(self, tokenizer: Tokenizer, aside: Aside) -> None:
        self._tokenizer, self._aside = tokenizer, aside
        self._cache: OrderedDict[str, list[list[int]]] = OrderedDict()

    @staticmethod
    def is_long(text: str) -> bool:
        return len(text) > PART

    @staticmethod
    def parts(text: str) -> Iterator[tuple[int, str]]:
        """Yield the parts of a text, each with the position of its first character."""
        begin = 0
        while begin < len(text):
            match = _END.search(text, begin + PART) if len(text) - begin > PART else None
            end = len(text) if match is None else match.start()
            yield begin, text[begin:end]
            begin = end
        if not text:
            yield 0, ""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without special tokens."""
        return [token for part in self._encode_parts(text) for token in part]

    def shorten(self, value: Any, most: int) -> tuple[Any, int]:
        """Cut the long texts of an input where `most` tokens are full, which changes no row of
        fewer tokens; return how many were left out.
        """
        if not isinstance(value, Sequence) or (isinstance(value, str) and not self.is_long(value)):
            return value, 0
        if not isinstance(value, str):
            pairs = [self.shorten(part, most) for part in value]
            return [part for part, _ in pairs], sum(cut for _, cut in pairs)
        tokens, end, encoded = 0, 0, self._encode_parts(value)
        for ids, (begin, part) in zip(encoded, self.parts(value), strict=True):
            if tokens > most:
                break
            tokens, end = tokens + len(ids), begin + len(part)
        return value[:end], sum(map(len, encoded)) - tokens

    def _encode_parts(self, text: str) -> list[list[int]]:
        encoded = self._cache.pop(text, None)
        if encoded is None:
            encoded = []
            for _, part in self.parts(text):
                with self._aside():
                    encoded.append(self._tokenizer.encode([part])[0])
        self._cache[text] = encoded
        if len(self._cache) > CACHED:
            self._cache.popitem(last=False)
        return encoded
