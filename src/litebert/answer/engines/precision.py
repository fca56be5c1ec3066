"""The change that fewer bits make: answers are compared once, on at most `ROWS` first rows, with
those in float32. Nothing is compared where nobody reads the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.answer.engines.exits import EarlyExit
from litebert.answer.engines.runtime import Runtime
from litebert.base.errors import LitebertError
from litebert.tasks.rows import PaddedRows
from litebert.tasks.task import Task
from litebert.tasks.values import Item, Logits
from litebert.text.tally import format_count

log = logging.getLogger("litebert.precision")

ROWS = 32
"""Examples that are compared, at most."""
TOKENS = 2048
"""Tokens that are compared, at most, but always one example."""


class Comparison:
    """Compares an engine with its reference on the first rows, and logs one sentence."""

    def __init__(self, name: str, make_reference: Callable[[], Runtime]) -> None:
        self._name, self._make = name, make_reference
        self._due = True

    def compare_answers(
        self,
        task: Task[Any],
        runtime: Runtime,
        examples: Sequence[Any],
        items: Sequence[Item],
        compute: Callable[[Runtime, Sequence[Item]], Logits],
    ) -> None:
        """Log how far the logits of the first examples are apart, and how many answers change."""
        reference = self._reference()
        if reference is None:
            return
        whole = runtime.runtime if isinstance(runtime, EarlyExit) else runtime
        sizes = np.zeros(len(examples), np.int64)
        for item in items:
            sizes[item.example] += item.length * len(item.rows)
        few = _count_first(sizes)
        chosen = [item for item in items if item.example < few]
        logits, expected = (compute(each, chosen) for each in (whole, reference))
        answers = [
            [
                getattr(answer, "value", answer)
                for answer in task.answers(examples[:few], chosen, side)
            ]
            for side in (logits, expected)
        ]
        changes = list(zip(*answers, strict=True))
        if all(isinstance(value, float) for value in answers[1]):
            gap = max((abs(actual - right) for actual, right in changes), default=0.0)
            self._log(few, "row", f"answers by at most {gap:.2g}")
            return
        pairs = zip(logits, expected, strict=True)
        gap = max((float(np.abs(a - b).max(initial=0.0)) for a, b in pairs), default=0.0)
        changed = sum(actual != right for actual, right in changes)
        verb = "changes" if changed == 1 else "change"
        change = f"{changed} of {format_count(few, 'answer')} {verb}"
        self._log(few, "row", f"logits by at most {gap:.2g}, and {change}")

    def compare_vectors(
        self,
        rows: PaddedRows,
        vectors: NDArray[np.float32],
        compute: Callable[[Runtime, PaddedRows], NDArray[np.float32]],
    ) -> None:
        """Log the lowest cosine of the first vectors (R, D) with those of the reference."""
        reference = self._reference()
        if reference is None:
            return
        few = _count_first(np.array(rows.lengths))
        first = rows.part(0, few)
        actual = vectors[:few].astype(np.float64)
        expected = compute(reference, first).astype(np.float64)
        lengths = np.linalg.norm(actual, axis=1) * np.linalg.norm(expected, axis=1)
        cosines = (actual * expected).sum(1) / np.maximum(lengths, np.finfo(np.float64).tiny)
        self._log(
            few,
            "text",
            f"the cosine of a vector with its vector in float32 is at least {cosines.min():.5f}",
        )

    def _reference(self) -> Runtime | None:
        """Make the runtime in float32 at the first call; None afterwards, or where it fails."""
        if not self._due or not log.isEnabledFor(logging.INFO):
            return None
        self._due = False
        try:
            return self._make()
        except LitebertError as error:
            log.debug(f"{self._name} is not compared with float32: {error}")
            return None

    def _log(self, few: int, unit: str, differences: str) -> None:
        log.info(
            f"{self._name} differs from float32 on the first "
            f"{format_count(few, unit)}: {differences}"
        )


def _count_first(sizes: NDArray[np.int64]) -> int:
    return max(1, int((np.cumsum(sizes[:ROWS]) <= TOKENS).sum()))
