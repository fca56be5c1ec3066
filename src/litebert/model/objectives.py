"""What pretraining learns: each objective is a pair of hooks, `corrupt` and `loss`, over one batch.

`corrupt` may change the inputs before the encoder reads them: text arrives masked from the data room, and replaced
token detection puts a generator's guesses where the masks were. `loss` turns the encoder's output into one number and
the counts behind it, `scores` turns such losses into held-out scores. An objective says in `sentence` which second
segment the data room must lay out. The training step sums the losses and knows none of them by name.

Shapes: B sequences, S tokens, H hidden, V vocabulary, K predicted positions, N real tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import Config
from litebert.data.batches import Batch
from litebert.data.passages import SentenceTask
from litebert.model.encoder import Encoder, EncoderOutput, Generator
from litebert.model.heads import ReplacedTokenHead, SentenceHead, SpanBoundaryHead, VocabularyHead

IGNORED = -100
"""Label of what is not predicted."""


@dataclass(frozen=True)
class Loss:
    """The outcome of one objective on one batch; sums, so that micro-batches and ranks add up exactly.

    `total` is the summed negative log likelihood in nats (a scalar with a gradient), `count` how many predictions it
    sums, `correct` how many were right. `extras` are other sums over the same predictions, worth a place in a row of
    metrics. `evidence`, in evaluation mode alone, is what `Objective.scores` needs beyond sums.
    """

    total: Tensor
    count: Tensor
    correct: Tensor
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    evidence: Mapping[str, Tensor] = field(default_factory=dict)


class Objective(nn.Module):
    """Base of the objectives."""

    sentence: SentenceTask | None = None
    weight: float = 1.0
    own_masks: bool = False
    """Held-out scores come from the masking law and format of the run, not from fixed ones."""

    def corrupt(self, batch: Batch, encoder: Encoder, layers: int | None) -> Batch:
        """The batch as the encoder shall read it; `layers` is the depth of the pass."""
        return batch

    def loss(self, output: EncoderOutput, batch: Batch, encoder: Encoder) -> Loss:
        """Score the encoder's output."""
        raise NotImplementedError

    def count(self, batch: Batch) -> int:
        """How many predictions `loss` will sum, known before the forward pass."""
        raise NotImplementedError

    def scores(self, losses: Sequence[Loss]) -> dict[str, float]:
        """Held-out scores of losses computed in evaluation mode; none where nothing was predicted."""
        count = sum(int(loss.count) for loss in losses)
        if count == 0:
            return {}
        return {
            "loss": sum(float(loss.total) for loss in losses) / count,
            "accuracy": sum(int(loss.correct) for loss in losses) / count,
        }


@dataclass(frozen=True, eq=False)
class Guessed(Batch):
    """A batch whose masked tokens a generator has guessed."""

    logits: Tensor
    """(K, V), with a gradient; or more rows, as `_padded` has it."""


@dataclass(frozen=True, eq=False)
class Replaced(Guessed):
    """A batch without masks: what a generator sampled stands in their place."""

    replaced: Tensor
    """bool (B, S): another token stands here than in the text."""


class TokenPrediction(Objective):
    """Base of the objectives that choose one piece of the vocabulary."""

    def scores(self, losses: Sequence[Loss]) -> dict[str, float]:
        """Beside loss and accuracy, the accuracy of always guessing the most frequent of the labels."""
        scores = super().scores(losses)
        if scores:
            labels = torch.cat([loss.evidence["labels"] for loss in losses])
            scores["majority"] = int(torch.bincount(labels).max()) / len(labels)
            scores["perplexity"] = math.exp(min(scores["loss"], 700.0))
        return scores


class MaskedLanguageModeling(TokenPrediction):
    """Predict the masked tokens (BERT section 3.1). The vocabulary projection runs on those positions only.

    Beside replaced token detection the prediction is that of a generator, which reads the masked text in the
    encoder's place (ELECTRA section 3.1).
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.generator = None
        if config.generator is not None:
            self.generator = Generator(config.generator, config.rtd.generator_embeddings)
        self.head = VocabularyHead(config.generator or config.encoder)

    def read(
        self,
        encoder: Encoder,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        layers: int | None = None,
    ) -> EncoderOutput:
        """The pass over masked text: the generator's where there is one, else the encoder's."""
        if self.generator is None:
            output: EncoderOutput = encoder(input_ids, token_type_ids, attention_mask, layers)
        else:
            output = self.generator(input_ids, token_type_ids, attention_mask, layers, encoder.embedding)
        return output

    def logits(self, last_BSH: Tensor, positions_K: Tensor, encoder: Encoder) -> Tensor:
        """(K, V) logits at flat positions of (B, S); or more rows, as `_padded` has it."""
        logits: Tensor = self.head(last_BSH.flatten(0, 1)[_padded(positions_K)], encoder.embedding.word.weight)
        return logits

    def corrupt(self, batch: Batch, encoder: Encoder, layers: int | None) -> Batch:
        """With a generator, the batch and its guesses."""
        if self.generator is None:
            return batch
        read = self.read(encoder, batch.input_ids, batch.token_type_ids, batch.attention_mask, layers)
        return Guessed(**vars(batch), logits=self.logits(read.last, batch.masked_positions, encoder))

    def loss(self, output: EncoderOutput, batch: Batch, encoder: Encoder) -> Loss:
        """Summed cross-entropy over the K predicted positions."""
        if isinstance(batch, Guessed):
            logits = batch.logits
        else:
            logits = self.logits(output.last, batch.masked_positions, encoder)
        return _cross_entropy(logits, batch.masked_labels, evidence=not self.training)

    def count(self, batch: Batch) -> int:
        """K."""
        return batch.masked_labels.numel()


class SpanBoundary(TokenPrediction):
    """Predict the tokens of a masked span from the two tokens around it and their place (SpanBERT section 3.2).

    A span is a run of masked tokens. It is left out where a special token stands beside it, as at the ends of the
    text, and its tokens are beyond the place that the table reaches. The paper's loss of a masked token is the sum of
    its MLM and SBO losses; here, as in its code, each of the two is the mean over the tokens that have it.
    """

    own_masks = True

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.positions = config.sbo.positions
        self.head = SpanBoundaryHead(config.encoder, config.sbo.positions, config.sbo.position_size)

    def loss(self, output: EncoderOutput, batch: Batch, encoder: Encoder) -> Loss:
        """Summed cross-entropy over the predicted tokens that have both neighbours."""
        chosen_K, place_K = self._places(batch)
        left_K, right_K = map(_padded, batch.masked_boundaries[chosen_K].unbind(1))
        states = output.last.flatten(0, 1)
        logits = self.head(states[left_K], states[right_K], _padded(place_K[chosen_K]), encoder.embedding.word.weight)
        return _cross_entropy(logits, batch.masked_labels[chosen_K], evidence=not self.training)

    def count(self, batch: Batch) -> int:
        """Predicted tokens that have both neighbours."""
        return int(self._places(batch)[0].sum())

    def _places(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Which tokens have an SBO loss (K,), and the place of each in its span (K,)."""
        left_K, right_K = batch.masked_boundaries.unbind(1)
        place_K = batch.masked_positions - left_K - 1
        return (left_K >= 0) & (right_K >= 0) & (place_K < self.positions), place_K


class ReplacedTokenDetection(Objective):
    """Tell the tokens that a generator replaced, at every real position (ELECTRA section 3.1).

    The generator is objective mlm's. Its guess is sampled and stands at each predicted position, also where the mask
    law had left the token as it was; a sample that equals the token counts as original.
    """

    own_masks = True

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head = ReplacedTokenHead(config.encoder)
        self.weight = config.rtd.weight

    def corrupt(self, batch: Batch, encoder: Encoder, layers: int | None) -> Batch:
        """The text with samples in place of masks. No gradient passes through sampling."""
        assert isinstance(batch, Guessed)
        with torch.no_grad():
            logits_KV = batch.logits[: len(batch.masked_positions)].float()
            sampled_K = torch.multinomial(logits_KV.softmax(-1), 1).squeeze(1)
            input_ids, replaced = batch.input_ids.flatten().clone(), torch.zeros_like(batch.input_ids).flatten().bool()
            input_ids[batch.masked_positions] = sampled_K
            replaced[batch.masked_positions] = sampled_K != batch.masked_labels
        shape = batch.input_ids.shape
        return Replaced(**{**vars(batch), "input_ids": input_ids.view(shape)}, replaced=replaced.view(shape))

    def loss(self, output: EncoderOutput, batch: Batch, encoder: Encoder) -> Loss:
        """Summed binary cross-entropy over the N real tokens; `replaced` counts those that were."""
        assert isinstance(batch, Replaced)
        logits, labels = self.head(output.last).float(), batch.replaced
        if batch.attention_mask is None:
            logits_N, labels_N, pieces_N = logits.flatten(), labels.flatten(), batch.input_ids.flatten()
        else:
            real = batch.attention_mask
            logits_N, labels_N, pieces_N = logits[real], labels[real], batch.input_ids[real]
        total = F.binary_cross_entropy_with_logits(logits_N, labels_N.float(), reduction="sum")
        count = torch.tensor(len(labels_N), device=labels_N.device)
        evidence = {} if self.training else {"logits": logits_N.detach(), "labels": labels_N, "pieces": pieces_N}
        return Loss(total, count, ((logits_N > 0) == labels_N).sum(), {"replaced": labels_N.sum()}, evidence)

    def count(self, batch: Batch) -> int:
        """N."""
        return batch.tokens

    def scores(self, losses: Sequence[Loss]) -> dict[str, float]:
        """Accuracy beside that of the commoner answer, precision and recall of `replaced`, area under the ROC curve.

        `piece_auc` is the area that pieces give without their context, each scored by how often it was replaced in
        the other half of the tokens: a generator's samples have other frequencies than text, so an early one gives
        itself away. Without both labels there is no area and no recall, with nothing called replaced no precision.
        """
        from sklearn.metrics import roc_auc_score  # takes half a second to load

        scores = super().scores(losses)
        if not scores:
            return {}
        logits = torch.cat([loss.evidence["logits"] for loss in losses]).cpu()
        labels = torch.cat([loss.evidence["labels"] for loss in losses]).cpu()
        hits, called, there = int(((logits > 0) & labels).sum()), int((logits > 0).sum()), int(labels.sum())
        share = there / len(labels)
        scores["base_rate"] = max(share, 1 - share)
        scores["replaced"] = share
        if called:
            scores["precision"] = hits / called
        if 0 < there < len(labels):
            scores["recall"] = hits / there
            scores["auc"] = float(roc_auc_score(labels.numpy(), logits.numpy()))
            pieces = torch.cat([loss.evidence["pieces"] for loss in losses]).cpu()
            scores["piece_auc"] = float(roc_auc_score(labels.numpy(), _replaced_rates(pieces, labels).numpy()))
        return scores


class SentenceOrder(Objective):
    """Are the two segments in their order (ALBERT section 3.1)?"""

    sentence: SentenceTask | None = "sop"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head = SentenceHead(config.encoder)

    def loss(self, output: EncoderOutput, batch: Batch, encoder: Encoder) -> Loss:
        """Summed cross-entropy over the sequences that carry a label."""
        assert output.pooled is not None
        return _cross_entropy(self.head(output.pooled), batch.sentence_labels, evidence=not self.training)

    def count(self, batch: Batch) -> int:
        """Sequences with a label."""
        return int((batch.sentence_labels != IGNORED).sum())

    def scores(self, losses: Sequence[Loss]) -> dict[str, float]:
        """Beside loss and accuracy, that of the commoner label, the standard error, and the number of pairs."""
        scores = super().scores(losses)
        if scores:
            labels = torch.cat([loss.evidence["labels"] for loss in losses])
            ones, pairs = int((labels == 1).sum()), int((labels != IGNORED).sum())
            correct = sum(int(loss.correct) for loss in losses)
            smoothed = (correct + 1) / (pairs + 2)  # so that a perfect score on three pairs is not called certain
            scores["majority"] = max(ones, pairs - ones) / pairs
            scores["standard_error"] = math.sqrt(smoothed * (1 - smoothed) / pairs)
            scores["pairs"] = float(pairs)
        return scores


class NextSentence(SentenceOrder):
    """Does the second segment follow the first, or come from elsewhere (BERT section 3.1)?"""

    sentence: SentenceTask | None = "nsp"


OBJECTIVES: dict[str, Callable[[Config], Objective]] = {
    "mlm": MaskedLanguageModeling,
    "sop": SentenceOrder,
    "nsp": NextSentence,
    "rtd": ReplacedTokenDetection,
    "sbo": SpanBoundary,
}


def _replaced_rates(pieces_N: Tensor, labels_N: Tensor) -> Tensor:
    """How often the piece of each token was replaced among the tokens of the other half, even or odd places."""
    rates_N = torch.empty(len(pieces_N))
    share = labels_N.float().mean()
    for here in (0, 1):
        other = slice(1 - here, None, 2)
        size = int(pieces_N.max()) + 1
        seen = torch.bincount(pieces_N[other], minlength=size)
        replaced = torch.bincount(pieces_N[other], weights=labels_N[other].float(), minlength=size)
        rates_N[here::2] = ((replaced + share) / (seen + 1))[pieces_N[here::2]].float()
    return rates_N


def _padded(indices_K: Tensor) -> Tensor:
    """On a CPU under autocast, zeros behind the indices, up to a multiple of 64.

    oneDNN multiplies there in bfloat16, and makes and keeps a kernel for every number of rows it meets, the largest
    where the vocabulary is projected (docs/decisions.md).
    """
    if indices_K.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return indices_K
    return F.pad(indices_K, (0, -len(indices_K) % 64))


def _cross_entropy(logits_NC: Tensor, labels_N: Tensor, evidence: bool) -> Loss:
    """Sums in float32, whatever the autocast precision. Rows of logits beyond the labels do not count."""
    logits_NC = logits_NC.float()
    padded_N = F.pad(labels_N, (0, len(logits_NC) - len(labels_N)), value=IGNORED)
    total = F.cross_entropy(logits_NC, padded_N, ignore_index=IGNORED, reduction="sum")
    with torch.no_grad():
        correct = (logits_NC.argmax(-1) == padded_N).sum()
        count = (labels_N != IGNORED).sum()
    return Loss(total, count, correct, evidence={"labels": labels_N} if evidence else {})
