"""Multiple choice: a context, perhaps a question, and two or more choices of which one is right.

Each choice becomes a row of its own, the head gives each row a number, and the highest wins. Any
JSON Lines file will do that has `context` and `choices`, and optionally `question`, `label` and
`id`. Rows repeat the context for every choice; that is the price of letting it attend to the
choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from litebert.errors import ConfigError, DataError, nearest
from litebert.finetuning.examples import ModelExample
from litebert.finetuning.items import Item, build_row
from litebert.finetuning.outputs import Answer
from litebert.finetuning.text_outputs import OneChoice
from litebert.storage import atomic_text
from litebert.tasks.parts import (
    Data,
    FileTask,
    Layout,
    Source,
    given_files,
    layout_of,
    named,
    part_files,
)
from litebert.tasks.predictions import members, texts, write_records
from litebert.text.records import FileFormat, Notes, format_value, read_records, require_text
from litebert.tokenizer import Tokenizer

Order = Literal["context", "question"]
"""Which comes first in a row. `context`: then the question with its option, of which the LAST 128
tokens are kept (official ALBERT code). `question`: the question with its option, of which the FIRST
128 tokens are kept, then the context (RoBERTa's; its code counts the leading special token among
the 128). The context is cut to fit."""

QUESTION_TOKENS = 128
"""Most tokens of a question with its option; less where that would leave the context under half of
the row.
"""

BLANK = re.compile(r"(?<!\w)_+|_+(?!\w)")
"""The blank of a question, which a choice fills: a run of "_" that does not join two words."""


class Choice(NamedTuple):
    """A question to be answered by one of its choices."""

    context: str
    question: str
    """May be empty."""
    choices: tuple[str, ...]
    label: int | None
    """Which choice is right, from 0; None where that is not known."""
    name: str
    """Its name in the predictions file."""
    group: str = ""
    """Groups are also scored one by one."""

    def filled(self, blank: re.Pattern[str] = BLANK) -> list[str]:
        """The question with each of its choices: in place of every blank, else after it."""
        if blank.search(self.question):
            return [
                blank.sub(choice.replace("\\", r"\\"), self.question) for choice in self.choices
            ]
        return [f"{self.question} {choice}".lstrip(" ") for choice in self.choices]


class ChoiceTask(FileTask[Choice]):
    """Multiple choice read from JSON Lines (or Parquet) files; a subclass may read other ones.

    `label` is the place of the right choice from 0, its letter, or its text. Without a dev part, a
    share `heldout` of the contexts of the training part takes its place, each with all of its
    questions.
    """

    name, suffix = "choices", ".jsonl"
    inputs = "give (context, question, choices), of choices two or more"
    predicted_files = ("QUESTIONS.jsonl", "ANSWERS.jsonl")
    takes: ClassVar[tuple[str, ...]] = (
        "dev",
        "test",
        "order",
        "heldout",
        "input_format",
        "encoding",
    )
    usual = MappingProxyType({"order": "context"})
    suffixes = (".jsonl", ".ndjson", ".parquet")
    blank = BLANK
    contexts = "contexts"
    """What shares a text, in words."""

    def __init__(
        self,
        data: Data = MappingProxyType({}),
        *,
        order: Order = "context",
        heldout: float = 0.1,
        layout: Layout | None = None,
    ) -> None:
        super().__init__(OneChoice(), files=part_files(data), heldout=heldout, layout=layout)
        if order not in get_args(Order):
            raise ConfigError(f"order is '{order}'; {nearest(order, get_args(Order))}")
        self.order = order

    @classmethod
    def from_data(cls, name: str, data: Source, **options: Any) -> ChoiceTask:
        """Of a folder's files, or of training files with `dev` and `test` beside them."""
        return cls(given_files(data, options), layout=layout_of(options), **options)

    def example(self, value: Any, name: str) -> Choice:
        """Of a context, a question and a list of choices."""
        *asked, options = members(value)
        context, question = texts(asked, 2)
        choices = texts(options)
        if len(choices) < 2:
            raise TypeError
        return Choice(context, question, choices, None, name)

    def show_example(self, example: Choice) -> ModelExample:
        """The context, the question and the choices, with the right one."""
        label = None if example.label is None else example.choices[example.label]
        question = {"question": example.question} if example.question else {}
        return ModelExample(
            {"context": example.context, **question, "choices": list(example.choices)}, label
        )

    def stream(
        self,
        source: str | Path,
        *,
        text: str = "text",
        pair: str | None = None,
        form: FileFormat | None = None,
    ) -> Iterator[Choice]:
        """The questions of a file with context, choices and perhaps a question."""
        self._found = Notes()
        return _choices(source, self._found, ("question",), form)

    def read(self, part: str) -> list[Choice]:
        """The questions of a part, in the order of its files; only those of `test` may all be
        without an answer.
        """
        paths = self._of(part)
        self._found = Notes()
        examples = [example for path in paths for example in self._examples(path)]
        examples = self._own(part, examples, lambda i: examples[i].context, self.contexts)
        unknown = sum(example.label is None for example in examples)
        if unknown == len(examples) and part != "test":
            what = "learn from" if part == "train" else "score"
            raise DataError(
                f"no question in {named(paths)} has an answer to {what}; give a labelled file"
            )
        if unknown:
            self._found["questions have no answer and are not scored"] += unknown
        return examples

    def encode(self, examples: Sequence[Choice], tokenizer: Tokenizer, length: int) -> list[Item]:
        """One row for each choice, of at most `length` tokens; what is truncated is counted and
        noted.
        """
        room = length - 2 - tokenizer.pair_separators
        most = min(QUESTION_TOKENS, room // 2)
        contexts = list(
            dict.fromkeys(example.context for example in examples)
        )  # one article has many questions
        context_ids = dict(zip(contexts, tokenizer.encode(contexts), strict=True))
        items = []
        for i, example in enumerate(examples):
            context = context_ids[example.context]
            rows = []
            for asked in tokenizer.encode(example.filled(self.blank)):
                if len(asked) > most:
                    self._found[f"questions with their option were truncated to {most} tokens"] += 1
                    asked = asked[-most:] if self.order == "context" else asked[:most]
                if len(context) > room - len(asked):
                    self._found[f"rows lost the end of their context at {length} tokens"] += 1
                kept = context[: room - len(asked)]
                first, second = (kept, asked) if self.order == "context" else (asked, kept)
                rows.append(build_row(tokenizer, first, second))
            items.append(Item(i, tuple(rows), example.label))
        return items

    def record(self, example: Choice, answer: Answer) -> dict[str, Any]:
        """The choice as the data writes it, and the probabilities of all."""
        return super().record(example, answer) | {"prediction": self._written(answer.value)}

    def score(self, examples: Sequence[Choice], answers: Sequence[Answer]) -> dict[str, float]:
        """`accuracy` over all, and `accuracy_GROUP` over each group. A choice that ties with
        another one is wrong.
        """
        right: dict[str, list[bool]] = {}
        known = self._known(examples, answers, lambda example: example.label is not None)
        for example, answer in zip(*known, strict=True):
            right.setdefault(example.group, []).append(
                example.label == answer.value and _is_alone(answer)
            )
        scores = {"accuracy": float(np.mean([one for group in right.values() for one in group]))}
        return scores | {
            f"accuracy_{group}": float(np.mean(found)) for group, found in right.items() if group
        }

    def write(self, examples: Sequence[Choice], answers: Sequence[Answer], path: Path) -> None:
        """JSON Lines in the order of the questions: `id`, `label` as the data writes it, and
        `choice`, its text.
        """
        rows = (
            {
                "id": one.name,
                "label": self._written(answer.value),
                "choice": one.choices[answer.value],
            }
            for one, answer in zip(examples, answers, strict=True)
        )
        with atomic_text(path) as file:
            write_records(rows, file, "jsonl")

    def _examples(self, path: Path) -> Iterator[Choice]:
        form, _, encoding = self._layout
        return _choices(path, self._found, ("question", "label", "id"), form, encoding)

    def _written(self, choice: int) -> int | str:
        return choice


def _choices(
    source: str | Path,
    found: Notes,
    optional: Sequence[str],
    form: FileFormat | None = None,
    encoding: str = "utf-8",
) -> Iterator[Choice]:
    wanted = ("context", "choices")
    for line, row in read_records(
        source, wanted, found, optional=optional, form=form, encoding=encoding
    ):
        where = f"{source}:{line}"
        context, choices, question, *known = row
        label, name = known or (None, None)
        question = require_text("" if question is None else question, "question", where)
        choices = choices_of(choices, "choices", where)
        context = require_text(context, "context", where)
        right = None if label is None else _label_of(label, choices, where)
        yield Choice(context, question, choices, right, str(line if name is None else name))


def choices_of(value: Any, field: str, where: str) -> tuple[str, ...]:
    """A field that must be a list of two or more texts, or a DataError."""
    if not isinstance(value, list) or len(value) < 2:
        raise DataError(
            f"{where}: {field} is {format_value(value)}; write a list of two or more texts"
        )
    return tuple(require_text(one, f"{field}[{i}]", where) for i, one in enumerate(value))


def _is_alone(answer: Answer) -> bool:
    """Whether no other choice is as probable as the answer; not so where a probability is not a
    number.
    """
    return bool((answer.probabilities >= answer.probabilities[answer.value]).sum() == 1)


def letter_of(choice: int) -> str:
    """A, B, C ... by place."""
    return chr(ord("A") + choice)


def _label_of(label: Any, choices: tuple[str, ...], where: str) -> int:
    if isinstance(label, int) and not isinstance(label, bool):
        if 0 <= label < len(choices):
            return label
        raise DataError(f"{where}: label is {label} of {len(choices)} choices; count them from 0")
    readings = {i for i, text in enumerate(choices) if label in (text, letter_of(i), str(i))}
    if len(readings) == 1:
        return readings.pop()
    if readings:
        raise DataError(
            f"{where}: label {format_value(label)} could be several choices; write its position, "
            "a number from 0"
        )
    raise DataError(
        f"{where}: label is {format_value(label)}; write the position of a choice from 0, its "
        "letter or its text"
    )
