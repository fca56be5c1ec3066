"""A number for a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from litebert.finetune.items import Item
from litebert.finetune.outputs.output import Answer, Output

if TYPE_CHECKING:
    from torch import Tensor

    from litebert.finetune.batches import TaskBatch
    from litebert.model.objectives import Loss
    from litebert.model.task_model import TaskHead


@dataclass(frozen=True)
class Number(Output):
    """A number for a text. A target is a float.

    It is learned with mean 0 and deviation 1, so that one learning rate serves prices and shares alike; a saved model
    gives the numbers themselves.
    """

    mean: float = 0.0
    deviation: float = 1.0

    name, head, reads_cls = "number", "sequence", True
    labelled = False
    scores = ("r2", "pearson", "spearman", "rmse")

    @property
    def width(self) -> int:
        """One number."""
        return 1

    def fitted(self, targets: Sequence[float]) -> Number:
        """With the mean and the deviation of the targets."""
        values = np.array(targets, np.float64)
        return replace(self, mean=float(values.mean()), deviation=float(values.std()) or 1.0)

    def to_learn(self, target: float) -> float:
        """With mean 0 and deviation 1."""
        return (target - self.mean) / self.deviation

    def settle(self, head: TaskHead) -> None:
        """Let the last map give the numbers as they are."""
        import torch

        with torch.no_grad():
            head.classifier.weight.mul_(self.deviation)
            head.classifier.bias.mul_(self.deviation).add_(self.mean)

    def collate(self, targets: Sequence[float], size: int) -> Tensor:
        """float32 (B,)."""
        import torch

        return torch.tensor(targets, dtype=torch.float32)

    def arrange(self, logits: Tensor, batch: TaskBatch) -> Tensor:
        """(B,)."""
        return logits.float().squeeze(-1)

    def loss(self, logits: Tensor, batch: TaskBatch) -> Loss:
        """Squared error."""
        import torch
        from torch.nn import functional as F

        assert batch.targets is not None
        total = F.mse_loss(self.arrange(logits, batch), batch.targets, reduction="sum")
        return self.summed(total, torch.zeros((), dtype=torch.int64, device=total.device), batch)

    def of_item(self, logits: NDArray[np.float32], item: Item) -> NDArray[np.float32]:
        """(1,), in the unit of the targets."""
        number: NDArray[np.float32] = logits[0].reshape(1) * self.deviation + self.mean
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
