"""Causal language modeling: predict each token from those before it, in the first part of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from litebert.config import replace
from litebert.errors import require
from litebert.model.objectives.objective import Context, Curves, Loss, TokenPrediction

if TYPE_CHECKING:
    from torch import Tensor

    from litebert.data.batches import Batch
    from litebert.model.encoder import EncoderOutput

POSITIONS, LABELS = "next_positions", "next_labels"
"""Where `Batch.added` holds the flat positions that predict the token after them, (N,), and these
tokens, (N,).
"""


class CausalLanguageModeling(TokenPrediction):
    """Predict the next token with the head of mlm, while attention reads only what comes before.

    It has the first `clm.share` of the steps to itself: their batches are causal (`Batch.causal`)
    and hold no masks and no labelled pairs, and all other batches hold nothing for it. Every token
    is a prediction instead of the masked ones, so a short run learns sooner what words do to each
    other; the rest of the run makes an encoder of it (Gisserot-Boukhlef et al. 2025, "Should We
    Still Pretrain Encoders with Masked Language Modeling?").

    Shapes: N tokens that have a next one, V vocabulary.
    """

    needs = ("mlm",)
    head_of = "mlm"
    shown = ()
    compared = {}  # noqa: RUF012
    curves = (
        Curves(
            "Loss on next pieces",
            (("training", "train", "loss"),),
            axis="cross entropy, nats",
            scale=1.0,
            baseline="",
            note="Of the first part of the run, in which each piece was predicted from those "
            "before it.",
        ),
    )

    def check(self) -> None:
        super().check()
        require(
            not {"rtd", "sbo"} & set(self.config.objectives),
            f"objective {self.name} reads unmasked text with the encoder and the head of "
            "mlm, which rtd and sbo use in "
            "other ways; keep one of them",
        )
        require(
            self.config.encoder.window == 0,
            f"objective {self.name} reads everything before a token, and "
            f"encoder.window={self.config.encoder.window} "
            "does not; set one of them aside",
        )

    @property
    def causal_share(self) -> float:
        return self.config.clm.share

    def flops(self, length: int) -> float:
        """Of the vocabulary head, on all tokens of these steps."""
        share, masked = self.causal_share, self.config.masking.mean_rate
        mlm: float = self.config.named_objectives()["mlm"].flops(length)
        return mlm * share / ((1 - share) * masked)

    def kept_bytes(self, width: int) -> float:
        """Logits of all tokens, less those of masks, which are in other steps."""
        masked = super().kept_bytes(width)
        return masked * (1 / max(self.config.masking.rate, self.config.masking.last_rate) - 1)

    def logits(
        self, output: EncoderOutput, batch: Batch, context: Context
    ) -> tuple[Tensor, Tensor]:
        """(N, V) and (N,)."""
        positions_N, table = self.prepared(batch, POSITIONS), context.encoder.embedding.word.weight
        states_NH = output.last.flatten(0, 1)[positions_N]
        logits: Tensor = context.network.head(states_NH, table, context.encoder.embedding.map)
        return logits, self.prepared(batch, LABELS)

    def prepare(self, batch: Batch) -> Batch:
        ids_BS, real_BS = batch.input_ids, batch.attention_mask
        has_next_BS = ids_BS.new_full(ids_BS.shape, int(batch.causal)).bool()
        has_next_BS[:, -1] = False
        if real_BS is not None:
            has_next_BS[:, :-1] &= real_BS[:, 1:]
        positions_N = has_next_BS.flatten().nonzero().squeeze(1)
        labels_N = ids_BS.flatten()[positions_N + 1]
        return replace(batch, added={**batch.added, POSITIONS: positions_N, LABELS: labels_N})

    def count(self, batch: Batch) -> int:
        return len(self.prepared(batch, POSITIONS))

    def scores(self, losses: Sequence[Loss]) -> dict[str, float]:
        """None: held-out text is masked, and what the encoder has become is asked by mlm."""
        return {}
