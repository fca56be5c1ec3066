"""The scores of pairs of texts by their vectors, whole or cut to a size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from litebert.finetuning.similarity import Compared, scale_to_unit

RANK_SCORES = ("mrr", "recall_at_1")
"""The scores of pairs without scores of their own.

They are the mean of 1/rank of the right second text among all, and how often that rank is 1.
"""
_BLOCK = 1024
"""First texts that are compared at once, which bounds the memory of their cosines."""


def truncate_answer(answer: Compared, size: int) -> Compared:
    """Return the answer for the first numbers of both vectors."""
    pair = scale_to_unit(answer.vectors[:, :size])
    return Compared(float(np.dot(*pair)), pair)


def rank_seconds(vectors: Sequence[Any], texts: Sequence[str]) -> dict[str, float]:
    """Compute `RANK_SCORES` from unit vectors, (2, H) for each of N pairs, and the second texts.

    The rank of a second text counts every other text that is as near to the first. So a tie is
    wrong, and a network that gives all texts the same vector scores nothing. Cosines that differ by
    less than 1e-6 are ties, because equal vectors may differ by rounding. A vector with a NaN is as
    near as any. If all second texts are the same, both scores are 0.
    """
    number_of = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    numbers = np.array([number_of[text] for text in texts])
    if len(number_of) == 1:
        return dict.fromkeys(RANK_SCORES, 0.0)
    firsts, seconds = (_stack([pair[side] for pair in vectors]) for side in (0, 1))
    cosine_to_second = np.asarray((firsts * seconds).sum(-1))
    ranks = []
    for start in range(0, len(vectors), _BLOCK):
        block = slice(start, start + _BLOCK)
        cosines = firsts[block] @ seconds.T
        cosines = cosines if isinstance(cosines, np.ndarray) else cosines.toarray()
        # Negated, so that a NaN, which compares as False, counts as nearer.
        is_farther = cosines < cosine_to_second[block, None] - 1e-6
        ranks.append(1 + (~is_farther & (numbers[block, None] != numbers)).sum(1))
    all_ranks = np.concatenate(ranks)
    return {"mrr": float((1 / all_ranks).mean()), "recall_at_1": float((all_ranks == 1).mean())}


def _stack(vectors: Sequence[Any]) -> Any:
    """Stack N vectors to (N, H): an array, or a sparse array for the vectors of a baseline."""
    if isinstance(vectors[0], np.ndarray):
        return np.stack(vectors)
    from scipy.sparse import csr_array, vstack

    return csr_array(vstack(vectors, format="csr"))
