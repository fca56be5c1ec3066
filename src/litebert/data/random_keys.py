"""Random draws without state: every number is a hash of a key, so any example of any step is drawn
alone, as a batch that is a pure function of (data, seed, step) asks.

A key is 64 bits. Numbers come from it by splitmix64, for a whole batch in one numpy expression.
They are good enough for sampling, not for cryptography.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = 6


def mix_bits(numbers: Keys) -> Keys:
    """The finalizer of splitmix64 (Steele, Lea and Flood 2014): a bijection of 64 bits."""
    mixed: Keys = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def derive(*parts: int | Keys | NDArray[np.int64]) -> Keys:
    """Derive keys (B,), (1,) of integers alone, from integers and arrays (B,), in their order."""
    key = np.zeros(1, np.uint64)
    for part in parts:
        words = np.uint64(part & (2**64 - 1)) if isinstance(part, int) else part.astype(np.uint64)
        key = mix_bits((key + _GOLDEN) ^ words)
    return key


def draw_uniforms(keys: Keys, count: int, stream: int) -> NDArray[np.float64]:
    """Draw (B, count) numbers in [0, 1). Column j depends on the key, the stream and j alone."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
    words = mix_bits(derive(keys, stream)[:, None] + steps)
    draws: NDArray[np.float64] = (words >> np.uint64(11)) * 2.0**-53
    return draws


def draw_uniforms_at(
    keys: Keys, positions: NDArray[np.int64], count: int, stream: int
) -> NDArray[np.float64]:
    """Draw the numbers (K,) that `draw_uniforms` has at the flattened `positions` (K,)."""
    rows, columns = np.divmod(positions, count)
    words = mix_bits(derive(keys, stream)[rows] + (columns + 1).astype(np.uint64) * _GOLDEN)
    draws: NDArray[np.float64] = (words >> np.uint64(11)) * 2.0**-53
    return draws


def permute(indices: NDArray[np.int64], size: int, keys: Keys) -> NDArray[np.int64]:
    """Return element `indices[i]` of the permutation of 0..size-1 that `keys[i]` names, in constant
    memory: a Feistel network over pairs (l, r) of a rectangle just larger than size, repeated while
    the result is outside (Black and Rogaway 2002, FE and cycle walking).
    """
    rows = int(np.ceil(np.sqrt(size)))
    columns = -(-size // rows)
    turns = np.arange(2 * _ROUNDS, dtype=np.uint64)[:, None]
    key_of_turn = mix_bits((derive(keys) + _GOLDEN) ^ turns)  # derive(keys, turn) for each turn

    def shuffle(indices: NDArray[np.int64]) -> NDArray[np.int64]:
        left, right = np.divmod(indices, columns)
        for turn in range(_ROUNDS):
            left = (left + hash_to_range(right, 2 * turn, rows)) % rows
            right = (right + hash_to_range(left, 2 * turn + 1, columns)) % columns
        return left * columns + right

    def hash_to_range(value: NDArray[np.int64], turn: int, modulus: int) -> NDArray[np.int64]:
        key = mix_bits(
            (key_of_turn[turn] + _GOLDEN) ^ value.astype(np.uint64)
        )  # derive(keys, turn, value)
        rest: NDArray[np.int64] = (key % np.uint64(modulus)).astype(np.int64)
        return rest

    out = shuffle(indices)
    while (outside := out >= size).any():
        out = np.where(outside, shuffle(out), out)
    return out
