"""How relevant a document is to a query: a logit, learned by binary cross-entropy.

Shapes: B items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from litebert.finetuning.text_outputs import Number

if TYPE_CHECKING:
    from torch import Tensor

    from litebert.finetuning.baselines.models import Baseline
    from litebert.finetuning.batches import TaskBatch


class Relevance(Number):
    """The log-odds that a document is relevant to a query. A target is 0, or 1 or more for a
    relevant document.

    Its folders are those of a number, which sentence-transformers opens as a CrossEncoder.
    """

    name = "relevance"
    task = "rerank"
    scores = ("ndcg_at_10", "mrr_at_10")
    linear = False
    exits = False

    def fit(self, targets: Sequence[float]) -> tuple[Relevance, list[float]]:
        """Learn 1 for each relevant document, whatever its grade."""
        return self, [float(target > 0) for target in targets]

    def total(
        self, logits: Tensor, targets: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute the summed binary cross-entropy, and how many are on the right side."""
        from torch.nn import functional as F

        odds, relevant = logits.squeeze(-1), (targets > 0).float()
        total = F.binary_cross_entropy_with_logits(odds, relevant, reduction="sum")
        return total, ((odds > 0) == (relevant > 0)).sum()

    def distill_total(
        self, logits: Tensor, teacher_logits: Tensor, batch: TaskBatch, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Compute the squared error against the teacher's log-odds."""
        return super().total(logits, teacher_logits.squeeze(-1))

    def baseline(self) -> Baseline | None:
        from litebert.finetuning.baselines.bm25 import Bm25Order

        return Bm25Order()

    def one_answer(self, targets: Sequence[float], logits: Sequence[NDArray[np.float32]]) -> bool:
        """Return True if the numbers of relevant and other documents hardly differ."""
        return bool(np.std(targets) > 0 and np.std(np.concatenate(logits)) < 1e-3)
