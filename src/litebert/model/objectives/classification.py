"""One of several classes for each item: what the objectives with a cross-entropy have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from litebert.model.objectives.objective import IGNORED, Context, Loss, Objective, joined
from litebert.model.objectives.presentation import Score

if TYPE_CHECKING:
    from torch import Tensor

    from litebert.data.batches import Batch
    from litebert.model.encoder import EncoderOutput


class Classification(Objective):
    """Base of the objectives whose loss is a cross-entropy.

    Shapes: N items, C classes.
    """

    def logits(self, output: EncoderOutput, batch: Batch, context: Context) -> tuple[Tensor, Tensor]:
        """Logits (N, C) and labels (N,); an item with label IGNORED does not count."""
        raise NotImplementedError

    def loss(self, output: EncoderOutput, batch: Batch, context: Context) -> Loss:
        """Summed cross-entropy, in float32 whatever the autocast precision."""
        import torch
        from torch.nn import functional as F

        logits_NC, labels_N = self.logits(output, batch, context)
        logits_NC = logits_NC.float()
        total = F.cross_entropy(logits_NC, labels_N, ignore_index=IGNORED, reduction="sum")
        with torch.no_grad():
            correct = (logits_NC.argmax(-1) == labels_N).sum()
            count = (labels_N != IGNORED).sum()
        return Loss(total, count, correct, eval_tensors={} if context.network.training else {"labels": labels_N})

    def scores(self, losses: Sequence[Loss]) -> dict[str, float]:
        """Beside loss and accuracy, the accuracy of always giving the commonest label."""
        scores = super().scores(losses)
        if scores:
            labels = joined(losses, "labels")
            labels = labels[labels != IGNORED]
            scores["majority"] = int(labels.bincount().max()) / len(labels)
        return scores


class TokenPrediction(Classification):
    """Base of the objectives that choose one piece of the vocabulary for a masked token."""

    shown: ClassVar[tuple[Score, ...]] = (
        Objective.shown[0],
        Score("accuracy", "{NAME} accuracy", baseline="majority", remark="most frequent piece"),
    )

    def kept_bytes(self, width: int) -> float:
        """The logits of the masked share, as computed, in float32, and normalised."""
        return self.config.masking.rate * (4 + 4 + width) * self.config.encoder.vocab_size

    def scores(self, losses: Sequence[Loss]) -> dict[str, float]:
        """The perplexity too."""
        scores = super().scores(losses)
        return {**scores, "perplexity": math.exp(min(scores["loss"], 700.0))} if scores else {}
