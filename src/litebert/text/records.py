"""Rows of a file, streaming: lines of text, and the wanted columns of CSV, TSV, JSONL, Parquet and
plain text.

Each row comes with its line number, so that errors can name the place. What is changed or passed
over is counted in `Notes`. The rows of a task (`records`) are UTF-8: a guessed encoding trains on
wrong letters. Those of a corpus (sources.py) come through the same readers (`read_rows`).
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from litebert.errors import DataError, nearest
from litebert.json_reader import fault_of, parse_json
from litebert.text.lines import (
    STANDARD_INPUT,
    Meter,
    decode_blocks,
    find_suffix,
    read_blocks,
    split_blocks,
)

FileFormat = Literal["csv", "tsv", "jsonl", "parquet", "text", "conll"]
"""CSV with real quoting; TSV without; JSON objects, one a line; Parquet; plain text, a row a line;
a word a line, which only a task that tags words reads."""

SUFFIXES: dict[str, FileFormat] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
    ".conll": "conll",
}
"""By suffix."""

MARK = "\ufeff"
MARKS = "byte-order marks inside the text were left out"
_HALVES = re.compile("[\ud800-\udfff]")
COUNT = "{count}"
"""Where a note has its count."""


class Notes(Counter[str]):
    """How often something worth saying was met while reading."""

    def notes(self) -> list[str]:
        """One sentence each: the count stands where the sentence has `COUNT`, else in parentheses
        after it.
        """
        return [
            what.replace(COUNT, f"{count:,}") if COUNT in what else f"{what} ({count:,})"
            for what, count in self.items()
        ]

    def add_cut(self, cut: int, texts: int, length: int) -> None:
        """Note that `cut` of `texts` texts were longer than `length` tokens."""
        if cut:
            self[f"{COUNT} of {texts:,} texts are longer than {length} tokens and were cut"] += cut


class Record(NamedTuple):
    """The wanted cells of a row."""

    line: int
    """Where the row starts, from 1; in Parquet the row's number."""
    values: tuple[Any, ...]
    """As many as columns were asked for: text in CSV, TSV and plain text; None where the file has
    no such column.
    """


class Input(str):
    """The path of a file, or `-`, that knows how it is read, so that it can stand for the path in
    every reader of rows.

    `records` puts the cells of the columns `keep` (which the file must have) and `perhaps` (which a
    row may lack) of each row into `kept`, in order, beside the row itself.
    """

    form: FileFormat
    header: bool = True
    encoding: str = "utf-8"
    keep: tuple[str, ...] = ()
    perhaps: tuple[str, ...] = ()
    content: Iterable[bytes] | None = None
    """Where it can be read only once: all of it, what was read to look at it included."""
    kept: deque[dict[str, Any]]

    def __init__(self, path: str | Path) -> None:
        self.kept = deque()


def detect_format(source: str | Path) -> FileFormat:
    """The format that a file's name tells, or DataError; standard input is plain text."""
    if str(source) == STANDARD_INPUT:
        return "text"
    form = SUFFIXES.get(find_suffix(Path(source)))
    if form is None:
        _check_file(Path(source))
        raise DataError(
            f"{source} has no suffix that tells its format; use one of {', '.join(SUFFIXES)}"
        )
    return form


def read_lines(
    source: str | Path, notes: Notes, encoding: str = "utf-8"
) -> Iterator[tuple[int, str]]:
    """(number, text) of every line of a file or of standard input, in constant memory.

    Lines end in a line feed, after a carriage return or not. A byte-order mark before a line is
    left out (and counted, but at the start of the file, where many programs put it), a NUL
    character becomes a space.

    Raises DataError where there is no such file, or it is not in the encoding; the message names
    the line.
    """
    content = None
    if isinstance(source, Input):
        encoding, content = source.encoding, source.content
    if content is None and str(source) != STANDARD_INPUT:
        _check_file(Path(source))
    data = read_blocks(source, Meter()) if content is None else content
    for number, text in enumerate(split_blocks(decode_blocks(data, str(source), encoding)), 1):
        if text[:1] == MARK:
            text = text[1:]
            if number > 1:
                notes[MARKS] += 1
        yield number, clean(text.removesuffix("\r"), notes)


def clean(value: Any, notes: Notes) -> Any:
    """A value whose texts hold only what a tokenizer takes and a file holds, each as long as
    before.

    A NUL character becomes a space, half of a character (which JSON can spell) the replacement
    character.
    """
    if isinstance(value, (list, tuple)):
        return type(value)(clean(one, notes) for one in value)
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
    """The text with each half of a surrogate pair, which JSON can spell, as the replacement
    character; how many.
    """
    try:
        text.encode()  # many times as fast as a search
    except UnicodeEncodeError:
        return _HALVES.subn("\ufffd", text)
    return text, 0


def format_value(value: Any) -> str:
    """A value in a message: on one line, and not long."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def describe_json_error(error: ValueError | RecursionError) -> str:
    """What is wrong with a text that is not JSON, with the place in its line."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.removesuffix(' at').removesuffix(':')} at character {error.colno:,}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def require_text(value: Any, field: str, where: str) -> str:
    """A field that must be a text, or a DataError."""
    if not isinstance(value, str):
        raise DataError(
            f"{where}: {field} is {format_value(value)}, not a text; write it in quotes"
        )
    return value


def _check_file(path: Path) -> None:
    if not path.is_file():
        fault = (
            "is a folder"
            if path.is_dir()
            else "is no regular file"
            if path.exists()
            else "does not exist"
        )
        raise DataError(f"{path} {fault}; give the path of a file")


def read_records(
    source: str | Path,
    columns: Sequence[str],
    notes: Notes,
    *,
    optional: Sequence[str] = (),
    form: FileFormat | None = None,
    header: bool = True,
    encoding: str = "utf-8",
) -> Iterator[Record]:
    """The cells of `columns`, then of `optional`, of each row; blank lines are rows in plain text
    alone.

    Args:
        columns: in CSV and TSV also their numbers, counted from 0, where no column has that name.
        optional: columns that the file, or a JSON object, may lack.
        form: what the file is; by its suffix where None.
        header: whether the first line of CSV or TSV names the columns; without it they are
            numbered.

    Raises DataError for a file that is missing, empty or malformed, or lacks a column; the message
    names the line.
    """
    keep: tuple[str, ...] = ()
    if isinstance(source, Input):
        form, header, keep = source.form, source.header, (*source.keep, *source.perhaps)
        wanted = (*columns, *optional)
        columns, optional = (*columns, *source.keep), (*optional, *source.perhaps)
        order = [(*columns, *optional).index(name) for name in wanted]
    form = form or detect_format(source)
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
    row = None
    numbered = read_lines(source, notes, encoding)
    for row in read_rows(
        form, str(source), numbered, columns, notes, optional=optional, header=header
    ):
        if form in ("jsonl", "parquet"):  # the lines of the other formats are clean already
            row = Record(row.line, clean(row.values, notes))
        if isinstance(source, Input):
            cells = dict(zip((*columns, *optional), row.values, strict=True))
            source.kept.append({name: cells[name] for name in keep})
            row = Record(row.line, tuple(row.values[place] for place in order))
        yield row
    if row is None:
        label = "standard input" if str(source) == STANDARD_INPUT else source
        raise DataError(f"{label} holds no rows; give a file with some")


def read_rows(
    form: FileFormat,
    name: str,
    numbered: Iterable[tuple[int, str]],
    columns: Sequence[str],
    notes: Notes,
    *,
    optional: Sequence[str] = (),
    meter: Meter | None = None,
    remedy: str = "",
    header: bool = True,
) -> Iterator[Record]:
    """The cells of `columns`, then of `optional`, of each row; DataError, naming the line, for what
    is malformed.

    `numbered` are the lines of the file `name`; Parquet has none, and `meter` counts its bytes.
    `remedy` is added to the message about a missing column.
    """
    if form == "text":
        blank = (None,) * len(optional)
        return (Record(number, (text, *blank)) for number, text in numbered)
    wanted = _Wanted(columns, optional, remedy)
    if form == "parquet":
        return _read_parquet(Path(name), wanted, meter or Meter())
    if form == "jsonl":
        return _read_jsonl(name, numbered, wanted, notes)
    return _read_table(name, numbered, wanted, notes, quoted=form == "csv", named=header)


class _Wanted(NamedTuple):
    """The columns that a reader asks for."""

    columns: Sequence[str]
    optional: Sequence[str]
    remedy: str

    def places(self, names: Sequence[str], where: str) -> list[int | None]:
        """Where the columns stand among `names`, None for one that may be absent and is."""
        every = (*self.columns, *self.optional)
        for name in self.columns:
            if name not in names:
                there = [" ".join(other.split())[:40] for other in names]
                hint = nearest(name, there) if there else "write it"
                raise DataError(f"{where} has no column '{name}'; {hint}{self.remedy}")
        for name in every:
            if names.count(name) > 1:
                raise DataError(
                    f"{where} has more than one column '{name}'; give the others another name"
                )
        return [names.index(name) if name in names else None for name in every]

    def numbered(self, names: Sequence[str]) -> _Wanted:
        """With columns by name where they are asked for by number."""

        def name_of(column: str) -> str:
            by_number = column not in names and column.isdecimal() and int(column) < len(names)
            return names[int(column)] if by_number else column

        return self._replace(
            columns=[*map(name_of, self.columns)], optional=[*map(name_of, self.optional)]
        )

    def of(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row.get(name) for name in (*self.columns, *self.optional))


def _read_table(
    name: str,
    numbered: Iterable[tuple[int, str]],
    wanted: _Wanted,
    notes: Notes,
    quoted: bool,
    named: bool,
) -> Iterator[Record]:
    rows = (
        _read_csv(name, numbered)
        if quoted
        else ((number, line.split("\t")) for number, line in numbered)
    )
    header: list[str] = []
    for number, row in rows:
        if not row or (row == [""] and not quoted):  # quotes around nothing are a cell
            notes["blank lines were passed over"] += 1
            continue
        if not header:
            header = [cell.strip() for cell in row] if named else [str(i) for i in range(len(row))]
            places = wanted.numbered(header).places(header, f"the first line of {name}")
            if named:
                continue
        if len(row) != len(header):
            counts = f"{len(row)} columns where the first line has {len(header)}"
            raise DataError(
                f"{name}:{number} has {counts}; fix the row{', or its quotes' if quoted else ''}"
            )
        yield Record(number, tuple(None if place is None else row[place] for place in places))


def _read_csv(name: str, numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, cells) of each row of CSV."""
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader((line + "\n" for _, line in numbered), strict=True)
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
    name: str, numbered: Iterable[tuple[int, str]], wanted: _Wanted, notes: Notes
) -> Iterator[Record]:
    for number, line in numbered:
        if not line or line.isspace():
            notes["blank lines were passed over"] += 1
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
        wanted.places(list(row), f"{name}:{number}")
        yield Record(number, wanted.of(row))


def _read_parquet(path: Path, wanted: _Wanted, meter: Meter) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    _check_file(path)
    number, before, size = 0, meter.read, path.stat().st_size
    try:
        # Opened here, for Arrow refuses names that are not UTF-8.
        with open(path, "rb") as raw, pq.ParquetFile(raw, pre_buffer=False) as file:
            names = file.schema_arrow.names
            places = wanted.places(names, str(path))
            present = [names[place] for place in dict.fromkeys(places) if place is not None]
            for batch in file.iter_batches(batch_size=1024, columns=present):
                for row in _read_batch(batch):
                    number += 1
                    yield Record(number, wanted.of(row))
                meter.read = before + size * number // file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        reason = str(error).split("\n")[0]
        raise DataError(
            f"{path} is not a whole Parquet file ({reason}); make or fetch the file again"
        ) from error
    except UnicodeDecodeError as error:  # the format does not look into its texts
        byte = f"byte 0x{error.object[error.start]:02x}"
        raise DataError(
            f"{path}:{number + 1} is not UTF-8 ({byte}); write it again from UTF-8"
        ) from error
    except (
        ValueError,
        OverflowError,
        KeyError,
        MemoryError,
    ) as error:  # values that Python has no form for
        reason = fault_of(error) or "memory ran out"
        raise DataError(
            f"{path}:{number + 1} cannot be read ({reason}); make or fetch the file again"
        ) from error


def _read_batch(batch: Any) -> Iterator[dict[str, Any]]:
    """The rows of a batch, up to one whose text is not UTF-8."""
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:
        for place in range(batch.num_rows):
            yield from batch.slice(place, 1).to_pylist()
