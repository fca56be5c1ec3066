"""Multiple choice: a context, perhaps a question, and two or more choices of which one is right.

Each choice becomes a sequence, the head gives each sequence a number, and the highest wins. A JSON
Lines file needs `context` and `choices`; `question`, `label` and `id` are optional. Every sequence
repeats the context, so that the context can attend to the choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from litebert.base.errors import ConfigError, DataError, nearest
from litebert.base.storage import atomic_text
from litebert.tasks.predictions import list_members, list_texts, write_records
from litebert.tasks.rows import build_row
from litebert.tasks.splits import (
    HeldoutOptions,
    Source,
    SplitFiles,
    SplitOptions,
    format_files,
    join_groups,
    take_layout,
)
from litebert.tasks.task import Row, Task, TaskOptions
from litebert.tasks.text_outputs import OneChoice
from litebert.tasks.values import Answer, Item, ModelExample
from litebert.text.records import (
    DEFAULT_LAYOUT,
    Layout,
    Notes,
    RowSource,
    TableFormat,
    format_value,
    read_records,
    require_text,
)
from litebert.tokenizer import Tokenizer

Order = Literal["context", "question"]
"""The first segment: the context, then the last 128 tokens of the question with its choice
(official ALBERT code); or the first 128 tokens of the question with its choice, then the context
(RoBERTa, whose code counts the leading special token among the 128). The context is cut to fit.
"""

QUESTION_TOKENS = 128
"""Most tokens of a question with its choice; less in a short sequence, half of which is context."""

BLANK = re.compile(r"(?<!\w)_+|_+(?!\w)")
"""The blank that a choice fills in a question: a run of "_" that does not join two words."""


@dataclass(frozen=True, kw_only=True)
class OrderOptions(HeldoutOptions):
    """The options of every task of choices."""

    order: Order = "context"
    """Text that comes first in a sequence."""


@dataclass(frozen=True, kw_only=True)
class ChoiceOptions(OrderOptions, SplitOptions):
    """The options of choices from files."""

    input_format: TableFormat | None = None
    """Format of the files; by default the suffix decides."""
    group_column: str | None = None
    """Field of what questions belong to, such as a book; development rows never share it."""


class Choice(NamedTuple):
    """A question with the choices that may answer it."""

    context: str
    question: str
    """May be empty."""
    choices: tuple[str, ...]
    label: int | None
    """The index of the right choice, from 0; None if it is not known."""
    name: str
    group: str = ""
    """Each group also has a score of its own."""

    def fill_in(self, blank: re.Pattern[str] = BLANK) -> list[str]:
        """Return the question with each choice: in place of every blank, or else after it."""
        if blank.search(self.question):
            return [
                blank.sub(choice.replace("\\", r"\\"), self.question) for choice in self.choices
            ]
        return [f"{self.question} {choice}".lstrip(" ") for choice in self.choices]


class ChoiceFiles(SplitFiles[Choice]):
    """JSON Lines (or Parquet) files of questions with choices; a subclass may read other ones.

    `label` is the index of the right choice from 0, its letter, or its text. A dev split that is
    held out of the training split takes whole contexts, with all of their questions.
    """

    suffixes = (".jsonl", ".ndjson", ".parquet")
    contexts = "contexts"
    """The plural for contexts in notes."""
    group_column: str | None = None

    @classmethod
    def of(
        cls,
        sources: Mapping[str, Source],
        *,
        task_class: type[Task[Choice]] | None = None,
        **options: Any,
    ) -> ChoiceFiles:
        layout = take_layout(options)
        given = ChoiceOptions(**options)
        make = task_class or ChoiceTask
        assert issubclass(make, ChoiceTask)
        task = make(OneChoice(), order=given.order)
        files = cls(task, sources, heldout=given.heldout, layout=layout)
        files.group_column = given.group_column
        return files

    @classmethod
    def stream(
        cls, source: RowSource, notes: Notes, *, text: str = "text", pair: str | None = None
    ) -> Iterator[Row[Choice]]:
        return _read_choices(source, notes, ("question",))

    def read(self, split: str, notes: Notes | None = None) -> list[Choice]:
        """Read the questions of a split. Only those of `test` may all be without an answer."""
        notes = Notes() if notes is None else notes
        paths = self._find_files(split)
        examples = [example for path in paths for example in self._read_examples(path, notes)]
        groups = self._read_groups(split, self.group_column)
        units = join_groups([example.context for example in examples], groups)
        name = f"groups by '{self.group_column}'" if groups else self.contexts
        examples = self._select_split(split, examples, units, name, notes)
        unlabeled = sum(example.label is None for example in examples)
        if unlabeled == len(examples) and split != "test":
            purpose = "learn from" if split == "train" else "score"
            raise DataError(
                f"no question in {format_files(paths)} has an answer to {purpose}; "
                "give a labeled file"
            )
        if unlabeled:
            notes["questions have no answer and are not scored"] += unlabeled
        return examples

    def _read_examples(self, path: Path, notes: Notes) -> Iterator[Choice]:
        rows = _read_choices(path, notes, ("question", "label", "id"), self._layout)
        return (row.example for row in rows)


@dataclass(frozen=True)
class ChoiceTask(Task[Choice]):
    name, files = "choices", ChoiceFiles
    options: ClassVar[type[TaskOptions]] = ChoiceOptions
    suffix = ".jsonl"
    inputs = "give (context, question, choices), of choices two or more"
    predicted_files = ("QUESTIONS.jsonl", "ANSWERS.jsonl")
    usual = MappingProxyType({"order": "context"})
    blank: ClassVar[re.Pattern[str]] = BLANK
    order: Order = "context"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order not in get_args(Order):
            raise ConfigError(f"order is '{self.order}'; {nearest(self.order, get_args(Order))}")

    def example(self, value: Any, name: str) -> Choice:
        *context_and_question, choices = list_members(value)
        context, question = list_texts(context_and_question, 2)
        choices = list_texts(choices)
        if len(choices) < 2:
            raise TypeError
        return Choice(context, question, choices, None, name)

    def show_example(self, example: Choice) -> ModelExample:
        label = None if example.label is None else example.choices[example.label]
        fields: dict[str, Any] = {"context": example.context}
        if example.question:
            fields["question"] = example.question
        return ModelExample({**fields, "choices": list(example.choices)}, label)

    def encode(
        self, examples: Sequence[Choice], tokenizer: Tokenizer, length: int, notes: Notes
    ) -> list[Item]:
        max_tokens = length - 2 - tokenizer.pair_separators
        max_question = min(QUESTION_TOKENS, max_tokens // 2)
        # A context with many questions is encoded once.
        contexts = list(dict.fromkeys(example.context for example in examples))
        context_ids = dict(zip(contexts, tokenizer.encode(contexts), strict=True))
        items = []
        for i, example in enumerate(examples):
            context = context_ids[example.context]
            rows = []
            for ids in tokenizer.encode(example.fill_in(self.blank)):
                question = ids
                if len(ids) > max_question:  # cut as `Order` says
                    cut = f"questions with their option were truncated to {max_question} tokens"
                    notes[cut] += 1
                    is_last = self.order == "context"
                    question = ids[-max_question:] if is_last else ids[:max_question]
                context_size = max_tokens - len(question)
                if len(context) > context_size:
                    notes[f"rows lost the end of their context at {length} tokens"] += 1
                segments = (context[:context_size], question)
                first, second = segments if self.order == "context" else segments[::-1]
                rows.append(build_row(tokenizer, first, second))
            items.append(Item(i, tuple(rows), example.label, group=hash(example.context)))
        return items

    def record(self, example: Choice, answer: Answer) -> dict[str, Any]:
        return super().record(example, answer) | {"prediction": self._format_choice(answer.value)}

    def read_record(self, example: Choice, record: Mapping[str, Any]) -> Answer:
        answer: Answer = super().read_record(example, record)
        written = [self._format_choice(place) for place in range(len(answer.probabilities))]
        return answer._replace(value=written.index(answer.value))

    def score(self, examples: Sequence[Choice], answers: Sequence[Answer]) -> dict[str, float]:
        """Return `accuracy`, of all and of each group. A tie with another choice is wrong."""
        right_by_group: dict[str, list[bool]] = {}
        labeled = self._select_labeled(examples, answers)
        for example, answer in zip(*labeled, strict=True):
            # A NaN is no probability, and compares as False.
            best = (answer.probabilities >= answer.probabilities[answer.value]).sum()
            is_right = example.label == answer.value and bool(best == 1)
            right_by_group.setdefault(example.group, []).append(is_right)
        all_right = [is_right for group in right_by_group.values() for is_right in group]
        scores = {"accuracy": float(np.mean(all_right))}
        for group, right in right_by_group.items():
            if group:
                scores[f"accuracy_{group}"] = float(np.mean(right))
        return scores

    def write(self, examples: Sequence[Choice], answers: Sequence[Answer], path: Path) -> None:
        """Write `id`, `label` as the data writes it, and `choice`, its text, in JSON Lines."""
        rows = (
            {
                "id": example.name,
                "label": self._format_choice(answer.value),
                "choice": example.choices[answer.value],
            }
            for example, answer in zip(examples, answers, strict=True)
        )
        with atomic_text(path) as file:
            write_records(rows, file, "jsonl")

    def _format_choice(self, choice: int) -> int | str:
        """Return a choice as the benchmark writes it; a subclass may use letters."""
        return choice


def _read_choices(
    source: RowSource, notes: Notes, optional: Sequence[str], layout: Layout = DEFAULT_LAYOUT
) -> Iterator[Row[Choice]]:
    rows = read_records(source, ("context", "choices"), notes, optional=optional, layout=layout)
    for line, cells, extras in rows:
        location = f"{source}:{line}"
        context, choices, question, *label_and_name = cells
        label, name = label_and_name or (None, None)
        question = require_text("" if question is None else question, "question", location)
        choices = require_choices(choices, "choices", location)
        context = require_text(context, "context", location)
        index = None if label is None else _parse_label(label, choices, location)
        choice = Choice(context, question, choices, index, str(line if name is None else name))
        yield Row(choice, extras, str(source), line)


def require_choices(value: Any, field: str, location: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) < 2:
        raise DataError(
            f"{location}: {field} is {format_value(value)}; write a list of two or more texts"
        )
    return tuple(require_text(text, f"{field}[{i}]", location) for i, text in enumerate(value))


def format_letter(choice: int) -> str:
    return chr(ord("A") + choice)


def _parse_label(label: Any, choices: tuple[str, ...], location: str) -> int:
    if isinstance(label, float) and label.is_integer():  # of a column where some have no answer
        label = int(label)
    if isinstance(label, int) and not isinstance(label, bool):
        if 0 <= label < len(choices):
            return label
        raise DataError(
            f"{location}: label is {label} of {len(choices)} choices; count them from 0"
        )
    readings = {i for i, text in enumerate(choices) if label in (text, format_letter(i), str(i))}
    if len(readings) == 1:
        return readings.pop()
    if readings:
        raise DataError(
            f"{location}: label {format_value(label)} could be several choices; write its index, "
            "a number from 0"
        )
    raise DataError(
        f"{location}: label is {format_value(label)}; write the index of a choice from 0, its "
        "letter or its text"
    )
