"""What a task is made of: items of tokens with their targets, batches of them, logits and answers.

Shapes: B items, R rows, S tokens, n tokens of one row, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # who answers without PyTorch needs no batch
    import torch
    from torch import Tensor

Logits = list[NDArray[np.float32]]
"""The logits of each item, in the form of `Output.of_item`."""


class EncodedRow(NamedTuple):
    """One sequence as the encoder reads it, special tokens included, without padding."""

    ids: NDArray[np.int32]
    """(n,)"""
    types: NDArray[np.int32]
    """(n,): 0 in the first segment, 1 in the second."""


@dataclass(frozen=True)
class Item:
    """One row (of choices one each) with its target. A long example may have several items."""

    example: int
    """Its place among the examples it was made from."""
    rows: tuple[EncodedRow, ...]
    """One; with choices one for each."""
    target: Any
    """The label, in the form of the task's output; None where it is not known."""
    detail: Any = None
    """Data, such as offsets, that turns logits into an answer; the model never gets it."""
    teacher_logits: NDArray[np.floating[Any]] | None = None
    """A teacher's logits, in the form of `Output.of_item`."""
    group: int | None = None
    """The number of the rows that it belongs to, which no split divides; None where it is alone."""
    weight: float = 1.0
    """Its weight in the loss of the labels."""

    @property
    def length(self) -> int:
        """Tokens of its longest row."""
        return max([len(row.ids) for row in self.rows])


@dataclass(frozen=True)
class PlainItem(Item):
    """An example as a baseline reads it: texts as they stand, or words, and no rows of tokens."""

    texts: tuple[str, ...] = ()
    """A text, the two of a pair, or the words of a sentence."""


@dataclass(frozen=True)
class EncodedPart:
    """A part of a task, read and encoded once."""

    name: str
    examples: list[Any]
    items: list[Item]


@dataclass(frozen=True, eq=False)
class TaskBatch:
    """R rows of S tokens, int64 (R, S): one for each of B items, or one for each choice of an
    item."""

    input_ids: Tensor
    token_type_ids: Tensor
    attention_mask: Tensor
    """bool (R, S)"""
    choices: tuple[int, ...]
    """Rows of each item; their sum is R."""
    targets: Tensor
    """The targets, in the form of the task's output."""
    predictions: int
    """How many the loss of these targets sums."""
    labeled: Tensor | None = None
    """bool (B,): which items have a target, where some have none; `targets` has no others."""
    weights: Tensor | None = None
    """float32: the weight of each target's item; None where all are 1."""
    teacher_logits: Tensor | None = None
    """The logits of a teacher for every item, as `Output.collate_teacher` lays them out."""

    @property
    def lessons(self) -> int:
        """How many predictions are compared with the teacher's."""
        return self.predictions if self.labeled is None else len(self.choices)

    @property
    def tokens(self) -> int:
        """Tokens, padding aside."""
        return int(self.attention_mask.sum())

    def select_rows(self, rows: Tensor) -> TaskBatch:
        """Return the batch with some of its rows, bool (R,), for what reads their mask."""
        names = ("input_ids", "token_type_ids", "attention_mask")
        changed: Any = {name: getattr(self, name)[rows] for name in names}
        return replace(self, **changed)

    def to(self, device: torch.device) -> TaskBatch:
        """Return the same batch on a device."""
        from litebert.data.batches import move_to_device

        return self._change_tensors(lambda tensor: move_to_device(tensor, device))

    def pin(self) -> TaskBatch:
        return self._change_tensors(lambda tensor: tensor.pin_memory())

    def _change_tensors(self, change: Callable[[Tensor], Tensor]) -> TaskBatch:
        plain = ("choices", "predictions")
        changed: Any = {
            name: change(tensor)
            for name, tensor in vars(self).items()
            if name not in plain and tensor is not None
        }
        return replace(self, **changed)


class Answer(NamedTuple):
    """The model's answer for one item."""

    value: Any
    """A label, a tuple of labels or tags, a number, or the place of a choice."""
    probabilities: NDArray[np.float64]
    """The probability of each label, of each predicted tag, or of each choice; (0,) for numbers."""


class Compared(NamedTuple):
    """The answer for one pair of texts."""

    value: float
    """The cosine."""
    vectors: Any
    """(2, H) float32, of unit length: an array, or a sparse matrix where a baseline counts."""


LONGEST_EXAMPLE = 800
"""Characters of an example that stays with a model, at most."""


@dataclass(frozen=True)
class ModelExample:
    """An input in the form that the service takes, and its right answer."""

    inputs: Mapping[str, Any]
    """Some of the fields of an input of the service: text, pair, words, question, context,
    choices."""
    label: str | None = None
    """The right answer in words; None if it has no short form, as the tags of a sentence."""

    @property
    def characters(self) -> int:
        parts = self.inputs.values()
        return sum(len(part) if isinstance(part, str) else sum(map(len, part)) for part in parts)

    @property
    def is_readable(self) -> bool:
        """True if there is something to read, and not too much."""
        return 0 < self.characters <= LONGEST_EXAMPLE and all(self.inputs.values())
