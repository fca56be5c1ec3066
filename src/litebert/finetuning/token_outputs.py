"""Answers that stand at tokens: a tag for each word, and a span.

Shapes: B items, S tokens, n tokens of one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from litebert.data import IGNORED
from litebert.finetuning.outputs import Output, softmax
from litebert.finetuning.values import Answer, TaskBatch

if TYPE_CHECKING:  # who answers without PyTorch has no loss
    from torch import Tensor


class Tags(Output):
    """One of C tags for tokens. A target is int64 (n,), `IGNORED` where no word answers."""

    name, head, reads_cls = "tokens", "tokens", False
    task, separator = "tagging", " "
    scores = ("f1", "precision", "recall")

    def collate(self, targets: Sequence[NDArray[np.int64]], size: int) -> NDArray[np.int64]:
        return np.stack(
            [np.pad(target, (0, size - len(target)), constant_values=IGNORED) for target in targets]
        )

    def count(self, targets: NDArray[Any]) -> int:
        return int((targets != IGNORED).sum())

    def distill_total(
        self, logits: Tensor, teacher_logits: Tensor, batch: TaskBatch, temperature: float
    ) -> tuple[Tensor, Tensor]:
        tagged = batch.targets != IGNORED
        return super().distill_total(logits[tagged], teacher_logits[tagged], batch, temperature)

    def answers(self, logits: Sequence[NDArray[np.float32]]) -> list[Answer]:
        likely = [softmax(row_logits.astype(np.float64), axis=-1) for row_logits in logits]
        return [
            Answer(tuple(self.labels[i] for i in p.argmax(-1).tolist()), p.max(-1)) for p in likely
        ]

    def read_value(self, value: Any) -> Any:
        return tuple(value.split(self.separator) if value and isinstance(value, str) else value)

    def one_answer(self, targets: Sequence[Any], logits: Sequence[NDArray[np.float32]]) -> bool:
        """Return True if every token that has a tag gets the same one."""
        truth = np.concatenate(targets)
        guess = np.concatenate([row_logits.argmax(-1) for row_logits in logits])[truth != IGNORED]
        return len(set(truth[truth != IGNORED].tolist())) > 1 and len(set(guess.tolist())) == 1

    def counts(self, targets: Sequence[Any] | NDArray[np.int64]) -> NDArray[np.int64]:
        tags = np.concatenate(targets)
        return super().counts(tags[tags != IGNORED])


BEST = 20
"""How many spans are kept of each row."""


@dataclass(frozen=True)
class OneSpan(Output):
    """The first and the last token of an answer: a number each, of every token. A target is the
    pair of their places; (0, 0), [CLS], is no answer.
    """

    longest: int = 30
    """Most tokens of an answer that is found; training knows no limit."""

    name, head, reads_cls = "span", "span", False
    classes, task = 2, "squad"
    scores = ("f1",)

    def arrange(self, logits: Tensor, batch: TaskBatch) -> Tensor:
        """Mask padding in the logits, (B, S, 2): no answer begins or ends there."""
        return logits.float().masked_fill(~batch.attention_mask[..., None], -np.inf)

    def total(
        self, logits: Tensor, targets: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute the mean of the cross-entropies of both tokens (BERT's and ALBERT's code)."""
        first, last = (
            Output.total(self, logits[..., i], targets[:, i], weights)[0] for i in (0, 1)
        )
        return (first + last) / 2, (logits.argmax(1) == targets).all(-1).sum()

    def distill_total(
        self, logits: Tensor, teacher_logits: Tensor, batch: TaskBatch, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Compute the mean of both tokens' divergences; right if both are the teacher's."""
        from litebert.model.teacher import divergence

        teacher_logits = teacher_logits.masked_fill(logits.isneginf(), -np.inf)
        same = (logits.argmax(1) == teacher_logits.argmax(1)).all(-1).sum()
        return divergence(
            logits.transpose(1, 2), teacher_logits.transpose(1, 2), temperature
        ).sum() / 2, same

    def answers(self, logits: Sequence[NDArray[np.floating]]) -> list[list[tuple[int, int]]]:
        """First and last token of the `BEST` spans of each item by the sum of their logits, best
        first; minus infinity allows none.
        """
        return [self._find_best(row_logits.astype(np.float64)) for row_logits in logits]

    def _find_best(self, logits: NDArray[np.float64]) -> list[tuple[int, int]]:
        if not len(logits):
            return []
        longest = min(self.longest, len(logits))
        ends = np.append(logits[:, 1], np.full(longest - 1, -np.inf))
        scores = (logits[:, 0, None] + sliding_window_view(ends, longest)).ravel()
        few = (
            np.argpartition(scores, -BEST)[-BEST:] if len(scores) > BEST else np.arange(len(scores))
        )
        few = few[np.lexsort((few, -scores[few]))]
        chosen = few[np.isfinite(scores[few])]
        return [(place // longest, place // longest + place % longest) for place in chosen.tolist()]

    def one_answer(self, targets: Sequence[Any], logits: Sequence[NDArray[np.float32]]) -> bool:
        """Spans are not compared."""
        return False
