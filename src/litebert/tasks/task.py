"""The base of fine-tuning tasks. A `Task` is a value that encodes, scores and writes examples;
`TaskFiles` opens its files and yields their rows.

A task of your own is a subclass of each, with a registered name: TASKS.add("mine", Mine)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from itertools import islice, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import ConfigError, DataError, ModelError
from litebert.base.json_reader import read_json
from litebert.base.storage import write_json
from litebert.tasks.outputs import Output, restore_output
from litebert.tasks.values import EncodedPart, Item, Logits, ModelExample, PlainItem
from litebert.text.records import Notes, RowSource
from litebert.tokenizer import Tokenizer

if TYPE_CHECKING:  # who answers without PyTorch loads no model
    from litebert.interop.loaded import LoadedModel

E = TypeVar("E")
EXAMPLES = "examples.json"
"""The file of a model's examples: short development texts that stay with it, so that people see
what it can be asked. The playground of `litebert serve` offers them; `--no-examples` keeps none."""
MOST_EXAMPLES = 4
_PREFERRED = 140
"""The characters of an example that a reader takes in at a glance."""
_INPUTS = ("text", "pair", "words", "question", "context", "choices")
"""Fields of an input of the service."""


@dataclass(frozen=True)
class Row(Generic[E]):
    """A row of a file to answer: its example, and what belongs to it."""

    example: E
    extras: Mapping[str, Any] = field(default_factory=dict)
    """The cells that go before its answer, by column."""
    file: str = ""
    """The path of its file."""
    line: int | None = None
    """The number of its line in the file, where that is known."""

    @property
    def location(self) -> str:
        """The file with the line, for a message."""
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The options of a task: a subclass adds fields, with a default and a docstring for each.

    A field is an option of `open_task` and of `litebert finetune --task NAME`. A field `no_X` that
    is true sets the option X to false.
    """

    @classmethod
    def list_names(cls) -> tuple[str, ...]:
        """List the names of the options, as `open_task` takes them."""
        return tuple(option.name.removeprefix("no_") for option in fields(cls))

    def collect_changes(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, as `open_task` takes them."""
        return {
            option.name: value
            for option in fields(self)
            if (value := getattr(self, option.name)) != option.default
        }


@dataclass(frozen=True)
class Task(ABC, Generic[E]):
    """A task. `E` is its own type of example."""

    name: ClassVar[str]
    """Its name in the registry."""
    files: ClassVar[type[TaskFiles[Any]]]
    """Reads its files."""
    options: ClassVar[type[TaskOptions]] = TaskOptions
    """The options that it takes."""
    usual: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Settings that other programs do not keep, with the values their folders are read with."""
    percent: ClassVar[bool] = False
    """True if its scores are percentages; otherwise they are fractions."""
    suffix: ClassVar[str]
    """File extension of its predictions files."""
    predicted_files: ClassVar[tuple[str, str]] = ("ROWS.csv", "ANSWERS.csv")
    """Input and output files of `litebert predict` in the command that is proposed."""

    output: Output
    metric: str = ""
    """The score that chooses a checkpoint; higher is better. By default the output's first."""
    dev: tuple[str, ...] = ()
    """The parts to be scored on; the first decides."""
    tests: tuple[str, ...] = ()
    """The parts to be answered, and scored where their answers are known; they choose nothing."""
    pair: bool | None = False
    """True if its texts come in pairs; None if single texts do too."""
    apart: bool = False
    """True if the two texts of a pair are rows of their own."""
    sources: tuple[str, ...] = ()
    """The names of its files, for messages."""

    def __post_init__(self) -> None:
        if not self.metric:
            object.__setattr__(self, "metric", self.output.scores[0])

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Task[E]:
        """Make the task as it answers from `settings()`, and `labels`, `classes`, `kind` and
        `problem` of the model; a folder that other software wrote has the last four only.
        """
        saved = {name: settings.get(name, value) for name, value in cls.usual.items()}
        return cls(restore_output(settings), **saved)

    def settings(self) -> dict[str, Any]:
        """Return the settings saved with a model, so that it answers as it was scored."""
        return {name: getattr(self, name) for name in self.usual}

    def identity(self) -> dict[str, Any]:
        """Return the facts, beside data and config, that tell runs apart, for finetune.json."""
        return {}

    def closing(
        self, items: Sequence[Item], logits: Callable[[Sequence[Item]], Logits], seed: int
    ) -> Mapping[str, Task[E]]:
        """Return the task as a trained model may answer it, by a name, with what is computed from
        the logits of the training items at the end. Of several, the one with the highest score on
        the first development part is taken.
        """
        return {"": self}

    def with_teacher(self) -> Task[E]:
        """Return the task as it is learned from a teacher."""
        return self

    def for_unlabeled(self) -> Task[E]:
        """Return the task with the columns of files of texts that only a teacher answers."""
        return self

    def write_beside(self, folder: Path) -> None:
        """Write the files of a model that are neither weights nor settings."""

    def complete(self, loaded: LoadedModel) -> Task[E]:
        """Return the task of an opened model, with what `write_beside` wrote into its folder."""
        return self

    @property
    def full_name(self) -> str:
        """Its name, with its version if it has several: squad1, squad2."""
        return self.name

    @property
    def point(self) -> str:
        """Its name in `recipes.finetuning`, which has its hyper-parameters."""
        return self.full_name

    @property
    def distill_obstacle(self) -> str:
        """Why `litebert distill` makes no student for the task, to end a sentence, or empty."""
        if self.output.head == "sequence" and self.output.width > 0:
            return ""
        return f"answers with '{self.output.name}'"

    @property
    def has_phrases(self) -> bool:
        """True if a part of a text is an example for a teacher too, as a part of a pair is not."""
        return not self.pair

    # ------------------------------------------------------------------------------------- examples

    @property
    @abstractmethod
    def inputs(self) -> str:
        """How an input of `predict` looks, as an instruction: give a text or a pair of texts."""

    @abstractmethod
    def example(self, value: Any, name: str) -> E:
        """Make an example of an input of `predict`, with a name of its own."""

    def show_example(self, example: E) -> ModelExample | None:
        """Return the example as a person would ask it; None of a task that has no such form."""
        return None

    @abstractmethod
    def encode(
        self, examples: Sequence[E], tokenizer: Tokenizer, length: int, notes: Notes
    ) -> list[Item]:
        """Encode examples as rows of at most `length` tokens; notes collect what a user should
        know.
        """

    def lengths(self, examples: Sequence[E], tokenizer: Tokenizer) -> NDArray[np.int64] | None:
        """Count the tokens of each example that is read whole, special ones included, (N,); None
        where the task divides long texts itself.
        """
        return None

    def plain_items(self, examples: Sequence[E]) -> list[PlainItem]:
        """Return the examples as a baseline reads them, one item each; none without a baseline."""
        return []

    # -------------------------------------------------------------------------------------- answers

    def answers(
        self, examples: Sequence[E], items: Sequence[Item], logits: Sequence[NDArray[np.float32]]
    ) -> list[Any]:
        """Return one answer per example, from the logits of each item in the form of
        `Output.of_item`.
        """
        return self.output.answers(logits)

    def record(self, example: E, answer: Any) -> dict[str, Any]:
        """Return the record that `predict` writes of an answer, in the form of its benchmark."""
        return self.output.record(answer)

    def read_record(self, example: E, record: Mapping[str, Any]) -> Any:
        """Make an answer of what `predict` wrote of it, the reverse of `record`."""
        return self.output.read_record(record)

    def by_class(
        self, examples: Sequence[E], answers: Sequence[Any]
    ) -> dict[str, dict[str, float]]:
        """Compute `precision`, `recall`, `f1` and `count` of each class."""
        return {}

    @abstractmethod
    def score(self, examples: Sequence[E], answers: Sequence[Any]) -> dict[str, float]:
        """Compute the scores of answers to examples of known label, `metric` among them."""

    def tune(self, examples: Sequence[E], answers: Sequence[Any]) -> Task[E]:
        """Return the task with what it tunes on the first dev part, such as a threshold."""
        return self

    def has_label(self, example: Any) -> bool:
        """Return True if an answer to the example can be scored."""
        return example.label is not None

    def _select_labeled(
        self, examples: Sequence[E], answers: Sequence[Any]
    ) -> tuple[Sequence[E], Sequence[Any]]:
        pairs = [pair for pair in zip(examples, answers, strict=True) if self.has_label(pair[0])]
        if not pairs:
            raise DataError(
                f"no example of {', '.join(self.sources) or f'the {self.name} task'} has an answer "
                "to score against; give a labeled file"
            )
        labeled, their_answers = zip(*pairs, strict=True)
        return labeled, their_answers

    def file_name(self, split: str) -> str:
        return split + self.suffix

    @abstractmethod
    def write(self, examples: Sequence[E], answers: Sequence[Any], path: Path) -> None:
        """Write the predictions file, in the form its benchmark asks for."""


class TaskFiles(ABC, Generic[E]):
    """The files of a task: it opens their splits, and yields their rows."""

    task: Task[E]
    """The task that the files decide, such as the labels of a training file."""
    unlabeled: Sequence[E] | None = None
    """Further examples without an answer, for a teacher to answer."""
    remarks: Sequence[str] = ()
    """Warnings of their opening, which become events in the metrics of a run."""

    @classmethod
    @abstractmethod
    def open(cls, task_class: type[Task[E]], name: str, data: Any, **options: Any) -> TaskFiles[E]:
        """Open the files of the task class registered under `name`; data and options of
        `open_task`.
        """

    @classmethod
    def open_labeled(cls, task: Task[E], source: Any, **options: Any) -> TaskFiles[E]:
        """Open labeled files as the first dev part of a task; options say how they are read."""
        raise ConfigError(
            f"the task {task.name} does not read labeled files; its files need the method "
            "`open_labeled`"
        )

    def with_task(self, task: Task[E]) -> TaskFiles[E]:
        files = copy(self)
        files.task = task
        return files

    def with_unlabeled(self, examples: Sequence[E] | None) -> TaskFiles[E]:
        files = copy(self)
        files.unlabeled = examples
        return files

    @property
    def file_names(self) -> dict[str, list[str]]:
        return {}

    @abstractmethod
    def read(self, split: str, notes: Notes | None = None) -> list[E]:
        """Read the examples of a split: train, a part of `task.dev`, or test. Notes collect skipped
        rows.
        """

    def read_column(self, split: str, column: str) -> list[str]:
        """Read another column of the rows of a split, as text, in the order of `read`."""
        raise ConfigError(
            f"the task {self.task.name} has no column '{column}'; only a table has slices"
        )

    @classmethod
    @abstractmethod
    def stream(
        cls, source: RowSource, notes: Notes, *, text: str = "text", pair: str | None = None
    ) -> Iterator[Row[E]]:
        """Yield the rows of a file (a path, `-`, or with how to read it) without answers, in
        constant memory; `text` and `pair` are columns.
        """

    @classmethod
    def stream_official(cls, source: RowSource, notes: Notes) -> Iterator[Row[E]] | None:
        """Yield the rows of a file in the benchmark's form, with their `id` as a cell; None without
        one.
        """
        return None


def choose_examples(task: Task[Any], part: EncodedPart) -> list[ModelExample]:
    """Choose at most `MOST_EXAMPLES` short examples of a part, of as many labels as there are,
    whether they are answered right or not.
    """
    shown = (task.show_example(example) for example in part.examples)
    short = [example for example in shown if example is not None and example.is_readable]
    # Stable, so the same run keeps the same ones.
    short.sort(key=lambda example: abs(example.characters - _PREFERRED))
    by_label: dict[str | None, list[ModelExample]] = {}
    for example in short:
        by_label.setdefault(example.label, []).append(example)
    rounds = zip_longest(*(by_label[label] for label in sorted(by_label, key=str)))
    chosen = (example for each in rounds for example in each if example is not None)
    return list(islice(chosen, MOST_EXAMPLES))


def write_examples(folder: Path, examples: Iterable[ModelExample]) -> None:
    listed = [{**example.inputs, "label": example.label} for example in examples]
    if listed:
        write_json(folder / EXAMPLES, {"examples": listed})


def read_examples(folder: Path) -> list[ModelExample]:
    """Read the examples in the folder of a model or of its run; none if it keeps none."""
    files = (folder / EXAMPLES, folder / "model" / EXAMPLES)
    file = next((path for path in files if path.is_file()), None)
    if file is None:
        return []
    listed = read_json(file, ModelError, "delete it").get("examples")
    if not isinstance(listed, list) or not all(isinstance(example, dict) for example in listed):
        raise ModelError(f"{file} has no list of examples; delete it")
    examples = []
    for fields_ in listed[:MOST_EXAMPLES]:
        inputs = {name: fields_[name] for name in _INPUTS if name in fields_}
        texts = (
            part
            for value in inputs.values()
            for part in (value if isinstance(value, list) else [value])
        )
        label = fields_.get("label")
        if not all(isinstance(text, str) for text in (*texts, label or "")):
            raise ModelError(f"{file} has an example that is not text; delete it")
        examples.append(ModelExample(inputs, label))
    return examples
