"""A tokenizer, a task and a runtime, which together answer, without torch where the runtime can."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from litebert.answer.engines.exits import EarlyExit
from litebert.answer.engines.precision import Comparison
from litebert.answer.engines.runtime import Runtime
from litebert.base import progress
from litebert.base.errors import DataError, LitebertError, ModelError
from litebert.judge.words import WordWeight, explain_by_occlusion
from litebert.parts import EVERY, Turns
from litebert.tasks.scoring import Compute, are_finite, compute_logits
from litebert.tasks.task import Row, Task
from litebert.tasks.values import Item, Logits
from litebert.text.records import Notes, format_value, list_values
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.coverage import Coverage

T = TypeVar("T")
FIRST = 256
"""Examples that are answered first, before a window of more is read."""
WINDOW = 4096
"""Examples in memory at a time, sorted by length, so that little is padded."""


class Answered(NamedTuple):
    """An example with its answer."""

    example: Any
    answer: Any
    """The answer, as `Task.record` takes it."""
    used: dict[str, int]
    """{"layers": the number of layers it used} where rows leave early, else empty."""
    logits: NDArray[np.float32]
    """Its logits, where they are those of a single item."""


@dataclass(frozen=True)
class Predictor:
    """A tokenizer, a task and a runtime, which together answer."""

    tokenizer: Tokenizer
    task: Task[Any]
    runtime: Runtime
    length: int
    """Longest row in tokens."""
    positions: int | None = None
    """Positions that the model has; no row is padded beyond them."""
    name: str = "the model"
    """The name of the model in messages."""
    comparison: Comparison | None = None
    """Compares an engine of fewer bits with float32 on the first rows."""
    around: Callable[[Compute], Compute] | None = None
    """Wraps the computation of each pass, for example with a pause after it."""

    def predict(self, inputs: Iterable[Any]) -> list[dict[str, Any]]:
        """Answer each input, in order.

        Args:
            inputs: by what the model was fine-tuned for. Text classes and numbers: texts, or pairs
                of texts. Tagging: lists of words, or texts. Questions:
                (question, context). Multiple choice: (context, question, [choices]). A tuple or a
                list each; never dictionaries.

        Returns:
            Dictionaries: `prediction`; `probabilities` by label, of each tag or of each choice;
                `score` of an answer.
        """
        inputs = list_values(inputs, "inputs")
        total = len(inputs) if isinstance(inputs, Sized) else None
        if total is not None and total <= FIRST:
            return list(self.stream(inputs))
        rows = map(Row, make_examples(self.task, inputs))
        answered = self.answer_rows(rows, ahead=total is not None)
        with progress.track(answered, "answering", total, "inputs") as answers:
            return [record for _, record in answers]

    def stream(self, inputs: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """Answer inputs one by one, in constant memory."""
        rows = map(Row, make_examples(self.task, inputs))
        return (record for _, record in self.answer_rows(rows))

    def answer_rows(
        self, rows: Iterable[Row[Any]], *, ahead: bool = False, notes: Notes | None = None
    ) -> Iterator[tuple[Row[Any], dict[str, Any]]]:
        """Yield each row with the record of its answer, in order, also before a malformed one.

        `ahead` reads and tokenizes in a thread, for sources that never wait for somebody.
        """
        windows = self.answer_windows(rows, ahead=ahead, notes=notes)
        return (answered for window in windows for answered in window)

    def answer_windows(
        self,
        rows: Iterable[Row[Any]],
        *,
        ahead: bool = False,
        notes: Notes | None = None,
        turns: Turns = EVERY,
    ) -> Iterator[Iterator[tuple[Row[Any], dict[str, Any]]]]:
        """Yield the windows of rows that are computed together. `rows` begin with the first window
        of `turns`; those of windows between are only read.
        """
        windows = self._encode_windows(rows, Notes() if notes is None else notes, turns)
        with closing(in_advance(windows) if ahead else windows) as source:
            for window, items in source:
                answers = self.answer_items([row.example for row in window], items)
                yield (
                    (row, self.task.record(entry.example, entry.answer) | entry.used)
                    for row, entry in zip(window, answers, strict=True)
                )

    def answer_items(self, examples: Sequence[Any], items: Sequence[Item]) -> Iterator[Answered]:
        """Answer examples that the task has encoded as items."""
        self.compare(examples, items)
        logits, layers = self.logits(items)
        answers = self.task.answers(examples, items, logits)
        used = [{"layers": layer} for layer in layers] if layers else [{}] * len(answers)
        none = np.zeros(0, np.float32)
        rows = logits if len(logits) == len(examples) else [none] * len(examples)
        yield from map(Answered, examples, answers, used, rows)

    def explain(self, example: Any) -> list[WordWeight]:
        """Compute how much each word of an example speaks for its answer, by leaving it out."""
        return explain_by_occlusion(
            self.task, self.tokenizer, self.length, example, lambda items: self.logits(items)[0]
        )

    def compare(self, examples: Sequence[Any], items: Sequence[Item]) -> None:
        """Log once how far the runtime is from float32, where it has fewer bits."""
        if self.comparison is not None and items:
            self.comparison.compare_answers(self.task, self.runtime, examples, items, self._compute)

    def _encode_windows(
        self, rows: Iterable[Row[Any]], notes: Notes, turns: Turns
    ) -> Generator[tuple[list[Row[Any]], list[Item]], None, None]:
        """Yield rows with their items: few first, for soon answers, then up to `WINDOW`."""
        source = iter(rows)
        fault: LitebertError | None = None
        coverage = Coverage(self.tokenizer)
        for turn, size in islice(enumerate(generate_window_sizes()), turns.first, None):
            window: list[Row[Any]] = []
            try:
                window.extend(islice(source, size))
            except LitebertError as error:
                fault = error  # raised below, after the rows before it are answered
                if turns.part is not None:  # a part continues at this window, and needs all of it
                    break
            if window and turn in turns:
                examples = [row.example for row in window]
                items = self.task.encode(examples, self.tokenizer, self.length, notes)
                coverage.add(row.ids for item in items for row in item.rows)
                yield window, items
            if len(window) < size:
                break
        coverage.warn()
        if fault is not None:
            raise fault

    def logits(self, items: Sequence[Item]) -> tuple[Logits, list[int]]:
        """Compute the logits of each item and, with early exits, the layers that its row used."""
        early_exit = self.runtime if isinstance(self.runtime, EarlyExit) else None
        logits = self._compute(self.runtime, items, self.around)
        if not are_finite(logits):
            raise not_finite(self.name)
        if early_exit is None:
            return logits, []
        # The last column is the number of layers.
        return [row[:-1] for row in logits], [int(row[-1]) for row in logits]

    def _compute(
        self,
        runtime: Runtime,
        items: Sequence[Item],
        around: Callable[[Compute], Compute] | None = None,
    ) -> Logits:
        compute = runtime.logits_and_layers if isinstance(runtime, EarlyExit) else runtime.logits
        return compute_logits(
            compute if around is None else around(compute),
            items,
            self.task.output,
            self.tokenizer.pad_id,
            self.positions,
            most=runtime.capabilities.tokens,
            padding=runtime.capabilities.padding,
            together=2 if self.task.apart else 1,
            map_passes=runtime.map_passes if around is None else None,
        )


def in_advance(source: Iterator[T]) -> Generator[T, None, None]:
    """Yield the same, each made by a thread while the one before is used."""
    end = object()
    with ThreadPoolExecutor(1, "reading ahead") as thread:
        coming = thread.submit(next, source, end)
        while (item := coming.result()) is not end:
            coming = thread.submit(next, source, end)
            yield cast(T, item)


def generate_window_sizes() -> Iterator[int]:
    """Yield the rows of each window, without an end."""
    for turn in count():
        yield min(FIRST << min(turn, 30), WINDOW)


def not_finite(name: str | Path) -> ModelError:
    """Return the error that a model computes a NaN or an infinity."""
    return ModelError(
        f"{name} computes numbers that are not finite; give a model whose training went well"
    )


def make_examples(task: Task[Any], inputs: Iterable[Any]) -> Iterator[Any]:
    """Make examples of inputs of `predict`, each as it is asked for."""
    values = list_values(inputs, "inputs")

    def make() -> Iterator[Any]:
        for number, value in enumerate(values):
            try:
                yield task.example(value, str(number))
            except (TypeError, ValueError):
                words = f"input {number + 1} is {format_value(value)}; {task.inputs}"
                raise DataError(words) from None

    return make()
