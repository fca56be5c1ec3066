"""Predicting masked tokens: what the objectives that choose one piece of the vocabulary have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence

from litebert.model.objectives.objective import Loss, Objective


class TokenPrediction(Objective):
    """Base of the objectives that choose one piece of the vocabulary."""

    def kept_bytes(self, width: int) -> float:
        """The logits of the masked share, as computed, in float32, and normalised."""
        return self.config.masking.rate * (4 + 4 + width) * self.config.encoder.vocab_size

    def scores(self, losses: Sequence[Loss]) -> dict[str, float]:
        """Beside loss and accuracy, the accuracy of always guessing the most frequent of the labels."""
        from litebert.model.objectives.losses import joined

        scores = super().scores(losses)
        if scores:
            labels = joined(losses, "labels")
            scores["majority"] = int(labels.bincount().max()) / len(labels)
            scores["perplexity"] = math.exp(min(scores["loss"], 700.0))
        return scores
