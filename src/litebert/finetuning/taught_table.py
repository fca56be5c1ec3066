"""The token table of an untrained student, started from a teacher's vectors of texts.

Each token gets a vector, so that the sum of those of a text, divided by the square root of their
number, comes near the teacher's vector of the text. The square root keeps the length of a sum of
unrelated vectors. It is a ridge regression on the counts of tokens, as models of static token
vectors are made, and takes about a minute for 150,000 texts.

Shapes: N texts, V vocabulary, E embedding size, D numbers of a teacher's vector.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from litebert.config import TableConfig
from litebert.finetuning.items import Item
from litebert.model.task_model import TaskModel

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

log = logging.getLogger("litebert")

MOST_TEXTS = 300_000
"""Texts from whose vectors the table starts, at most."""
PENALTY = 0.025
"""The L2 penalty of a token's vector, beside the squared error of the texts, which have unit
length."""
ITERATIONS = 25
"""Steps of conjugate gradients. More of them change the correlation on STS-B by less than half a
point."""


def start_table(model: TaskModel, items: Sequence[Item]) -> None:
    """Start the token table from the teacher's vectors of the rows of items. Tokens that no row has
    keep their random rows, and so do the dimensions beyond those of the teacher.
    """
    started = time.monotonic()
    pairs = [
        (row.ids, vector)
        for item in items
        if item.teacher_logits is not None
        for row, vector in zip(item.rows, item.teacher_logits, strict=True)
    ][:MOST_TEXTS]
    word = model.encoder.embedding.word.weight
    vectors = fit_token_vectors(
        [ids for ids, _ in pairs], np.stack([vector for _, vector in pairs]), *word.shape
    )
    centered = vectors - vectors.mean(0)
    size = vectors.shape[1]
    scaled = torch.from_numpy(centered * (TableConfig().std / max(float(centered.std()), 1e-12)))
    occurs = torch.zeros(len(word), dtype=torch.bool)
    occurs[np.unique(np.concatenate([ids for ids, _ in pairs]))] = True
    with torch.no_grad():
        table = word.detach().cpu().clone()
        table[occurs, :size] = scaled[occurs].to(table.dtype)
        word.copy_(table.to(word.device))
    log.info(
        f"the token table starts from the teacher's vectors of {len(pairs):,} texts, fitted in "
        f"{time.monotonic() - started:.0f} s"
    )


def fit_token_vectors(
    rows: Sequence[NDArray[np.int32]], taught: NDArray[Any], vocabulary: int, size: int
) -> NDArray[np.float32]:
    """Fit vectors of tokens (V, min(E, D)) to the teacher's vectors (N, D) of rows of token ids, in
    the directions in which the teacher's vary most.
    """
    goals = taught.astype(np.float32)
    goals -= goals.mean(0)
    _, directions = np.linalg.eigh(goals.T.astype(np.float64) @ goals)
    goals = goals @ directions[:, ::-1][:, :size].astype(np.float32)
    return _solve_ridge(_count_tokens(rows, vocabulary), goals)


def _count_tokens(rows: Sequence[NDArray[np.int32]], vocabulary: int) -> csr_matrix:
    """Count the tokens of each row, each divided by the square root of the row's tokens: (N, V)."""
    from scipy.sparse import csr_matrix

    lengths = np.array([len(ids) for ids in rows])
    values = np.repeat(1 / np.sqrt(lengths), lengths).astype(np.float32)
    places = np.concatenate(([0], np.cumsum(lengths)))
    counts = csr_matrix((values, np.concatenate(rows), places), (len(rows), vocabulary))
    counts.sum_duplicates()
    return counts


def _solve_ridge(counts: csr_matrix, goals: NDArray[np.float32]) -> NDArray[np.float32]:
    """Minimize |counts W - goals|^2 + PENALTY |W|^2 over W (V, E) by conjugate gradients.

    They are preconditioned by the diagonal, because some tokens are a thousand times as frequent as
    others. Without that, as in scikit-learn's solvers, they need hundreds of steps.
    """
    transposed = counts.T.tocsr()
    diagonal = np.asarray(counts.multiply(counts).sum(0), np.float32).ravel() + PENALTY
    weights = np.zeros((counts.shape[1], goals.shape[1]), np.float32)
    residual = transposed @ goals
    step = residual / diagonal[:, None]
    size = (residual * step).sum(0)
    for _ in range(ITERATIONS):
        change = transposed @ (counts @ step) + PENALTY * step
        rate = size / np.maximum((step * change).sum(0), 1e-30)
        weights += rate * step
        residual -= rate * change
        scaled = residual / diagonal[:, None]
        previous, size = size, (residual * scaled).sum(0)
        step = scaled + size / np.maximum(previous, 1e-30) * step
    return weights
