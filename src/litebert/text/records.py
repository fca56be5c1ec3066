"""Rows of a file, streamed: lines of text, and the wanted columns of CSV, TSV, JSONL, Parquet,
workbooks and plain text.

The rows of a task (`read_records`) are UTF-8, for a guessed encoding trains on wrong letters. The
rows of a corpus (sources.py) come through the same readers (`read_rows`).
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from litebert.base.errors import ConfigError, DataError, MissingExtraError, nearest
from litebert.base.json_reader import fault_of, parse_json
from litebert.remote.names import path_of, shorten
from litebert.remote.reading import is_file, open_file, size_of
from litebert.text import encodings
from litebert.text.lines import (
    STANDARD_INPUT,
    Meter,
    decode_blocks,
    find_suffix,
    read_blocks,
    split_blocks,
)

FileFormat = Literal["csv", "tsv", "jsonl", "parquet", "xlsx", "text", "conll"]
"""CSV with real quoting, TSV without quoting unless whole columns are quoted, JSON objects (one a
line, or one list of them), Parquet, the first sheet of a workbook, and plain text with a row a
line. `conll` is a word a line, which only a task that tags words reads.
"""
TableFormat = Literal["csv", "tsv", "jsonl", "parquet", "xlsx"]

SUFFIXES: dict[str, FileFormat] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".xlsx": "xlsx",
    ".txt": "text",
    ".conll": "conll",
}
IN_FOLDERS = tuple(suffix for suffix in SUFFIXES if suffix not in (".json", ".xlsx"))
"""The suffixes that are read from a folder, where other files often describe those beside them."""
_REMEDIES = {
    **dict.fromkeys((".xls", ".xlsb", ".xlsm", ".ods", ".numbers"), "save it as .xlsx or CSV"),
    **dict.fromkeys((".zip", ".bz2", ".7z", ".rar", ".tar", ".tgz"), "unpack it"),
    **dict.fromkeys(
        (".feather", ".arrow", ".orc", ".avro", ".pkl", ".pickle", ".h5", ".sav", ".dta", ".rds"),
        "write it as Parquet or CSV",
    ),
    **dict.fromkeys((".db", ".sqlite", ".xml", ".pdf", ".docx"), "export its rows as CSV"),
}
"""What to do with a file of a known format that is not read, by suffix."""
_DELIMITERS = ",;\t|"
_SAMPLE, _LONG = 200, 1 << 14
"""Lines at the start of CSV and TSV, up to a long one, that tell the delimiter and the quoting."""
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[,;\s]*', re.IGNORECASE)
"""The first line of a file that Excel is told the delimiter of."""

BYTE_ORDER_MARK = "\ufeff"
MARK_NOTE = "byte-order marks inside the text were left out"
_SURROGATES = re.compile("[\ud800-\udfff]")
COUNT = "{count}"
TOTAL = "{total}"
"""Stand in a note for its count, and for the number of all texts."""


class Notes(Counter[str]):
    def __init__(self, counts: Mapping[str, int] = MappingProxyType({})) -> None:
        super().__init__(counts)
        self._totals = Counter[str]()
        """How many texts the sentence is about, where it says so."""

    def clear(self) -> None:
        super().clear()
        self._totals.clear()

    def notes(self) -> list[str]:
        """Return the sentences, each with its count, in parentheses unless `COUNT` places it."""
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
    line: int
    """Number of the line where the row starts, from 1; in Parquet the number of the row."""
    values: tuple[Any, ...]
    """One value for each wanted column, text in CSV, TSV and plain text; None where missing."""
    extras: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Layout:
    """How files of rows are written."""

    form: FileFormat | None = None
    """The format; None if the suffix tells it."""
    header: bool = True
    """True if the first line of CSV and TSV names the columns; else they are numbered."""
    encoding: str = "utf-8"
    delimiter: str | None = None
    """The delimiter of CSV and TSV, where `tab` and `\\t` are one; None if the file tells it."""

    def __post_init__(self) -> None:
        formats = get_args(FileFormat)
        if self.form not in (None, *formats):
            raise ConfigError(f"the format is '{self.form}'; {nearest(str(self.form), formats)}")
        encodings.check(self.encoding, error=ConfigError)
        delimiter = {"tab": "\t", "\\t": "\t"}.get(self.delimiter or "", self.delimiter)
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
            raise ConfigError(
                f"delimiter is {delimiter!r}; give one character that is no quote, such as ';', "
                "or tab"
            )
        object.__setattr__(self, "delimiter", delimiter)

    def check_used(self, forms: Collection[FileFormat], files: str) -> None:
        """Refuse what means nothing for `files`, which are of the formats `forms`."""
        remedy = ""
        if not self.header and {"csv", "tsv", "xlsx"}.isdisjoint(forms):
            remedy = "never has a header line; leave out header (--no-header)"
        elif self.delimiter is not None and {"csv", "tsv"}.isdisjoint(forms):
            remedy = "is neither CSV nor TSV; leave out delimiter (--delimiter)"
        elif self.encoding != "utf-8" and {"parquet", "xlsx"}.issuperset(forms):
            remedy = "has an encoding of its own; leave out encoding (--encoding)"
        if remedy:
            raise ConfigError(f"{files} {remedy}")


DEFAULT_LAYOUT = Layout()
JOINT = " + "
"""Between the names of columns whose texts are joined."""


@dataclass(frozen=True)
class RowFile:
    """A file of rows, and how to read it. Every reader of rows takes it in place of a path."""

    path: str
    """The path, or `-` for standard input."""
    layout: Layout = DEFAULT_LAYOUT
    keep: tuple[str, ...] = ()
    """Columns that pass through to the answers, which the file must have."""
    optional: tuple[str, ...] = ()
    """Columns that pass through to the answers, which a row may lack."""
    stretch: tuple[int, int] | None = None
    """The rows of a Parquet file to read: from the first number, from 0, to before the second."""
    content: Iterable[bytes] | None = None
    """All bytes of an input that can be read only once, some of which told the format."""
    names: tuple[str, ...] = ()
    """The columns of such an input, as far as its beginning tells."""

    def __str__(self) -> str:
        return self.path


RowSource: TypeAlias = "str | Path | RowFile"
"""A path, `-` for standard input, or a file with how to read it."""


def detect_format(source: RowSource) -> FileFormat:
    """Return the format of a file: as set, or by its suffix; plain text of standard input."""
    if isinstance(source, RowFile) and source.layout.form is not None:
        return source.layout.form
    if str(source) == STANDARD_INPUT:
        return "text"
    form = SUFFIXES.get(find_suffix(str(source)))
    if form is None:
        _check_file(str(source))
        refuse_format(str(source))
        raise DataError(
            f"{shorten(str(source))} has no suffix that tells its format; use one of "
            f"{', '.join(SUFFIXES)}, or name the format with --input-format"
        )
    return form


def refuse_format(name: str) -> None:
    suffix = path_of(name).suffix.lower()
    if suffix in _REMEDIES:
        raise DataError(
            f"{shorten(name)} is a {suffix} file, which is not read; {_REMEDIES[suffix]}"
        )


def read_lines(
    source: RowSource, notes: Notes, encoding: str = "utf-8"
) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of every line of a file or of standard input, in constant memory.

    Lines end in a line feed, after a carriage return or not. A byte-order mark is left out, and
    counted where the file does not begin with it. A NUL character becomes a space.
    """
    content = None
    if isinstance(source, RowFile):
        encoding, content = source.layout.encoding, source.content
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
    """Return a value whose texts a tokenizer and a file can take, as long as before: a NUL becomes
    a space, an unpaired surrogate the replacement character.
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
    """Replace unpaired surrogates, which JSON can spell; return the text and their number."""
    try:
        text.encode()  # many times as fast as a search
    except UnicodeEncodeError:
        return _SURROGATES.subn("\ufffd", text)
    return text, 0


def list_values(values: Any, name: str = "the column") -> Iterable[Any]:
    """Return the values of a list, an iterator, an array, a column of pandas, polars or Arrow, or a
    table of one column. `name` is what a message calls them.
    """
    if hasattr(values, "columns"):
        if getattr(values, "shape", ())[1:] != (1,):
            raise DataError(f"{name} is a table; give one column of it, or a list")
        import numpy as np

        values = np.asarray(values, object)[:, 0]
    column = values
    if (to_list := getattr(values, "to_pylist", getattr(values, "tolist", None))) is not None:
        column = to_list()
    unordered = (str, bytes, Mapping, set, frozenset)
    if isinstance(column, unordered) or not isinstance(column, Iterable):
        raise DataError(f"{name} is {format_value(values)}; give a list, even for a single one")
    return column


def check_texts(texts: Any) -> Iterator[str]:
    """Check that what `list_values` takes has texts, and yield them."""
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
    if not isinstance(value, str):
        raise DataError(
            f"{location}: {field} is {format_value(value)}, not a text; write it in quotes"
        )
    return value


def _check_file(name: str) -> None:
    if is_file(name):
        return
    path = Path(name)
    fault = "is no regular file" if path.exists() else "does not exist"
    fault = "is a folder" if path.is_dir() else fault
    raise DataError(f"{path} {fault}; give the path of a file")


def read_records(
    source: RowSource,
    columns: Sequence[str],
    notes: Notes,
    *,
    optional: Sequence[str] = (),
    layout: Layout = DEFAULT_LAYOUT,
) -> Iterator[Record]:
    """Yield the cells of `columns`, then of `optional`, which the file may lack, of each row; of
    all columns if none are named. In CSV, TSV and workbooks, columns may be numbers from 0. The
    texts of `subject + body` are joined (`find_parts`), and rows may lack all but the last. A blank
    line is a row only in plain text. A `RowFile` brings its own layout.
    """
    if not any(JOINT in name for name in columns):
        yield from _read_columns(source, columns, notes, optional, layout)
        return
    layout = source.layout if isinstance(source, RowFile) else layout
    layout = replace(layout, form=layout.form or detect_format(source))
    if isinstance(source, RowFile) and source.content is not None:
        names = source.names
    else:
        names = tuple(read_sample(str(source), 1, layout)[0])
    parts = [(name,) if layout.form == "text" else find_parts(name, names) for name in columns]
    needed = [*dict.fromkeys(some[-1] for some in parts)]
    others = [*dict.fromkeys(part for some in parts for part in some if part not in needed)]
    count = len(needed) + len(others)
    # The cells that are not needed come first of the optional ones.
    for row in _read_columns(source, needed, notes, (*others, *optional), layout):
        cells = dict(zip((*needed, *others), row.values, strict=False))
        values = []
        for some in parts:
            told = [cells[part] for part in some if not _is_missing(cells[part])]
            if any(not isinstance(value, str) for value in told):  # refused as a text alone is
                values.append(next(value for value in told if not isinstance(value, str)))
            else:
                values.append("\n".join(told) if told else cells[some[-1]])
            for part in some:
                if cells[part] is None:
                    notes[f"texts have no '{part}'"] += 1
        yield row._replace(values=(*values, *row.values[count:]))


def find_parts(name: str, names: Collection[str]) -> tuple[str, ...]:
    """The columns that `subject + body` means in a file with columns of these names. A column whose
    whole name it is wins."""
    if name in names or JOINT not in name:
        return (name,)
    words = name.split(JOINT)
    heads = [JOINT.join(words[:count]) for count in range(len(words) - 1, 0, -1)]
    head = next((head for head in heads if head in names), words[0])
    return (head, *find_parts(name[len(head + JOINT) :], names))


def _is_missing(value: Any) -> bool:
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def _read_columns(
    source: RowSource,
    columns: Sequence[str],
    notes: Notes,
    optional: Sequence[str],
    layout: Layout,
) -> Iterator[Record]:
    extra_names: tuple[str, ...] = ()
    stretch = None
    if isinstance(source, RowFile):
        layout, stretch = source.layout, source.stretch
        extra_names = (*source.keep, *source.optional)
        wanted = (*columns, *optional)
        columns, optional = (*columns, *source.keep), (*optional, *source.optional)
        order = [(*columns, *optional).index(name) for name in wanted]
    form = layout.form or detect_format(source)
    if form == "conll":
        raise DataError(
            f"{source} holds words in columns, which only tagging models read; give rows of text"
        )
    if form == "text" and len(columns) > 1:
        raise DataError(
            f"{source} is plain text, with no column '{columns[1]}'; give CSV, TSV, JSONL "
            "or Parquet, or name the format with --input-format"
        )
    row = None
    for row in read_rows(
        replace(layout, form=form),
        str(source),
        read_lines(source, notes, layout.encoding),
        columns,
        notes,
        optional=optional,
        stretch=stretch,
    ):
        if form in ("jsonl", "parquet", "xlsx"):  # the lines of the other formats are clean already
            row = Record(row.line, clean(row.values, notes))
        if isinstance(source, RowFile):
            cells = dict(zip((*columns, *optional), row.values, strict=True))
            extras = {name: cells[name] for name in extra_names}
            row = Record(row.line, tuple(row.values[index] for index in order), extras)
        yield row
    if row is None:
        label = "standard input" if str(source) == STANDARD_INPUT else shorten(str(source))
        raise DataError(f"{label} holds no rows; give a file with some")


def read_rows(
    layout: Layout,
    name: str,
    numbered_lines: Iterable[tuple[int, str]],
    columns: Sequence[str],
    notes: Notes,
    *,
    optional: Sequence[str] = (),
    meter: Meter | None = None,
    remedy: str = "",
    stretch: tuple[int, int] | None = None,
) -> Iterator[Record]:
    """Yield the cells of `columns`, then of `optional`, of each row; of all without any.

    `numbered_lines` of the file `name` are unused for Parquet and workbooks. `meter` counts the
    bytes of Parquet. `remedy` is added to the message about a missing column.
    """
    form, delimiter = layout.form, layout.delimiter
    assert form is not None
    if form == "text":
        blank = (None,) * len(optional)
        return (Record(number, (text, *blank)) for number, text in numbered_lines)
    split_remedy = "name the delimiter with --delimiter"
    if delimiter is not None:
        split_remedy = f"give another --delimiter than {delimiter!r}, or none"
    elif remedy:  # of a corpus, for which no option names the delimiter
        split_remedy = "put commas between the columns"
    wanted = _Columns(columns, optional, remedy, split_remedy if form in ("csv", "tsv") else "")
    if form == "parquet":
        return _read_parquet(name, wanted, meter or Meter(), stretch)
    if form == "jsonl":
        return _read_jsonl(shorten(name), numbered_lines, wanted, notes)
    rows = read_cells(form, name, numbered_lines, (*columns, *optional), notes, delimiter)
    return _read_table(shorten(name), rows, wanted, notes, form, layout.header)


class _Columns(NamedTuple):
    columns: Sequence[str]
    optional: Sequence[str]
    remedy: str
    split_remedy: str = ""
    """What to do if a line that should hold several columns holds one."""

    def find_indices(self, names: Sequence[str], location: str) -> list[int | None]:
        wanted = (*self.columns, *self.optional)
        if not wanted:
            return [*range(len(names))]
        for name in self.columns:
            if name not in names:
                others = [" ".join(other.split())[:40] for other in names]
                hint = nearest(name, others) if others else "write it"
                header = "".join(names)
                if len(names) == 1 and (
                    name in re.split(r"\W", header) or {*_DELIMITERS} & {*header}
                ):
                    hint = f"its one column is {format_value(header)}; {self.split_remedy}"
                if {"data", "annotations"} <= {*names}:
                    hint = "export it from Label Studio as JSON_MIN or CSV, which have columns"
                raise DataError(f"{location} has no column '{name}'; {hint}{self.remedy}")
        for name in wanted:
            if names.count(name) > 1:
                raise DataError(
                    f"{location} has more than one column '{name}'; give the others another name"
                )
        return [names.index(name) if name in names else None for name in wanted]

    def resolve(self, names: Sequence[str]) -> _Columns:
        """Replace numbers of columns, and names with other spaces, by names."""
        plain = {" ".join(name.split()): name for name in names}

        def resolve(column: str) -> str:
            if column not in names and column.isdecimal() and int(column) < len(names):
                return names[int(column)]
            return column if column in names else plain.get(column, column)

        return self._replace(
            columns=[*map(resolve, self.columns)], optional=[*map(resolve, self.optional)]
        )

    def select(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row.get(name) for name in (*self.columns, *self.optional) or row)


def _read_table(
    name: str,
    rows: Iterable[tuple[int, list[str]]],
    wanted: _Columns,
    notes: Notes,
    form: str,
    has_header: bool,
) -> Iterator[Record]:
    header: list[str] = []
    for number, row in rows:
        if not row or (row == [""] and form == "tsv"):  # quotes around nothing are a cell
            notes["blank lines were skipped"] += 1
            continue
        if not header:
            header = [cell.strip() for cell in row] if has_header else [*map(str, range(len(row)))]
            columns = wanted.resolve(header)
            indices = columns.find_indices(header, f"the first line of {name}")
            if has_header:
                continue
        if form == "xlsx":  # a sheet keeps no empty cells at the end of a row
            row += [""] * (len(header) - len(row))
        if len(row) != len(header):
            counts = f"{len(row)} columns where the first line has {len(header)}"
            remedy = "fix the row, or its quotes"
            if form == "tsv":
                remedy = "fix the row, or give --input-format csv if cells are in quotes"
            raise DataError(f"{name}:{number} has {counts}; {remedy}")
        yield Record(number, tuple(None if index is None else row[index] for index in indices))


def read_cells(
    form: FileFormat,
    name: str,
    numbered_lines: Iterable[tuple[int, str]],
    columns: Sequence[str],
    notes: Notes,
    delimiter: str | None = None,
) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of its first line, cells) of each row of CSV, TSV or a workbook, header
    included, which may have `columns`.
    """
    if form == "xlsx":
        yield from _read_workbook(name, notes)
        return
    head, lines = _peek(numbered_lines)
    sample, found = _sample(head, columns, "," if form == "csv" else "\t")
    is_marked = len(head) > 0 and SEPARATOR_LINE.fullmatch(head[0]) is not None
    if is_marked:
        next(lines)
    delimiter = delimiter or found
    if form == "csv" or delimiter != "\t" or _has_quoted_cells(sample):
        name = shorten(name)
        skipped = int(is_marked)
        csv.field_size_limit(2**31 - 1)
        reader = csv.reader((line + "\n" for _, line in lines), delimiter=delimiter, strict=True)
        start = 1 + skipped
        try:
            for row in reader:
                yield start, row
                start = reader.line_num + 1 + skipped
        except csv.Error as error:
            raise DataError(
                f"{name}:{start} is not a well-formed row ({error}); fix its quotes or line ends"
            ) from error
    else:
        yield from ((number, line.split("\t")) for number, line in lines)


def _sample(head: Sequence[str], columns: Sequence[str], own: str) -> tuple[list[str], str]:
    mark = SEPARATOR_LINE.fullmatch(head[0]) if head else None
    sample = [line for line in head[mark is not None :] if line]
    return sample, mark[1] if mark else find_delimiter(sample, columns, own)


def read_header(
    source: RowSource, columns: Sequence[str], encoding: str = "utf-8"
) -> tuple[list[str], str]:
    """Return the cells of the first row of CSV, which may have `columns`, and the delimiter."""
    sample, delimiter = _sample(_peek(read_lines(source, Notes(), encoding))[0], columns, ",")
    header = next(iter(split_cells(sample[:1], delimiter)), [])
    return [cell.strip() for cell in header], delimiter


def _peek(numbered_lines: Iterable[tuple[int, str]]) -> tuple[list[str], Iterator[tuple[int, str]]]:
    lines, head, fault = iter(numbered_lines), list[tuple[int, str]](), list[DataError]()
    try:
        for line in itertools.islice(lines, _SAMPLE):
            head.append(line)
            if len(line[1]) > _LONG:
                break
    except DataError as error:
        fault.append(error)

    def replay() -> Iterator[tuple[int, str]]:
        yield from head
        for error in fault:
            raise error
        yield from lines

    return [text for _, text in head], replay()


def find_delimiter(sample: Sequence[str], columns: Sequence[str], own: str) -> str:
    """Find the delimiter of a table by its first lines: its own where no other fits better."""

    def rate(delimiter: str) -> tuple[int, bool, bool]:
        rows = split_cells(sample, delimiter)
        if delimiter == own == "\t":
            rows = [line.split("\t") for line in sample]
        header = [cell.strip() for cell in rows[0]] if rows else []
        is_wide, width = len(header) > 1, len(header)
        found = sum(name in header or (name.isdecimal() and int(name) < width) for name in columns)
        alike = len({*map(len, rows[: None if len(sample) < _SAMPLE else -1])}) == 1
        return found * (is_wide or delimiter == own), is_wide and alike, is_wide

    best: str = max([own, *_DELIMITERS], key=rate)
    return best


def split_cells(lines: Sequence[str], delimiter: str, strict: bool = False) -> list[list[str]]:
    rows: list[list[str]] = []
    try:
        for row in csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=strict):
            rows.append(row)
    except csv.Error:
        pass
    return rows


def _has_quoted_cells(sample: Sequence[str]) -> bool:
    """Return True if TSV has quotes as CSV has: around the header, around every cell of a column,
    or around tabs and line ends. Else quotes are letters, as in GLUE's files.
    """
    plain = [line.split("\t") for line in sample]
    rows = split_cells(sample, "\t", strict=True)
    width = len(rows[0]) if rows else 0
    is_whole = sum(map(len, rows)) == width * len(rows) and '"' in "".join(sample)
    # A file that is longer than the sample may end it within a cell.
    if not is_whole or 2 * len(rows) < len(plain):
        return False
    quoted = [[re.fullmatch(r'".*"', cell) is not None for cell in row] for row in plain]
    if all(quoted[0]) or {len(row) for row in plain} != {width}:
        return True
    return len(rows) > 2 and any(map(all, zip(*quoted[1:], strict=True)))


def _read_workbook(name: str, notes: Notes) -> Iterator[tuple[int, list[str]]]:
    try:
        import openpyxl
    except ImportError as error:
        raise MissingExtraError("openpyxl", "xlsx") from error
    _check_file(name)

    def format_cell(value: Any) -> str:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return "" if value is None else str(value)

    content = io.BytesIO(b"".join(read_blocks(name, Meter())))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of formats and filters, not of cells
            book = openpyxl.load_workbook(content, read_only=True, data_only=True)
            sheet, *others = book.worksheets
            sheet.reset_dimensions()  # which some programs write wrong
            rows = [[*map(format_cell, row)] for row in sheet.iter_rows(values_only=True)]
    except Exception as error:  # of the readers of ZIP, XML, numbers and dates
        raise DataError(
            f"{shorten(name)} is not a whole .xlsx workbook ({error}); save it again, or as CSV"
        ) from error
    if others:
        notes["sheets after the first were left out"] += len(others)
    for number, row in enumerate(rows, 1):
        while row and not row[-1]:
            row.pop()
        yield number, row


def _read_jsonl(
    name: str, numbered_lines: Iterable[tuple[int, str]], wanted: _Columns, notes: Notes
) -> Iterator[Record]:
    head, lines = _peek(numbered_lines)
    start = next(filter(str.strip, head), "").strip()
    is_list = start == "[" or re.match(r"\[\s*[{\]]", start) is not None
    texts = iter([(1, "\n".join(line for _, line in lines))]) if is_list else lines
    for number, text in texts:
        if not text or text.isspace():
            notes["blank lines were skipped"] += 1
            continue
        try:
            value = parse_json(text, (*wanted.columns, *wanted.optional) or None)
        except (ValueError, RecursionError) as error:
            place = f"{name}:{number + getattr(error, 'lineno', 1) - 1}"
            fault = f"is not JSON ({describe_json_error(error)})"
            if start == "{":
                place, fault = name, "is one JSON object over several lines"
            raise DataError(
                f"{place} {fault}; write one whole object per line, or one list of objects"
            ) from error
        for index, row in enumerate(value, 1) if is_list else [(number, value)]:
            if not isinstance(row, dict):
                field = next(iter(wanted.columns), "text")
                raise DataError(
                    f'{name}:{index} is not a JSON object; write objects like {{"{field}": ...}}'
                )
            wanted.find_indices(list(row), f"{name}:{index}")
            yield Record(index, wanted.select(row))


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
            class_names = _find_class_names(file.schema_arrow.metadata)
            for number, batch in _read_batches(file, present, stretch):
                for row in _read_batch(batch):
                    number += 1
                    for column, classes in class_names.items():
                        if column in row:
                            row[column] = _name_classes(row[column], classes)
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


def _find_class_names(metadata: Any) -> dict[str, list[str]]:
    """Return the names by column that the library `datasets` keeps beside numbers of classes."""
    try:
        columns = json.loads(metadata[b"huggingface"])["info"]["features"].items()
    except (AttributeError, LookupError, TypeError, ValueError):
        return {}
    found = {}
    for column, feature in columns:
        while isinstance(feature, (dict, list)) and feature and "names" not in feature:
            feature = feature[0] if isinstance(feature, list) else feature.get("feature")
        if isinstance(feature, dict) and isinstance(names := feature.get("names"), list):
            found[column] = [*map(str, names)]
    return found


def _name_classes(value: Any, names: Sequence[str]) -> Any:
    """Replace the numbers of classes by their names; -1 means that there is none."""
    if isinstance(value, list):
        return [_name_classes(element, names) for element in value]
    if not isinstance(value, int) or not -1 <= value < len(names):
        return value
    return None if value < 0 else names[value]


def _read_batches(
    file: Any, columns: Sequence[str], stretch: tuple[int, int] | None
) -> Iterator[tuple[int, Any]]:
    """Yield batches of rows of the row groups in the stretch, each with its first row's number."""
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


def read_sample(
    source: str | Path, count: int, layout: Layout = DEFAULT_LAYOUT
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the names of a file's columns, and the cells of its first `count` rows."""
    form, name, notes = layout.form or detect_format(source), str(source), Notes()
    if form == "text":
        texts = itertools.islice(read_lines(source, notes, layout.encoding), count)
        return ["text"], [(text,) for _, text in texts]
    if form == "parquet":
        import pyarrow.parquet as pq

        with open_file(name) as raw, pq.ParquetFile(raw) as file:
            names = list(file.schema_arrow.names)
    elif form == "jsonl":
        head, _ = _peek(read_lines(source, notes, layout.encoding))
        names = []
        for text in head:
            with contextlib.suppress(ValueError, RecursionError):
                value = parse_json(text.strip().removeprefix("[").strip().rstrip(",]"))
                names += value if isinstance(value, dict) else []
        if not names:  # a list of objects over several lines
            content = "\n".join(text for _, text in read_lines(source, notes, layout.encoding))
            with contextlib.suppress(ValueError, RecursionError):
                listed = parse_json(content)[:_SAMPLE]
                names = [key for row in listed if isinstance(row, dict) for key in row]
        names = list(dict.fromkeys(names))
    else:
        lines = read_lines(source, notes, layout.encoding)
        cells = read_cells(form, name, lines, (), notes, layout.delimiter)
        table = [row for _, row in itertools.islice(cells, count + 1) if row]
        names = [cell.strip() for cell in table[0]] if table else []
        if not layout.header:
            names = [*map(str, range(len(names)))]
        rows = [(*row, *[""] * len(names))[: len(names)] for row in table[layout.header :]]
        return names, rows
    sample = read_records(source, (), notes, optional=names, layout=layout)
    return names, [row.values for row in itertools.islice(sample, count)]
