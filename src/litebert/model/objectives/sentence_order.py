"""Two questions about the second segment of a pair: is it in its order, or does it follow at all?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from litebert import cost
from litebert.errors import require
from litebert.model.objectives.classification import Classification
from litebert.model.objectives.objective import IGNORED, Context, Loss
from litebert.model.objectives.presentation import Score, accuracy_curves

if TYPE_CHECKING:
    from torch import Tensor, nn

    from litebert.data.batches import Batch
    from litebert.data.passages import SentenceTask
    from litebert.model.encoder import EncoderOutput


class SentenceOrder(Classification):
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

    def head(self) -> nn.Module:
        """A linear map from the pooled state."""
        from litebert.model.heads import SentenceHead

        return SentenceHead(self.config.encoder)

    def logits(self, output: EncoderOutput, batch: Batch, context: Context) -> tuple[Tensor, Tensor]:
        """(B, 2) and (B,)."""
        assert output.pooled is not None
        return context.network.head(output.pooled), batch.sentence_labels

    def count(self, batch: Batch) -> int:
        """Sequences with a label."""
        return int((batch.sentence_labels != IGNORED).sum())

    def scores(self, losses: Sequence[Loss]) -> dict[str, float]:
        """The standard error and the number of pairs too."""
        scores = super().scores(losses)
        if scores:
            pairs = sum(int(loss.count) for loss in losses)
            correct = sum(int(loss.correct) for loss in losses)
            smoothed = (correct + 1) / (pairs + 2)  # so that a perfect score on three pairs is not called certain
            scores["standard_error"] = math.sqrt(smoothed * (1 - smoothed) / pairs)
            scores["pairs"] = float(pairs)
        return scores


class NextSentence(SentenceOrder):
    """Does the second segment follow the first, or come from elsewhere (BERT section 3.1)?"""

    sentence: ClassVar[SentenceTask | None] = "nsp"
    also_answers = ("sop",)
    curves = (accuracy_curves("the next sentence"),)
