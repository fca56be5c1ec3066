"""Rows of a file, streamed: lines of text, and the wanted columns of CSV, TSV, JSONL, Parquet and
plain text.

Each row has its line number, so that an error can name its location. `Notes` count what is changed
or skipped. The rows of a task (`read_records`) are UTF-8, for a guessed encoding trains on wrong
letters. The rows of a corpus (sources.py) come through the same readers (`read_rows`).
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from litebert.errors import DataError, nearest
from litebert.json_reader import fault_of, parse_json
from litebert.remote.names import shorten
from litebert.remote.reading import is_file, open_file, size_of
from litebert.text.lines import (
    STANDARD_INPUT,
    Meter,
    decode_blocks,
    find_suffix,
    read_blocks,
    split_blocks,
)

FileFormat = Literal["csv", "tsv", "jsonl", "parquet", "text", "conll"]
"""CSV with real quoting, TSV without quoting, JSON objects one a line, Parquet, and plain text with
a row a line. `conll` is a word a line, which only a task that tags words reads.
"""

SUFFIXES: dict[str, FileFormat] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
    ".conll": "conll",
}
"""Formats by suffix."""

BYTE_ORDER_MARK = "\ufeff"
MARK_NOTE = "byte-order marks inside the text were left out"
_SURROGATES = re.compile("[\ud800-\udfff]")
COUNT = "{count}"
"""Stands for the count in a note."""
TOTAL = "{total}"
"""Stands in a note for the number of all texts."""


class Notes(Counter[str]):
    """Counts of events that the user should know of, by sentence."""

    def __init__(self, counts: Mapping[str, int] = MappingProxyType({})) -> None:
        super().__init__(counts)
        self._totals = Counter[str]()
        """How many texts the sentence is about, where it says so."""

    def clear(self) -> None:
        """Forget all events."""
        super().clear()
        self._totals.clear()

    def notes(self) -> list[str]:
        """Return the sentences. The count replaces `COUNT`, else follows in parentheses. The number
        of all texts replaces `TOTAL`.
        """
        return [
            sentence.replace(COUNT, f"{count:,}").replace(TOTAL, f"{self._totals[sentence]:,}")
            if COUNT in sentence
            else f"{sentence} ({count:,})"
            for sentence, count in self.items()
        ]

    def add_cut(self, cut: int, texts: int, length: int) -> None:
        """Note that `cut` of `texts` further texts were longer than `length` tokens."""
        sentence = f"{COUNT} of {TOTAL} texts are longer than {length} tokens and were cut"
        self._totals[sentence] += texts
        if cut:
            self[sentence] += cut


class Record(NamedTuple):
    """The wanted cells of a row."""

    line: int
    """Number of the line where the row starts, from 1; in Parquet the number of the row."""
    values: tuple[Any, ...]
    """One value for each wanted column: text in CSV, TSV and plain text. None where the file lacks
    the column.
    """
    extras: Mapping[str, Any] = MappingProxyType({})
    """The cells that pass through to the answers, by column."""


@dataclass(frozen=True)
class RowFile:
    """A file of rows, and how to read it. Every reader of rows takes it in place of a path."""

    path: str
    """The path, or `-` for standard input."""
    form: FileFormat | None = None
    """The format; None if the suffix tells it."""
    header: bool = True
    """True if the first line of CSV and TSV names the columns."""
    encoding: str = "utf-8"
    keep: tuple[str, ...] = ()
    """Columns that pass through to the answers, which the file must have."""
    optional: tuple[str, ...] = ()
    """Columns that pass through to the answers, which a row may lack."""
    stretch: tuple[int, int] | None = None
    """The rows of a Parquet file to read: from the first number, from 0, to before the second."""
    content: Iterable[bytes] | None = None
    """All bytes of an input that can be read only once, with those that were read to detect its
    format.
    """

    def __str__(self) -> str:
        return self.path


RowSource: TypeAlias = "str | Path | RowFile"
"""A path, `-` for standard input, or a file with how to read it."""


def detect_format(source: RowSource) -> FileFormat:
    """Return the format of a file: the one that was set, or that its suffix names. Standard input
    is plain text.

    Raises:
        DataError: the suffix names no format, or there is no such file.
    """
    if isinstance(source, RowFile) and source.form is not None:
        return source.form
    if str(source) == STANDARD_INPUT:
        return "text"
    form = SUFFIXES.get(find_suffix(str(source)))
    if form is None:
        _check_file(str(source))
        raise DataError(
            f"{shorten(str(source))} has no suffix that tells its format; use one of "
            f"{', '.join(SUFFIXES)}"
        )
    return form


def read_lines(
    source: RowSource, notes: Notes, encoding: str = "utf-8"
) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of every line of a file or of standard input, in constant memory.

    Lines end in a line feed, after a carriage return or not. A byte-order mark before a line is
    left out. It is counted, except at the start of the file, where many programs write it. A NUL
    character becomes a space.

    Raises:
        DataError: there is no such file, or it is not in the encoding. The message names the line.
    """
    content = None
    if isinstance(source, RowFile):
        encoding, content = source.encoding, source.content
    if content is None and str(source) != STANDARD_INPUT:
        _check_file(str(source))
    data = read_blocks(str(source), Meter()) if content is None else content
    texts = decode_blocks(data, shorten(str(source)), encoding)
    for number, text in enumerate(split_blocks(texts), 1):
        if text[:1] == BYTE_ORDER_MARK:
            text = text[1:]
            if number > 1:
                notes[MARK_NOTE] += 1
        yield number, clean(text.removesuffix("\r"), notes)


def clean(value: Any, notes: Notes) -> Any:
    """Return a value whose texts hold only what a tokenizer takes and a file can hold, as long as
    before.

    A NUL character becomes a space. An unpaired surrogate, which JSON can spell, becomes the
    replacement character.
    """
    if isinstance(value, (list, tuple)):
        return type(value)(clean(element, notes) for element in value)
    if not isinstance(value, str):
        return value
    if "\0" in value:
        notes["NUL characters were read as spaces"] += value.count("\0")
        value = value.replace("\0", " ")
    value, count = replace_surrogates(value)
    if count:
        notes["halves of characters were read as the replacement character"] += count
    return value


def replace_surrogates(text: str) -> tuple[str, int]:
    """Replace unpaired surrogates, which JSON can spell, by the replacement character.

    Returns the text and the number of replacements.
    """
    try:
        text.encode()  # many times as fast as a search
    except UnicodeEncodeError:
        return _SURROGATES.subn("\ufffd", text)
    return text, 0


def list_values(values: Any, name: str = "the column") -> Iterable[Any]:
    """Return the values of a list, an iterator or an array, or of a column of pandas, polars or
    Arrow, or of a table that has one.

    Args:
        name: what a message calls them.

    Raises:
        DataError: it is a table of several columns, a single value, or a set or a dictionary,
            whose order means nothing.
    """
    if hasattr(values, "columns"):
        if getattr(values, "shape", ())[1:] != (1,):
            raise DataError(f"{name} is a table; give one column of it, or a list")
        values = np.asarray(values, object)[:, 0]
    column = values
    if (to_list := getattr(values, "to_pylist", getattr(values, "tolist", None))) is not None:
        column = to_list()
    unordered = (str, bytes, Mapping, set, frozenset)
    if isinstance(column, unordered) or not isinstance(column, Iterable):
        raise DataError(f"{name} is {format_value(values)}; give a list, even for a single one")
    return column


def check_texts(texts: Any) -> Iterator[str]:
    """Check that what `list_values` takes has texts, and yield them.

    Raises:
        DataError: it is no column, or a value in it is no text.
    """
    values = list_values(texts, "texts")

    def check() -> Iterator[str]:
        for number, text in enumerate(values, 1):
            if not isinstance(text, str):
                raise DataError(f"text {number} is {format_value(text)}; give a text")
            yield text

    return check()


def format_value(value: Any) -> str:
    """Return a value for a message: on one line, and not long."""
    text = " ".join(repr(value).split("\n"))
    return text if len(text) <= 40 else f"{text[:37]}..."


def describe_json_error(error: ValueError | RecursionError) -> str:
    """Say what is wrong with a text that is not JSON, and at which character."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.removesuffix(' at').removesuffix(':')} at character {error.colno:,}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def require_text(value: Any, field: str, location: str) -> str:
    """Return the value of a field if it is a text.

    Raises:
        DataError: it is something else.
    """
    if not isinstance(value, str):
        raise DataError(
            f"{location}: {field} is {format_value(value)}, not a text; write it in quotes"
        )
    return value


def _check_file(name: str) -> None:
    path = Path(name)
    if not is_file(name):
        fault = (
            "is a folder"
            if path.is_dir()
            else "is no regular file"
            if path.exists()
            else "does not exist"
        )
        raise DataError(f"{path} {fault}; give the path of a file")


def read_records(
    source: RowSource,
    columns: Sequence[str],
    notes: Notes,
    *,
    optional: Sequence[str] = (),
    form: FileFormat | None = None,
    header: bool = True,
    encoding: str = "utf-8",
) -> Iterator[Record]:
    """Yield the cells of `columns`, then of `optional`, of each row. A blank line is a row only in
    plain text.

    Args:
        columns: names of columns; in CSV and TSV also their numbers, from 0, where no column has
            that name.
        optional: columns that the file, or a JSON object, may lack.
        form: the format of the file; its suffix decides where None. A `RowFile` brings its own
            format, header and encoding.
        header: the first line of CSV or TSV names the columns; without it they are numbered.

    Raises:
        DataError: the file is missing, empty or malformed, or lacks a column. The message names
            the line.
    """
    extra_names: tuple[str, ...] = ()
    stretch = None
    if isinstance(source, RowFile):
        form, header, stretch = source.form, source.header, source.stretch
        extra_names = (*source.keep, *source.optional)
        wanted = (*columns, *optional)
        columns, optional = (*columns, *source.keep), (*optional, *source.optional)
        order = [(*columns, *optional).index(name) for name in wanted]
    form = form or detect_format(source)
    _require_columns(form, source, columns)
    row = None
    numbered_lines = read_lines(source, notes, encoding)
    for row in read_rows(
        *(form, str(source), numbered_lines, columns, notes),
        optional=optional,
        header=header,
        stretch=stretch,
    ):
        if form in ("jsonl", "parquet"):  # the lines of the other formats are clean already
            row = Record(row.line, clean(row.values, notes))
        if isinstance(source, RowFile):
            cells = dict(zip((*columns, *optional), row.values, strict=True))
            extras = {name: cells[name] for name in extra_names}
            row = Record(row.line, tuple(row.values[index] for index in order), extras)
        yield row
    if row is None:
        label = "standard input" if str(source) == STANDARD_INPUT else shorten(str(source))
        raise DataError(f"{label} holds no rows; give a file with some")


def _require_columns(form: FileFormat, source: RowSource, columns: Sequence[str]) -> None:
    """Refuse a format that has no rows, or not these columns."""
    if form not in get_args(FileFormat):
        raise DataError(
            f"the format of {source} is '{form}'; {nearest(form, get_args(FileFormat))}"
        )
    if form == "conll":
        raise DataError(
            f"{source} holds words in columns, which only tagging models read; give rows of text"
        )
    if form == "text" and len(columns) > 1:
        raise DataError(
            f"{source} is plain text, with no column '{columns[1]}'; give CSV, TSV, JSONL "
            "or Parquet"
        )


def read_rows(
    form: FileFormat,
    name: str,
    numbered_lines: Iterable[tuple[int, str]],
    columns: Sequence[str],
    notes: Notes,
    *,
    optional: Sequence[str] = (),
    meter: Meter | None = None,
    remedy: str = "",
    header: bool = True,
    stretch: tuple[int, int] | None = None,
) -> Iterator[Record]:
    """Yield the cells of `columns`, then of `optional`, of each row.

    Args:
        numbered_lines: the lines of the file `name` with their numbers; unused for Parquet.
        meter: counts the bytes of Parquet.
        remedy: added to the message about a missing column.
        stretch: the rows of Parquet to read, as in `RowFile`.

    Raises:
        DataError: a row is malformed. The message names the line.
    """
    if form == "text":
        blank = (None,) * len(optional)
        return (Record(number, (text, *blank)) for number, text in numbered_lines)
    wanted = _Columns(columns, optional, remedy)
    if form == "parquet":
        return _read_parquet(name, wanted, meter or Meter(), stretch)
    label = shorten(name)
    if form == "jsonl":
        return _read_jsonl(label, numbered_lines, wanted, notes)
    return _read_table(
        label, numbered_lines, wanted, notes, has_quotes=form == "csv", has_header=header
    )


class _Columns(NamedTuple):
    """The columns that a reader wants."""

    columns: Sequence[str]
    optional: Sequence[str]
    remedy: str

    def find_indices(self, names: Sequence[str], location: str) -> list[int | None]:
        """Return the index of each column in `names`; None for an optional column that is absent.

        Raises:
            DataError: a column is absent, or a name occurs twice.
        """
        wanted = (*self.columns, *self.optional)
        for name in self.columns:
            if name not in names:
                others = [" ".join(other.split())[:40] for other in names]
                hint = nearest(name, others) if others else "write it"
                raise DataError(f"{location} has no column '{name}'; {hint}{self.remedy}")
        for name in wanted:
            if names.count(name) > 1:
                raise DataError(
                    f"{location} has more than one column '{name}'; give the others another name"
                )
        return [names.index(name) if name in names else None for name in wanted]

    def resolve_numbers(self, names: Sequence[str]) -> _Columns:
        """Replace numbers of columns by the names of those columns."""

        def resolve(column: str) -> str:
            is_number = column not in names and column.isdecimal() and int(column) < len(names)
            return names[int(column)] if is_number else column

        return self._replace(
            columns=[*map(resolve, self.columns)], optional=[*map(resolve, self.optional)]
        )

    def select(self, row: dict[str, Any]) -> tuple[Any, ...]:
        """Return the cells of a row, None where it lacks one."""
        return tuple(row.get(name) for name in (*self.columns, *self.optional))


def _read_table(
    name: str,
    numbered_lines: Iterable[tuple[int, str]],
    wanted: _Columns,
    notes: Notes,
    has_quotes: bool,
    has_header: bool,
) -> Iterator[Record]:
    """Yield the wanted cells of each row of CSV or TSV."""
    rows = (
        _read_csv(name, numbered_lines)
        if has_quotes
        else ((number, line.split("\t")) for number, line in numbered_lines)
    )
    header: list[str] = []
    for number, row in rows:
        if not row or (row == [""] and not has_quotes):  # quotes around nothing are a cell
            notes["blank lines were skipped"] += 1
            continue
        if not header:
            header = [cell.strip() for cell in row] if has_header else [*map(str, range(len(row)))]
            columns = wanted.resolve_numbers(header)
            indices = columns.find_indices(header, f"the first line of {name}")
            if has_header:
                continue
        if len(row) != len(header):
            counts = f"{len(row)} columns where the first line has {len(header)}"
            remedy = "fix the row, or its quotes" if has_quotes else "fix the row"
            raise DataError(f"{name}:{number} has {counts}; {remedy}")
        yield Record(number, tuple(None if index is None else row[index] for index in indices))


def _read_csv(
    name: str, numbered_lines: Iterable[tuple[int, str]]
) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of its first line, cells) of each row of CSV."""
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader((line + "\n" for _, line in numbered_lines), strict=True)
    start = 1
    try:
        for row in reader:
            yield start, row
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{name}:{start} is not a well-formed row ({error}); fix its quotes or line ends"
        ) from error


def _read_jsonl(
    name: str, numbered_lines: Iterable[tuple[int, str]], wanted: _Columns, notes: Notes
) -> Iterator[Record]:
    """Yield the wanted fields of each JSON object."""
    for number, line in numbered_lines:
        if not line or line.isspace():
            notes["blank lines were skipped"] += 1
            continue
        try:
            row = parse_json(line, (*wanted.columns, *wanted.optional))
        except (ValueError, RecursionError) as error:
            fault = describe_json_error(error)
            raise DataError(
                f"{name}:{number} is not JSON ({fault}); write one whole object per line"
            ) from error
        if not isinstance(row, dict):
            raise DataError(
                f"{name}:{number} is not a JSON object; write lines like "
                f'{{"{wanted.columns[0]}": ...}}'
            )
        wanted.find_indices(list(row), f"{name}:{number}")
        yield Record(number, wanted.select(row))


def count_parquet_rows(name: str) -> int | None:
    """Return the rows of a Parquet file by its metadata; None where they cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_file(name) as file:
            return int(pq.read_metadata(file).num_rows)
    except (pa.ArrowException, OSError):  # reading its rows will say what is wrong
        return None


def _read_parquet(
    path: str, wanted: _Columns, meter: Meter, stretch: tuple[int, int] | None
) -> Iterator[Record]:
    """Yield the wanted cells of each row of a Parquet file, or of a stretch of its rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    _check_file(path)
    number, before, size, label = 0, meter.read, size_of(path), shorten(path)
    try:
        # Arrow refuses names of files that are not UTF-8, so Python opens the file.
        with open_file(path) as raw, pq.ParquetFile(raw, pre_buffer=False) as file:
            names = file.schema_arrow.names
            indices = wanted.find_indices(names, label)
            present = [names[index] for index in dict.fromkeys(indices) if index is not None]
            for number, batch in _read_batches(file, present, stretch):
                for row in _read_batch(batch):
                    number += 1
                    yield Record(number, wanted.select(row))
                meter.read = before + size * number // file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        reason = str(error).split("\n")[0]
        raise DataError(
            f"{label} is not a whole Parquet file ({reason}); make or fetch the file again"
        ) from error
    except UnicodeDecodeError as error:  # the format does not look into its texts
        byte = f"byte 0x{error.object[error.start]:02x}"
        raise DataError(
            f"{path}:{number + 1} is not UTF-8 ({byte}); write it again from UTF-8"
        ) from error
    except (ValueError, OverflowError, KeyError, MemoryError) as error:
        # Arrow holds values that Python cannot represent, such as the year 300,000.
        reason = fault_of(error) or "memory ran out"
        raise DataError(
            f"{path}:{number + 1} cannot be read ({reason}); make or fetch the file again"
        ) from error


def _read_batches(
    file: Any, columns: Sequence[str], stretch: tuple[int, int] | None
) -> Iterator[tuple[int, Any]]:
    """Yield batches of rows, and before how many rows of the file each begins.

    Only the row groups that have rows of the stretch are read.
    """
    first, last = stretch or (0, file.metadata.num_rows)
    groups, begin, end = [], None, 0
    for group in range(file.metadata.num_row_groups):
        before, end = end, end + file.metadata.row_group(group).num_rows
        if before < last and end > first:
            groups.append(group)
            begin = before if begin is None else begin
    number = begin or 0
    for batch in file.iter_batches(batch_size=1024, row_groups=groups, columns=columns):
        low, high = max(first - number, 0), min(last - number, batch.num_rows)
        if low < high:
            yield number + low, batch.slice(low, high - low)
        number += batch.num_rows


def _read_batch(batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch, up to the first whose text is not UTF-8."""
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:
        for row in range(batch.num_rows):
            yield from batch.slice(row, 1).to_pylist()
