"""A fine-tuning task: it reads examples from files, encodes them once, scores answers and writes
them.

How logits meet targets and become answers is its `output`. A task never sees a model, a batch or an
optimizer; the code that trains and predicts never sees a file. A task of your own is a subclass
with a registered name: TASKS.add("mine", Mine)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from litebert.errors import ConfigError, DataError
from litebert.finetuning.items import Item, PlainItem
from litebert.finetuning.outputs import Output
from litebert.text.records import Notes, RowSource
from litebert.tokenizer import Tokenizer

if TYPE_CHECKING:
    from litebert.finetuning.examples import ModelExample
    from litebert.finetuning.scoring import Logits

E = TypeVar("E")


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

    A field is an option of `task_of` and of `litebert finetune --task NAME`. A field `no_X` that is
    true sets the option X to false.
    """

    @classmethod
    def list_names(cls) -> tuple[str, ...]:
        """List the names of the options, as `task_of` takes them."""
        return tuple(option.name.removeprefix("no_") for option in fields(cls))

    def collect_changes(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, as `task_of` takes them."""
        values = {option.name: getattr(self, option.name) for option in fields(self)}
        return {
            name.removeprefix("no_"): False if name.startswith("no_") else value
            for name, value in values.items()
            if value != type(self).__dataclass_fields__[name].default
        }


class Task(ABC, Generic[E]):
    """A task. `E` is its own type of example."""

    name: str
    """Its name in the registry."""
    options: ClassVar[type[TaskOptions]] = TaskOptions
    """The options that it takes."""
    usual: ClassVar[Mapping[str, Any]] = {}
    """Settings that other programs do not keep, with the values their folders are read with."""
    percent: ClassVar[bool] = False
    """True if its scores are percentages; otherwise they are fractions."""
    suffix: ClassVar[str]
    """File extension of its predictions files."""
    predicted_files: ClassVar[tuple[str, str]] = ("ROWS.csv", "ANSWERS.csv")
    """Input and output files of `litebert predict` in the command that is proposed."""
    pair: bool | None = False
    """True if its texts come in pairs; None if single texts do too."""
    dev: tuple[str, ...] = ()
    """The parts to be scored on; the first decides."""
    tests: tuple[str, ...] = ()
    """The parts to be answered, and scored where their answers are known; they choose nothing."""

    def __init__(self, output: Output, metric: str | None = None) -> None:
        self.output = output
        self.metric = metric or output.scores[0]
        """The score that chooses a checkpoint; higher is better."""
        self._notes = Notes()

    @classmethod
    def from_data(cls, name: str, data: Any, **options: Any) -> Task[E]:
        """Make the task of a registered name on its files; `data` and the options are those of
        `task_of`.

        Raises:
            ConfigError: an option that cannot be.
            DataError: a file is missing or malformed; the message names the file and the line, here
                and below.
        """
        make: Callable[..., Task[E]] = cls
        return make(data, **options)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Task[E]:
        """Make the task as it answers, without files: from `settings()`, and `labels`, `classes`,
        `kind` and `problem` of the model. A folder that other software wrote has the last four
        only.
        """
        return cls(**{name: settings.get(name, value) for name, value in cls.usual.items()})

    def settings(self) -> dict[str, Any]:
        """Return the settings saved with a model, beside its output, so that it answers as it was
        scored.
        """
        return {name: getattr(self, name) for name in self.usual}

    def identity(self) -> dict[str, Any]:
        """Return the facts that tell runs of this task apart, beside its data and config; stored in
        finetune.json.
        """
        return {}

    def closing(
        self, items: Sequence[Item], logits: Callable[[Sequence[Item]], Logits], seed: int
    ) -> Task[E]:
        """Return the task as a trained model answers it, with what is computed from the training
        items when training has ended.

        Args:
            logits: what the trained model says of items.
        """
        return self

    def write_beside(self, folder: Path) -> None:
        """Write the files of a model that are neither weights nor settings."""

    def read_beside(self, folder: Path) -> Task[E]:
        """Return the task with what `write_beside` wrote into the folder of a model.

        Raises:
            ModelError: a file is missing or damaged.
        """
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
    def file_names(self) -> dict[str, list[str]]:
        """The names of the files of each part, where the task knows them."""
        return {}

    @property
    def notes(self) -> list[str]:
        """Notes of reading and encoding since the last `read`: rows skipped, texts truncated."""
        return self._notes.notes()

    # ------------------------------------------------------------------------------------- examples

    @abstractmethod
    def read(self, split: str) -> list[E]:
        """Read the examples of a split: train, one of `dev`, or test.

        Raises:
            DataError: as for `from_data`.
        """

    @property
    @abstractmethod
    def inputs(self) -> str:
        """How an input of `predict` looks, as an instruction: give a text or a pair of texts."""

    @abstractmethod
    def example(self, value: Any, name: str) -> E:
        """Make an example of an input of `predict`, with a name of its own.

        Raises:
            TypeError: it is of another form than `inputs` says.
        """

    def show_example(self, example: E) -> ModelExample | None:
        """Return the example as a person would ask it; None of a task that has no such form."""
        return None

    @abstractmethod
    def stream(
        self, source: RowSource, *, text: str = "text", pair: str | None = None
    ) -> Iterator[Row[E]]:
        """Yield the rows of a file without answers, or of standard input, in constant memory.

        Args:
            source: a path, `-`, or a file with how to read it.
            text, pair: columns, where the task has texts.

        Raises:
            DataError: as for `from_data`.
        """

    def stream_official(self, source: RowSource) -> Iterator[Row[E]] | None:
        """Yield the rows of a file in the form of the benchmark, with their `id` as a cell; None
        for a task that has no such form.

        Raises:
            DataError: as for `from_data`.
        """
        return None

    @abstractmethod
    def encode(self, examples: Sequence[E], tokenizer: Tokenizer, length: int) -> list[Item]:
        """Encode examples as rows of at most `length` tokens; done once, whatever the number of
        epochs.
        """

    def lengths(self, examples: Sequence[E], tokenizer: Tokenizer) -> NDArray[np.int64] | None:
        """Count the tokens of each example that is read whole, special ones included, (N,). None
        where the task divides long texts itself, so that no length is chosen for it.
        """
        return None

    def plain_items(self, examples: Sequence[E]) -> list[PlainItem]:
        """Return the examples as a baseline reads them, one item each; none of a task that has no
        baseline.
        """
        return []

    def read_labeled(self, source: Any, **options: Any) -> list[E]:
        """Read the examples of a file with answers, to be scored; `options` say how to read it, as
        in `task_of`.

        Raises:
            ConfigError: the task has no such option, or cannot do it.
            DataError: as for `from_data`.
        """
        raise ConfigError(
            f"the task {self.name} does not read labeled files; override its method `read_labeled`"
        )

    # -------------------------------------------------------------------------------------- answers

    def answers(
        self, examples: Sequence[E], items: Sequence[Item], logits: Sequence[NDArray[np.float32]]
    ) -> list[Any]:
        """Return one answer per example, from the logits of each item as `Output.of_item` gives
        them.
        """
        return self.output.answers(logits)

    def record(self, example: E, answer: Any) -> dict[str, Any]:
        """Return the record that `predict` writes of an answer, in the form of its benchmark."""
        return self.output.record(answer)

    def by_class(
        self, examples: Sequence[E], answers: Sequence[Any]
    ) -> dict[str, dict[str, float]]:
        """Compute `precision`, `recall`, `f1` and `count` of each class, where there are classes;
        arguments as in `score`.
        """
        return {}

    @abstractmethod
    def score(self, examples: Sequence[E], answers: Sequence[Any]) -> dict[str, float]:
        """Compute the scores of the answers to those examples whose label is known, `metric` among
        them.

        Raises:
            DataError: none is known.
        """

    def _select_labeled(
        self, examples: Sequence[E], answers: Sequence[Any], has_label: Callable[[E], bool]
    ) -> tuple[Sequence[E], Sequence[Any]]:
        """Select the examples that have a label, and their answers, for `score`."""
        pairs = [pair for pair in zip(examples, answers, strict=True) if has_label(pair[0])]
        if not pairs:
            files = ", ".join(
                dict.fromkeys(name for names in self.file_names.values() for name in names)
            )
            raise DataError(
                f"no example of {files or f'the {self.name} task'} has an answer to score "
                "against; give a labeled file"
            )
        labeled, their_answers = zip(*pairs, strict=True)
        return labeled, their_answers

    def file_name(self, split: str) -> str:
        """Name the predictions file of a split."""
        return split + self.suffix

    @abstractmethod
    def write(self, examples: Sequence[E], answers: Sequence[Any], path: Path) -> None:
        """Write the predictions file, in the form its benchmark asks for."""
