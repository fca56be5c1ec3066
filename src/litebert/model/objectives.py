"""What pretraining learns: each objective is a pair of hooks, `corrupt` and `loss`, over one batch.

`corrupt` may change the inputs before the encoder reads them (masked language modeling arrives masked from the data
room, so only sampling objectives use it); `loss` turns the encoder's output into one number and the counts behind it.
An objective says in `sentence` which second segment the data room must lay out. The training step sums the losses
and knows none of them by name.

Shapes: B sequences, S tokens, H hidden, V vocabulary, K predicted positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import Config
from litebert.data.batches import Batch
from litebert.model.encoder import Encoder, EncoderOutput
from litebert.model.heads import SentenceHead, VocabularyHead

IGNORED = -100
"""Label of what is not predicted."""


@dataclass(frozen=True)
class Loss:
    """The outcome of one objective on one batch; sums, so that micro-batches and ranks add up exactly.

    `total` is the summed negative log likelihood in nats (a scalar with a gradient), `count` how many predictions it
    sums, `correct` how many were right.
    """

    total: Tensor
    count: Tensor
    correct: Tensor


class Objective(nn.Module):
    """Base of the objectives."""

    sentence: Literal["sop", "nsp"] | None = None
    weight: float = 1.0

    def corrupt(self, batch: Batch) -> Batch:
        """The batch as the encoder shall read it."""
        return batch

    def loss(self, output: EncoderOutput, batch: Batch, encoder: Encoder) -> Loss:
        """Score the encoder's output."""
        raise NotImplementedError

    def count(self, batch: Batch) -> int:
        """How many predictions `loss` will sum, known before the forward pass."""
        raise NotImplementedError


class MaskedLanguageModeling(Objective):
    """Predict the masked tokens (BERT section 3.1). The vocabulary projection runs on those positions only."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head = VocabularyHead(config.encoder)

    def logits(self, last_BSH: Tensor, positions_K: Tensor, encoder: Encoder) -> Tensor:
        """(K, V) logits at flat positions of (B, S)."""
        logits: Tensor = self.head(last_BSH.flatten(0, 1)[positions_K], encoder.embedding.word.weight)
        return logits

    def loss(self, output: EncoderOutput, batch: Batch, encoder: Encoder) -> Loss:
        """Summed cross-entropy over the K predicted positions."""
        return _cross_entropy(self.logits(output.last, batch.masked_positions, encoder), batch.masked_labels)

    def count(self, batch: Batch) -> int:
        """K."""
        return batch.masked_labels.numel()


class SentenceOrder(Objective):
    """Are the two segments in their order (ALBERT section 3.1)?"""

    sentence: Literal["sop", "nsp"] | None = "sop"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head = SentenceHead(config.encoder)

    def loss(self, output: EncoderOutput, batch: Batch, encoder: Encoder) -> Loss:
        """Summed cross-entropy over the sequences that carry a label."""
        assert output.pooled is not None
        return _cross_entropy(self.head(output.pooled), batch.sentence_labels)

    def count(self, batch: Batch) -> int:
        """Sequences with a label."""
        return int((batch.sentence_labels != IGNORED).sum())


class NextSentence(SentenceOrder):
    """Does the second segment follow the first, or come from elsewhere (BERT section 3.1)?"""

    sentence: Literal["sop", "nsp"] | None = "nsp"


OBJECTIVES: dict[str, type[MaskedLanguageModeling] | type[SentenceOrder]] = {
    "mlm": MaskedLanguageModeling,
    "sop": SentenceOrder,
    "nsp": NextSentence,
}


def _cross_entropy(logits_NC: Tensor, labels_N: Tensor) -> Loss:
    """Sums in float32, whatever the autocast precision."""
    logits_NC = logits_NC.float()
    total = F.cross_entropy(logits_NC, labels_N, ignore_index=IGNORED, reduction="sum")
    with torch.no_grad():
        correct = (logits_NC.argmax(-1) == labels_N).sum()
        count = (labels_N != IGNORED).sum()
    return Loss(total, count, correct)
