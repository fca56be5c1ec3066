"""What tasks over one or two texts share (GLUE, your own table): examples, rows of tokens, answers and scores.

A reader gives `TextTask` its examples with labels as targets already; so everything from there on is one code for
classes, several labels and numbers.

Shapes: C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from litebert.errors import DataError
from litebert.finetune.task import Item, Kind, row_of
from litebert.tasks.scores import scores
from litebert.text.records import Notes
from litebert.tokenizer import Tokenizer

TextProblem = Literal["classes", "labels", "number"]

Label: TypeAlias = "int | float | tuple[int, ...]"
"""By problem: the class, C zeros and ones, or the number."""


class Example(NamedTuple):
    """One or two texts and what is right about them."""

    text: str
    pair: str | None = None
    label: Label | None = None
    """None where it is not known."""
    name: str = ""
    """What it is called in a predictions file, where the benchmark has one."""


class Answer(NamedTuple):
    """What the model says about one example."""

    value: str | tuple[str, ...] | float
    """By problem: the likeliest label, the labels of a probability above a half, or the number."""
    probabilities: NDArray[np.float64]
    """(C,), in the order of the task's labels: they sum to one for classes, each stands alone for several labels; (0,)
    for numbers."""


class TextTask:
    """The half of a `Task` that reads no file."""

    name: str
    kind: Kind = "sequence"

    def __init__(self, problem: TextProblem, labels: Sequence[str], score_names: Sequence[str], metric: str) -> None:
        assert metric in score_names
        self.problem: TextProblem = problem
        self.labels = tuple(labels)
        self.metric = metric
        self._score_names = tuple(score_names)
        self._found = Notes()

    @property
    def notes(self) -> list[str]:
        """What reading and encoding since the last `read` found worth saying."""
        return self._found.notes()

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, length: int) -> list[Item]:
        """One row an example, of at most `length` tokens; what is longer is cut, counted and noted."""
        firsts = tokenizer.encode([example.text for example in examples])
        seconds = iter(tokenizer.encode([example.pair for example in examples if example.pair is not None]))
        items = []
        for i, (example, first) in enumerate(zip(examples, firsts, strict=True)):
            second = None if example.pair is None else next(seconds)
            specials = 2 if second is None else 2 + tokenizer.pair_separators
            if len(first) + len(second or ()) + specials > length:
                self._found[f"texts longer than {length} tokens were cut"] += 1
            items.append(Item(i, (row_of(tokenizer, first, second, length),), example.label))
        return items

    def answers(
        self, examples: Sequence[Example], items: Sequence[Item], logits: Sequence[NDArray[np.float32]]
    ) -> list[Answer]:
        """One per example, in order."""
        if not logits:
            return []
        values = np.stack(logits).astype(np.float64)
        if self.problem == "number":
            return [Answer(value, np.empty(0)) for value in values[:, 0].tolist()]
        if self.problem == "labels":
            likely = 0.5 * (1 + np.tanh(values / 2))  # the logistic function, without overflow
            return [
                Answer(tuple(name for name, p in zip(self.labels, row, strict=True) if p > 0.5), row) for row in likely
            ]
        likely = np.exp(values - values.max(1, keepdims=True))
        likely /= likely.sum(1, keepdims=True)
        return [Answer(self.labels[best], row) for best, row in zip(values.argmax(1).tolist(), likely, strict=True)]

    def score(self, examples: Sequence[Example], answers: Sequence[Answer]) -> dict[str, float]:
        """Scores over the examples whose label is known, `metric` among them.

        Raises:
            DataError: no label is known.
        """
        known = [(example.label, answer.value) for example, answer in zip(examples, answers, strict=True)
                 if example.label is not None]  # fmt: skip
        if not known:
            raise DataError(f"the examples of {self.name} have no labels to score answers by; give a part that has")
        truth, guess = zip(*known, strict=True)
        return scores(self._score_names, np.array(truth), np.array([self._as_label(value) for value in guess]))

    def class_counts(self, examples: Sequence[Example]) -> dict[str, int]:
        """How many examples have each label; empty for numbers."""
        counts = dict.fromkeys(self.labels, 0)
        for example in examples:
            if isinstance(example.label, int) and self.problem == "classes":
                counts[self.labels[example.label]] += 1
            elif isinstance(example.label, tuple):
                for name, has in zip(self.labels, example.label, strict=True):
                    counts[name] += has
        return counts

    def _as_label(self, value: Any) -> Label:
        if self.problem == "number":
            return float(value)
        if self.problem == "labels":
            return tuple(int(name in value) for name in self.labels)
        return self.labels.index(value)
