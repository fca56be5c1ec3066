"""Weights in the order in which answers.c reads them, which is one for all processors.

A weight of a product, (out, in), lies in panels of 16 of its rows, filled up with zeros to an even
number of panels. In a panel, numbers of the same column lie together: in float32 one by one, in
bfloat16 in pairs of neighboring columns, in 8 bits in groups of four. A table, whose rows are read
alone, has them one behind the other.

In 8 bits each row has a scale, which is the largest of its numbers / 127. Those of a panel lie
behind it, followed by the sums of its rows as int32; that of a row of a table lies behind the row.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Dtype = Literal["float32", "bfloat16", "int8"]
DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16", "int8")
"""What products of layers multiply, in the order of answers.c."""
PANEL = 16
TOGETHER = {"float32": 1, "bfloat16": 2, "int8": 4}
"""Numbers of a row that lie side by side, which must divide the length of rows."""
_TYPES: dict[Dtype, Any] = {"float32": np.float32, "bfloat16": np.uint16, "int8": np.int8}


_PRODUCTS = re.compile(
    r"(^|\.)(attention\.\d+\.(qkv|output)|feedforward\.\d+\.(input|output))\.weight$"
)


def is_table(name: str) -> bool:
    """True of the name of a table of words."""
    return name.endswith(".word.weight")


def in_panels(name: str) -> bool:
    """True of the name of a weight of a layer's products."""
    return _PRODUCTS.search(name) is not None


class Packed(NamedTuple):
    """A weight as it is read."""

    data: NDArray[np.uint8]
    """(panels or rows, bytes of each)"""
    shape: tuple[int, int]
    """(out, in)"""
    dtype: Dtype
    is_table: bool = False

    @property
    def ndim(self) -> int:
        return 2

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    def rows(self, begin: int, end: int) -> Floats | Packed:
        """Some rows of a weight in panels."""
        if begin % PANEL:
            return self.unpack()[begin:end]
        panels = self.data[begin // PANEL : -(-end // (2 * PANEL)) * 2]
        return self._replace(data=panels, shape=(end - begin, self.shape[1]))

    def unpack(self) -> Floats:
        """(out, in)"""
        (rows, wide), together = self.shape, TOGETHER[self.dtype]
        kind = np.dtype(_TYPES[self.dtype])
        count = wide if self.is_table else PANEL * wide
        numbers = self.data[:, : count * kind.itemsize].view(kind)
        scale = self.data[:, count:].view(np.float32) if self.dtype == "int8" else None
        if not self.is_table:
            panels = numbers.reshape(-1, wide // together, PANEL, together)
            numbers = panels.swapaxes(1, 2).reshape(-1, wide)[:rows]
            scale = None if scale is None else scale[:, :PANEL].reshape(-1, 1)[:rows]
        if self.dtype == "bfloat16":
            numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
        floats: Floats = numbers.astype(np.float32)
        return floats if scale is None else floats * scale


def count_bytes(shape: tuple[int, int], dtype: Dtype, is_table: bool) -> tuple[int, int]:
    """The panels or rows of a packed weight (out, in), and the bytes of each."""
    rows, wide = shape
    size = np.dtype(_TYPES[dtype]).itemsize
    if is_table:
        return rows, wide * size + 4 * (dtype == "int8")
    return -(-rows // (2 * PANEL)) * 2, PANEL * (wide * size + 8 * (dtype == "int8"))


def pack(weight: Floats | Packed, dtype: Dtype, is_table: bool = False) -> Packed:
    """Pack a weight (out, in); one that is packed so stays as it is.

    It needs rows whose length `TOGETHER` divides, where it is no table.
    """
    if isinstance(weight, Packed):
        if (weight.dtype, weight.is_table) == (dtype, is_table):
            return weight
        weight = weight.unpack()
    rows, wide = weight.shape
    numbers, scale = _round(weight, dtype)
    behind = None if scale is None else scale[:, None].view(np.uint8)
    if not is_table:
        numbers = np.pad(numbers, ((0, -rows % (2 * PANEL)), (0, 0)))
        if scale is not None:
            scales = np.pad(scale, (0, -rows % (2 * PANEL)))
            sums = numbers.sum(1, dtype=np.int32).view(np.float32)
            both = np.stack((scales, sums), 1).reshape(-1, PANEL, 2).swapaxes(1, 2)
            behind = np.ascontiguousarray(both).reshape(len(both), -1).view(np.uint8)
        shape = (-1, PANEL, wide // TOGETHER[dtype], TOGETHER[dtype])
        panels = np.ascontiguousarray(numbers.reshape(shape).swapaxes(1, 2))
        numbers = panels.reshape(len(panels), -1)
    data = np.ascontiguousarray(numbers).view(np.uint8)
    data = data if behind is None else np.concatenate((data, behind), 1)
    return Packed(data, (rows, wide), dtype, is_table)


def _round(weight: Floats, dtype: Dtype) -> tuple[NDArray[Any], Floats | None]:
    """The numbers of a weight in a type, and in 8 bits the scales of its rows."""
    if dtype == "int8":
        scale = (np.abs(weight).max(1) / np.float32(127)).astype(np.float32)
        tiny = np.finfo(np.float32).tiny
        with np.errstate(invalid="ignore"):  # a row that is no number keeps its scale
            return np.rint(weight / np.maximum(scale, tiny)[:, None]).astype(np.int8), scale
    if dtype == "bfloat16":
        bits = np.ascontiguousarray(weight).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16), None
    return weight, None
