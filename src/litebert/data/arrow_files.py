"""The Arrow files of a set of shards: a shard, or a file of a part, written and read.

One row is a document, in the column `sentences: list<list<uint16>>` (uint32 where the vocabulary
has more than 65,536 tokens). A file of a part has facts of the texts in further columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from litebert.data.encoding import Encoded, Texts, choose_id_type
from litebert.errors import DataError
from litebert.storage import atomic_write

BATCH_TOKENS = 1 << 24
"""Tokens of one Arrow record batch. A document is never cut."""

Ids = npt.NDArray[Any]
"""uint16 or uint32."""
Offsets = npt.NDArray[np.int64]
_TEXT_FIELDS = [("digest", pa.binary(16)), ("bytes", pa.int32()), ("words", pa.int32())]
"""The further columns of a file of a part: facts of the text of each document."""
_NOTE_FIELDS = [("note", pa.string())]
"""And what the filters dropped of it, where there are filters."""


def write_shard(path: Path, chunks: Sequence[Encoded], vocab_size: int) -> None:
    """Write chunks of documents as one shard; a file of a part where they have their texts."""
    dtype = choose_id_type(vocab_size)
    fields = [("sentences", pa.list_(pa.list_(pa.from_numpy_dtype(dtype))))]
    if any(chunk.texts for chunk in chunks):
        fields += _TEXT_FIELDS
    if any(chunk.texts and chunk.texts.notes is not None for chunk in chunks):
        fields += _NOTE_FIELDS
    schema = pa.schema(fields)
    with atomic_write(path) as file, pa.ipc.new_file(file, schema) as writer:
        waiting: list[Encoded] = []
        for number, chunk in enumerate(chunks, 1):
            waiting.append(chunk)
            tokens = sum(len(encoded.ids) for encoded in waiting)
            if number == len(chunks) or tokens >= BATCH_TOKENS:
                writer.write_batch(_make_record_batch(waiting, dtype, schema))
                waiting = []


def _make_record_batch(chunks: Sequence[Encoded], dtype: Any, schema: Any) -> Any:
    ids = np.concatenate([chunk.ids for chunk in chunks]).astype(dtype, copy=False)
    inner = pa.ListArray.from_arrays(
        _make_offsets([chunk.sentence_tokens for chunk in chunks]), pa.array(ids)
    )
    outer = pa.ListArray.from_arrays(
        _make_offsets([chunk.document_sentences for chunk in chunks]), inner
    )
    texts = [chunk.texts for chunk in chunks if chunk.texts]
    if not texts:
        return pa.record_batch([outer], schema=schema)
    digests = pa.py_buffer(np.concatenate([text.digests for text in texts]))
    columns = [
        pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(outer), [None, digests]),
        pa.array(np.concatenate([text.sizes for text in texts])),
        pa.array(np.concatenate([text.words for text in texts])),
    ]
    if len(schema.names) > 1 + len(columns):
        columns.append(pa.array([note for text in texts for note in text.notes or ()], pa.string()))
    return pa.record_batch([outer, *columns], schema=schema)


def _make_offsets(counts: Sequence[npt.NDArray[np.int32]]) -> Any:
    total = np.concatenate([np.zeros(1, np.int64), *counts]).cumsum(dtype=np.int64)
    return pa.array(total.astype(np.int32))  # a record batch has far fewer than 2**31 tokens


@dataclass(frozen=True)
class Block:
    """One record batch of a mapped shard, as views of its buffers."""

    ids: Ids
    sentence_offsets: npt.NDArray[np.int32]
    document_offsets: npt.NDArray[np.int32]
    texts: Texts | None = None
    """Facts of the texts, in the files of a part."""

    @property
    def documents(self) -> int:
        return len(self.document_offsets) - 1


def read_blocks(path: Path) -> list[Block]:
    """Return the record batches of a shard, memory-mapped.

    Raises:
        DataError: the file is not a shard of litebert.
    """
    try:
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
            schema = reader.schema
    except (pa.ArrowException, OSError) as error:
        reason = str(error).split("\n")[0]
        raise DataError(
            f"{path} is not a readable Arrow file ({reason}); prepare the data again"
        ) from error
    types = [pa.list_(pa.list_(pa.uint16())), pa.list_(pa.list_(pa.uint32()))]
    names = ["sentences", *dict(_TEXT_FIELDS), *dict(_NOTE_FIELDS)]
    if (
        schema.names not in (names[:1], names[: 1 + len(_TEXT_FIELDS)], names)
        or schema.types[0] not in types
    ):
        raise DataError(
            f"{path} holds no column sentences: list<list<uint16|uint32>>; prepare the data again"
        )
    blocks = []
    for batch in batches:
        documents = batch.column(0)
        sentences = documents.values
        if documents.null_count or sentences.null_count or sentences.values.null_count:
            raise DataError(f"{path} holds nulls where token ids must be; prepare the data again")
        # `offsets` and `values` are views that respect slices: offsets count from the start of the
        # whole child array.
        ids = sentences.values.to_numpy(zero_copy_only=True)
        offsets = sentences.offsets.to_numpy(), documents.offsets.to_numpy()
        blocks.append(Block(ids, *offsets, _read_texts(batch)))
    return blocks


def _read_texts(batch: Any) -> Texts | None:
    """Return the facts of the texts of a record batch, where it has them."""
    if batch.num_columns == 1:
        return None
    digests, sizes, words = (batch.column(name) for name, _ in _TEXT_FIELDS)
    data = np.frombuffer(digests.buffers()[1], np.uint8).reshape(-1, 16)
    notes = tuple(batch.column("note").to_pylist()) if "note" in batch.schema.names else None
    return Texts(data[: batch.num_rows], sizes.to_numpy(), words.to_numpy(), notes)
