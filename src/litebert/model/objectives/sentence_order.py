"""Two questions about the second segment of a pair: is it in its order, or does it follow at all?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from litebert import cost
from litebert.errors import require
from litebert.model.objectives.objective import IGNORED, Context, Loss, Objective
from litebert.model.objectives.presentation import Score, accuracy_curves

if TYPE_CHECKING:
    from torch import nn

    from litebert.data.batches import Batch
    from litebert.data.passages import SentenceTask
    from litebert.model.encoder import EncoderOutput


class SentenceOrder(Objective):
    """Are the two segments in their order (ALBERT section 3.1)?"""

    sentence: ClassVar[SentenceTask | None] = "sop"
    also_answers = ("nsp",)
    shown = (Score("accuracy", "{NAME} accuracy", baseline="majority", remark="majority", error="standard_error"),)
    compared: ClassVar = {"sentence accuracy (majority)": "accuracy"}
    curves = (accuracy_curves("sentence order"),)
    foreign_part = "sentence"

    def check(self) -> None:
        """It reads the pooled state too.

        Raises:
            ConfigError: as the base has it, or the encoder has no pooler.
        """
        super().check()
        require(
            self.config.encoder.pooler,
            f"objective {self.name} reads the pooled [CLS] state; set encoder.pooler=True",
        )

    def parameters(self) -> dict[str, int]:
        """One linear map to two classes."""
        return {f"{self.name} head": cost.linear(self.config.encoder.hidden_size, 2)}

    def flops(self, length: int) -> float:
        """Once a sequence."""
        return 2 * 2 * self.config.encoder.hidden_size / length

    def build(self) -> nn.Module:
        """A linear map from the pooled state."""
        from torch import nn

        from litebert.model.heads import SentenceHead

        return nn.ModuleDict({"head": SentenceHead(self.config.encoder)})

    def loss(self, output: EncoderOutput, batch: Batch, context: Context) -> Loss:
        """Summed cross-entropy over the sequences that carry a label."""
        from litebert.model.objectives.losses import cross_entropy

        assert output.pooled is not None
        return cross_entropy(context.network.head(output.pooled), batch.sentence_labels, context.network.training)

    def count(self, batch: Batch) -> int:
        """Sequences with a label."""
        return int((batch.sentence_labels != IGNORED).sum())

    def scores(self, losses: Sequence[Loss]) -> dict[str, float]:
        """Beside loss and accuracy, that of the commoner label, the standard error, and the number of pairs."""
        from litebert.model.objectives.losses import joined

        scores = super().scores(losses)
        if scores:
            labels = joined(losses, "labels")
            ones, pairs = int((labels == 1).sum()), int((labels != IGNORED).sum())
            correct = sum(int(loss.correct) for loss in losses)
            smoothed = (correct + 1) / (pairs + 2)  # so that a perfect score on three pairs is not called certain
            scores["majority"] = max(ones, pairs - ones) / pairs
            scores["standard_error"] = math.sqrt(smoothed * (1 - smoothed) / pairs)
            scores["pairs"] = float(pairs)
        return scores


class NextSentence(SentenceOrder):
    """Does the second segment follow the first, or come from elsewhere (BERT section 3.1)?"""

    sentence: ClassVar[SentenceTask | None] = "nsp"
    also_answers = ("sop",)
    curves = (accuracy_curves("the next sentence"),)
