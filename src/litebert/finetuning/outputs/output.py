"""What a task's output is: what its head reads, the form of its targets, its loss, and how logits become answers.

Shapes: B items, R rows, S tokens, n tokens of one row, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.data import IGNORED
from litebert.finetuning.items import Item

if TYPE_CHECKING:  # only learning needs torch: answers may come from another engine
    from torch import Tensor

    from litebert.finetuning.batches import TaskBatch
    from litebert.model.heads import ClassifierHead
    from litebert.model.objectives import Loss


class Answer(NamedTuple):
    """What the model says about one item."""

    value: Any
    """A label, a tuple of labels or tags, a number, or the place of a choice."""
    probabilities: NDArray[np.float64]
    """Of each label, of each tag that is given, or of each choice; (0,) for numbers."""


@dataclass(frozen=True)
class Output(ABC):
    """One kind of output. Its head gives `width` numbers, of [CLS] or of every token."""

    labels: tuple[str, ...] = ()
    """Names of the C classes in the order of their logits; empty where there are none."""

    name: ClassVar[str]
    """What saved models call it, as their `problem`."""
    head: ClassVar[str]
    """The head that holds it in other software: sequence, tokens, span or choice."""
    reads_cls: ClassVar[bool]
    """Whether the head reads [CLS]; else it reads every token."""
    classes: ClassVar[int | None] = None
    """Numbers that the head gives, where it is not one for each label."""
    targets: ClassVar[type[np.number[Any]]] = np.int64
    scores: ClassVar[tuple[str, ...]]
    """Its usual scores; the first chooses checkpoints where no other is asked for."""
    task: ClassVar[str] = "table"
    """The task that answers where a model does not name its own."""
    separator: ClassVar[str] = ";"
    """What stands between the members of an answer in one cell of a CSV file."""

    @property
    def width(self) -> int:
        """Numbers that the head gives."""
        return self.classes or len(self.labels)

    # ---- learning --------------------------------------------------------------------------------------------------

    def fitted(self, targets: Sequence[Any]) -> Output:
        """The output as it learns from these targets; only numbers have a scale to take from them."""
        return self

    def to_learn(self, target: Any) -> Any:
        """A training target as the fitted output learns it."""
        return target

    def settle(self, head: ClassifierHead) -> None:  # noqa: B027 (only numbers have something to do)
        """Change a trained head so that the unfitted output reads it."""

    def collate(self, targets: Sequence[Any], size: int) -> NDArray[Any]:
        """(B, ...): the targets of a batch of rows of `size` tokens."""
        return np.array(targets, self.targets)

    def arrange(self, logits: Tensor, batch: TaskBatch) -> Tensor:
        """The logits of a batch as the loss reads them, in float32, minus infinity where there is nothing to choose."""
        return logits.float()

    def count(self, batch: TaskBatch) -> int:
        """How many predictions `loss` sums."""
        return len(batch.choices)

    def loss(self, logits: Tensor, batch: TaskBatch) -> Loss:
        """Summed loss over what counts."""
        import torch

        from litebert.model.objectives import Loss

        assert batch.targets is not None
        total, correct = self.total(self.arrange(logits, batch), batch.targets)
        return Loss(total, torch.tensor(self.count(batch), device=total.device), correct)

    def total(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The summed loss of arranged logits, and how many are right: cross-entropy, where not said otherwise."""
        from torch.nn import functional as F

        flat, labels = logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)
        return F.cross_entropy(flat, labels, ignore_index=IGNORED, reduction="sum"), (flat.argmax(-1) == labels).sum()

    # ---- answering -------------------------------------------------------------------------------------------------

    def of_item(self, logits: NDArray[np.float32], item: Item) -> NDArray[np.float32]:
        """The logits of an item out of those of its rows, (rows, C) or (rows, S, C), without those of padding."""
        found: NDArray[np.float32] = logits[0]
        return found if self.reads_cls else found[: item.length]

    @abstractmethod
    def answers(self, logits: Sequence[NDArray[np.float32]]) -> list[Any]:
        """One answer per item, from logits as `of_item` gives them."""

    def as_target(self, value: Any) -> Any:
        """The value of an answer in the form of a target."""
        return value

    def record(self, answer: Answer) -> dict[str, Any]:
        """What is told of an answer."""
        value = list(answer.value) if isinstance(answer.value, tuple) else answer.value
        return {"prediction": value, "probabilities": [round(p, 6) for p in answer.probabilities.tolist()]}

    # ---- watching --------------------------------------------------------------------------------------------------

    def one_answer(self, targets: Sequence[Any], logits: Sequence[NDArray[np.float32]]) -> bool:
        """Whether everything is answered alike, where the right answers differ."""
        return len(set(targets)) > 1 and len({answer.value for answer in self.answers(logits)}) == 1

    def counts(self, targets: Sequence[Any]) -> NDArray[np.int64]:
        """(C,): how often each label occurs; (0,) without labels."""
        return np.zeros(0, np.int64)

    def balance(self, targets: Sequence[Any]) -> str | None:
        """How often each label occurs in the training part, in words; None without labels."""
        counts = self.counts(targets)
        return shares(self.labels, counts, len(targets), "training examples") if len(counts) else None


_NAMED = 10
"""Labels whose share is told, at most."""


def shares(labels: Sequence[str], counts: NDArray[np.int64], total: int, what: str) -> str:
    """What share of `total` examples or words each label has, the commonest first where there are many."""
    order = np.argsort(-counts, kind="stable") if len(counts) > _NAMED else np.arange(len(counts))
    told = [f"{labels[i]} {counts[i] / max(1, total):.1%}" for i in order[:_NAMED]]
    if len(counts) > _NAMED:
        rarest = counts[order[-1]] / max(1, total)
        told.append(f"and {len(counts) - _NAMED} rarer labels, down to {rarest:.2%}")
    return f"{total:,} {what}: {', '.join(told)}"
