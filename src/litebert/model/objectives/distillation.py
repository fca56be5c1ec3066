"""Learning from a teacher: its guesses of masked tokens, its states, and how its tokens relate to
each other.

`litebert pretrain --teacher` adds those whose weight in `Config.distill` is above 0. Without a
teacher, as in a model that is opened after training, none of them has a loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from litebert.base.errors import require
from litebert.config import cost
from litebert.model.objectives.mlm import GUESSES
from litebert.model.objectives.objective import Context, Curves, Loss, Objective, Score

if TYPE_CHECKING:
    from torch import Tensor, nn

    from litebert.data.batches import Batch
    from litebert.model.encoder import EncoderOutput


class Distillation(Objective):
    """Base of what is learned from a teacher.

    Shapes: B sequences, S tokens, H hidden size, K predicted positions, V vocabulary.
    """

    taught: ClassVar[bool] = True
    compared: ClassVar = {}

    def check(self) -> None:
        super().check()
        require(
            self.weight > 0,
            f"objective {self.name} has distill.{self.name}=0; set a weight above 0, or leave "
            "the objective out",
        )
        require(
            self.config.generator is None,
            f"objective {self.name} compares an encoder that reads masked text with its teacher, "
            "and here a generator reads it (objective rtd); keep one of them",
        )

    @property
    def weight(self) -> float:
        weight: float = getattr(self.config.distill, self.name)
        return weight

    def nothing(self, output: EncoderOutput, context: Context) -> Loss:
        """The loss where there is nothing to learn; its gradient is zero in every parameter."""
        zero = output.last.sum() * 0 + sum(
            parameter.sum() * 0 for parameter in context.network.parameters()
        )
        return Loss(zero, zero.detach(), None)


class SoftLabels(Distillation):
    """Match the teacher's probabilities of the masked tokens through mlm's head, with a temperature
    (Hinton et al. 2015; DistilBERT). What counts as right is the teacher's likeliest token.
    """

    needs = ("mlm",)
    shown = (
        Score("loss", "divergence from the teacher's guesses", ".3f"),
        Score("accuracy", "guesses as the teacher"),
    )
    curves = (
        Curves.of_loss(
            "Divergence from the teacher's guesses", "nats, times the squared temperature"
        ),
    )

    def backward_bytes(self, width: int) -> float:
        """Count the normalized logits of teacher and student, as for the loss of masked tokens."""
        return self.config.masking.rate * 16 * self.config.encoder.vocab_size

    def loss(self, output: EncoderOutput, batch: Batch, context: Context) -> Loss:
        import torch

        from litebert.model.teacher import divergence

        if context.teacher is None:
            return self.nothing(output, context)
        logits_KV, distill = context.shared[GUESSES], self.config.distill
        taught_KV = context.teacher.logits(logits_KV.shape[-1])
        total = divergence(logits_KV, taught_KV, distill.temperature).sum()
        same = (logits_KV.argmax(-1) == taught_KV.argmax(-1)).sum()
        return Loss(total, torch.full((), len(logits_KV), device=total.device), same)

    def count(self, batch: Batch) -> int:
        return batch.masked_labels.numel()


class _Layers(Distillation):
    """Base of what is compared layer by layer, at every real token; pairs of layers count alike."""

    reads_states = True
    pairs_in: ClassVar[str]
    """The field of `Config.distill` with the pairs."""

    def check(self) -> None:
        super().check()
        train, depth, pairs = self.config.train, self.config.encoder.layers, self.pairs
        require(
            not train.depth_schedule,
            f"objective {self.name} compares given layers, and with train.depth_schedule a layer "
            "is not always there; leave one of them out: --train.depth-schedule",
        )
        require(
            all(layer <= depth for layer, _ in pairs),
            f"distill.{self.pairs_in} names layer {max((layer for layer, _ in pairs), default=0)} "
            f"of a student with encoder.layers={depth}; name layers that it has",
        )

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """(layer of the student, layer of the teacher), from 1."""
        pairs: tuple[tuple[int, int], ...] = getattr(self.config.distill, self.pairs_in)
        return pairs

    def backward_bytes(self, width: int) -> float:
        return 4 * 3 * len(self.pairs) * self.config.encoder.hidden_size

    def sum_over_pairs(
        self, output: EncoderOutput, batch: Batch, distance: Callable[[int, int], Tensor]
    ) -> Loss:
        """The mean over the pairs of a distance (B, S), summed over the real tokens."""
        import torch

        from litebert.model.teacher import mean_over_pairs

        total = mean_over_pairs(self.pairs, distance, batch.attention_mask)
        return Loss(
            total, torch.full((), batch.tokens, dtype=torch.int64, device=total.device), None
        )

    def count(self, batch: Batch) -> int:
        return batch.tokens


class States(_Layers):
    """Let one learned map of the student's states, normalized, give the teacher's (TinyBERT, Jiao
    et al. 2020; `model.teacher.state_distance`).
    """

    pairs_in = "state_layers"
    shown = (Score("loss", "distance from the teacher's states", ".3f"),)
    curves = (Curves.of_loss("Distance from the teacher's states", "mean square, of 1"),)

    def parameters(self) -> dict[str, int]:
        return {"states head": cost.linear(self.config.encoder.hidden_size, self._width)}

    def flops(self, length: int) -> float:
        return 2.0 * len(self.pairs) * self.config.encoder.hidden_size * self._width

    @property
    def _width(self) -> int:
        return self.config.distill.width or self.config.encoder.hidden_size

    def head(self) -> nn.Module:
        from torch import nn

        from litebert.model.encoder import make_initializer

        linear = nn.Linear(self.config.encoder.hidden_size, self._width)
        linear.apply(make_initializer(self.config.encoder))
        return linear

    def loss(self, output: EncoderOutput, batch: Batch, context: Context) -> Loss:
        from litebert.model.teacher import state_distance

        lesson = context.teacher
        if lesson is None:
            return self.nothing(output, context)
        head = context.network.head
        return self.sum_over_pairs(
            output,
            batch,
            lambda student_layer, teacher_layer: state_distance(
                output.states[student_layer], lesson.states[teacher_layer], head
            ),
        )


class Relations(_Layers):
    """Let queries, keys and values relate as in the teacher (MiniLMv2, Wang et al. 2021)."""

    pairs_in = "relation_layers"
    shown = (Score("loss", "divergence from the teacher's relations", ".3f"),)
    curves = (Curves.of_loss("Divergence from the teacher's relations", "nats"),)

    def flops(self, length: int) -> float:
        """Count queries, keys and values once more, and the scores between them."""
        return (
            6.0
            * len(self.pairs)
            * self.config.encoder.hidden_size
            * (self.config.encoder.hidden_size + length)
        )

    def backward_bytes(self, width: int) -> float:
        """Count the scores of every token with every other, for queries, keys and values: three
        kept for each (logarithms, the teacher's probabilities and their zeros), and five more for
        one of them at a time.
        """
        heads = self.config.distill.relation_heads or self.config.encoder.heads
        scores = (3 * 9 + 5 * 4) * heads * self.config.sequences.length
        return super().backward_bytes(width) + len(self.pairs) * scores

    def loss(self, output: EncoderOutput, batch: Batch, context: Context) -> Loss:
        from litebert.model.teacher import relation_distance

        lesson, heads = context.teacher, self.config.distill.relation_heads
        if lesson is None:
            return self.nothing(output, context)

        def distance(student_layer: int, teacher_layer: int) -> Tensor:
            student = context.encoder.projections(
                student_layer - 1, output.states[student_layer - 1]
            )
            return relation_distance(
                student, lesson.projections(teacher_layer), heads, batch.attention_mask
            )

        return self.sum_over_pairs(output, batch, distance)
