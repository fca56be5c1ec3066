"""Opening a model folder to answer: `load`, and what the model can then do with Python values. This
module needs no torch, for an exported model answers without it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from litebert.answer.engines.compiled import open_network
from litebert.answer.engines.exits import EarlyExit, Exit, check_exit, refuse_threshold, rule_for
from litebert.answer.engines.precision import Comparison
from litebert.answer.engines.runtime import Runtime
from litebert.answer.masks.reading import MaskReader, Score
from litebert.answer.masks.texts import GraphFiller, Guess, MaskFiller
from litebert.answer.predicting import Predictor, make_examples
from litebert.answer.vectors import SentenceEncoder
from litebert.base.errors import ConfigError, LitebertError, ModelError, naming_extras, nearest
from litebert.base.machine import may_have_accelerator
from litebert.base.registry import ENGINES
from litebert.config import Pooling
from litebert.config.finetuning import HeadName
from litebert.demo import locate
from litebert.interop.loaded import LoadedModel, Unread
from litebert.interop.models import read_folder
from litebert.interop.names import find_exported_graph
from litebert.interop.onnx.exports import (
    guesses_masks,
    is_exported,
    read_exported,
)
from litebert.interop.sentence_modules import VectorSettings, truncate_vectors, vector_settings
from litebert.interop.tfidf import FeatureTokenizer
from litebert.judge.calibration import choose_threshold
from litebert.judge.words import WordWeight
from litebert.kernels.network import find_refusal
from litebert.kernels.packing import Dtype
from litebert.tasks.registry import restore_task
from litebert.text.records import check_texts, format_value
from litebert.tokenizer import Tokenizer

if TYPE_CHECKING:
    from litebert.model.task_model import TaskModel

log = logging.getLogger("litebert")

FEW_ANSWERS = 100
"""Held-out answers below which a precision that was reached on them is doubted aloud."""

Method = Literal["occlusion", "gradients"]
"""How the words that decided an answer are found."""


@dataclass(frozen=True)
class Model(LoadedModel):
    """A model folder, ready to answer with PyTorch or with the graph of an export."""

    engine: str = "compiled"
    """The registered name of the engine that makes its runtimes."""
    dtype: Dtype = "float32"
    """The type of the matrix products of its runtimes."""
    device: str = "auto"
    """The device it computes on."""
    exit_confidence: Exit = "auto"
    """When texts exit the network early."""
    threads: int | None = None
    """Threads of a service, which shares its cores; the environment tells other engines."""
    min_precision: float | None = None
    """The precision that its answers should have; below the threshold for it there is none."""

    @cached_property
    def runtime(self) -> Runtime:
        """The runtime, which computes the logits of its head; made when first needed.

        Raises:
            ConfigError: there is no such device, or this machine does not have what the engine
                needs.
            ModelError: the engine cannot compute the model.
            MissingExtraError: a library that the engine needs is not installed.
        """
        engine = ENGINES[self.engine]
        capabilities, options = engine.capabilities, dict[str, Any]()
        if self.threads is not None and capabilities.takes_threads:
            options["threads"] = self.threads
        if capabilities.dtypes:
            options["dtype"] = self.dtype
        runtime: Runtime = engine(self, self.device, **options)
        return runtime

    @property
    def _comparison(self) -> Comparison | None:
        if self.dtype in ("float32", self.packed):  # the latter has no other numbers
            return None

        def make_reference() -> Runtime:
            # Not kept: weights in float32 are in memory for the comparison alone.
            network = self.network
            alone = replace(network, kept={}) if isinstance(network, Unread) else network
            return replace(self, dtype="float32", network=alone).runtime

        return Comparison(self.dtype, make_reference)

    @property
    def length(self) -> int:
        """Longest row in tokens, special ones included."""
        return int(self.task.get("length", self.config.sequences.length))

    @property
    def _has_graph(self) -> bool:
        return find_exported_graph(self.path) is not None

    @property
    def can_encode(self) -> bool:
        """True if it gives vectors; an exported model does only if it is a backbone."""
        if self.engine == "tfidf":
            return False
        return not self._has_graph or self.task.get("kind") == "backbone"

    @property
    def ranks_pairs(self) -> bool:
        """True if it answers a pair of texts with a number, as a reranker does."""
        if self.task_record.get("kind") != "sequence":
            return False
        task = self.predictor.task
        return task.output.ranks and task.pair is not False

    @property
    def can_fill(self) -> bool:
        """True if it guesses masked tokens."""
        if self._has_graph:
            return not self.task and guesses_masks(self.path)
        try:
            return not self.task_record and self.mask_reader is not None
        except ModelError:
            return False

    def require_tokenizer(self) -> Tokenizer:
        """Return its tokenizer.

        Raises:
            ModelError: it has none.
        """
        if self.tokenizer is None:
            raise ModelError(f"{self.path} has no tokenizer; put the one it was trained with there")
        return self.tokenizer

    @cached_property
    def predictor(self) -> Predictor:
        """Its tokenizer, its task and its runtime.

        Raises:
            ModelError: the model is not fine-tuned, or has no tokenizer.
            ConfigError: `exit_confidence` is no choice, or the model or the engine cannot leave
                early.
        """
        check_exit(self.exit_confidence)
        record = self.task_record
        if not record:
            raise ModelError(
                f"{self.path} was exported without the head of a task, so it cannot answer; export "
                "a model that was fine-tuned"
                if self._has_graph
                else f"{self.path} is not fine-tuned, so it cannot answer; run litebert finetune "
                "first"
            )
        tokenizer = self.require_tokenizer()
        try:
            task = restore_task(record, self.path).complete(self)
        except LitebertError as error:
            raise ModelError(f"the task of {self.path} cannot be restored: {error}") from None
        if self.min_precision is not None:
            point = choose_threshold(record, self.min_precision, self.path)
            told = (
                f"answers below the probability {point.threshold:.4g} stay empty; of held-out rows "
                f"{point.coverage:.1%} were answered, and {point.precision:.1%} of these were right"
            )
            if point.answers:
                interval = f"the 95% interval begins at {point.lower_bound:.1%}"
                told += f" ({point.answers:,} answers; {interval})"
            if 0 < point.answers < FEW_ANSWERS:
                log.warning(f"{told}: so few answers prove little; label more rows")
            else:
                log.info(told)
            output = replace(task.output, threshold=point.threshold)  # type: ignore[call-arg]
            task = replace(task, output=output)
        early_exit = ENGINES[self.engine].capabilities.early_exit
        rule = rule_for(
            self.exit_confidence,
            record,
            self.engine,
            early_exit=early_exit,
            has_weights=not self._has_graph,
        )
        runtime = self.runtime
        if rule is not None:
            runtime = EarlyExit(runtime, rule, task.output, self.config.encoder.layers)
        positions = self.config.encoder.max_positions
        return Predictor(
            tokenizer, task, runtime, self.length, positions, str(self.path), self._comparison
        )

    def predict(self, inputs: Iterable[Any]) -> list[dict[str, Any]]:
        """Answer with its predictor; see `Predictor.predict`."""
        return self.predictor.predict(inputs)

    def explain_example(self, example: Any, method: Method = "occlusion") -> list[WordWeight]:
        """Compute how much each word of an example of its task speaks for the answer."""
        if method == "occlusion":
            return self.predictor.explain(example)
        if method != "gradients":
            raise ConfigError(f"explain is '{method}'; {nearest(method, get_args(Method))}")
        if self._has_graph:
            raise ConfigError(
                f"explain is gradients, and the export {self.path} has none; take the folder that "
                "was fine-tuned, or give explain occlusion"
            )
        with naming_extras():
            from litebert.answer.gradients import explain_by_gradients

        predictor = self.predictor
        network = cast("TaskModel", self.model).eval()
        return explain_by_gradients(
            predictor.task, predictor.tokenizer, self.length, example, network
        )

    def explain(
        self, inputs: Iterable[Any], method: Method = "occlusion"
    ) -> list[list[WordWeight]]:
        """Compute how much each word of each input speaks for its answer: the log-odds of the class
        or the label, or the number, with the word less those without it.

        Args:
            inputs: as `predict` takes them.
            method: occlusion leaves each word out, with any engine; gradients integrates the
                gradients of the network, with PyTorch.

        Raises:
            ConfigError: the method is not one of these, an export has no gradients, or the model
                does not answer whole texts with a class, labels or a number.
            DataError, ModelError: as `predict`.
        """
        examples = make_examples(self.predictor.task, inputs)
        return [self.explain_example(example, method) for example in examples]

    def stream(self, inputs: Iterable[Any]) -> Iterator[dict[str, Any]]:
        """Answer inputs one by one, in constant memory."""
        return self.predictor.stream(inputs)

    @cached_property
    def mask_filler(self) -> MaskFiller:
        """Guesses for masks: its `mask_reader`, or the graph of an export.

        Raises:
            ModelError: it cannot predict masked tokens.
            ConfigError, MissingExtraError: as `runtime`.
        """
        if not self._has_graph:
            return self.mask_reader
        if not self.can_fill:
            raise ModelError(
                f"{self.path} cannot predict masked tokens; export the pretrained model with "
                "--head mlm"
            )
        return GraphFiller(self.require_tokenizer(), str(self.path), self.length, self.runtime)

    @cached_property
    def mask_reader(self) -> MaskReader:
        """Its encoder and head for masked tokens, in float32.

        Raises:
            ModelError: it cannot predict masked tokens, or is an exported graph.
        """
        return MaskReader.of(self, self.engine, self.device, self.threads, self.dtype)

    @cached_property
    def sentence_encoder(self) -> SentenceEncoder:
        """Its encoder, pretrained or fine-tuned, for vectors of any number of texts as the model
        makes them; see `vectors_by`, also for others.
        """
        return self.vectors_by()

    def vectors_by(
        self,
        pooling: Pooling | None = None,
        normalized: bool | None = None,
        size: int | None = None,
        prompt_name: str | None = None,
    ) -> SentenceEncoder:
        """Make its encoder for vectors: pretrained, fine-tuned, or exported with its states.

        Args:
            pooling: the mean of the states of a text, special tokens included, or the state of
                [CLS] (cls), and no map after it. By default what the model was fine-tuned with or
                its modules.json says, else the mean.
            normalized: whether vectors have unit length; the same by default, else no.
            size: the numbers of a vector that are left, the first ones, before its length is
                made 1; by default as many as the model says, else all.
            prompt_name: the prompt of the model that stands before each text; by default the one
                that its folder names as the default, if it does.

        Raises:
            ModelError: it has no tokenizer, gives no states, its modules.json asks for what is not
                computed, or the engine cannot compute the network.
            ConfigError: the vectors have no such size.
            ConfigError, MissingExtraError: as `runtime`.
        """
        tokenizer, shape = self.require_tokenizer(), self.config.encoder
        try:
            settings = vector_settings(self) or VectorSettings()
        except ModelError:  # modules that litebert does not compute do not matter with a pooling
            if pooling is None:
                raise
            settings = VectorSettings()
        if pooling is not None:
            settings = settings._replace(pooling=pooling, map=None)
        if size is not None:
            settings = truncate_vectors(settings, shape.hidden_size, size, self.path)
            settings = settings._replace(size=None)
        if normalized is not None:
            settings = settings._replace(normalized=normalized)
        states = self._as_states()
        return SentenceEncoder(
            states.runtime,
            settings,
            tokenizer,
            settings.count_numbers(shape.hidden_size),
            min(settings.length or self.length, shape.max_positions),
            shape.max_positions,
            str(self.path),
            states._comparison,
            settings.get_prompt(prompt_name),
        )

    def _as_states(self) -> Model:
        """Return the encoder as a model whose logits are the last states; an export as it is."""
        if not self.can_encode and not self._has_graph:
            raise ModelError(f"{self.path} is a TF-IDF model, which makes no vectors; name another")
        if not self.can_encode:
            raise ModelError(
                f"{self.path} is an ONNX export that gives no states; export the model again with "
                "--head backbone, or embed with the folder it was exported from"
            )
        if self._has_graph:
            return self

        def read() -> TaskModel:
            from litebert.model.task_model import TaskModel

            return TaskModel.of_states(self.model.eval().encoder)

        record = {"kind": "backbone", "classes": 0}
        if not isinstance(self.network, Unread):
            return replace(self, network=read(), task=record, labels=())
        network = replace(self.network, read=read, record=record)  # with what is kept
        return replace(self, network=network, task=record, labels=())

    def encode(
        self, texts: Iterable[str], *, prompt_name: str | None = None
    ) -> NDArray[np.float32]:
        """Compute sentence vectors (N, H): by default the mean of the last states of each text; see
        `vectors_by`.

        Raises:
            DataError: something is no text.
            ModelError: as `sentence_encoder`.
        """
        encoder = self.sentence_encoder
        if prompt_name is not None:
            encoder = replace(encoder, prompt=encoder.settings.get_prompt(prompt_name))
        return encoder.encode(texts)

    def logits(self, texts: Iterable[str]) -> list[NDArray[np.float32]]:
        """Compute the logits (tokens, vocabulary) of each text with a pretrained model, [CLS] and
        [SEP] included; see `MaskReader.logits`.

        Raises:
            DataError: a text is longer than the model reads, or something is no text.
            ModelError: the model cannot predict masked tokens; so in `fill_mask` and `score`.
        """
        return self.mask_reader.logits(texts)

    def fill_mask(
        self, text: str, top: int = 5, targets: Sequence[str] | None = None
    ) -> list[list[Guess]]:
        """Guess the likeliest tokens for each mask of a text, such as [MASK], with a pretrained
        model; or give the probabilities of `targets`, words of its vocabulary. See
        `MaskFiller.fill`.

        Raises:
            DataError: the text has no mask, or is longer than the model reads, or a target is no
                token.
            ConfigError: `top` is less than 1.
        """
        (text,) = check_texts([text])
        return self.mask_filler.fill(text, top, targets)

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
    dtype: Dtype | None = None,
    device: str = "auto",
    exit_confidence: Exit = "auto",
    tokenizer: str | Path | None = None,
    min_precision: float | None = None,
) -> Model:
    """Open a run folder, a litebert model folder, a Hugging Face folder, a model of the Hub by its
    name, such as `hf:albert/albert-base-v2`, or one that the package holds: `vectors`, its encoder,
    `sentiment` or `words`. A fine-tuned model also answers.

    Args:
        head: what the classifier of a Hugging Face folder is for, where its config.json does not
            name the class.
        engine: what computes its answers and its sentence vectors: compiled, for CPUs; torch, for
            GPUs and networks with parts of your own; onnx; or an engine of your own. By default
            onnx for an exported folder, torch where there is a GPU, and otherwise compiled.
        dtype: the type of the matrix products: float32, the default; bfloat16, where the processor
            multiplies it; or int8, of the engine compiled. By default that of an export.
        exit_confidence: of a model that was fine-tuned with `early_exits`, when texts exit the
            network early: `auto`, as calibrated; `off`, never; or a threshold of your own. The
            engine onnx computes all layers.
        tokenizer: for a folder that has no tokenizer or one that cannot be read: a folder, *.model,
            vocab.txt or tokenizer.json.
        min_precision: the share of answers that should be right, such as 0.95. Answers below the
            threshold that had this precision on the development part are None. For several labels
            it is the share of the labels.

    Raises:
        ConfigError: there is no such engine, the engine does not compute `dtype`,
            `exit_confidence` is a threshold of an exported model, or the folder has another
            tokenizer than `tokenizer`.
        DataError: `tokenizer` cannot be read.
        ModelError: it is none of them, a file of it is damaged, missing or of another model, or
            `tokenizer` does not fit the model.
    """
    for name, value in {"path": path, "tokenizer": tokenizer or ""}.items():
        if not isinstance(value, (str, Path)):
            raise ConfigError(f"{name} is {format_value(value)}; give a text or a path")
    if engine is not None:
        ENGINES[engine]  # refuses an unknown name before any file is read
    path = locate(path)
    exported = is_exported(Path(path)) and engine != "torch"
    if exported:
        engine = engine or "onnx"
        refuse_threshold(exit_confidence, engine)
        opened = read_exported(Path(path), tokenizer)
    else:
        opened = read_folder(path, head, lazy=True, tokenizer=tokenizer)
        if isinstance(opened.tokenizer, FeatureTokenizer):
            if engine not in (None, "tfidf"):
                raise ConfigError(
                    f"{path} is a TF-IDF model, with no network for the engine {engine}; use the "
                    "folder as it is, without an engine"
                )
            engine = "tfidf"
        packed = opened.packed
        if packed and dtype is None and engine in (None, "compiled"):
            dtype = None if find_refusal(opened.config.encoder, packed) else packed
        engine = engine or _choose_engine(opened, device, dtype)
    dtypes = ENGINES[engine].capabilities.dtypes
    if dtype is not None and dtype not in dtypes:
        known = f"computes in {' or '.join(dtypes)}" if dtypes else "computes as the model says"
        raise ConfigError(f"dtype is {dtype}, and the engine {engine} {known}; leave --dtype out")
    if engine == "compiled" and not exported:
        open_network(opened, dtype or "float32")  # so that a damaged file is found now
    elif engine == "torch":
        opened = replace(opened, network=opened.model)
    model_fields = {field.name: getattr(opened, field.name) for field in fields(opened)}
    return Model(
        **model_fields,
        engine=engine,
        dtype=dtype or "float32",
        device=str(device),
        exit_confidence=exit_confidence,
        min_precision=min_precision,
    )


def _choose_engine(opened: LoadedModel, device: str, dtype: Dtype | None) -> str:
    """The compiled engine on CPUs, for the networks that it knows, and torch for all others."""
    if dtype == "int8":  # which torch does not multiply
        return "compiled"
    if device == "auto" and may_have_accelerator() and find_spec("torch") is not None:
        from litebert.train.device import choose

        device = choose("float32").device.type
    if device not in ("auto", "cpu"):
        return "torch"
    refusal = find_refusal(opened.config.encoder)
    if refusal and dtype in (None, "float32"):
        log.debug(f"answering with the engine torch: {refusal}")
        return "torch"
    return "compiled"
