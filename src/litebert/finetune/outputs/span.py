"""A span of tokens, or that there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from litebert.finetune.outputs.output import Output

if TYPE_CHECKING:
    from torch import Tensor

    from litebert.finetune.batches import TaskBatch
    from litebert.model.objectives import Loss

BEST = 20
"""How many spans are kept of each row."""


@dataclass(frozen=True)
class OneSpan(Output):
    """The first and the last token of an answer. A target is the pair of their places; (0, 0), [CLS], is no answer.

    The head gives each token one number as the first and one as the last.
    """

    longest: int = 30
    """Most tokens of an answer that is found; training knows no limit."""

    name, head, reads_cls = "span", "span", False
    labelled = False
    task = "squad"
    scores = ("f1",)

    @property
    def width(self) -> int:
        """Of the first and of the last token."""
        return 2

    def arrange(self, logits: Tensor, batch: TaskBatch) -> Tensor:
        """(B, S, 2); no answer begins or ends in padding."""
        import torch

        return logits.float().masked_fill(~batch.attention_mask[..., None], -torch.inf)

    def loss(self, logits: Tensor, batch: TaskBatch) -> Loss:
        """The mean of the cross-entropies of first and last token (official BERT and ALBERT code)."""
        from torch.nn import functional as F

        assert batch.targets is not None
        logits, targets = self.arrange(logits, batch), batch.targets
        ends = [F.cross_entropy(logits[..., i], targets[:, i], reduction="sum") for i in (0, 1)]
        return self.summed((ends[0] + ends[1]) / 2, (logits.argmax(1) == targets).all(-1).sum(), batch)

    def answers(self, logits: Sequence[NDArray[np.floating]]) -> list[list[tuple[int, int]]]:
        """First and last token of the `BEST` spans of each item, best first.

        A span is worth the sum of its start's and its end's logit; one of minus infinity allows none there.
        """
        return [self._best(one.astype(np.float64)) for one in logits]

    def _best(self, logits: NDArray[np.float64]) -> list[tuple[int, int]]:
        n = len(logits)
        if n == 0:
            return []
        longest = min(self.longest, n)
        ends = np.append(logits[:, 1], np.full(longest - 1, -np.inf))
        scores = (logits[:, 0, None] + sliding_window_view(ends, longest)).ravel()
        few = np.argpartition(scores, -BEST)[-BEST:] if len(scores) > BEST else np.arange(len(scores))
        few = few[np.lexsort((few, -scores[few]))]
        chosen = few[np.isfinite(scores[few])]
        return [(place // longest, place // longest + place % longest) for place in chosen.tolist()]

    def one_answer(self, targets: Sequence[Any], logits: Sequence[NDArray[np.float32]]) -> bool:
        """Spans are not looked at."""
        return False
