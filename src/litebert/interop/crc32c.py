"""CRC-32C (Castagnoli), the checksum of LevelDB's and TensorFlow's files, for megabytes at numpy's speed.

The checksum is linear: that of a long text is made from those of its pieces. So thousands of equal pieces are read side
by side, two bytes of each at a time, and then joined in pairs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
_SHORT = 4096
"""Bytes up to which a loop is faster."""
_ONES = 0xFFFFFFFF


def _table(bits: int) -> NDArray[np.uint32]:
    """The state after so many zero bits, for every state of so many bits."""
    state = np.arange(1 << bits, dtype=np.uint32)
    for _ in range(bits):
        state = (state >> 1) ^ np.where(state & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    return state


_ONE_BYTE: list[int] = _table(8).tolist()
_TWO_BYTES = _table(16)
_UNIT = np.uint32(1) << np.arange(32, dtype=np.uint32)
"""The states of one bit: a linear map of states is the 32 states that these become."""


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """The checksum of some bytes."""
    if len(data) <= _SHORT:
        state = _ONES
        for byte in data:
            state = _ONE_BYTE[(state ^ byte) & 0xFF] ^ (state >> 8)
        return state ^ _ONES
    lanes = 1 << min(14, (len(data) // 512).bit_length() - 1)
    steps = -(-len(data) // (2 * lanes))
    padded = np.zeros(2 * lanes * steps, np.uint8)  # zeros in front leave a state of 0 as it is
    start = len(padded) - len(data)
    padded[start:] = np.frombuffer(data, np.uint8)
    padded[start : start + 4] ^= 0xFF  # the first state is all ones
    states = np.zeros(lanes, np.uint32)
    for words in np.ascontiguousarray(padded.view("<u2").reshape(lanes, steps).T):
        states = _two_bytes_on(states ^ words)
    shift = _power(_two_bytes_on(_UNIT), steps)
    while len(states) > 1:
        states = _mapped(shift, states[::2]) ^ states[1::2]
        shift = _mapped(shift, shift)
    return int(states[0]) ^ _ONES


def masked(checksum: int) -> int:
    """The checksum as these files store it (tensorflow/core/lib/hash/crc32c.h)."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & _ONES


def _two_bytes_on(states: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """States after two zero bytes."""
    after: NDArray[np.uint32] = _TWO_BYTES.take(states.astype(np.uint16)) ^ (states >> np.uint32(16))
    return after


def _mapped(columns: NDArray[np.uint32], states: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """States through a linear map."""
    bits = (states[:, None] & _UNIT) != 0
    mapped: NDArray[np.uint32] = np.bitwise_xor.reduce(np.where(bits, columns, np.uint32(0)), axis=1)
    return mapped


def _power(columns: NDArray[np.uint32], times: int) -> NDArray[np.uint32]:
    """A linear map, so many times."""
    result: NDArray[np.uint32] = _UNIT
    while times:
        if times & 1:
            result = _mapped(columns, result)
        columns, times = _mapped(columns, columns), times >> 1
    return result
