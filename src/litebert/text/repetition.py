"""Repetition within documents: lines and n-grams of words that occur again (Rae 2021, table A1).
Many documents are measured at once, end to end in one array, because most are short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

TOP_NGRAMS = {2: 0.20, 3: 0.18, 4: 0.16}
"""Largest share of the characters in the most frequent n-gram of words, by n."""
DUPLICATE_NGRAMS = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
"""Largest share of the characters in n-grams that occurred before, by n."""

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)


class SpanHasher:
    """Hashes stretches of code points by polynomials modulo 2^64 (Karp and Rabin 1987)."""

    def __init__(self, codes: npt.NDArray[np.uint32]) -> None:
        powers, self._inverses = _compute_powers(1 << len(codes).bit_length())
        self._sums = np.zeros(len(codes) + 1, np.uint64)
        np.cumsum((codes + np.uint32(1)) * powers[: len(codes)], out=self._sums[1:])

    def hash(self, starts: Ints, ends: Ints, documents: Ints) -> Hashes:
        """Hash stretches, each with the number of its document, (stretches,)."""
        hashes = (self._sums[ends] - self._sums[starts]) * self._inverses[starts]
        return _scramble(hashes + _scramble(documents.astype(np.uint64) + np.uint64(1)))


@lru_cache(2)  # chunks of a corpus are about as large, so their powers of two are one or two
def _compute_powers(count: int) -> tuple[Hashes, Hashes]:
    """Compute so many powers of the base, and their inverses."""
    base = 0xD6E8FEB86659FD93
    tables = np.ones((2, count), np.uint64)
    tables[:, 1:] = [[base], [pow(base, -1, 1 << 64)]]
    powers, inverses = np.cumprod(tables, axis=1, dtype=np.uint64)
    return powers, inverses


def _scramble(numbers: Hashes) -> Hashes:
    values: Hashes = numbers * _ODD
    values ^= values >> _SHIFT
    values *= _ODD
    values ^= values >> _SHIFT
    return values


def mix(*columns: npt.NDArray[Any]) -> Hashes:
    """Hash the rows of several columns of whole numbers, (rows,)."""
    hashes = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        hashes = _scramble(hashes + column.astype(np.uint64) + np.uint64(1))
    return hashes


def find_repeated(keys: Hashes) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the positions of keys that occur more than once, and which are no first occurrence."""
    # Most keys are alone in their cell, and need no sorting. There are four cells or more for each.
    cells = (keys >> np.uint64(62 - max(8, len(keys).bit_length()))).astype(np.int64)
    shared = np.flatnonzero(np.bincount(cells)[cells] > 1) if len(keys) else np.zeros(0, np.int64)
    order = np.argsort(keys[shared], kind="stable")
    ranked = keys[shared][order]
    is_later = np.zeros(len(ranked), bool)
    is_later[1:] = ranked[1:] == ranked[:-1]
    is_member = is_later.copy()
    is_member[:-1] |= is_later[1:]
    later = np.zeros(len(ranked), bool)
    later[order] = is_later
    member = np.zeros(len(ranked), bool)
    member[order] = is_member
    return shared[member], later[member]


def sum_by_document(values: npt.NDArray[Any], bounds: Ints) -> Ints:
    """Add up values between consecutive bounds, (documents,)."""
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(values, dtype=np.int64)])
    between: Ints = sums[bounds[1:]] - sums[bounds[:-1]]
    return between


def measure_ngrams(
    texts: Sequence[str], hashes: Hashes, lengths: Ints, bounds: Ints
) -> dict[str, npt.NDArray[np.bool_]]:
    """Find which documents, (documents,) for each rule, have too large a share of repeated n-grams.

    `hashes` and `lengths` (words,) are of the words of all documents, and `bounds` (documents + 1,)
    where the words of each begin, and the end.
    """
    characters = np.array([len(text) for text in texts], np.int64)
    rules: dict[str, npt.NDArray[np.bool_]] = {}
    document = np.repeat(np.arange(len(texts)), np.diff(bounds))
    sizes = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths + 1)])
    positions, keys = np.arange(len(hashes)), hashes
    for n in range(2, max(DUPLICATE_NGRAMS) + 1):
        # A repeated run of n words begins with a repeated run of n - 1.
        last = positions + n - 1
        inside = last < len(hashes)
        inside[inside] = document[positions[inside]] == document[last[inside]]
        positions = positions[inside]
        keys = _scramble(keys[inside] + (hashes[positions + n - 1] ^ _ODD))
        members, is_later = find_repeated(keys)
        positions, keys = positions[members], keys[members]
        if n in TOP_NGRAMS:
            candidates = _find_candidates(keys, positions, n, sizes, document, characters)
            rules[f"top-{n}-gram"] = _find_frequent(texts, characters, n, candidates)
        if n in DUPLICATE_NGRAMS:
            covered = np.zeros(len(hashes) + 1, np.int64)
            np.add.at(covered, positions[is_later], 1)
            np.add.at(covered, positions[is_later] + n, -1)
            repeated = np.where(np.cumsum(covered[:-1]) > 0, lengths, 0)
            most = DUPLICATE_NGRAMS[n] * characters
            rules[f"duplicate-{n}-grams"] = sum_by_document(repeated, bounds) > most
    return rules


def _find_candidates(
    keys: Hashes, positions: Ints, n: int, sizes: Ints, document: Ints, characters: Ints
) -> Ints:
    """Return the documents in which an n-gram may be too large a share of the characters.

    `keys` of the n-grams that occur more than once, and their `positions`, are (occurrences,).
    `sizes` are the characters before each word, with a space after each, (words + 1,).
    """
    most = TOP_NGRAMS[n] * characters
    spans = sizes[n:] - sizes[:-n] - 1
    large = np.flatnonzero(spans > most[document[: len(spans)]])
    _, group = np.unique(keys, return_inverse=True)
    totals = np.bincount(group, spans[positions])[group]
    frequent = positions[totals > most[document[positions]]]
    candidates: Ints = np.unique(document[np.concatenate([large, frequent])])
    return candidates


def _find_frequent(
    texts: Sequence[str], characters: Ints, n: int, candidates: Ints
) -> npt.NDArray[np.bool_]:
    most = TOP_NGRAMS[n] * characters
    is_frequent = np.zeros(len(texts), bool)
    for number in candidates.tolist():
        words = texts[number].split()
        ngrams = Counter(zip(*(words[i:] for i in range(n)), strict=False))
        if ngrams:
            gram, count = ngrams.most_common(1)[0]
            is_frequent[number] = count * len(" ".join(gram)) > most[number]
    return is_frequent
