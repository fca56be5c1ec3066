"""Sentence vectors: the last states of a text, pooled."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from itertools import count, islice, repeat

import numpy as np
from numpy.typing import NDArray

from litebert.answer.engines.precision import Comparison
from litebert.answer.engines.runtime import Runtime
from litebert.answer.predicting import FIRST, in_advance, not_finite
from litebert.base import progress
from litebert.interop.sentence_modules import VectorSettings
from litebert.parts import EVERY, Turns
from litebert.tasks.rows import (
    PaddedRows,
    build_single_rows,
    group_by_length,
    pad_ids,
)
from litebert.tasks.similarity import scale_to_unit
from litebert.tasks.task import Row
from litebert.tasks.values import EncodedRow
from litebert.text.records import check_texts
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.coverage import Coverage

log = logging.getLogger("litebert")

CHUNK = 1024
"""Texts in memory at a time; they are sorted by length among themselves, so that little is
padded."""
BATCH_TOKENS = 8192
"""Tokens per forward pass, padding included."""


def batches(
    rows: Sequence[Sequence[int]], pad_id: int, most: int = BATCH_TOKENS
) -> Iterator[tuple[list[int], NDArray[np.int64], NDArray[np.bool_]]]:
    """Yield batches of rows of nearly the same length: their indices, ids (R, S) and mask; at most
    `most` tokens with padding, but always a row.
    """
    for indices in group_by_length(list(map(len, rows)), min(most, BATCH_TOKENS)):
        yield indices, *pad_ids([rows[index] for index in indices], pad_id, len(rows[indices[0]]))


def _report(total: int | None) -> AbstractContextManager[progress.Task]:
    """Report the encoding of many texts; of a few, starting a thread would take too long."""
    few = total is not None and total <= FIRST
    job = progress.Task("encoding", total, "texts")
    return nullcontext(job) if few else progress.task("encoding", total, "texts")


def generate_chunk_sizes() -> Iterator[int]:
    """Yield the rows of each chunk, without an end."""
    return repeat(CHUNK)


@dataclass(frozen=True)
class SentenceEncoder:
    """Vectors of texts by the encoder of a model: its last states, pooled."""

    runtime: Runtime
    """Computes the states."""
    settings: VectorSettings
    tokenizer: Tokenizer
    width: int
    """D, the numbers of a vector: H, or what a map gives, or what is left of these."""
    length: int
    """Longest row in tokens, special ones included."""
    positions: int
    """Positions that the model has."""
    name: str = "the model"
    """The name of the model in messages."""
    comparison: Comparison | None = None
    """Compares a runtime of fewer bits with float32 on the first rows."""
    prompt: str = ""
    """Stands before every text."""

    def prepare(self, text: str) -> str:
        """Return a text as the tokenizer reads it."""
        text = self.prompt + text
        return text.lower() if self.settings.lowers else text

    def encode_rows(
        self,
        rows: Iterable[Row[str]],
        *,
        ahead: bool = False,
        coverage: Coverage | None = None,
        turns: Turns = EVERY,
        total: int | None = None,
    ) -> Iterator[tuple[list[Row[str]], NDArray[np.float32]]]:
        """Yield up to `CHUNK` rows at a time with their texts' vectors, (n, H), in order and
        constant memory. Longer texts are truncated, which is logged.

        `ahead` reads and tokenizes in a thread, for sources that never wait for somebody.
        `coverage` counts tokens. Of `turns`, `rows` begin with the first chunk; those of others are
        only read.
        """
        truncated = 0
        chunks = self._chunks(iter(rows), turns)
        with (
            _report(total) as bar,
            closing(in_advance(chunks) if ahead else chunks) as source,
        ):
            for chunk, encoded, cut in source:
                truncated += cut
                if coverage is not None:
                    coverage.add(row.ids for row in encoded)
                yield chunk, self._vectors(encoded, bar)
        if truncated:
            log.info(f"texts longer than {self.length} tokens were truncated ({truncated:,})")

    def encode(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """Compute the vectors of all texts, (N, H)."""
        rows = map(Row, check_texts(texts))
        total = len(texts) if isinstance(texts, Sized) else None
        ahead = total is not None and total > CHUNK
        blocks = [vectors for _, vectors in self.encode_rows(rows, ahead=ahead, total=total)]
        return np.concatenate([np.zeros((0, self.width), np.float32), *blocks])

    def of_rows(self, rows: Sequence[EncodedRow]) -> NDArray[np.float32]:
        """Compute the vectors of rows that `build_row` made of texts, (N, D)."""
        with _report(len(rows)) as bar:
            return self._vectors(rows, bar)

    def _chunks(
        self, rows: Iterator[Row[str]], turns: Turns
    ) -> Generator[tuple[list[Row[str]], list[EncodedRow], int], None, None]:
        for turn in count(turns.first):
            if not (chunk := list(islice(rows, CHUNK))):
                return
            if turn in turns:
                texts = [self.prepare(row.example) for row in chunk]
                yield chunk, *build_single_rows(self.tokenizer, texts, self.length)

    def _vectors(self, rows: Sequence[EncodedRow], bar: progress.Task) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] | None = None
        limits = self.runtime.capabilities
        groups = list(
            group_by_length([len(row.ids) for row in rows], limits.tokens, padding=limits.padding)
        )
        passes = [
            PaddedRows([rows[index] for index in indices], self.tokenizer.pad_id, self.positions)
            for indices in groups
        ]
        results = self.runtime.map_passes(self._compute_pass, passes)
        for indices, values in zip(groups, results, strict=True):
            if vectors is None:
                vectors = np.zeros((len(rows), values.shape[1]), np.float32)
            vectors[indices] = values
            bar.advance(len(indices))
        if vectors is None:
            return np.zeros((0, self.width), np.float32)
        if not np.isfinite(vectors).all():
            raise not_finite(self.name)
        vectors = scale_to_unit(vectors) if self.settings.normalized else vectors
        return vectors[:, : self.settings.size]

    def _compute_pass(self, rows: PaddedRows) -> NDArray[np.float32]:
        """Compute the vectors of a pass, (R, D), not normalized, and report their precision."""
        vectors = self._pool(self.runtime, rows)
        if self.comparison is not None:
            self.comparison.compare_vectors(rows, vectors, self._pool)
        return vectors

    def _pool(self, runtime: Runtime, rows: PaddedRows) -> NDArray[np.float32]:
        return runtime.vectors(rows, self.settings.pooling, self.settings.map)
