"""Answers of a fine-tuned model: to Python values, or from a file to a file, in order and in constant memory."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TextIO

from litebert.answer.engines import Engine
from litebert.config.finetuning import HeadName
from litebert.errors import ConfigError, DataError, LitebertError, ModelError
from litebert.finetuning.scoring import logits_of
from litebert.finetuning.task import Task
from litebert.interop import LoadedModel, read_folder
from litebert.registry import ENGINES
from litebert.tasks.predictions import write_records
from litebert.tasks.registry import saved_task
from litebert.text.records import FileFormat, shown
from litebert.tokenizer import Tokenizer

log = logging.getLogger("litebert")

CHUNK = 1024
"""Examples in memory at a time; they are sorted by length among themselves, so that little is padded."""


@dataclass(frozen=True)
class Predictor:
    """A tokenizer, a task and an engine, which together answer."""

    tokenizer: Tokenizer
    task: Task[Any]
    engine: Engine
    length: int
    """Longest row in tokens."""
    positions: int | None = None
    """How many the model has; no row is padded beyond them."""

    def predict(self, inputs: Iterable[Any]) -> list[dict[str, Any]]:
        """One answer per input, in order.

        Args:
            inputs: by what the model was fine-tuned for. Text classes and numbers: texts, or pairs of texts. Tagging:
                lists of words, or texts that are split at spaces. Questions: (question, context). Multiple choice:
                (context, question, [choices]). A tuple or a list each; never dictionaries.

        Returns:
            Dictionaries: `prediction`; `probabilities` by label, of each tag or of each choice; `score` of an answer.

        Raises:
            DataError: an input is of another form, or `inputs` is one text instead of a list.
        """
        return list(self.stream(inputs))

    def stream(self, inputs: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """The same one by one, for inputs of any number."""
        if isinstance(inputs, (str, bytes, Mapping)) or not isinstance(inputs, Iterable):
            raise DataError(f"the inputs are {shown(inputs)}; give a list, even for a single one")
        return self.answers(_examples(self.task, inputs))

    def answers(self, examples: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """The record of the answer to each example, in order. What stands before a malformed one is answered."""
        source, fault = iter(examples), None
        while fault is None:
            chunk: list[Any] = []
            try:
                chunk.extend(islice(source, CHUNK))
            except DataError as error:
                fault = error
            if not chunk:
                break
            items = self.task.encode(chunk, self.tokenizer, self.length)
            logits = logits_of(self.engine.logits, items, self.task.output, self.tokenizer.pad_id, self.positions)
            yield from map(self.task.record, chunk, self.task.answers(chunk, items, logits))
        if fault is not None:
            raise fault


@dataclass(frozen=True)
class Model(LoadedModel):
    """A model folder ready to answer."""

    engine: str = "torch"
    """The registered name of what computes its answers."""
    device: str = "auto"
    """The device it computes them on."""

    @cached_property
    def predictor(self) -> Predictor:
        """Its tokenizer, its task and its engine.

        Raises:
            ModelError: the model is not fine-tuned, or has no tokenizer.
        """
        record = self.task_record
        if not record:
            raise ModelError(f"{self.path} is not fine-tuned, so it has no answers; litebert finetune it first")
        if self.tokenizer is None:
            raise ModelError(f"{self.path} has no tokenizer; put the one it was trained with there")
        try:
            task = saved_task(record)
        except LitebertError as error:
            raise ModelError(f"the task of {self.path} cannot be restored: {error}") from None
        length = int(record.get("length", self.config.sequences.length))
        positions = self.config.encoder.max_positions
        return Predictor(self.tokenizer, task, ENGINES[self.engine](self, self.device), length, positions)

    def predict(self, inputs: Iterable[Any]) -> list[dict[str, Any]]:
        """The answers of its predictor; see `Predictor.predict`."""
        return self.predictor.predict(inputs)

    def stream(self, inputs: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """The same one by one, for inputs of any number."""
        return self.predictor.stream(inputs)


def _examples(task: Task[Any], inputs: Iterable[Any]) -> Iterator[Any]:
    for number, value in enumerate(inputs):
        try:
            yield task.example(value, str(number))
        except (TypeError, ValueError):
            raise DataError(f"input {number + 1} is {shown(value)}; {task.inputs}") from None


def load(path: str | Path, *, head: HeadName | None = None, engine: str = "torch", device: str = "auto") -> Model:
    """Open a run folder, a litebert model folder or a Hugging Face folder; a fine-tuned model answers, too.

    Args:
        head: what the classifier of a Hugging Face folder is for, where its config.json does not name the class.
        engine: what computes its answers: torch, or an engine of your own.

    Raises:
        ConfigError: there is no such engine.
        ModelError: it is none of them, or a file of it is damaged, missing or of another model.
    """
    ENGINES[engine]
    return Model(**vars(read_folder(path, head)), engine=engine, device=device)


def predict_file(
    model: Model,
    source: str | Path,
    out: TextIO,
    *,
    form: Literal["csv", "jsonl"],
    source_form: FileFormat | None = None,
    text: str = "text",
    pair: str | None = None,
) -> int:
    """Answer every row of a file or of standard input (`-`), in order; how many there were.

    Columns: `text` and `pair` of texts to classify; `text`, or CoNLL columns, of sentences to tag; question and
    context; context, question and choices (JSONL). What was mended, passed over or cut is logged at the end. What
    stands before a malformed row is answered. The form of the answers is that of `write_records`.

    Raises:
        DataError: the file is missing or malformed; the message names the line.
        ConfigError: a `pair` for a model of single texts, or none for one of pairs.
    """
    predictor = model.predictor
    task = predictor.task
    if task.pair and pair is None:
        raise ConfigError(f"{model.path} was fine-tuned on pairs of texts; name the column of the second with --pair")
    if task.pair is False and pair is not None:
        raise ConfigError(f"{model.path} takes no pairs of texts; leave --pair {pair} out")
    examples = task.stream(source, text=text, pair=pair, form=source_form)
    count = write_records(predictor.answers(examples), out, form, task.output.separator)
    for note in task.notes:
        log.info(note)
    return count
