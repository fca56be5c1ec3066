"""Opening a model folder to answer: `load`, and what the model can then do with Python values."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from litebert import progress
from litebert.answer.ahead import in_advance
from litebert.answer.engines import Engine
from litebert.answer.exits import EarlyExit, Exit, with_exits
from litebert.answer.graphs import exported_graph
from litebert.answer.masks import Guess, MaskReader, Score
from litebert.answer.vectors import SentenceEncoder
from litebert.config.finetuning import HeadName
from litebert.errors import DataError, LitebertError, ModelError
from litebert.finetuning.items import Item
from litebert.finetuning.scoring import EVALUATION_TOKENS, Logits, logits_of
from litebert.finetuning.task import Task
from litebert.interop import LoadedModel, read_folder
from litebert.model.heads import Pooling
from litebert.registry import ENGINES
from litebert.tasks.registry import saved_task
from litebert.text.records import shown
from litebert.tokenizer import Tokenizer
from litebert.train import device as devices

log = logging.getLogger("litebert")

FIRST = 256
"""Examples that are answered first, before a window of more is read."""
WINDOW = 4096
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
        total = len(inputs) if isinstance(inputs, Sized) else None
        if total is not None and total <= FIRST:
            return list(self.stream(inputs))
        with progress.tracked(self.stream(inputs), "answering", total, "inputs") as answers:
            return list(answers)

    def stream(self, inputs: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """The same one by one, for inputs of any number."""
        if isinstance(inputs, (str, bytes, Mapping)) or not isinstance(inputs, Iterable):
            raise DataError(f"the inputs are {shown(inputs)}; give a list, even for a single one")
        return self.answers(_examples(self.task, inputs))

    def answers(self, examples: Iterable[Any], *, ahead: bool = False) -> Iterator[dict[str, Any]]:
        """The record of the answer to each example, in order. What stands before a malformed one is answered.

        Args:
            ahead: read and tokenize the next examples while these are computed, in a thread. For sources that never
                wait for somebody, as files are.
        """
        with closing(in_advance(self._windows(examples)) if ahead else self._windows(examples)) as windows:
            for chunk, items in windows:
                logits, layers = self.logits(items)
                records = map(self.task.record, chunk, self.task.answers(chunk, items, logits))
                yield from (
                    ({**one, "layers": used} for one, used in zip(records, layers, strict=True)) if layers else records
                )

    def _windows(self, examples: Iterable[Any]) -> Generator[tuple[list[Any], list[Item]], None, None]:
        """Examples with their items, few at first, so that the first answers come soon, and then up to `WINDOW`."""
        source, size = iter(examples), FIRST
        fault: LitebertError | None = None
        while fault is None:
            chunk: list[Any] = []
            try:
                chunk.extend(islice(source, size))
            except LitebertError as error:
                fault = error
            if chunk:
                yield chunk, self.task.encode(chunk, self.tokenizer, self.length)
            if len(chunk) < size:
                break
            size = min(2 * size, WINDOW)
        if fault is not None:
            raise fault

    def logits(self, items: Sequence[Item]) -> tuple[Logits, list[int]]:
        """The logits of each item and, where rows leave early, how many layers its only row used."""
        early = self.engine if isinstance(self.engine, EarlyExit) else None
        compute = early.logits_and_layers if early else self.engine.logits
        most = getattr(self.engine, "tokens", EVALUATION_TOKENS)
        output, pad_id = self.task.output, self.tokenizer.pad_id
        found = logits_of(compute, items, output, pad_id, self.positions, most=most)
        return ([one[:-1] for one in found], [int(one[-1]) for one in found]) if early else (found, [])


@dataclass(frozen=True)
class Model(LoadedModel):
    """A model folder ready to answer."""

    engine: str = "torch"
    """The registered name of what computes its answers."""
    device: str = "auto"
    """The device it computes them on."""
    exit: Exit = "auto"
    """When texts leave the network early."""

    @cached_property
    def predictor(self) -> Predictor:
        """Its tokenizer, its task and its engine.

        Raises:
            ModelError: the model is not fine-tuned, or has no tokenizer.
            ConfigError: `exit` is a threshold, and the model or the engine cannot leave early.
        """
        record = self.task_record
        if not record:
            raise ModelError(f"{self.path} is not fine-tuned, so it cannot answer; run litebert finetune first")
        if self.tokenizer is None:
            raise ModelError(f"{self.path} has no tokenizer; put the one it was trained with there")
        try:
            task = saved_task(record)
        except LitebertError as error:
            raise ModelError(f"the task of {self.path} cannot be restored: {error}") from None
        length = int(record.get("length", self.config.sequences.length))
        positions = self.config.encoder.max_positions
        name = self.engine
        if name == "auto" and self.exit != "off" and record.get("exits") and exported_graph(self.path) is None:
            log.info(
                "using the engine torch, because only with it texts leave early; give exit off to measure the engines"
            )
            name = "torch"
        engine = ENGINES[name](self, self.device)
        engine = with_exits(engine, self.exit, record, task.output, self.config.encoder.layers)
        return Predictor(self.tokenizer, task, engine, length, positions)

    def predict(self, inputs: Iterable[Any]) -> list[dict[str, Any]]:
        """The answers of its predictor; see `Predictor.predict`."""
        return self.predictor.predict(inputs)

    def stream(self, inputs: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """The same one by one, for inputs of any number."""
        return self.predictor.stream(inputs)

    @cached_property
    def _torch_device(self) -> torch.device:
        return devices.choose("float32", self.device).device

    @cached_property
    def mask_reader(self) -> MaskReader:
        """Its encoder and head for masked tokens.

        Raises:
            ModelError: it cannot guess masked tokens.
        """
        return MaskReader.of(self, self._torch_device)

    @cached_property
    def sentence_encoder(self) -> SentenceEncoder:
        """Its encoder, pretrained or fine-tuned, for vectors of any number of texts as the model makes them; see
        `SentenceEncoder.of`, also for others.

        Raises:
            ModelError: the model has no tokenizer, or an exported one gives no states.
        """
        return self.vectors_by()

    def vectors_by(self, pooling: Pooling | None = None, normalized: bool | None = None) -> SentenceEncoder:
        """The same with a pooling and a normalization of one's own; None is as the model has it."""
        return SentenceEncoder.of(self, self._torch_device, pooling, normalized)

    def encode(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """Sentence vectors (N, H): by default the mean of the last states of each text; see `SentenceEncoder.of`.

        Raises:
            DataError: something is no text.
            ModelError: as `sentence_encoder`.
        """
        return self.sentence_encoder.encode(texts)

    def logits(self, texts: Iterable[str]) -> list[NDArray[np.float32]]:
        """Of a pretrained model: (tokens, vocabulary) of each text, [CLS] and [SEP] included; see `MaskReader.logits`.

        Raises:
            DataError: a text is longer than the model reads, or something is no text.
            ModelError: the model cannot guess masked tokens; so in `fill` and `score`.
        """
        return self.mask_reader.logits(texts)

    def fill(self, text: str, top: int = 5) -> list[list[Guess]]:
        """Of a pretrained model: the likeliest pieces for each mask of a text, such as [MASK]; see `MaskReader.fill`.

        Raises:
            DataError: the text has no mask, or is longer than the model reads.
            ConfigError: `top` is less than 1.
        """
        return self.mask_reader.fill(text, top)

    def score(self, texts: Iterable[str]) -> list[Score]:
        """Of a pretrained model: the pseudo-log-likelihood of each text and of its tokens; see `MaskReader.score`.

        Raises:
            DataError: something is no text.
        """
        return list(self.mask_reader.score(texts))


def _examples(task: Task[Any], inputs: Iterable[Any]) -> Iterator[Any]:
    for number, value in enumerate(inputs):
        try:
            yield task.example(value, str(number))
        except (TypeError, ValueError):
            raise DataError(f"input {number + 1} is {shown(value)}; {task.inputs}") from None


def load(
    path: str | Path,
    *,
    head: HeadName | None = None,
    engine: str | None = None,
    device: str = "auto",
    exit: Exit = "auto",  # noqa: A002
) -> Model:
    """Open a run folder, a litebert model folder or a Hugging Face folder; a fine-tuned model answers, too.

    Args:
        head: what the classifier of a Hugging Face folder is for, where its config.json does not name the class.
        engine: what computes its answers: torch, exact (the same without compiled passes), onnx, openvino,
            torch-bfloat16 and openvino-bfloat16 where the processor has bfloat16, auto (the fastest of these by
            measurement), or an engine of your own. By default torch, and onnx for an exported folder. With another
            than torch, the weights of a fine-tuned litebert folder are read only when `Model.model` is asked for, and
            need not be there.
        exit: of a model that was fine-tuned with `exits`, when texts leave the network early: `auto`, as calibrated;
            `off`, never; or a threshold of your own.

    Raises:
        ConfigError: there is no such engine.
        ModelError: it is none of them, or a file of it is damaged, missing or of another model.
    """
    if engine is None:
        engine = "torch" if exported_graph(Path(path)) is None else "onnx"
    ENGINES[engine]
    opened = read_folder(path, head, lazy=engine not in ("torch", "exact"))
    return Model(
        **{one.name: getattr(opened, one.name) for one in fields(opened)}, engine=engine, device=device, exit=exit
    )
