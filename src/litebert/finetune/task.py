"""What a fine-tuning task is: a tiny protocol, and the rows of tokens that every task makes of its examples.

A task reads examples from files, encodes them once, turns logits into answers, scores answers and writes them. It
never sees a model, a batch or an optimizer; `finetune.py` and `predict.py` never see a file.

Shapes: n tokens of a row, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from litebert.data.passages import trimmed_lengths
from litebert.tokenizer import Tokenizer

Kind = Literal["sequence", "tokens", "span", "choice"]
"""What the head of the model reads and returns; see `model.task_model.TaskModel`."""

Problem = Literal["classes", "labels", "number", "tokens", "span", "choice"]
"""How logits meet targets: one of C classes; any of C labels; a number; a class per token; first and last token of an
answer; one of some choices."""


class Row(NamedTuple):
    """One sequence as the encoder reads it, special tokens included, without padding."""

    ids: NDArray[np.int32]
    """(n,)"""
    types: NDArray[np.int32]
    """(n,): 0 in the first segment, 1 in the second."""


@dataclass(frozen=True)
class Item:
    """What one row (or, for choices, one row for each) teaches or asks. A long example may have several items."""

    example: int
    """Its place among the examples it was made from."""
    rows: tuple[Row, ...]
    """One; with choices one for each."""
    target: Any
    """By problem: an int, a tuple of C zeros and ones, a float, int64 (n,) with -100 on what is not judged, (first,
    last) token of the answer, or the int of the right choice. None where the answer is not known."""
    detail: Any = None
    """What the task needs to turn logits into an answer, such as offsets; it reaches no model."""


E = TypeVar("E")


class Task(Protocol[E]):
    """A task. `E` is its own type of example."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def kind(self) -> Kind:
        """The head it needs."""
        ...

    @property
    def problem(self) -> Problem:
        """How logits meet targets."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the C classes in the order of their logits; empty for numbers, spans and choices."""
        ...

    @property
    def metric(self) -> str:
        """The score that chooses a checkpoint; higher is better."""
        ...

    @property
    def dev(self) -> tuple[str, ...]:
        """The parts to be scored on; the first decides."""
        ...

    @property
    def tests(self) -> tuple[str, ...]:
        """The parts to be answered only."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What the last read, and the encoding after it, found worth saying: rows skipped, texts cut."""
        ...

    def read(self, part: str) -> list[E]:
        """The examples of a part: train, one of `dev`, or test.

        Raises:
            DataError: a file is missing or malformed; the message names the file and the line.
        """
        ...

    def encode(self, examples: Sequence[E], tokenizer: Tokenizer, length: int) -> list[Item]:
        """Rows of at most `length` tokens; done once, whatever the number of epochs."""
        ...

    def answers(self, examples: Sequence[E], items: Sequence[Item], logits: Sequence[NDArray[np.float32]]) -> list[Any]:
        """One answer per example, from the logits of each item: (C,), (n, C), (n, 2) or (choices,)."""
        ...

    def score(self, examples: Sequence[E], answers: Sequence[Any]) -> dict[str, float]:
        """Scores of answers to labelled examples, `metric` among them."""
        ...

    def file_name(self, part: str) -> str:
        """What the predictions file of a part is called."""
        ...

    def write(self, examples: Sequence[E], answers: Sequence[Any], path: Path) -> None:
        """The predictions file, in the form its benchmark asks for."""
        ...


def full_name(task: Task[Any]) -> str:
    """What a task is called, with its version where it has several: squad1, squad2."""
    version = getattr(task, "version", None)
    return task.name if version is None else f"{task.name}{version}"


def row_of(
    tokenizer: Tokenizer, first: Sequence[int], second: Sequence[int] | None = None, length: int | None = None
) -> Row:
    """[CLS] first [SEP], or [CLS] first [SEP] second [SEP], cut to `length` tokens.

    Tokens are dropped from the ends, as the official BERT and ALBERT code do for GLUE.
    """
    separators = tokenizer.pair_separators
    if length is not None:
        room = length - (2 if second is None else 2 + separators)
        lengths = trimmed_lengths(len(first), len(second or ()), room)
        first, second = first[: lengths[0]], None if second is None else second[: lengths[1]]
    ids = [tokenizer.cls_id, *first, tokenizer.sep_id]
    types = [0] * len(ids)
    if second is not None:
        ids += [tokenizer.sep_id] * (separators - 1)
        types += [0] * (separators - 1)
        ids += [*second, tokenizer.sep_id]
        types += [1] * (len(second) + 1)
    return Row(np.array(ids, np.int32), np.array(types, np.int32))
