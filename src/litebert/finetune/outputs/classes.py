"""One class of a text, or any number of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from litebert.finetune.outputs.output import Answer, Output, rounded

if TYPE_CHECKING:
    from torch import Tensor

    from litebert.finetune.batches import TaskBatch
    from litebert.model.objectives import Loss


class OneClass(Output):
    """One of C classes of a text. A target is the class, an int."""

    name, head, reads_cls = "classes", "sequence", True
    scores = ("accuracy", "macro_f1", "matthews")

    def answers(self, logits: Sequence[NDArray[np.float32]]) -> list[Answer]:
        """The likeliest label, and the probabilities of all, which sum to one."""
        if not logits:
            return []
        values = np.stack(logits).astype(np.float64)
        likely = softmax(values, axis=1)
        return [Answer(self.labels[best], row) for best, row in zip(values.argmax(1).tolist(), likely, strict=True)]

    def record(self, answer: Answer) -> dict[str, Any]:
        """Probabilities by label."""
        return {"prediction": answer.value, "probabilities": dict(zip(self.labels, rounded(answer), strict=True))}

    def as_target(self, value: str) -> int:
        """The class of a label."""
        return self.labels.index(value)

    def counts(self, targets: Sequence[int]) -> NDArray[np.int64]:
        """Examples of each class."""
        return np.bincount(targets, minlength=len(self.labels))


class SeveralLabels(Output):
    """Any of C labels of a text. A target is a tuple of C zeros and ones."""

    name, head, reads_cls = "labels", "sequence", True
    scores = ("micro_f1", "macro_f1", "exact")

    def collate(self, targets: Sequence[tuple[int, ...]], size: int) -> Tensor:
        """float32 (B, C)."""
        import torch

        return torch.tensor(targets, dtype=torch.float32)

    def loss(self, logits: Tensor, batch: TaskBatch) -> Loss:
        """The mean over the labels of binary cross-entropy."""
        from torch.nn import functional as F

        assert batch.targets is not None
        logits = self.arrange(logits, batch)
        total = F.binary_cross_entropy_with_logits(logits, batch.targets, reduction="none").mean(-1).sum()
        return self.summed(total, ((logits > 0) == (batch.targets > 0.5)).all(-1).sum(), batch)

    def answers(self, logits: Sequence[NDArray[np.float32]]) -> list[Answer]:
        """The labels of a probability above a half, and the probability of each on its own."""
        if not logits:
            return []
        likely = 0.5 * (1 + np.tanh(np.stack(logits).astype(np.float64) / 2))  # the logistic function, no overflow
        return [Answer(tuple(name for name, p in zip(self.labels, row, strict=True) if p > 0.5), row) for row in likely]

    def record(self, answer: Answer) -> dict[str, Any]:
        """Probabilities by label."""
        likely = dict(zip(self.labels, rounded(answer), strict=True))
        return {"prediction": list(answer.value), "probabilities": likely}

    def one_answer(self, targets: Sequence[Any], logits: Sequence[NDArray[np.float32]]) -> bool:
        """The same labels for everything."""
        return len(set(targets)) > 1 and len({tuple((one > 0).tolist()) for one in logits}) == 1

    def as_target(self, value: tuple[str, ...]) -> tuple[int, ...]:
        """C zeros and ones."""
        return tuple(int(name in value) for name in self.labels)

    def counts(self, targets: Sequence[tuple[int, ...]]) -> NDArray[np.int64]:
        """Examples that have each label."""
        found: NDArray[np.int64] = np.array(targets, np.int64).reshape(-1, len(self.labels)).sum(axis=0)
        return found
