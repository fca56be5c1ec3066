"""Sentence vectors from files to a file, in order and in constant memory: `.npy`, Parquet or JSON
Lines.

In 8 bits each dimension has a scale and an offset of its own, from its lowest and highest number in
all the vectors: x = q * scale + offset, with q from -128 to 127. Both stand in `NAME.scale.npy`
beside the output, float32 (2, H). As they are known at the end only, the vectors wait in a
temporary file.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Literal, TextIO

import numpy as np
from numpy.typing import NDArray

from litebert.answer.files import (
    Written,
    files_of_sources,
    open_all,
    open_output,
    report_partial,
)
from litebert.answer.inputs import (
    DEFAULT_COLUMNS,
    Columns,
    InputFile,
    describe_reading,
    format_cells,
    read_rows,
)
from litebert.answer.model import Model
from litebert.answer.part_rows import PartRows, Stretches, make_answer_identity
from litebert.answer.vectors import CHUNK, SentenceEncoder, generate_chunk_sizes
from litebert.base.errors import ConfigError, DataError
from litebert.base.storage import (
    atomic_text,
    atomic_write,
    check_output,
    is_written_into,
    json_text,
    naming,
)
from litebert.parts import EVERY, Part, Turns
from litebert.parts.finished import FinishedPart
from litebert.parts.windows import read_windows, write_part
from litebert.remote.names import is_url, shorten
from litebert.remote.output import open_output_file
from litebert.remote.reading import is_file
from litebert.tasks.table import Table
from litebert.tasks.task import Row
from litebert.tasks.text_outputs import Number
from litebert.text.records import DEFAULT_LAYOUT, Layout, Notes
from litebert.text.tally import escape_name
from litebert.tokenizer.coverage import Coverage

DType = Literal["float32", "int8"]
SUFFIXES = (".npy", ".parquet", ".jsonl", ".ndjson")
"""Suffixes of the files that vectors are written to."""
_LEVELS = 255
Block = tuple[NDArray[Any], list[dict[str, Any]]]
"""Vectors (n, H), and the cells that stand before each of them."""


def embed_file(
    model: Model,
    sources: str | Path | Sequence[str | Path],
    out: str | Path | TextIO,
    *,
    encoder: SentenceEncoder | None = None,
    dtype: DType = "float32",
    columns: Columns = DEFAULT_COLUMNS,
    layout: Layout = DEFAULT_LAYOUT,
    part: Part | None = None,
) -> int:
    """Write the sentence vector of every row, by `encoder` (`Model.vectors_by`) or as the model
    says; the rest is as in `predict_file`.

    `out` is a `.npy` file, (N, H), or a `.parquet` file with the column `vector`, there when whole;
    otherwise JSON Lines with `vector`.
    """
    is_path = isinstance(out, (str, Path))
    if is_path and Path(str(out)).suffix.lower() == ".npy" and columns.keep:
        raise ConfigError(
            f"{out} holds only vectors; leave out --keep, or give --out a .parquet or .jsonl file"
        )
    if dtype == "int8" and (not is_path or is_written_into(Path(str(out)))):
        raise ConfigError(
            "the scale of int8 stands in a file next to the output; give --out a file"
        )
    encoder = encoder or model.vectors_by()
    task = Table(Number())
    files = files_of_sources(sources, out, task)
    work = _Encoding(encoder, files, task, Coverage(encoder.tokenizer))

    def read(stretches: Stretches | None) -> Iterator[Row[str]]:
        return work.read(open_all(model, task, files, columns, layout, stretches))

    try:
        if part is None:
            return _write_vectors(out, work.encode(read(None)), encoder.width, dtype)
        rows = PartRows.plan(files, layout.form, generate_chunk_sizes(), read)
        settings = {"dtype": dtype, **describe_reading(columns, layout)}
        settings |= {
            "pooling": encoder.settings.pooling,
            "normalized": encoder.settings.normalized,
            "width": encoder.width,
            **({"prompt": encoder.prompt} if encoder.prompt else {}),
        }
        return write_part(
            out,
            part,
            make_answer_identity("embed", model, settings, files, out, rows.rows),
            lambda turns: (
                (cells, vectors) for vectors, cells in work.encode(rows.read(turns), turns)
            ),
            lambda: {"rows": rows.total, "width": encoder.width, "dtype": dtype},
            rows.windows,
        )
    finally:
        work.coverage.warn()


@dataclass(frozen=True)
class _Encoding:
    encoder: SentenceEncoder
    files: Sequence[str]
    task: Table
    coverage: Coverage

    def read(self, inputs: Iterator[InputFile]) -> Iterator[Row[str]]:
        for row in read_rows(inputs, self.task.files, Notes()):
            file = {"file": escape_name(row.file)} if len(self.files) > 1 else {}
            cells = format_cells(row.extras, {**file, "vector": None}, "jsonl")
            yield Row(row.example.text, {**file, **cells})

    def encode(self, rows: Iterator[Row[str]], turns: Turns = EVERY) -> Iterator[Block]:
        is_ahead = all(is_file(file) for file in self.files)
        chunks = self.encoder.encode_rows(rows, ahead=is_ahead, coverage=self.coverage, turns=turns)
        return ((vectors, [dict(row.extras) for row in chunk]) for chunk, vectors in chunks)


def merge_vectors(out: str | Path, parts: Sequence[FinishedPart]) -> None:
    """Write the vectors of all parts in order."""
    marker = parts[0].marker

    def blocks() -> Iterator[Block]:
        for cells, vectors in read_windows(parts):
            assert vectors is not None
            yield vectors, cells

    _write_vectors(out, blocks(), marker["width"], marker["dtype"])


def _write_vectors(
    out: str | Path | TextIO,
    blocks: Iterator[Block],
    width: int,
    dtype: DType,
    label: str | None = None,
) -> int:
    """Write vectors in the format of the suffix; `label` names the output in the log."""
    if isinstance(out, (str, Path)) and is_url(out):
        with open_output_file(out) as path:
            return _write_vectors(path, blocks, width, dtype, shorten(out))
    suffix = Path(out).suffix.lower() if isinstance(out, (str, Path)) else ""
    with ExitStack() as stack:
        if dtype == "int8":
            assert isinstance(out, (str, Path))
            check_output(Path(out))
            # Both files get their names at the end, the vectors first, and the old scale is gone by
            # then: with it, the new vectors would be others.
            scale = stack.enter_context(atomic_write(scale_file(out)))
            blocks = _quantize(blocks, width, Path(out), scale)
        if suffix == ".npy":
            return _write_npy(stack.enter_context(_open_seekable(out)), blocks, width, dtype)
        if suffix == ".parquet":
            return _write_parquet(stack.enter_context(_open_seekable(out)), blocks, width, dtype)
        if dtype == "int8":
            return _write_json(stack.enter_context(atomic_text(Path(str(out)))), blocks, Written())
        with report_partial(label or out, "vector") as written, open_output(out) as file:
            return _write_json(file, blocks, written)


def _write_json(file: TextIO, blocks: Iterable[Block], written: Written) -> int:
    for vectors, cells in blocks:
        for row, vector in zip(cells, vectors.tolist(), strict=True):
            file.write(json_text({**row, "vector": vector}, indent=None))
            written.count += 1
    return written.count


def scale_file(out: str | Path) -> Path:
    return Path(out).with_suffix(".scale.npy")


@contextmanager
def _open_seekable(out: Any) -> Iterator[IO[bytes]]:
    """Open an output in which a writer may go back; a device or a pipe gets it at the end."""
    path = Path(out)
    check_output(path)
    with atomic_write(path) as file:
        if not is_written_into(path):
            yield file
            return
        with naming(path), TemporaryFile() as whole:
            yield whole
            whole.seek(0)
            shutil.copyfileobj(whole, file)


def _quantize(blocks: Iterable[Block], width: int, out: Path, scales: IO[bytes]) -> Iterator[Block]:
    """Yield the blocks in int8; their scale is written to `scales` first."""
    folder = out.parent
    # Closing a temporary file on a full disk fails too, so `naming` stands outside.
    with (
        naming(out),
        TemporaryFile(dir=folder) as raw,
        TemporaryFile("w+", encoding="utf-8", dir=folder) as beside,
    ):
        low, high = np.full(width, np.inf, np.float32), np.full(width, -np.inf, np.float32)
        for vectors, cells in blocks:
            low, high = np.minimum(low, vectors.min(0)), np.maximum(high, vectors.max(0))
            raw.write(vectors.tobytes())
            beside.writelines(json.dumps(row) + "\n" for row in cells)
        if not np.isfinite(low).all():  # there is no vector
            low = high = np.zeros(width, np.float32)
        scale = np.where(high > low, (high - low) / _LEVELS, 1).astype(np.float32)
        offset = low + 128 * scale
        content = io.BytesIO()  # numpy would write to a file past its errors
        np.save(content, np.stack([scale, offset]).astype(np.float32))
        scales.write(content.getvalue())
        raw.seek(0)
        beside.seek(0)
        while data := raw.read(CHUNK * width * 4):
            vectors = np.frombuffer(data, np.float32).reshape(-1, width)
            quantized = np.clip(np.rint((vectors - offset) / scale), -128, 127).astype(np.int8)
            yield quantized, [json.loads(beside.readline()) for _ in quantized]
    scale_file(out).unlink(missing_ok=True)


def _write_npy(file: IO[bytes], blocks: Iterable[Block], width: int, dtype: DType) -> int:
    """Write an array block by block; the header of numpy leaves room for its length."""
    descr = {"float32": "<f4", "int8": "|i1"}[dtype]

    def header(count: int) -> None:
        about = {"descr": descr, "fortran_order": False, "shape": (count, width)}
        np.lib.format.write_array_header_1_0(file, about)

    header(0)
    start, count = file.tell(), 0
    for vectors, _ in blocks:
        file.write(vectors.astype(descr, copy=False).tobytes())
        count += len(vectors)
    file.seek(0)
    header(count)
    assert file.tell() == start
    return count


def _write_parquet(file: IO[bytes], blocks: Iterable[Block], width: int, dtype: DType) -> int:
    """Write the kept cells and the column `vector` of fixed-size lists; a row group a block."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind, count = pa.list_(pa.float32() if dtype == "float32" else pa.int8(), width), 0
    writer: pq.ParquetWriter | None = None
    try:
        for vectors, cells in blocks:
            column = pa.FixedSizeListArray.from_arrays(
                pa.array(np.ascontiguousarray(vectors).reshape(-1)), type=kind
            )
            names = list(cells[0]) if writer is None else writer.schema.names[:-1]
            types = (
                [None] * len(names)
                if writer is None
                else [writer.schema.field(name).type for name in names]
            )
            arrays = [
                _column(name, [row[name] for row in cells], token_type)
                for name, token_type in zip(names, types, strict=True)
            ]
            table = pa.Table.from_arrays([*arrays, column], [*names, "vector"])
            if writer is None:
                writer = pq.ParquetWriter(file, table.schema)
            writer.write_table(table)
            count += len(cells)
        if writer is None:
            writer = pq.ParquetWriter(file, pa.schema([("vector", kind)]))
    finally:
        if writer is not None:
            writer.close()
    return count


def _column(name: str, values: list[Any], kind: Any) -> Any:
    """Make an Arrow array of a column that is kept, of the type that its first rows had."""
    import pyarrow as pa

    try:
        column = pa.array(values, type=kind)
    except (pa.ArrowException, TypeError) as error:
        raise DataError(
            f"the column '{name}' holds values of several types ({str(error).splitlines()[0]}), "
            "and a Parquet file has one; give --out a .jsonl file"
        ) from None
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column
