"""Two questions about the second segment of a pair: is it in order, and does it follow at all?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from litebert.base.errors import require
from litebert.config import cost
from litebert.data import IGNORED
from litebert.model.objectives.objective import ACCURACY, Classification, Context, Curves

if TYPE_CHECKING:
    from torch import Tensor, nn

    from litebert.data.batches import Batch
    from litebert.data.segments import SentenceTask
    from litebert.model.encoder import EncoderOutput


class SentenceOrder(Classification):
    """Are the two segments in their order (ALBERT section 3.1)?"""

    sentence: ClassVar[SentenceTask | None] = "sop"
    also_answers = ("nsp",)
    counted = "pairs"
    shown = (replace(ACCURACY, size="pairs", unit="pairs"),)
    compared: ClassVar = {"sentence accuracy (majority)": "accuracy"}
    curves = (Curves("Accuracy on sentence order"),)
    foreign_part = "sentence"

    def check(self) -> None:
        super().check()
        pooler = self.config.encoder.pooler
        require(
            pooler, f"objective {self.name} reads the pooled [CLS] state; set encoder.pooler=True"
        )

    def parameters(self) -> dict[str, int]:
        return {f"{self.name} head": cost.linear(self.config.encoder.hidden_size, 2)}

    def flops(self, length: int) -> float:
        return 2 * 2 * self.config.encoder.hidden_size / length  # once a sequence

    def head(self) -> nn.Module:
        from litebert.model.heads import ClassifierHead

        return ClassifierHead(self.config.encoder, classes=2)

    def logits(
        self, output: EncoderOutput, batch: Batch, context: Context
    ) -> tuple[Tensor, Tensor]:
        """(B, 2) and (B,)."""
        assert output.pooled is not None
        return context.network.head(output.pooled), batch.sentence_labels

    def count(self, batch: Batch) -> int:
        return int((batch.sentence_labels != IGNORED).sum())


class NextSentence(SentenceOrder):
    """Does the second segment follow the first, or come from elsewhere (BERT section 3.1)?"""

    sentence: ClassVar[SentenceTask | None] = "nsp"
    also_answers = ("sop",)
    curves = (Curves("Accuracy on the next sentence"),)
