"""A model moved to another vocabulary: the rows of its tables taken over, averaged or drawn.

The row of a token is that of the old token with the same text, or else the mean of the rows of the
tokens that the old tokenizer cuts the text into. Where the old tokenizer knows nothing of it, the
row is drawn with the mean and the standard deviation of the table (Hewitt 2021, "Initializing New
Word Embeddings for Pretrained Language Models").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert.base.errors import ModelError
from litebert.config import Config
from litebert.interop.loaded import LoadedModel, require_tokenizer_of
from litebert.interop.networks import rebuild
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.spelling import find_sources


@dataclass(frozen=True)
class Moved:
    """A model with another vocabulary, and where its rows come from."""

    model: LoadedModel
    same: int
    """Tokens that have the row of an old token with the same text."""
    averaged: int
    """Tokens that start from the mean of the old tokens of their text, in any case or accents."""
    drawn: int
    """Tokens that the old tokenizer knows nothing of."""


def with_tokenizer(loaded: LoadedModel, tokenizer: Tokenizer) -> Moved:
    sources = find_sources(require_tokenizer(loaded), tokenizer)
    config, other = (with_vocabulary(loaded.config, tokenizer.vocab_size + more) for more in (0, 1))
    ids = [source.ids for source in sources]
    model = rebuild(loaded, config, other, lambda table: _rows(table, ids), tokenizer=tokenizer)
    same = sum(source.same for source in sources)
    drawn = sum(not source.ids for source in sources)
    return Moved(model, same, len(sources) - same - drawn, drawn)


def with_rows_of(
    data: str | Path, tokenizer: Tokenizer, loaded: LoadedModel, source: str | Path
) -> LoadedModel:
    """The model with one row for each token of prepared text, without the rows behind the tokens,
    with which published tables reach a multiple of 64.
    """
    require_tokenizer_of(data, tokenizer, loaded, source)
    if loaded.config.encoder.vocab_size == (rows := tokenizer.vocab_size):
        return loaded
    config, other = (with_vocabulary(loaded.config, size) for size in (rows, rows + 1))
    return rebuild(loaded, config, other, lambda table: table[:rows])


def require_tokenizer(loaded: LoadedModel) -> Tokenizer:
    if loaded.tokenizer is None:
        raise ModelError(
            f"{loaded.path} has no tokenizer, so the text of its tokens is not known; put it there"
        )
    return loaded.tokenizer


def with_vocabulary(config: Config, size: int) -> Config:
    return replace(config, encoder=replace(config.encoder, vocab_size=size))


def _rows(table: Tensor, sources: Sequence[Sequence[int]]) -> Tensor:
    counts = torch.tensor([len(ids) for ids in sources])
    old, new = torch.tensor([i for ids in sources for i in ids]), torch.repeat_interleave(counts)
    rows = table.new_zeros(len(sources), *table.shape[1:]).index_add(0, new, table[old])
    rows /= counts.clamp(min=1).view(-1, *[1] * (table.ndim - 1))
    drawn = counts == 0
    noise = torch.randn(rows[drawn].shape, generator=torch.Generator().manual_seed(0))
    rows[drawn] = table.mean(0) + table.std(0) * noise
    return rows


def project_table(
    table: NDArray[np.float64],
    sources: Sequence[Sequence[int]],
    counts: NDArray[np.int64],
    *,
    width: int,
    std: float,
) -> NDArray[np.float32]:
    """Reduce a token table to fewer numbers a row, for the tokens of another tokenizer.

    A row is the mean of the old rows that spell its token, seen from the principal axes of all
    rows. In these, a token counts by the logarithm of how often it occurs, so that neither the most
    frequent words nor those that the text lacks decide alone.

    `table` (V, H) is reduced to (W, width) of standard deviation `std`, with zeros beyond H and for
    tokens without a source: `sources` are the old ids that spell each of the W new tokens, and
    `counts` (W,) how often these occur in the text.
    """
    from threadpoolctl import threadpool_limits

    rows = np.zeros((len(sources), table.shape[1]))
    for row, ids in zip(rows, sources, strict=True):
        if len(ids):
            row[:] = table[list(ids)].mean(0)
    has_source = np.array([len(ids) > 0 for ids in sources])
    projected = np.zeros((len(sources), width))
    if not has_source.any():
        return projected.astype(np.float32)
    weights = np.log1p(counts + 0.5) * has_source
    weights /= weights.sum()
    # With more threads, libraries add in another order.
    with threadpool_limits(1):
        rows[has_source] -= weights @ rows
        values, axes = np.linalg.eigh((rows * weights[:, None]).T @ rows)
        axes = axes[:, np.argsort(-values)[:width]]
        # The sign of an axis is arbitrary: its largest number becomes positive.
        axes *= np.sign(axes[np.abs(axes).argmax(0), np.arange(axes.shape[1])])
        reduced = rows @ axes
    projected[:, : reduced.shape[1]] = reduced
    projected[~has_source] = 0
    scale = projected[has_source].std()
    return (projected * (std / scale if scale > 0 else 1.0)).astype(np.float32)
