"""Replaced token detection: find the tokens that a small generator put in place of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from litebert.base.errors import require
from litebert.config import EncoderConfig, ReplacedTokenConfig, cost, replace
from litebert.model.objectives.mlm import LOGITS
from litebert.model.objectives.objective import (
    ACCURACY,
    Context,
    Curves,
    Loss,
    Objective,
    Score,
    join_tensors,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from litebert.data.batches import Batch
    from litebert.model.encoder import EncoderOutput

_SAMPLE = 31  # the stream of random numbers that samples are drawn with
REAL = "real"
"""The key in `Batch.added` of the positions of the real tokens of a padded batch, (N,)."""
DRAWS = "rtd_draws"
"""The key in `Batch.added` of a uniform number for each predicted position, (K,) float32."""
REPLACED = "replaced"
"""The key in `Batch.added` of a bool (B, S): True where another token stands than in the text."""


class ReplacedTokenDetection(Objective):
    """Tell the tokens that a generator replaced, at every real position (ELECTRA section 3.1).

    The generator is objective mlm's. Its guess is sampled and stands at each predicted position,
    also where the mask law had left the token as it was; a sample that equals the token counts as
    original.

    Shapes: B sequences, S tokens, V vocabulary, K predicted positions, N real tokens, which are
    counted.
    """

    needs = ("mlm",)
    scored_on_training_masks = True
    shown = (
        Score("replaced", "tokens replaced"),
        replace(ACCURACY, baseline="base_rate", remark="always the commoner answer", unit="tokens"),
        Score(
            "auc", "{NAME} area under the curve", ".3f", baseline="piece_auc", remark="tokens alone"
        ),
        Score("precision", "{NAME} precision", remark="of the tokens called replaced"),
        Score("recall", "{NAME} recall", remark="of the replaced tokens"),
    )
    compared: ClassVar = {
        "{NAME} area (tokens alone)": "auc",
        "{NAME} accuracy (base rate)": "accuracy",
    }
    curves = (
        Curves("Accuracy on replaced tokens", baseline="base_rate"),
        Curves(
            "Finding the replaced tokens",
            (
                ("area under the curve", "heldout", "auc"),
                ("precision", "heldout", "precision"),
                ("recall", "heldout", "recall"),
                ("share replaced", "train", "replaced"),
            ),
            axis="%",
            baseline="",
            note="On held-out text, the area under the curve is how often a replaced token "
            "looks more replaced than an original one, where 50% is guessing; precision is the "
            "share of replaced ones among the tokens called replaced; recall is the share of the "
            "replaced ones that are called so. The share replaced is that of all tokens in "
            "training; it falls as the generator, whose accuracy on masked tokens is shown here, "
            "guesses more of them right.",
        ),
    )
    owner_of: ClassVar = {"mlm": "generator's "}
    note = "MLM beside RTD is the generator's; the area is that under the ROC curve."
    counted_in_print = "the head that tells replaced tokens"
    foreign_part = "discriminator"
    classifier = "gelu"

    def check(self) -> None:
        super().check()
        require(
            "sbo" not in self.config.objectives,
            f"objective sbo predicts masked spans and {self.name} shows the encoder a text without "
            "masks; keep one of them",
        )
        _ = self.generator  # which refuses a width of no whole heads

    @classmethod
    def assume_fields(
        cls, fields: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> dict[str, Any]:
        """The generator's width by its tensors, else near a quarter in whole heads, which fits."""
        encoder = fields["encoder"]
        for name, tensor in tensors.items():
            if name.startswith("generator.") and name.endswith(".query.bias") and tensor.ndim == 1:
                return {
                    "rtd": ReplacedTokenConfig(generator_width=len(tensor) / encoder.hidden_size)
                }
        return {
            "rtd": ReplacedTokenConfig(
                generator_width=max(1, round(encoder.heads / 4)) / encoder.heads
            )
        }

    @property
    def weight(self) -> float:
        return self.config.rtd.weight

    @property
    def generator(self) -> EncoderConfig:
        """The encoder at a share of its width, in heads of its size (ELECTRA table 6)."""
        encoder, width = self.config.encoder, self.config.rtd.generator_width
        size, heads = encoder.hidden_size // encoder.heads, max(1, round(width * encoder.heads))
        hidden = round(width * encoder.hidden_size)
        inner = max(1, round(width * encoder.intermediate_size))
        require(
            hidden == heads * size or (heads == 1 and 0 < hidden < size and hidden % 2 == 0),
            f"rtd.generator_width {width} makes a hidden size of {hidden}, which is no "
            "whole number of heads of the "
            f"encoder's size {size}; take 1/{encoder.heads}, 2/{encoder.heads}, ... or 1",
        )
        return replace(
            encoder, hidden_size=hidden, heads=heads, intermediate_size=inner, pooler=False
        )

    def parameters(self) -> dict[str, int]:
        hidden = self.config.encoder.hidden_size
        return {"rtd head": cost.linear(hidden, hidden) + cost.linear(hidden, 1)}

    def flops(self, length: int) -> float:
        hidden = self.config.encoder.hidden_size
        return 2 * (hidden * hidden + hidden)

    def backward_bytes(self, width: int) -> float:
        return 2 * width * self.config.encoder.hidden_size

    def head(self) -> nn.Module:
        from litebert.model.heads import ClassifierHead

        return ClassifierHead(self.config.encoder, classes=1, dense=self.config.encoder.activation)

    def prepare(self, batch: Batch) -> Batch:
        """Add the draws of the samples, and the positions in (B, S) of real tokens if padded."""
        import torch

        from litebert.data.random_keys import draw_uniforms

        if batch.row_keys is None:
            draws = torch.rand(len(batch.masked_positions))
        else:  # by row of the whole batch and position, whoever computes the row
            keys, length = batch.row_keys.cpu().numpy().view("uint64"), batch.input_ids.shape[1]
            uniform = torch.from_numpy(draw_uniforms(keys, length, _SAMPLE)).flatten()
            draws = uniform[batch.masked_positions.cpu()].float()
        added = {**batch.added, DRAWS: draws}
        if batch.attention_mask is not None:
            added[REAL] = batch.attention_mask.flatten().nonzero().squeeze(1)
        return replace(batch, added=added)

    def corrupt(self, batch: Batch, context: Context) -> Batch:
        """The text with samples in place of masks. No gradient passes through sampling."""
        import torch

        with torch.no_grad():
            sampled_K = _sample_tokens(batch.added[LOGITS], self.get_prepared(batch, DRAWS))
            input_ids, replaced = (
                batch.input_ids.flatten().clone(),
                torch.zeros_like(batch.input_ids).flatten().bool(),
            )
            input_ids[batch.masked_positions] = sampled_K
            replaced[batch.masked_positions] = sampled_K != batch.masked_labels
        shape = batch.input_ids.shape
        return replace(
            batch,
            input_ids=input_ids.view(shape),
            added={**batch.added, REPLACED: replaced.view(shape)},
        )

    def loss(self, output: EncoderOutput, batch: Batch, context: Context) -> Loss:
        import torch
        from torch.nn import functional as F

        real = self.get_prepared(batch, REAL) if batch.attention_mask is not None else slice(None)
        logits_N = context.network.head(output.last).float().flatten()[real]
        labels_N = batch.added[REPLACED].flatten()[real]
        total = F.binary_cross_entropy_with_logits(logits_N, labels_N.float(), reduction="sum")
        count = torch.full((), len(labels_N), device=total.device)
        correct = ((logits_N > 0) == labels_N).sum()
        extras, eval_tensors = {"replaced": labels_N.sum()}, {}
        if not context.network.training:
            eval_tensors = {
                "logits": logits_N.detach(),
                "labels": labels_N,
                "pieces": batch.input_ids.flatten()[real],
            }
        return Loss(total, count, correct, extras, eval_tensors)

    def count(self, batch: Batch) -> int:
        return batch.tokens

    def scores(self, losses: Sequence[Loss]) -> dict[str, float]:
        """Add the accuracy of the commoner answer, precision and recall of `replaced`, and the area
        under the curve, where they exist.

        `piece_auc` is the area that tokens give without their context (`_replacement_rates`): a
        generator's samples have other frequencies than text, so an early one gives itself away.
        """
        from sklearn.metrics import roc_auc_score  # takes half a second to load

        scores = super().scores(losses)
        logits, labels = join_tensors(losses, "logits").cpu(), join_tensors(losses, "labels").cpu()
        hits = int(((logits > 0) & labels).sum())
        called = int((logits > 0).sum())
        replaced = int(labels.sum())
        share = replaced / len(labels)
        scores |= {"base_rate": max(share, 1 - share), "replaced": share}
        if called:
            scores["precision"] = hits / called
        if 0 < replaced < len(labels):
            scores["recall"] = hits / replaced
            scores["auc"] = float(roc_auc_score(labels.numpy(), logits.numpy()))
            rates = _replacement_rates(join_tensors(losses, "pieces").cpu(), labels)
            scores["piece_auc"] = float(roc_auc_score(labels.numpy(), rates.numpy()))
        return scores


def _sample_tokens(logits_KV: Tensor, draws_K: Tensor) -> Tensor:
    """The token at which the cumulative distribution passes the draw, (K,)."""
    import torch

    cumulative_KV = logits_KV.float().softmax(-1).cumsum(-1)
    wanted_K1 = draws_K.to(logits_KV.device)[:, None] * cumulative_KV[:, -1:]
    # A draw may be rounded up to 1.
    return (
        torch.searchsorted(cumulative_KV, wanted_K1, right=True)
        .squeeze(1)
        .clamp_(max=logits_KV.shape[1] - 1)
    )


def _replacement_rates(pieces_N: Tensor, labels_N: Tensor) -> Tensor:
    """How often each token was replaced in the other half, at even or odd positions."""
    import torch

    rates_N = torch.empty(len(pieces_N))
    share = labels_N.float().mean()
    size = int(pieces_N.max()) + 1
    for parity in (0, 1):
        other = slice(1 - parity, None, 2)
        seen = torch.bincount(pieces_N[other], minlength=size)
        replaced = torch.bincount(pieces_N[other], weights=labels_N[other].float(), minlength=size)
        rates_N[parity::2] = ((replaced + share) / (seen + 1))[pieces_N[parity::2]].float()
    return rates_N
