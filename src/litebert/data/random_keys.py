"""Random draws without state: every number is a hash of a key, so that any example of any step is
drawn alone.

A batch must be a pure function of (data, seed, step). A stream of random numbers would have to be
skipped to its place; a generator object per example costs more than the example. Here a key is 64
bits, and numbers come from it by splitmix64, for a whole batch in one numpy expression. They are
good enough for sampling, not for cryptography.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = 6


def _mix(x: Keys) -> Keys:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014): a bijection of 64 bits."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    out: Keys = x ^ (x >> np.uint64(31))
    return out


def derive(*parts: int | Keys | NDArray[np.int64]) -> Keys:
    """Keys (B,) from whole numbers or arrays (B,) of them; their order counts. Only numbers give
    shape (1,).
    """
    key = np.zeros(1, np.uint64)
    for part in parts:
        words = np.uint64(part & (2**64 - 1)) if isinstance(part, int) else part.astype(np.uint64)
        key = _mix((key + _GOLDEN) ^ words)
    return key


def uniforms(keys: Keys, count: int, stream: int) -> NDArray[np.float64]:
    """(B, count) numbers in [0, 1). Column j depends on the key, the stream and j alone, never on
    count or B.
    """
    steps = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
    words = _mix(derive(keys, stream)[:, None] + steps)
    draws: NDArray[np.float64] = (words >> np.uint64(11)) * 2.0**-53
    return draws


def uniforms_at(
    keys: Keys, places: NDArray[np.int64], count: int, stream: int
) -> NDArray[np.float64]:
    """The numbers (K,) that stand at the flattened `places` (K,) in `uniforms(keys, count,
    stream)`.
    """
    rows, columns = np.divmod(places, count)
    words = _mix(derive(keys, stream)[rows] + (columns + 1).astype(np.uint64) * _GOLDEN)
    draws: NDArray[np.float64] = (words >> np.uint64(11)) * 2.0**-53
    return draws


def permute(places: NDArray[np.int64], size: int, keys: Keys) -> NDArray[np.int64]:
    """Element `places[i]` of the permutation of 0..size-1 that `keys[i]` names, in constant memory.

    A Feistel network over pairs (l, r) of a rectangle just larger than size, repeated while the
    result lies outside (Black and Rogaway 2002, FE and cycle walking).
    """
    rows = int(np.ceil(np.sqrt(size)))
    columns = -(-size // rows)
    turns = np.arange(2 * _ROUNDS, dtype=np.uint64)[:, None]
    of_turn = _mix((derive(keys) + _GOLDEN) ^ turns)  # derive(keys, turn) for each turn

    def shuffled(places: NDArray[np.int64]) -> NDArray[np.int64]:
        left, right = np.divmod(places, columns)
        for turn in range(_ROUNDS):
            left = (left + residue(right, 2 * turn, rows)) % rows
            right = (right + residue(left, 2 * turn + 1, columns)) % columns
        return left * columns + right

    def residue(value: NDArray[np.int64], turn: int, modulus: int) -> NDArray[np.int64]:
        key = _mix((of_turn[turn] + _GOLDEN) ^ value.astype(np.uint64))  # derive(keys, turn, value)
        rest: NDArray[np.int64] = (key % np.uint64(modulus)).astype(np.int64)
        return rest

    out = shuffled(places)
    while (outside := out >= size).any():
        out = np.where(outside, shuffled(out), out)
    return out
