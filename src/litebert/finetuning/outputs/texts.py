"""What is said of a whole text: one class, several labels, a number, or which of some choices is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from litebert.finetuning.items import Item
from litebert.finetuning.outputs.output import Answer, Output

if TYPE_CHECKING:
    from torch import Tensor

    from litebert.finetuning.batches import TaskBatch
    from litebert.model.heads import ClassifierHead


class OneClass(Output):
    """One of C classes. A target is the class, an int."""

    name, head, reads_cls = "classes", "sequence", True
    scores = ("accuracy", "macro_f1", "matthews")

    def answers(self, logits: Sequence[NDArray[np.float32]]) -> list[Answer]:
        """The likeliest label, and the probabilities of all, which sum to one."""
        if not logits:
            return []
        values = np.stack(logits).astype(np.float64)
        likely = softmax(values, axis=1)
        return [Answer(self.labels[best], row) for best, row in zip(values.argmax(1).tolist(), likely, strict=True)]

    def as_target(self, value: Any) -> Any:
        """The class of a label."""
        return self.labels.index(value)

    def record(self, answer: Answer) -> dict[str, Any]:
        """With probabilities by label."""
        record = super().record(answer)
        return record | {"probabilities": dict(zip(self.labels, record["probabilities"], strict=True))}

    def counts(self, targets: Sequence[int]) -> NDArray[np.int64]:
        """Examples of each class."""
        return np.bincount(targets, minlength=len(self.labels))


class SeveralLabels(OneClass):
    """Any of C labels. A target is a tuple of C zeros and ones."""

    name, targets = "labels", np.float32
    scores = ("micro_f1", "macro_f1", "exact")

    def total(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The mean over the labels of binary cross-entropy; right is where every label is."""
        from torch.nn import functional as F

        total = F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(-1).sum()
        return total, ((logits > 0) == (targets > 0.5)).all(-1).sum()

    def answers(self, logits: Sequence[NDArray[np.float32]]) -> list[Answer]:
        """The labels of a probability above a half, and the probability of each on its own."""
        # The logistic function by tanh, which does not overflow; scipy's differs in the last bit.
        likely = [0.5 * (1 + np.tanh(one.astype(np.float64) / 2)) for one in logits]
        return [Answer(tuple(np.array(self.labels)[row > 0.5].tolist()), row) for row in likely]

    def as_target(self, value: Any) -> Any:
        """C zeros and ones."""
        return tuple(int(name in value) for name in self.labels)

    def counts(self, targets: Sequence[Any]) -> NDArray[np.int64]:
        """Examples that have each label."""
        found: NDArray[np.int64] = np.array(targets, np.int64).sum(axis=0)
        return found


@dataclass(frozen=True)
class Number(Output):
    """A number. A target is a float.

    It is learned with mean 0 and deviation 1, so that one learning rate serves prices and shares alike; a saved model
    gives the numbers themselves.
    """

    mean: float = 0.0
    deviation: float = 1.0

    name, head, reads_cls = "number", "sequence", True
    classes, targets = 1, np.float32
    scores = ("r2", "pearson", "spearman", "rmse")

    def fitted(self, targets: Sequence[float]) -> Number:
        """With the mean and the deviation of the targets."""
        values = np.array(targets, np.float64)
        return replace(self, mean=float(values.mean()), deviation=float(values.std()) or 1.0)

    def to_learn(self, target: float) -> float:
        """With mean 0 and deviation 1."""
        return (target - self.mean) / self.deviation

    def settle(self, head: ClassifierHead) -> None:
        """Let the last map give the numbers as they are."""
        import torch

        with torch.no_grad():
            head.classifier.weight.mul_(self.deviation)
            head.classifier.bias.mul_(self.deviation).add_(self.mean)

    def total(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Squared error; none is right."""
        import torch
        from torch.nn import functional as F

        total = F.mse_loss(logits.squeeze(-1), targets, reduction="sum")
        return total, torch.zeros((), dtype=torch.int64, device=total.device)

    def of_item(self, logits: NDArray[np.float32], item: Item) -> NDArray[np.float32]:
        """(1,), in the unit of the targets."""
        number: NDArray[np.float32] = logits[0] * self.deviation + self.mean
        return number

    def answers(self, logits: Sequence[NDArray[np.float32]]) -> list[Answer]:
        """The number."""
        return [Answer(float(one[0]), np.empty(0)) for one in logits]

    def record(self, answer: Answer) -> dict[str, Any]:
        """A number has no probabilities."""
        return {"prediction": answer.value}

    def one_answer(self, targets: Sequence[float], logits: Sequence[NDArray[np.float32]]) -> bool:
        """Numbers that differ by less than a thousandth of what the right ones do."""
        return bool(np.std(targets) > 0 and np.std(np.concatenate(logits)) < 1e-3 * np.std(targets))


class OneChoice(Output):
    """One of some choices, each a row that the head gives a number. A target is the place of the right one, an int."""

    name, head, reads_cls = "choice", "choice", True
    classes, task = 1, "choices"
    scores = ("accuracy",)

    def arrange(self, logits: Tensor, batch: TaskBatch) -> Tensor:
        """(R, 1) -> (B, most choices)."""
        import torch

        scores = list(torch.split(logits.float().squeeze(-1), list(batch.choices)))
        return torch.nn.utils.rnn.pad_sequence(scores, batch_first=True, padding_value=-np.inf)

    def of_item(self, logits: NDArray[np.float32], item: Item) -> NDArray[np.float32]:
        """(choices,)."""
        return logits[:, 0]

    def answers(self, logits: Sequence[NDArray[np.float32]]) -> list[Answer]:
        """The place of the likeliest choice, the first of equals, and the probabilities of all."""
        return [Answer(int(found.argmax()), softmax(found.astype(np.float64))) for found in logits]
