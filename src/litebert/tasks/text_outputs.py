"""The outputs of whole texts: a class, labels, a number, a choice, or the relevance of a document
to a query. Only learning needs torch. Shapes: B items, R rows, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from litebert.config import FinetuneConfig
from litebert.tasks.outputs import Output, logistic, softmax
from litebert.tasks.values import Answer, Item, TaskBatch

if TYPE_CHECKING:  # who answers without PyTorch has no loss
    from torch import Tensor

    from litebert.model.heads import ClassifierHead


@dataclass(frozen=True)
class OneClass(Output):
    """One of C classes. A target is the class, an int."""

    weights: tuple[float, ...] = ()
    """The weight of each class in the loss, (C,); () where all count alike."""
    focal_gamma: float = 0.0
    """The exponent of the focal loss; 0 for cross-entropy."""
    threshold: float = 0.0
    """The probability below which there is no answer."""

    name, head = "classes", "sequence"
    problem_type = "single_label_classification"
    scores = ("accuracy", "macro_f1", "matthews")
    linear = True
    weighs = True

    exclusive = True
    exits = True

    @property
    def calibrates(self) -> bool:
        """True where the head gives a number for each label, as no other law of odds does."""
        return self.width == len(self.labels)

    def weigh(self, config: FinetuneConfig, targets: Sequence[Any]) -> Output:
        """Weigh each class as the config says; a class without a row weighs 1 if balanced."""
        weights: tuple[float, ...] = ()
        if config.class_weights == "balanced":
            weights = tuple(self._balance(self.counts(targets), len(targets)).tolist())
        elif not isinstance(config.class_weights, str):
            weights = tuple(config.class_weights.get(label, 1.0) for label in self.labels)
        return replace(self, weights=weights, focal_gamma=config.focal_gamma)

    def _balance(self, counts: NDArray[np.int64], rows: int) -> NDArray[np.float64]:
        present = np.maximum(counts, 1)
        return np.where(counts > 0, rows / (len(counts) * present), 1.0)

    def total(
        self, logits: Tensor, targets: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute the summed cross-entropy of (B, C) against (B,), and how many rows are right."""
        if not self.weights and not self.focal_gamma and weights is None:
            return super().total(logits, targets)
        import torch

        log_likely = torch.log_softmax(logits, -1).gather(-1, targets[:, None])[:, 0]
        losses = -log_likely * _focus(log_likely, self.focal_gamma)
        if self.weights:
            losses = losses * losses.new_tensor(self.weights)[targets]
        if weights is not None:
            losses = losses * weights
        return losses.sum(), (logits.argmax(-1) == targets).sum()

    def answers(self, logits: Sequence[NDArray[np.float32]]) -> list[Answer]:
        """Return the likeliest label, or None below the threshold, and the probabilities of all."""
        if not logits:
            return []
        values = np.concatenate(logits).reshape(len(logits), -1).astype(np.float64)
        likely = softmax(values, axis=1)
        return [
            Answer(self.labels[best] if row[best] >= self.threshold else None, row)
            for best, row in zip(values.argmax(1).tolist(), likely, strict=True)
        ]

    def steady(
        self, before: NDArray[np.float32] | None, now: NDArray[np.float32]
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Compare the likeliest labels; its probability is the certainty."""
        same = now.argmax(1) == (now if before is None else before).argmax(1)
        return same, softmax(now.astype(np.float64), axis=1).max(1)

    def as_target(self, value: Any) -> Any:
        return self.labels.index(value)

    def record(self, answer: Answer) -> dict[str, Any]:
        record = super().record(answer)
        likely = dict(zip(self.labels, record.pop("probabilities"), strict=True))
        if self.exclusive and self.threshold:  # what a person would begin with
            record["guess"] = max(likely, key=likely.__getitem__)
        return {**record, "probabilities": likely}


@dataclass(frozen=True)
class SeveralLabels(OneClass):
    """Any of C labels, none too. A target is a tuple of C zeros and ones."""

    name, targets = "labels", np.float32
    problem_type = "multi_label_classification"
    linear = True
    exits = True
    scores = ("micro_f1", "macro_f1", "exact")
    exclusive = False

    def _balance(self, counts: NDArray[np.int64], rows: int) -> NDArray[np.float64]:
        has_both = (counts > 0) & (counts < rows)
        return np.where(has_both, (rows - counts) / np.maximum(counts, 1), 1.0)

    def total(
        self, logits: Tensor, targets: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute the mean over the labels of binary cross-entropy; right if every label is."""
        import torch
        from torch.nn import functional as F

        losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        if self.focal_gamma:
            losses = losses * _focus(-losses, self.focal_gamma)
        if self.weights:
            losses = losses * torch.where(targets > 0.5, losses.new_tensor(self.weights), 1.0)
        losses = losses.mean(-1)
        total = (losses if weights is None else losses * weights).sum()
        return total, ((logits > 0) == (targets > 0.5)).all(-1).sum()

    def distill_total(
        self, logits: Tensor, teacher_logits: Tensor, batch: TaskBatch, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Compute the mean over labels of the divergences of two classes, present or absent."""
        import torch

        from litebert.model.teacher import divergence

        student, teacher = (
            torch.stack((values, torch.zeros_like(values)), dim=-1)
            for values in (logits, teacher_logits)
        )
        return divergence(student, teacher, temperature).mean(-1).sum(), (
            (logits > 0) == (teacher_logits > 0)
        ).all(-1).sum()

    def answers(self, logits: Sequence[NDArray[np.float32]]) -> list[Answer]:
        """Return the labels above a half and the threshold, and the probability of each."""
        likely = [logistic(row_logits.astype(np.float64)) for row_logits in logits]
        return [
            Answer(
                tuple(np.array(self.labels)[(row > 0.5) & (row >= self.threshold)].tolist()), row
            )
            for row in likely
        ]

    def steady(
        self, before: NDArray[np.float32] | None, now: NDArray[np.float32]
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Compare the sets of labels; the least certain label decides the certainty."""
        same = ((now > 0) == ((now if before is None else before) > 0)).all(1)
        return same, logistic(np.abs(now.astype(np.float64))).min(1)

    def read_value(self, value: Any) -> Any:
        return tuple(value.split(self.separator) if value and isinstance(value, str) else value)

    def as_target(self, value: Any) -> Any:
        return tuple(int(name in value) for name in self.labels)

    def counts(self, targets: Sequence[Any] | NDArray[np.int64]) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = np.array(targets, np.int64).sum(axis=0)
        return counts


def are_far(mean: float, std: float) -> bool:
    """Float32 would lose what tells such numbers apart."""
    return abs(mean) > 1e3 * std


@dataclass(frozen=True)
class Number(Output):
    """A number, learned with mean 0 and standard deviation 1, so that one learning rate serves
    prices and shares alike. A saved model gives the numbers themselves; of numbers far from zero
    what they are more than their mean, which is added in float64.
    """

    mean: float = 0.0
    std: float = 1.0
    is_far: bool = False
    """True if float32 would lose what tells the numbers apart, so far are they from zero."""

    name, head = "number", "sequence"
    problem_type = "regression"
    classes, targets = 1, np.float32
    linear = True
    ranks = True
    scores: ClassVar[tuple[str, ...]] = ("r2", "pearson", "spearman", "rmse")
    exits = True

    def fit(self, targets: Sequence[float]) -> tuple[Number, list[float]]:
        values = np.array(targets, np.float64)
        mean, std = float(values.mean()), float(values.std()) or 1.0
        fitted = replace(self, mean=mean, std=std, is_far=are_far(mean, std))
        return fitted, [(target - fitted.mean) / fitted.std for target in targets]

    def rescale(self, numbers: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """Undo the scale of `fit` for numbers that a linear map gives, (N, C)."""
        if self.is_far:
            return numbers.astype(np.float64) * self.std + self.mean
        return (numbers * self.std + self.mean).astype(np.float32)

    def settle(self, head: ClassifierHead) -> Number:
        """Let a trained head's last map give the numbers as they are; return the output for it."""
        offset = self.mean if self.is_far else 0.0
        head.classifier.weight.data.mul_(self.std)
        head.classifier.bias.data.mul_(self.std).add_(self.mean - offset)
        return replace(self, mean=offset, std=1.0)

    def total(
        self, logits: Tensor, targets: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute the squared error; none is right."""
        import torch
        from torch.nn import functional as F

        total = F.mse_loss(logits.squeeze(-1), targets, reduction="sum")
        if weights is not None:
            total = ((logits.squeeze(-1) - targets).square() * weights).sum()
        return total, torch.zeros((), dtype=torch.int64, device=total.device)

    def collate_teacher(
        self, logits: Sequence[NDArray[np.floating[Any]]], size: int
    ) -> NDArray[np.float32]:
        """Lay out a teacher's numbers on the scale that is learned."""
        numbers = np.stack(logits)
        if numbers.dtype != np.float64:  # as a teacher of numbers far from zero gives
            numbers = numbers.astype(np.float32)
        return ((numbers - self.mean) / self.std).astype(np.float32)

    def distill_total(
        self, logits: Tensor, teacher_logits: Tensor, batch: TaskBatch, temperature: float
    ) -> tuple[Tensor, Tensor]:
        return self.total(logits, teacher_logits.squeeze(-1))

    def of_item(self, logits: NDArray[np.float32], item: Item) -> NDArray[np.float32]:
        """Return the number in the unit of the targets, (1,)."""
        return self.rescale(logits[0])

    def answers(self, logits: Sequence[NDArray[np.float32]]) -> list[Answer]:
        return [Answer(float(row_logits[0]), np.empty(0)) for row_logits in logits]

    def steady(
        self, before: NDArray[np.float32] | None, now: NDArray[np.float32]
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return no row as equal; a number that the layer changed by d is 1 / (1 + d) certain."""
        change = (
            np.full(len(now), np.inf)
            if before is None
            else np.abs(now[:, 0].astype(np.float64) - before[:, 0])
        )
        return np.ones(len(now), bool), 1 / (1 + change)

    def record(self, answer: Answer) -> dict[str, Any]:
        return {"prediction": answer.value}

    def one_answer(self, targets: Sequence[float], logits: Sequence[NDArray[np.float32]]) -> bool:
        """Return True if numbers differ by less than a thousandth of what the labels do."""
        return bool(np.std(targets) > 0 and np.std(np.concatenate(logits)) < 1e-3 * np.std(targets))


class OneChoice(Output):
    """One of some choices, each a row to which the head gives a number. A target is its place."""

    name, head = "choice", "choice"
    classes, task = 1, "choices"
    scores = ("accuracy",)

    def arrange(self, logits: Tensor, batch: TaskBatch) -> Tensor:
        """Arrange the logits of choices, (R, 1), by item, (B, most choices)."""
        import torch

        scores = list(torch.split(logits.float().squeeze(-1), list(batch.choices)))
        return torch.nn.utils.rnn.pad_sequence(scores, batch_first=True, padding_value=-np.inf)

    def collate_teacher(
        self, logits: Sequence[NDArray[np.floating[Any]]], size: int
    ) -> NDArray[np.float32]:
        """Lay out a teacher's logits, (B, most choices), as `arrange` pads them."""
        most = max(map(len, logits))
        return np.stack(
            [
                np.pad(
                    row_logits.astype(np.float32),
                    (0, most - len(row_logits)),
                    constant_values=-np.inf,
                )
                for row_logits in logits
            ]
        )

    def of_item(self, logits: NDArray[np.float32], item: Item) -> NDArray[np.float32]:
        return logits[:, 0]

    def answers(self, logits: Sequence[NDArray[np.float32]]) -> list[Answer]:
        """Of equal choices the first."""
        return [
            Answer(int(row_logits.argmax()), softmax(row_logits.astype(np.float64)))
            for row_logits in logits
        ]

    def read_value(self, value: Any) -> Any:
        """Return the place of the choice, or its letter as the task writes it."""
        return int(value) if isinstance(value, str) and value.isdecimal() else value


class Relevance(Number):
    """The log-odds that a document is relevant to a query; a target of 1 or more is relevant.

    Its folders are those of a number, which sentence-transformers opens as a CrossEncoder.
    """

    name = "relevance"
    task = "rerank"
    scores = ("ndcg_at_10", "mrr_at_10")

    def fit(self, targets: Sequence[float]) -> tuple[Relevance, list[float]]:
        """Learn 1 for each relevant document, whatever its grade."""
        return self, [float(target > 0) for target in targets]

    def total(
        self, logits: Tensor, targets: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute the summed binary cross-entropy, and how many are on the right side."""
        from torch.nn import functional as F

        odds, relevant = logits.squeeze(-1), (targets > 0).float()
        total = F.binary_cross_entropy_with_logits(odds, relevant, reduction="sum")
        return total, ((odds > 0) == (relevant > 0)).sum()

    def distill_total(
        self, logits: Tensor, teacher_logits: Tensor, batch: TaskBatch, temperature: float
    ) -> tuple[Tensor, Tensor]:
        return super().total(logits, teacher_logits.squeeze(-1))

    def one_answer(self, targets: Sequence[float], logits: Sequence[NDArray[np.float32]]) -> bool:
        """Return True if the numbers of relevant and other documents hardly differ."""
        return bool(np.std(targets) > 0 and np.std(np.concatenate(logits)) < 1e-3)


def _focus(log_likely: Tensor, gamma: float) -> Tensor:
    """Compute the factor of the focal loss, (1 - p) ** gamma, from log p; 1 where gamma is 0."""
    import torch

    if not gamma:
        return torch.ones_like(log_likely)
    # Below the least number, a power under 1 would have no finite slope.
    return (-torch.expm1(log_likely)).clamp(min=1e-6) ** gamma
