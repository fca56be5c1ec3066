"""TensorFlow's checkpoint files, `NAME.index` and `NAME.data-00000-of-00001`, read without
TensorFlow.

The index is a table of LevelDB's format: blocks of ascending keys, each written without what it
shares with the one before it; behind a block, a byte for its compression and a checksum; at the
end, where the block of blocks lies. The values are protocol buffers that say what each tensor is
and where it lies. Variables cut into slices and tensors of strings are refused.

Sources: tensorflow/core/lib/io/format.cc, tensorflow/core/protobuf/tensor_bundle.proto.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from litebert.base.errors import MissingExtraError, ModelError
from litebert.interop.names import RawTensor

_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER = 48
_TRAILER = 5
_SLICE = b"\0"
"""How the keys of slices begin; the variable that was cut has an entry of its own."""
_LARGEST_BLOCK = 1 << 28
_LARGEST_SIDE = 1 << 40
_DTYPES = {
    1: ("float32", 4),
    2: ("float64", 8),
    3: ("int32", 4),
    4: ("uint8", 1),
    5: ("int16", 2),
    6: ("int8", 1),
    9: ("int64", 8),
    10: ("bool", 1),
    14: ("bfloat16", 2),
    19: ("float16", 2),
}
"""The types and their bytes, by their number in tensorflow/core/framework/types.proto."""


class Entry(NamedTuple):
    """The index's entry of a tensor."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    sliced: bool


@dataclass(frozen=True)
class Bundle:
    """The index of a checkpoint; its tensors are read one by one."""

    index: Path
    shards: int
    entries: dict[str, Entry]

    @classmethod
    def open(cls, index: Path) -> Bundle:
        from pyarrow import ArrowException

        try:
            table = dict(_table(index.read_bytes()))
            header = dict(_fields(table.pop(b"")))
            entries = {
                key.decode(): _entry(value)
                for key, value in table.items()
                if not key.startswith(_SLICE)
            }
        except OSError as error:
            raise ModelError(f"{index} cannot be read: {error.strerror or error}") from None
        except (ValueError, IndexError, KeyError, TypeError, ArrowException) as error:
            reason = str(error) if type(error) is ValueError else "its parts do not fit together"
            raise ModelError(
                f"{index} is damaged, cut short or not the index of a TensorFlow "
                f"checkpoint ({reason}); copy it again"
            ) from None
        shards, big_endian = header.get(1, 0), header.get(2, 0)
        if not isinstance(shards, int) or big_endian:
            raise ModelError(
                f"{index} was written on a big-endian machine; write it again on a "
                "little-endian one"
            )
        return cls(index, shards, entries)

    def read(self, name: str) -> RawTensor:
        """A tensor, in its own type."""
        entry = self.entries[name]
        if entry.sliced:
            raise ModelError(
                f"{self.index} holds {name} in slices; save the checkpoint without "
                "partitioned variables"
            )
        if entry.dtype not in _DTYPES:
            raise ModelError(
                f"{self.index} holds {name} of TensorFlow's type number {entry.dtype}; only "
                f"numbers of the types {', '.join(map(str, _DTYPES))} can be read"
            )
        dtype, width = _DTYPES[entry.dtype]
        if (
            entry.size != math.prod(entry.shape) * width
            or max(entry.shape, default=0) > _LARGEST_SIDE
        ):
            raise ModelError(
                f"{self.index} gives {name} {entry.size} bytes for the shape "
                f"{entry.shape}; copy it again"
            )
        file = self.index.with_name(
            f"{self.index.stem}.data-{entry.shard:05d}-of-{self.shards:05d}"
        )
        try:
            if file.stat().st_size < entry.offset + entry.size:
                raise ModelError(
                    f"{file} is cut short: {name} ends behind its last byte; copy it again"
                )
            with open(file, "rb") as shard:
                shard.seek(entry.offset)
                data = shard.read(entry.size)
        except OSError as error:
            reason = (
                "is missing"
                if isinstance(error, FileNotFoundError)
                else f"cannot be read ({error.strerror})"
            )
            raise ModelError(
                f"{file} {reason}; {self.index.name} needs it for {name}, so put it there"
            ) from None
        if _compute_checksum(data) != entry.checksum:
            raise ModelError(
                f"{file} is damaged: the checksum of {name} is another than in the index; "
                "copy it again"
            )
        return RawTensor(name, dtype, entry.shape, np.array(bytearray(data), np.uint8))


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    if len(data) < _FOOTER or not data.endswith(_MAGIC):
        raise ValueError("it does not end as one does")
    at = len(data) - _FOOTER
    for _ in range(2):  # the place of the block of filters, which has none
        _, at = _varint(data, at)
    for _, handle in _block(data, *_place(data, at)):
        yield from _block(data, *_place(handle, 0))


def _place(data: bytes, at: int) -> tuple[int, int]:
    offset, at = _varint(data, at)
    size, _ = _varint(data, at)
    return offset, size


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    end = offset + size
    if end + _TRAILER > len(data) - _FOOTER:
        raise ValueError("a block ends behind its last byte")
    kind = data[end]
    if _compute_checksum(data[offset : end + 1]) != int.from_bytes(
        data[end + 1 : end + _TRAILER], "little"
    ):
        raise ValueError("the checksum of a block does not match")
    block = _decompress(data[offset:end], kind)
    stop = len(block) - 4 * (
        1 + int.from_bytes(block[-4:], "little")
    )  # behind it, where keys are written whole
    key, at = b"", 0
    while at < stop:
        shared, at = _varint(block, at)
        unshared, at = _varint(block, at)
        length, at = _varint(block, at)
        key, value = (
            key[:shared] + block[at : at + unshared],
            block[at + unshared : at + unshared + length],
        )
        at += unshared + length
        yield key, value
    if at != stop:
        raise ValueError("a block has no end")


def _compute_checksum(data: bytes) -> int:
    """The CRC-32C of bytes as these files store it (tensorflow/core/lib/hash/crc32c.h)."""
    try:
        from google_crc32c import value
    except ImportError:
        raise MissingExtraError("google-crc32c", "tensorflow") from None
    checksum: int = value(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _decompress(block: bytes, kind: int) -> bytes:
    if kind == 0:
        return block
    if kind != 1:
        raise ValueError(f"a block has compression {kind}")
    size, _ = _varint(block, 0)
    if size > _LARGEST_BLOCK:
        raise ValueError(f"a block claims {size} bytes")
    import pyarrow

    whole: bytes = pyarrow.decompress(block, size, codec="snappy", asbytes=True)
    return whole


def _entry(message: bytes) -> Entry:
    values: dict[int, int] = {}
    shape: list[int] = []
    sliced = False
    for number, value in _fields(message):
        if number == 2 and isinstance(
            value, bytes
        ):  # TensorShapeProto, of fields 2: Dim, of field 1: size
            shape = [
                _whole(dict(_fields(dim)).get(1, 0))
                for part, dim in _fields(value)
                if part == 2 and isinstance(dim, bytes)
            ]
        elif number == 7:
            sliced = True
        else:
            values[number] = _whole(value)
    dtype, shard, offset, size, checksum = (values.get(number, 0) for number in (1, 3, 4, 5, 6))
    return Entry(dtype, tuple(shape), shard, offset, size, checksum, sliced)


def _whole(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("an entry has bytes in a number's place")
    return value


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        value: int | bytes
        kind = tag & 7
        if kind == 0:
            value, at = _varint(message, at)
        elif kind == 2:
            size, at = _varint(message, at)
            value, at = message[at : at + size], at + size
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, at = int.from_bytes(message[at : at + size], "little"), at + size
        else:
            raise ValueError(f"an entry has a field of kind {kind}")
        yield tag >> 3, value
    if at != len(message):
        raise ValueError("an entry is cut short")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in 7 bits a byte, the low ones first, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number has no end")
