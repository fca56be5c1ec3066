"""The base of all outputs, which say what the logits of a head mean: the loss that they learn by,
and the answers that they become. Only learning needs torch, as answers may come from another
engine.

Shapes: B items, R rows, S tokens, n tokens of one row, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import ModelError, nearest
from litebert.base.registry import OUTPUTS
from litebert.config import FinetuneConfig
from litebert.config.finetuning import HeadName
from litebert.data import IGNORED
from litebert.tasks.values import Answer, Item, TaskBatch

if TYPE_CHECKING:  # who answers without PyTorch has no loss
    from torch import Tensor, nn

    from litebert.model.objectives import Loss


def softmax(values: NDArray[np.floating], axis: int = -1) -> NDArray[np.float64]:
    """Along an axis. That of scipy gives the same, and takes half a second to import."""
    shifted = np.exp(values - values.max(axis=axis, keepdims=True))
    shares: NDArray[np.float64] = shifted / shifted.sum(axis=axis, keepdims=True)
    return shares


def logistic(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """By tanh, which does not overflow; that of scipy differs in the last bit."""
    shares: NDArray[np.float64] = 0.5 * (1 + np.tanh(values / 2))
    return shares


def log_softmax(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Along the last axis."""
    shifted = values - values.max(axis=-1, keepdims=True)
    logs: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return logs


def average_log(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithm of the mean of exponentials along the first axis, as logarithms."""
    highest = logs.max(axis=0)
    mean: NDArray[np.float64] = highest + np.log(np.exp(logs - highest).mean(axis=0))
    return mean


@dataclass(frozen=True)
class Output(ABC):
    """One kind of output: what its head reads, the form of targets, the loss, logits to answers."""

    labels: tuple[str, ...] = ()
    """Names of the C classes in the order of their logits; empty where there are none."""

    name: ClassVar[str]
    """Its name in saved models, as their `problem`."""
    head: ClassVar[HeadName]
    """The head that holds it in saved models; all outputs of one head read the same."""
    reads_cls: ClassVar[bool] = True
    """True if its head reads [CLS]; otherwise it reads every token."""
    problem_type: ClassVar[str] = ""
    """Its name at Hugging Face, where one head there has several outputs."""
    classes: ClassVar[int | None] = None
    """Numbers that the head gives, where it is not one for each label."""
    targets: ClassVar[type[np.number[Any]]] = np.int64
    scores: ClassVar[tuple[str, ...]]
    """Its usual scores; the first chooses checkpoints where no other is asked for."""
    task: ClassVar[str] = "table"
    """The task that answers where a model does not name its own."""
    separator: ClassVar[str] = ";"
    """Separator of the members of an answer in one cell of a CSV file."""
    linear: ClassVar[bool] = False
    """True if a linear map from the states of [CLS] answers, as `finetuning.heads` fits it."""
    weighs: ClassVar[bool] = False
    """True if its loss can weigh classes and rows, by `weigh`."""

    @property
    def calibrates(self) -> bool:
        """Return whether the answers have probabilities that a temperature calibrates."""
        return False

    ranks: ClassVar[bool] = False
    """True if its answer to a pair is a number that ranks second texts."""
    exclusive: ClassVar[bool] = False
    """True if exactly one of the classes of an item is right."""
    exits: ClassVar[bool] = False
    """True if a row may leave the network early, by `steady`."""

    def __init_subclass__(cls) -> None:
        """A subclass may answer by another law, so it says itself what holds for it."""
        for name in ("linear", "exits"):
            if name not in vars(cls):
                setattr(cls, name, False)

    @property
    def width(self) -> int:
        """Numbers that the head gives, of [CLS] or of every token."""
        return self.classes or len(self.labels)

    @classmethod
    def from_saved(cls, classes: int, labels: Sequence[str]) -> Output:
        """Make the output of a saved model whose head gives `classes` numbers, or refuse it."""
        made = (
            cls()
            if cls.classes
            else cls(tuple(labels) or tuple(f"LABEL_{i}" for i in range(classes)))
        )
        if made.width != classes:
            raise ModelError(
                f"the model's head gives {classes} numbers, and '{cls.name}' is read from "
                f"{made.width}"
            )
        return made

    def fit(self, targets: Sequence[Any]) -> tuple[Output, Sequence[Any]]:
        """Fit the output and its targets to the training targets; only numbers have a scale."""
        return self, targets

    def weigh(self, config: FinetuneConfig, targets: Sequence[Any]) -> Output:
        """Return the output with the weights that a config asks for, of the training targets."""
        return self

    def collate(self, targets: Sequence[Any], size: int) -> NDArray[Any]:
        """Lay out the targets of a batch of rows of `size` tokens, (B, ...)."""
        return np.array(targets, self.targets)

    def arrange(self, logits: Tensor, batch: TaskBatch) -> Tensor:
        """Return logits as the loss reads them, float32; what cannot be chosen is -infinity."""
        return logits.float()

    def count(self, targets: NDArray[Any]) -> int:
        """Count the predictions that `loss` sums over the targets of a batch from `collate`."""
        return len(targets)

    def loss(self, logits: Tensor, batch: TaskBatch) -> Loss:
        """Compute the summed loss over the predictions that count."""
        import torch

        from litebert.model.objectives import Loss

        # An output of one's own need not know of weights.
        weights = () if batch.weights is None else (batch.weights,)
        total, correct = self.total(self.arrange(logits, batch), batch.targets, *weights)
        return Loss(total, torch.full((), batch.predictions, device=total.device), correct)

    def total(
        self, logits: Tensor, targets: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute the summed loss of arranged logits, and how many are right: cross-entropy by
        default.

        `weights` (B,) are those of the items; None where all are 1.
        """
        from torch.nn import functional as F

        flat, labels = logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)
        return F.cross_entropy(flat, labels, ignore_index=IGNORED, reduction="sum"), (
            flat.argmax(-1) == labels
        ).sum()

    def collate_teacher(
        self, logits: Sequence[NDArray[np.floating[Any]]], size: int
    ) -> NDArray[np.float32]:
        """Lay out a teacher's logits, in the form of `of_item`, for rows of `size` tokens: (B, C)
        or (B, S, C).
        """
        if self.reads_cls:
            return np.stack(logits).astype(np.float32)
        return np.stack(
            [
                np.pad(row_logits.astype(np.float32), ((0, size - len(row_logits)), (0, 0)))
                for row_logits in logits
            ]
        )

    def distill_loss(
        self, logits: Tensor, batch: TaskBatch, temperature: float, map_: nn.Module | None = None
    ) -> Loss:
        """Compute the summed distance from the teacher's logits; right is what the teacher would
        answer.

        `map_` maps to the width of the teacher, where one is learned.
        """
        import torch

        from litebert.model.objectives import Loss

        assert batch.teacher_logits is not None
        total, same = self.distill_total(
            self.arrange(logits, batch), batch.teacher_logits, batch, temperature
        )
        return Loss(total, torch.full((), batch.lessons, device=total.device), same)

    def distill_total(
        self, logits: Tensor, teacher_logits: Tensor, batch: TaskBatch, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Compute the summed divergence of arranged logits from the teacher's; right if alike."""
        from litebert.model.teacher import divergence

        same = logits.argmax(-1) == teacher_logits.argmax(-1)
        return divergence(logits, teacher_logits, temperature).sum(), same.sum()

    def of_item(self, logits: NDArray[np.float32], item: Item) -> NDArray[np.float32]:
        """Return the logits of an item, without padding, of those of its rows (rows, C) or (rows,
        S, C).
        """
        row_logits: NDArray[np.float32] = logits[0]
        return row_logits if self.reads_cls else row_logits[: item.length]

    @abstractmethod
    def answers(self, logits: Sequence[NDArray[np.float32]]) -> list[Any]:
        """Return one answer per item, from logits as `of_item` gives them."""

    def steady(
        self, before: NDArray[np.float32] | None, now: NDArray[np.float32]
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Compare the answers of each row, logits (R, C), after a layer with those before it (None
        before the first). Return True where both are equal, and how certain the answer is, in [0,
        1].
        """
        raise NotImplementedError

    def as_target(self, value: Any) -> Any:
        return value

    def record(self, answer: Answer) -> dict[str, Any]:
        value = list(answer.value) if isinstance(answer.value, tuple) else answer.value
        return {
            "prediction": value,
            "probabilities": [round(p, 6) for p in answer.probabilities.tolist()],
        }

    def read_record(self, record: Mapping[str, Any]) -> Any:
        """Make an answer of its record, or of its cells in CSV; the reverse of `record`."""
        likely = record["probabilities"]
        if isinstance(likely, Mapping):
            likely = [likely[label] for label in self.labels]
        elif isinstance(likely, str) and likely:
            likely = likely.split(self.separator)
        return Answer(self.read_value(record["prediction"]), np.array(likely or [], np.float64))

    def read_value(self, value: Any) -> Any:
        """Read the value of an answer in a record, or in a cell of CSV."""
        if not self.labels:
            return float(value)
        if value:
            self.labels.index(value)
        return value or None

    def one_answer(self, targets: Sequence[Any], logits: Sequence[NDArray[np.float32]]) -> bool:
        """Return True if everything is answered alike, where the right answers differ."""
        return len(set(targets)) > 1 and len({answer.value for answer in self.answers(logits)}) == 1

    def counts(self, targets: Sequence[Any] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Count each label in targets, (C,); (0,) without labels."""
        return (
            np.bincount(targets, minlength=len(self.labels))
            if self.labels
            else np.zeros(0, np.int64)
        )


def restore_output(settings: Mapping[str, Any]) -> Output:
    """Restore a saved model's output from `kind`, `classes`, and where known `problem` and
    `labels`.
    """
    classes = settings["classes"]
    outputs = {name: output for name, output in OUTPUTS.items() if output.head == settings["kind"]}
    usual = "number" if classes == 1 and "number" in outputs else next(iter(outputs), "")
    name = settings.get("problem") or usual
    if name not in outputs:
        raise ModelError(f"no known output is called '{name}'; {nearest(name, outputs)}")
    output: Any = outputs[name].from_saved(classes, settings.get("labels") or ())
    if offset := settings.get("offset"):  # of numbers far from zero
        output = replace(output, mean=float(offset), is_far=True)
    restored: Output = output
    return restored
