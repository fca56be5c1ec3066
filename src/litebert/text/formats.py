"""Reading one source: compressed or plain bytes to text lines, and JSONL, CSV, TSV, Parquet and `datasets` to texts.

Everything streams in blocks of a megabyte. What cannot be read stops with the file and the byte, line or field: a
corpus that loses a part silently costs its owner a training run.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import json
import lzma
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import zstandard

from litebert.errors import DataError, MissingExtraError, nearest

BLOCK = 1 << 20
COMPRESSIONS = (".gz", ".xz", ".zst")


@dataclass
class Meter:
    """Bytes of the source files read so far, for a progress bar; `total` is None where it cannot be known."""

    total: int | None = None
    read: int = 0


# ---- bytes ---------------------------------------------------------------------------------------------------------


def blocks(path: Path, meter: Meter) -> Iterator[bytes]:
    """The decompressed content of a file; `meter` counts the bytes as they lie on disk."""
    before = meter.read
    try:
        with open(path, "rb") as raw:
            for block in _decompressed(raw, path.suffix.lower()):
                meter.read = before + raw.tell()
                yield block
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError) as error:
        raise DataError(f"{path} is cut short or damaged ({error}); make or fetch the file again") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _decompressed(raw: IO[bytes], suffix: str) -> Iterator[bytes]:
    if suffix == ".zst":
        yield from _zstd(raw)
        return
    stream: IO[bytes] | gzip.GzipFile | lzma.LZMAFile = raw
    if suffix == ".gz":
        stream = gzip.GzipFile(fileobj=raw)
    elif suffix == ".xz":
        stream = lzma.LZMAFile(raw)  # noqa: SIM115 - the caller closes raw
    while block := stream.read(BLOCK):
        yield block


def _zstd(raw: IO[bytes]) -> Iterator[bytes]:
    # The library's stream reader takes a file that is cut short for a whole one; frame objects know their end.
    frame = None
    while data := raw.read(BLOCK // 16):
        while data:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            yield frame.decompress(data)
            data = b""
            if frame.eof:
                data, frame = frame.unused_data, None
    if frame is not None:
        raise EOFError("the last frame has no end")


def standard_input(meter: Meter) -> Iterator[bytes]:
    """Standard input, as bytes."""
    while block := sys.stdin.buffer.read(BLOCK):
        meter.read += len(block)
        yield block


# ---- text ----------------------------------------------------------------------------------------------------------


def decoded(data: Iterable[bytes], name: str, encoding: str) -> Iterator[str]:
    """Text blocks with "\\n" as the only line end and without byte order marks; refuses what is not text."""
    decoder = codecs.getincrementaldecoder(encoding)()
    translate = io.IncrementalNewlineDecoder(decoder, translate=True)
    wide = codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))  # their bytes may be zero
    offset = 0
    for block in itertools.chain(data, [b""]):
        pending = len(decoder.getstate()[0])
        if not wide and (zero := block.find(b"\0")) >= 0:
            raise DataError(
                f"{name} is not a text file: it has a zero byte at byte {offset + zero:,}; leave it out, or name its "
                "encoding if it is text, e.g. --encoding utf-16"
            )
        try:
            text = translate.decode(block, final=not block)
        except UnicodeDecodeError as error:
            bad = error.object[error.start : error.start + 1]
            raise DataError(
                f"{name}: byte {offset - pending + error.start:,} (0x{bad.hex()}) is not {encoding}; name the file's "
                "encoding, e.g. --encoding latin-1, or convert the file to utf-8"
            ) from error
        offset += len(block)
        yield text.replace("\ufeff", "")


def lines(texts: Iterable[str], longest: int | None = None) -> Iterator[str]:
    """The lines without their ends; with `longest` (characters), longer ones are cut at a sentence end or a space."""
    rest = ""
    for text in texts:
        *whole, rest = (rest + text).split("\n")
        if longest is not None and (len(rest) > longest or any(len(line) > longest for line in whole)):
            whole = [piece for line in whole for piece in cut(line, longest)]
            *more, rest = cut(rest, longest)
            whole += more
        yield from whole
    if rest:
        yield rest


def cut(text: str, longest: int) -> list[str]:
    """Pieces of at most `longest` characters, cut at a line end, else a sentence end, a space, or anywhere."""
    pieces = []
    start = 0
    while len(text) - start > longest:
        for mark in ("\n", ". ", "。", " "):
            at = text.rfind(mark, start + longest // 2, start + longest)
            if at >= 0:
                end = at + len(mark)
                break
        else:
            end = start + longest
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]]


# ---- rows ----------------------------------------------------------------------------------------------------------


def jsonl(rows: Iterable[str], name: str, field: str) -> Iterator[tuple[str, int]]:
    """(text, line number) of each object of a JSON Lines file; rows whose text is null are passed over."""
    for number, line in enumerate(rows, 1):
        if not line or line.isspace():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{name}:{number} is not JSON ({error}); write one object per line") from error
        if not isinstance(row, dict):
            raise DataError(f"{name}:{number} is not a JSON object; write lines like {{{json.dumps(field)}: ...}}")
        if field not in row:
            raise DataError(f"{name}:{number} has no field '{field}'; {_other_field(field, row)}")
        text = row[field]
        if text is not None:
            yield _text(text, f"{name}:{number}", field), number


def table(rows: Iterable[str], name: str, field: str, delimiter: str) -> Iterator[tuple[str, int]]:
    """(text, line number) of each row of a CSV file with a header; a TSV file has no quoting."""
    csv.field_size_limit(2**31 - 1)
    lines = (line + "\n" for line in rows)
    if delimiter == "\t":
        reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE, strict=True)
    else:
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        header = next(reader, [])
        if field not in header:
            raise DataError(f"{name} has no column '{field}' in its first line; {_other_field(field, header)}")
        column = header.index(field)
        for row in reader:
            if row and len(row) <= column:
                raise DataError(
                    f"{name}:{reader.line_num} has {len(row)} columns where the header has {len(header)}; mend the row"
                )
            if row:
                yield row[column], reader.line_num
    except csv.Error as error:
        raise DataError(f"{name}:{reader.line_num} is not a well-formed row ({error}); mend its quotes") from error


def parquet(path: Path, field: str, meter: Meter) -> Iterator[tuple[str, int]]:
    """(text, row number) of each row of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = path.stat().st_size
    try:
        with pq.ParquetFile(path, memory_map=False, pre_buffer=False) as file:
            names = file.schema_arrow.names
            if field not in names:
                raise DataError(f"{path} has no column '{field}'; {_other_field(field, names)}")
            number, start, rows = 0, meter.read, file.metadata.num_rows
            for batch in file.iter_batches(batch_size=1024, columns=[field]):
                for text in batch.column(0).to_pylist():
                    number += 1
                    if text is not None:
                        yield _text(text, f"{path}:{number}", field), number
                meter.read = start + size * number // rows
    except (pa.ArrowException, OSError) as error:
        reason = str(error).split("\n")[0]
        raise DataError(f"{path} is not a whole Parquet file ({reason}); make or fetch the file again") from error


def hugging_face(name: str, field: str) -> Iterator[tuple[str, int]]:
    """(text, row number) from the `datasets` library: a folder that it saved, or `NAME[:CONFIG]`, split "train"."""
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("datasets", "datasets") from error
    try:
        if Path(name).is_dir():
            data: Any = datasets.load_from_disk(name)
        else:
            data = datasets.load_dataset(*name.split(":", 1), streaming=True)
        if isinstance(data, dict):
            if "train" not in data and len(data) > 1:
                raise DataError(f"hf:{name} has no split 'train' among {', '.join(data)}; save the one you want alone")
            data = data["train"] if "train" in data else next(iter(data.values()))
    except DataError:
        raise
    except Exception as error:  # the library raises many kinds, its own and those of the network
        reason = str(error).split("\n")[0]
        raise DataError(f"hf:{name} cannot be opened ({reason}); a folder works too: hf:FOLDER") from error
    if data.column_names is not None and field not in data.column_names:
        raise DataError(f"hf:{name} has no column '{field}'; {_other_field(field, data.column_names)}")
    number = 0
    for batch in data.select_columns([field]).iter(batch_size=1000):
        for text in batch[field]:
            number += 1
            if text is not None:
                yield _text(text, f"hf:{name}:{number}", field), number


def _text(value: object, place: str, field: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{place}: field '{field}' is {type(value).__name__}, not text; name another with --text-field")
    return value


def _other_field(field: str, names: Iterable[str]) -> str:
    return f"{nearest(field, names)} (--text-field names it)"


Rows = Callable[[Iterable[str], str, str], Iterator[tuple[str, int]]]
ROWS: dict[str, Rows] = {
    ".jsonl": jsonl,
    ".ndjson": jsonl,
    ".csv": lambda rows, name, field: table(rows, name, field, ","),
    ".tsv": lambda rows, name, field: table(rows, name, field, "\t"),
}
"""Suffix -> reader of the rows of a text file; any other suffix is plain text."""
