"""The span boundary objective: predict the tokens of a masked span from the two around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from litebert.base.registry import OBJECTIVES
from litebert.config import SpanBoundaryConfig, cost, replace
from litebert.model.objectives.objective import Context, Curves, TokenPrediction
from litebert.recipes import SPANS

if TYPE_CHECKING:
    from torch import Tensor, nn

    from litebert.data.batches import Batch
    from litebert.model.encoder import EncoderOutput

CHOSEN = "span_boundary"
"""The key in `Batch.added` of the predicted tokens that have an SBO loss, (N,)."""


class SpanBoundary(TokenPrediction):
    """Predict the tokens of a masked span from the two tokens around it and their position in it
    (SpanBERT section 3.2).

    A span is a run of masked tokens. Left out are spans beside a special token, as at the ends of
    the text, and tokens beyond the positions of the table. The paper's loss of a masked token is
    the sum of its MLM and SBO losses; here, as in its code, each of the two is the mean over the
    tokens that have it.

    Shapes: K predicted positions, V vocabulary.
    """

    reads_boundaries = True
    scored_on_training_masks = True
    curves = (Curves("Accuracy on tokens predicted from around their span"),)
    foreign_file = "sbo.safetensors"

    @classmethod
    def assume_fields(
        cls, fields: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> dict[str, Any]:
        """A head of spans is scored on spans, and where no pair is asked for in one document."""
        assumptions: dict[str, Any] = {"masking": SPANS}
        table = tensors.get("head.position.weight")
        if table is not None and table.ndim == 2:
            positions, size = table.shape
            assumptions["sbo"] = SpanBoundaryConfig(positions=positions, position_size=size)
        if all(OBJECTIVES[name].sentence is None for name in fields["objectives"]):
            assumptions["sequences"] = replace(
                fields["sequences"], format="doc-sentences", short_probability=0.0
            )
        return assumptions

    def parameters(self) -> dict[str, int]:
        shape, settings = self.config.encoder, self.config.sbo
        hidden, embedding, size = shape.hidden_size, shape.embedding_size, settings.position_size
        first = cost.linear(2 * hidden + size, hidden) + cost.norm(hidden)
        second = cost.linear(hidden, embedding) + cost.norm(embedding)
        return {"sbo head": settings.positions * size + first + second + shape.vocab_size}

    def flops(self, length: int) -> float:
        shape = self.config.encoder
        hidden, embedding = shape.hidden_size, shape.embedding_size
        boundary = (2 * hidden + self.config.sbo.position_size) * hidden + hidden * embedding
        return self.config.masking.rate * 2 * (boundary + embedding * shape.vocab_size)

    def head(self) -> nn.Module:
        from litebert.model.heads import SpanBoundaryHead

        return SpanBoundaryHead(self.config.encoder, self.config.sbo)

    def logits(
        self, output: EncoderOutput, batch: Batch, context: Context
    ) -> tuple[Tensor, Tensor]:
        """(N, V) and (N,) of the N predicted tokens that have both neighbors."""
        chosen_N, boundaries_K2 = self.get_prepared(batch, CHOSEN), batch.masked_boundaries
        assert boundaries_K2 is not None
        left_N, right_N = boundaries_K2[chosen_N].unbind(1)
        position_N = batch.masked_positions[chosen_N] - left_N - 1
        states, table = output.last.flatten(0, 1), context.encoder.embedding.word.weight
        logits = context.network.head(states[left_N], states[right_N], position_N, table)
        return logits, batch.masked_labels[chosen_N]

    def prepare(self, batch: Batch) -> Batch:
        """Add the places, among the K predicted tokens, of those that have an SBO loss, (N,)."""
        assert batch.masked_boundaries is not None
        left_K, right_K = batch.masked_boundaries.unbind(1)
        reached_K = batch.masked_positions - left_K <= self.config.sbo.positions
        chosen_K = (left_K >= 0) & (right_K >= 0) & reached_K
        return replace(batch, added={**batch.added, CHOSEN: chosen_K.nonzero().squeeze(1)})

    def count(self, batch: Batch) -> int:
        return len(self.get_prepared(batch, CHOSEN))
