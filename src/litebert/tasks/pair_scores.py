"""The scores of pairs of texts by their vectors, whole or cut to a size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from litebert.finetuning.similarity import scale_to_unit
from litebert.finetuning.values import Compared

RANK_SCORES = ("mrr", "recall_at_1")
"""The scores of pairs without scores of their own.

They are the mean over the first texts of 1/rank of the first right second text among all, and how
often that rank is 1.
"""
_BLOCK = 1024
"""First texts that are compared at once, which bounds the memory of their cosines."""


def truncate_answer(answer: Compared, size: int) -> Compared:
    """Return the answer for the first numbers of both vectors."""
    pair = scale_to_unit(answer.vectors[:, :size])
    return Compared(float(np.dot(*pair)), pair)


def rank_seconds(
    vectors: Sequence[Any], firsts: Sequence[str], seconds: Sequence[str]
) -> dict[str, float]:
    """Compute `RANK_SCORES` from unit vectors, (2, H) for each of N pairs, and their texts.

    Each first text is asked once, and its right answers are the second texts of all its pairs. The
    rank of the nearest of them counts every different wrong text that is as near. So a tie is
    wrong, and a network that gives all texts the same vector scores nothing. Cosines that differ by
    less than 1e-6 are ties, because equal vectors may differ by rounding. A vector with a NaN is as
    near as any. If all second texts are the same, both scores are 0.
    """
    numbers, places = [], []
    for texts in (firsts, seconds):
        number_of: dict[str, int] = {}
        numbers.append(np.array([number_of.setdefault(text, len(number_of)) for text in texts]))
        places.append(np.unique(numbers[-1], return_index=True)[1])
    if len(places[1]) == 1:
        return dict.fromkeys(RANK_SCORES, 0.0)
    queries, documents = (
        _stack([vectors[place][side] for place in places[side]]) for side in (0, 1)
    )
    ranks = []
    for start in range(0, len(places[0]), _BLOCK):
        cosines = queries[start : start + _BLOCK] @ documents.T
        cosines = cosines if isinstance(cosines, np.ndarray) else cosines.toarray()
        is_right = np.zeros(cosines.shape, bool)
        here = (numbers[0] >= start) & (numbers[0] < start + _BLOCK)
        is_right[numbers[0][here] - start, numbers[1][here]] = True
        nearest = np.where(is_right, cosines, -np.inf).max(1, keepdims=True)
        # Negated, so that a NaN, which compares as False, counts as nearer.
        ranks.append(1 + (~(cosines < nearest - 1e-6) & ~is_right).sum(1))
    all_ranks = np.concatenate(ranks)
    return {"mrr": float((1 / all_ranks).mean()), "recall_at_1": float((all_ranks == 1).mean())}


def _stack(vectors: Sequence[Any]) -> Any:
    """Stack N vectors to (N, H): an array, or a sparse array for the vectors of a baseline."""
    if isinstance(vectors[0], np.ndarray):
        return np.stack(vectors)
    from scipy.sparse import csr_array, vstack

    return csr_array(vstack(vectors, format="csr"))
