"""Sentence vectors: the last states of a text, pooled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from litebert import progress
from litebert.answer.ahead import in_advance
from litebert.answer.engines import Engine
from litebert.answer.precision import comparison_of
from litebert.answer.predicting import not_finite
from litebert.errors import DataError, ModelError
from litebert.finetuning.items import EncodedRow, build_single_rows
from litebert.finetuning.rows import PaddedRows, group_by_length, pad_ids, pad_rows
from litebert.finetuning.similarity import pool_states, scale_to_unit
from litebert.interop import LoadedModel
from litebert.interop.exports import exported_graph
from litebert.interop.sentence_modules import VectorSettings, vector_settings
from litebert.model.heads import Pooling
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from litebert.registry import ENGINES
from litebert.text.records import format_value
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.coverage import Coverage

log = logging.getLogger("litebert")

CHUNK = 1024
"""Texts in memory at a time; they are sorted by length among themselves, so that little is
padded."""
BATCH_TOKENS = 8192
"""Tokens per forward pass, padding included."""


def texts_of(texts: Iterable[str]) -> Iterator[str]:
    """The texts of a list, checked.

    Raises:
        DataError: it is one text instead of a list, or something in it is no text.
    """
    if isinstance(texts, (str, bytes, Mapping)) or not isinstance(texts, Iterable):
        raise DataError(f"the texts are {format_value(texts)}; give a list, even for a single one")

    def checked() -> Iterator[str]:
        for number, text in enumerate(texts, 1):
            if not isinstance(text, str):
                raise DataError(f"text {number} is {format_value(text)}; give a text")
            yield text

    return checked()


def batches(
    rows: Sequence[Sequence[int]], pad_id: int, most: int = BATCH_TOKENS
) -> Iterator[tuple[list[int], NDArray[np.int64], NDArray[np.bool_]]]:
    """Rows of nearly the same length side by side: which they are, their ids (R, S), and where no
    padding stands.

    At most `most` tokens stand in a batch, padding included, but always one row.
    """
    for places in group_by_length(list(map(len, rows)), min(most, BATCH_TOKENS)):
        yield places, *pad_ids([rows[place] for place in places], pad_id, len(rows[places[0]]))


@dataclass(frozen=True)
class SentenceEncoder:
    """Vectors of texts by the encoder of a model: its last states, pooled."""

    vectors: Callable[[PaddedRows], NDArray[np.float32]]
    """(R, D) of R rows, not normalized."""
    tokenizer: Tokenizer
    width: int
    """D, the numbers of a vector: H, or what a map after the pooling gives."""
    length: int
    """Longest row in tokens, special ones included."""
    positions: int
    """How many the model has."""
    normalized: bool = False
    """Whether vectors have unit length."""
    tokens: int = BATCH_TOKENS
    """Tokens per forward pass."""
    padding: int | None = None
    """Most tokens that a row is padded with; any number by default."""
    engine: Engine | None = None
    """What computes the states."""
    name: str = "the model"
    """What messages call the model."""

    @classmethod
    def of(
        cls,
        loaded: LoadedModel,
        engine: str = "torch",
        device: str = "auto",
        pooling: Pooling | None = None,
        normalized: bool | None = None,
    ) -> SentenceEncoder:
        """That of a model folder: pretrained, fine-tuned, or exported with its states.

        Args:
            engine: the registered name of what computes the states.
            pooling: the mean of the states of a text, special tokens included, or the state of
                [CLS] (cls), and no map after it. By default what the model was fine-tuned with or
                its modules.json says, else the mean.
            normalized: whether vectors have unit length; the same by default, else no.

        Raises:
            ModelError: it has no tokenizer, gives no states, its modules.json asks for what is not
                computed, or the engine cannot compute the network.
            ConfigError: there is no such engine or device, or this machine does not have what the
                engine needs.
            MissingExtraError: a library that the engine needs is not installed.
        """
        if loaded.tokenizer is None:
            raise ModelError(
                f"{loaded.path} has no tokenizer; put the one it was trained with there"
            )
        settings = _settings(loaded, pooling) or VectorSettings()
        map_ = settings.map if pooling is None else None
        pooling = settings.pooling if pooling is None else pooling
        shape = loaded.config.encoder
        length = settings.length or int(loaded.task.get("length", loaded.config.sequences.length))
        length, own = (
            min(length, shape.max_positions),
            settings.normalized if normalized is None else normalized,
        )
        states = _of_states(loaded)
        computing = ENGINES[engine](states, device)
        comparison = comparison_of(states, engine, device)

        def compute(by: Engine, rows: PaddedRows) -> NDArray[np.float32]:
            found = _pooled_by(by, rows, pooling)
            return found if map_ is None else map_.of(found)

        def vectors(rows: PaddedRows) -> NDArray[np.float32]:
            found = compute(computing, rows)
            if comparison is not None:
                comparison.compare_vectors(rows, found, compute)
            return found

        width = shape.hidden_size if map_ is None else len(map_.bias)
        tokens, padding = (
            getattr(computing, "tokens", BATCH_TOKENS),
            getattr(computing, "padding", None),
        )
        return cls(
            vectors,
            loaded.tokenizer,
            width,
            length,
            shape.max_positions,
            own,
            tokens,
            padding,
            computing,
            str(loaded.path),
        )

    def blocks(
        self, texts: Iterable[str], *, ahead: bool = False, coverage: Coverage | None = None
    ) -> Iterator[NDArray[np.float32]]:
        """The vectors of up to `CHUNK` texts at a time, (n, H), in order and in constant memory.

        Longer texts are truncated, which is logged.

        Args:
            ahead: read and tokenize the next texts while these are computed, in a thread. For
                sources that never wait for somebody, as files are.
            coverage: counts the tokens that are read.

        Raises:
            DataError: something is no text.
        """
        truncated = 0
        chunks = self._chunks(texts_of(texts))
        with (
            progress.task("encoding", unit="texts") as bar,
            closing(in_advance(chunks) if ahead else chunks) as source,
        ):
            for rows, cut in source:
                truncated += cut
                if coverage is not None:
                    coverage.add(row.ids for row in rows)
                yield self._vectors(rows, bar)
        if truncated:
            log.info(f"texts longer than {self.length} tokens were truncated ({truncated:,})")

    def encode(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """All of them, (N, H)."""
        return np.concatenate([np.zeros((0, self.width), np.float32), *self.blocks(texts)])

    def of_rows(self, rows: Sequence[EncodedRow]) -> NDArray[np.float32]:
        """The vectors of rows that `build_row` made of texts, (N, D)."""
        with progress.task("encoding", len(rows), "texts") as bar:
            return self._vectors(rows, bar)

    def _chunks(self, texts: Iterator[str]) -> Generator[tuple[list[EncodedRow], int], None, None]:
        """Up to `CHUNK` texts at a time as rows, and how many were truncated."""
        while chunk := list(islice(texts, CHUNK)):
            yield build_single_rows(self.tokenizer, chunk, self.length)

    def _vectors(self, rows: Sequence[EncodedRow], bar: progress.Task) -> NDArray[np.float32]:
        found = np.zeros((len(rows), self.width), np.float32)
        for places in group_by_length(
            [len(row.ids) for row in rows], self.tokens, padding=self.padding
        ):
            padded = pad_rows(
                [rows[place] for place in places], self.tokenizer.pad_id, self.positions
            )
            found[places] = self.vectors(padded)
            bar.advance(len(places))
        if not np.isfinite(found).all():
            raise not_finite(self.name)
        return scale_to_unit(found) if self.normalized else found


def _settings(loaded: LoadedModel, pooling: Pooling | None) -> VectorSettings | None:
    """As the folder says; where a pooling is given, modules that are not computed do not matter."""
    try:
        return vector_settings(loaded)
    except ModelError:
        if pooling is None:
            raise
        return None


def _of_states(loaded: LoadedModel) -> LoadedModel:
    """The encoder as a model without classes, whose logits are the last states; an exported folder
    as it is.

    Raises:
        ModelError: it was exported with another head.
    """
    if exported_graph(loaded.path) is not None:
        if loaded.task.get("kind") != "backbone":
            raise ModelError(
                f"{loaded.path} is an ONNX export that gives no states; export the model "
                "again with "
                "--head backbone, or embed with the folder it was exported from"
            )
        return loaded

    def network() -> TaskModel:
        return TaskModel.of_states(loaded.model.eval().encoder)

    read = isinstance(
        loaded.network, (Pretrainer, TaskModel)
    )  # the weights of others are read when they are needed
    return replace(
        loaded,
        network=network() if read else network,
        task={"kind": "backbone", "classes": 0},
        labels=(),
    )


def _pooled_by(engine: Engine, rows: PaddedRows, pooling: Pooling) -> NDArray[np.float32]:
    """(R, H), by the engine itself where it pools."""
    compute = getattr(engine, "vectors", None)
    if compute is None:
        return pool_states(engine.logits(rows), rows.mask, pooling)
    found: NDArray[np.float32] = compute(rows, pooling)
    return found
