"""Opening a model folder to answer: `load`, and what the model can then do with Python values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from litebert.answer.exits import EarlyExit, Exit, check_exit, rule_for
from litebert.answer.mask_texts import Guess
from litebert.answer.masks import MaskReader, Score
from litebert.answer.precision import comparison_of
from litebert.answer.predicting import Predictor
from litebert.answer.vectors import SentenceEncoder
from litebert.config.finetuning import HeadName
from litebert.errors import LitebertError, ModelError
from litebert.interop import LoadedModel, read_folder
from litebert.interop.onnx.exports import find_exported_graph
from litebert.model.heads import Pooling
from litebert.registry import ENGINES
from litebert.tasks.registry import restore_task
from litebert.train import device as devices


@dataclass(frozen=True)
class Model(LoadedModel):
    """A model folder ready to answer."""

    engine: str = "torch"
    """The registered name of the engine that computes its answers and its vectors."""
    device: str = "auto"
    """The device it computes them on."""
    exit: Exit = "auto"
    """When texts leave the network early."""

    @cached_property
    def predictor(self) -> Predictor:
        """Its tokenizer, its task and its engine.

        Raises:
            ModelError: the model is not fine-tuned, or has no tokenizer.
            ConfigError: `exit` is no choice, or the model or the engine cannot leave early.
        """
        check_exit(self.exit)
        record = self.task_record
        if not record:
            raise ModelError(
                f"{self.path} is not fine-tuned, so it cannot answer; run litebert finetune first"
            )
        if self.tokenizer is None:
            raise ModelError(f"{self.path} has no tokenizer; put the one it was trained with there")
        try:
            task = restore_task(record, self.path)
        except LitebertError as error:
            raise ModelError(f"the task of {self.path} cannot be restored: {error}") from None
        length = int(record.get("length", self.config.sequences.length))
        positions = self.config.encoder.max_positions
        make, has_weights = ENGINES[self.engine], find_exported_graph(self.path) is None
        walks = hasattr(make, "walk")
        rule = rule_for(self.exit, record, self.engine, walks=walks, has_weights=has_weights)
        engine = make(self, self.device)
        if rule is not None:
            engine = EarlyExit(engine, rule, task.output, self.config.encoder.layers)
        comparison = comparison_of(self, self.engine, self.device)
        return Predictor(
            self.tokenizer, task, engine, length, positions, str(self.path), comparison
        )

    def predict(self, inputs: Iterable[Any]) -> list[dict[str, Any]]:
        """Answer with its predictor; see `Predictor.predict`."""
        return self.predictor.predict(inputs)

    def stream(self, inputs: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """Answer inputs one by one, in constant memory."""
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
        """Its encoder, pretrained or fine-tuned, for vectors of any number of texts as the model
        makes them; see `SentenceEncoder.of`, also for others.

        Raises:
            ModelError: the model has no tokenizer, an exported one gives no states, or the engine
                cannot compute it.
            ConfigError: this machine does not have what the engine needs.
        """
        return self.vectors_by()

    def vectors_by(
        self, pooling: Pooling | None = None, normalized: bool | None = None
    ) -> SentenceEncoder:
        """Make an encoder with another pooling or normalization; None is as the model has it."""
        return SentenceEncoder.of(self, self.engine, self.device, pooling, normalized)

    def encode(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """Compute sentence vectors (N, H): by default the mean of the last states of each text; see
        `SentenceEncoder.of`.

        Raises:
            DataError: something is no text.
            ModelError: as `sentence_encoder`.
        """
        return self.sentence_encoder.encode(texts)

    def logits(self, texts: Iterable[str]) -> list[NDArray[np.float32]]:
        """Compute the logits (tokens, vocabulary) of each text with a pretrained model, [CLS] and
        [SEP] included; see `MaskReader.logits`.

        Raises:
            DataError: a text is longer than the model reads, or something is no text.
            ModelError: the model cannot guess masked tokens; so in `fill` and `score`.
        """
        return self.mask_reader.logits(texts)

    def fill(self, text: str, top: int = 5) -> list[list[Guess]]:
        """Guess the likeliest tokens for each mask of a text, such as [MASK], with a pretrained
        model; see `MaskReader.fill`.

        Raises:
            DataError: the text has no mask, or is longer than the model reads.
            ConfigError: `top` is less than 1.
        """
        return self.mask_reader.fill(text, top)

    def score(self, texts: Iterable[str]) -> list[Score]:
        """Compute the pseudo-log-likelihood of each text and of its tokens with a pretrained model;
        see `MaskReader.score`.

        Raises:
            DataError: something is no text.
        """
        return list(self.mask_reader.score(texts))


def load(
    path: str | Path,
    *,
    head: HeadName | None = None,
    engine: str | None = None,
    device: str = "auto",
    exit: Exit = "auto",  # noqa: A002
    tokenizer: str | Path | None = None,
) -> Model:
    """Open a run folder, a litebert model folder, a Hugging Face folder, or a model of the Hub by
    its name, such as `hf:albert/albert-base-v2`. A fine-tuned model answers, too.

    Args:
        head: what the classifier of a Hugging Face folder is for, where its config.json does not
            name the class.
        engine: what computes its answers and its sentence vectors: torch, exact (the same without
            compiled passes), onnx, openvino, torch-bfloat16 and openvino-bfloat16 where the
            processor has bfloat16, torch-int8 where it multiplies bytes, or an engine of your own.
            By default torch, and onnx for an exported folder. With another than torch, the weights
            of a fine-tuned litebert folder are read only when `Model.model` is asked for, and need
            not be there.
        exit: of a model that was fine-tuned with `exits`, when texts leave the network early:
            `auto`, as calibrated; `off`, never; or a threshold of your own. The engines onnx and
            openvino compute all layers.
        tokenizer: for a folder that has no tokenizer or one that cannot be read: a folder, *.model,
            vocab.txt or tokenizer.json.

    Raises:
        ConfigError: there is no such engine, or the folder has another tokenizer than `tokenizer`.
        DataError: `tokenizer` cannot be read.
        ModelError: it is none of them, a file of it is damaged, missing or of another model, or
            `tokenizer` does not fit the model.
    """
    if engine is None:
        engine = "torch" if find_exported_graph(Path(path)) is None else "onnx"
    ENGINES[engine]
    opened = read_folder(path, head, lazy=engine not in ("torch", "exact"), tokenizer=tokenizer)
    return Model(
        **{field.name: getattr(opened, field.name) for field in fields(opened)},
        engine=engine,
        device=device,
        exit=exit,
    )
