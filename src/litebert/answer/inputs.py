"""The inputs of `predict`: files, folders and patterns, each with its format, its columns and the
cells to carry along.

Without a suffix the beginning of the content decides the format. A guess never drops a header or a
label column into the texts: what looks like a table is read as one, and a missing column is an
error.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from litebert.base.errors import ConfigError, DataError, nearest, suggest_path
from litebert.remote.names import shorten
from litebert.remote.reading import is_file, open_file
from litebert.tasks.task import Row, Task, TaskFiles
from litebert.text.files import is_remote, list_files
from litebert.text.lines import STANDARD_INPUT, Meter, find_suffix, read_blocks
from litebert.text.records import (
    IN_FOLDERS,
    SEPARATOR_LINE,
    SUFFIXES,
    FileFormat,
    Layout,
    Notes,
    RowFile,
    find_delimiter,
    find_parts,
    read_cells,
    refuse_format,
    split_cells,
)

log = logging.getLogger("litebert")

HEAD = 1 << 16
"""Bytes at the beginning of a file that decide its format."""
ALL = "all"
"""Keeps all columns, in place of their names."""

_TAG = re.compile(r"O|[BIELMSU]-\S+")
_NAME = re.compile(r"[^\W\d][\w .\-/()#]{0,39}")


class Columns(NamedTuple):
    """The cells of a row that are wanted; for None, the model and the file decide."""

    text: str | None = None
    pair: str | None = None
    keep: tuple[str, ...] = ()


DEFAULT_COLUMNS = Columns()


def describe_reading(columns: Columns, layout: Layout) -> dict[str, Any]:
    """Return what decides the rows of files, for the identity of parts."""
    named = asdict(layout)
    return {"source_form": named.pop("form"), **named, **columns._asdict()}


class InputFile(NamedTuple):
    """A file to answer, and its columns."""

    file: RowFile
    text: str
    pair: str | None
    is_official: bool
    """True if it has the form of the model's benchmark."""


def expand(sources: Iterable[str | Path], task: Task[Any]) -> list[str]:
    """List the files of paths, folders and patterns; standard input and pipes as they are."""
    files = list_files(sources, lambda folder: _list_folder(folder, task))
    for path in files:
        if is_remote(path) and shorten(path) != path:
            raise ConfigError(
                f"{shorten(path)} has a password or a signature in it, which answers could repeat; "
                "fetch the file, or give the credentials in the environment"
            )
        if path != STANDARD_INPUT and not is_remote(path) and not Path(path).exists():
            remedy = "give the path of a file, a folder or a pattern"
            raise DataError(f"{path} does not exist; {suggest_path(Path(path), remedy)}")
    return files


def _list_folder(folder: Path, task: Task[Any]) -> list[Path]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name[0] != "."]
    suffixes = {*IN_FOLDERS, task.suffix}
    readable = [path for path in files if find_suffix(path) in suffixes]
    if not readable:
        raise DataError(
            f"{folder} is a folder without files ending in {', '.join(IN_FOLDERS)}; name the "
            "files to read"
        )
    if len(readable) < len(files):
        others = sorted({path.suffix or path.name for path in files if path not in readable})
        log.warning(
            f"{folder}: {len(files) - len(readable)} of {len(files)} files were skipped "
            f"({', '.join(others)})"
        )
    return readable


def open_input(
    path: str,
    model: str,
    task: Task[Any],
    saved: Mapping[str, Any],
    columns: Columns,
    layout: Layout,
    is_alone: bool = False,
) -> InputFile:
    """Decide how a file is read: the suffix or the content, where `layout` has no format.

    `saved`, the model's task.json, has the columns of the training table; for the only file
    (`is_alone`), every option must mean something.
    """
    training_columns = saved.get("columns")
    training_columns = training_columns if isinstance(training_columns, dict) else {}
    has_column_name = columns.text is not None and not columns.text.isdecimal()
    header = layout.header and (has_column_name or saved.get("header") is not False)
    form = layout.form
    _refuse_piped(form, path)
    # Nothing is read yet where neither the format nor a column depends on the content.
    needs_head = form is None or columns.keep == (ALL,) or bool(training_columns)
    head, content = b"", None
    if needs_head:
        blocks = read_blocks(path, Meter())
        first = next(blocks, b"")
        head = first[:HEAD]
        if path == STANDARD_INPUT or not is_file(path):  # which can be read only once
            content = itertools.chain([first], blocks)
    head_text = head.decode(layout.encoding, "replace").lstrip("\ufeff")
    wanted = {
        part
        for name in (
            columns.text,
            columns.pair,
            training_columns.get("text"),
            training_columns.get("pair"),
        )
        if name
        for part in {name, *find_parts(name, ())}
    }
    wanted |= {"text"} if columns.text is None else set()
    is_official = form is None and _is_official(path, head_text, task)
    if is_official and columns.keep:
        raise ConfigError(
            f"{path} is a file of the {task.name} benchmark, whose answers have its ids; leave out "
            "--keep"
        )
    form = (
        "jsonl"
        if is_official
        else form
        or _tell_format(path, head, head_text, wanted | {"question", "context", "choices"})
    )
    if columns.keep and form in ("text", "conll"):
        raise ConfigError(f"{path} has no named columns; leave out --keep")
    if is_alone:
        if is_official or form in ("text", "conll"):
            column_options = {"--text-column": columns.text, "--pair-column": columns.pair}
            for option, value in column_options.items():
                is_number = form == "conll" and option == "--text-column" and str(value).isdecimal()
                if value is not None and not is_number:
                    raise ConfigError(f"{path} has no named columns; leave out {option} {value}")
        layout.check_used([form], path)
    file = RowFile(path, replace(layout, form=form, header=header), content=content)
    if is_official:
        return InputFile(file, "text", None, True)
    names = _list_columns(file, head_text, wanted)
    file = replace(file, names=tuple(names))
    parts = find_parts(columns.text or "", names)
    for part in parts if names and len(parts) > 1 else ():
        if part not in names:
            raise DataError(f"{path} has no column '{part}'; {nearest(part, names)}")
    words = ("tokens", "words") if task.output.head == "tokens" else ()
    text_column = columns.text or _choose_column(
        names, training_columns.get("text"), "text", *words
    )
    pair_column = columns.pair or (
        _choose_column(names, training_columns.get("pair")) if task.pair else None
    )
    if task.pair and pair_column is None:
        raise ConfigError(
            f"{model} was fine-tuned on pairs of texts; name the second column with --pair-column"
        )
    if task.pair is False and pair_column is not None:
        raise ConfigError(
            f"{model} does not take pairs of texts; leave out --pair-column {pair_column}"
        )
    if columns.keep == (ALL,):
        file = replace(file, optional=tuple(names))
    else:
        file = replace(file, keep=columns.keep)
    return InputFile(file, text_column, pair_column, False)


def _refuse_piped(form: FileFormat | None, path: str) -> None:
    titles: dict[FileFormat | None, str] = {"parquet": "Parquet", "xlsx": "a workbook"}
    if path == STANDARD_INPUT and form in titles:
        raise DataError(
            f"standard input is {titles[form]}, which can only be read from a file; name the file "
            "with --input"
        )


def _is_official(path: str, head_text: str, task: Task[Any]) -> bool:
    # A task with official files overrides `stream_official`. A class makes its bound methods anew
    # each time, so their functions are compared.
    stream = task.files.stream_official.__func__  # type: ignore[attr-defined]
    has_form = stream is not TaskFiles.stream_official.__func__  # type: ignore[attr-defined]
    if not has_form or not head_text.lstrip().startswith("{"):
        return False
    if find_suffix(path) == task.suffix == ".json":
        return True
    row = _parse_object(head_text.lstrip().split("\n")[0])
    return (
        "article" in row
        or "data" in row
        or (not row and re.match(r'\s*\{\s*"(?:data|version)"', head_text) is not None)
    )


def _tell_format(path: str, head: bytes, head_text: str, wanted: Collection[str]) -> FileFormat:
    """Tell the format of a file, and log it if the suffix does not say it."""
    form = SUFFIXES.get(find_suffix(path)) if path != STANDARD_INPUT else None
    if form is not None:
        return form
    label = "standard input" if path == STANDARD_INPUT else path
    refuse_format(path)
    if head.startswith(b"PAR1"):
        form = "parquet"
        _refuse_piped(form, path)
    else:
        form = sniff(head_text, wanted, whole=len(head) < HEAD)
    title = {"text": "plain text, one on each line", "conll": "words and tags in columns"}.get(
        form, form.upper()
    )
    log.info(f"{label} was read as {title}; --input-format overrides this")
    return form


def sniff(text: str, wanted: Collection[str], *, whole: bool) -> FileFormat:
    """Tell the format by the beginning of a file, where a line with a `wanted` column is a header;
    the last line counts only if `text` is the `whole` file.
    """
    lines = text.split("\n")[: None if whole else -1] or [text]
    rows = [line.removesuffix("\r") for line in lines[:200] if line.strip()]
    if not rows:
        return "text"
    if re.match(r'\s*(\{\s*("|\}|$)|\[\s*(\{|$))', rows[0]):
        return "jsonl"
    if SEPARATOR_LINE.fullmatch(rows[0]):
        return "csv"
    words = [row.split() for row in rows]
    if len(rows) > 1 and all(len(row) > 1 and _TAG.fullmatch(row[-1]) for row in words):
        return "conll"
    if "\t" in rows[0] and (
        set(rows[0].split("\t")) & set(wanted) or len({row.count("\t") for row in rows}) == 1
    ):
        return "tsv"
    if rows[0].strip() in wanted:
        return "csv"
    delimiter = find_delimiter(rows, sorted(wanted), ",")
    cells = split_cells(rows, delimiter)
    header = [cell.strip() for cell in cells[0]] if cells else []
    if len(header) < 2:
        return "text"
    alike = len(cells) > 1 and len({len(row) for row in cells[:-1]} | {len(cells[0])}) == 1
    plain = (
        header == cells[0]
        and len(set(header)) == len(header)
        and all(_NAME.fullmatch(cell) for cell in header)
    )
    is_table = set(header) & set(wanted) or (alike and plain and delimiter == ",")
    return "csv" if is_table else "text"


def _list_columns(file: RowFile, head_text: str, wanted: Collection[str]) -> list[str]:
    form, delimiter = file.layout.form, file.layout.delimiter
    rows = [line.removesuffix("\r") for line in head_text.split("\n") if line.strip()]
    if form == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with open_file(file.path) as raw:
                return list(pq.read_schema(raw).names)
        except (pa.ArrowException, OSError):  # reading its rows will say what is wrong
            return []
    if form is None or form in ("text", "conll") or not rows:
        return []
    if form == "jsonl":
        return list(_parse_object("\n".join(rows)))
    cells_of_rows = read_cells(
        form, file.path, enumerate(rows, 1), sorted(wanted), Notes(), delimiter
    )
    _, cells = next(cells_of_rows, (0, []))
    return [cell.strip() if file.layout.header else str(i) for i, cell in enumerate(cells)]


def _parse_object(text: str) -> dict[str, Any]:
    """Parse the JSON object that a text, or the list in it, begins with; empty if there is none."""
    try:
        row, _ = json.JSONDecoder().raw_decode(text.lstrip("[ \t\r\n"))
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _choose_column(names: Sequence[str], *likely: Any) -> Any:
    """Return the first likely column that a file has, else the first likely one, or None."""
    candidates = [name for name in likely if name]
    first = candidates[0] if candidates else None
    return next((name for name in candidates if find_parts(name, names)[-1] in names), first)


def format_cells(row: Mapping[str, Any], answer: Mapping[str, Any], form: str) -> dict[str, Any]:
    """Return a row's cells that go before its answer; in CSV, lists and objects are JSON. A column
    `guess` is `input_guess` where the answer has one."""
    flat = answer.values() if form == "csv" else ()
    labels = (label for value in flat if isinstance(value, dict) for label in value)
    taken = {*answer, *(f"p_{label}" for label in labels)}
    cells: dict[str, Any] = {}
    for column, value in row.items():
        name = column
        while name in taken or (name != column and name in row):
            name = f"input_{name}"
        if isinstance(value, (str, int)) or value is None:
            cells[name] = value
            continue
        written = (
            json.dumps(value, ensure_ascii=False, default=str).encode(errors="replace").decode()
        )
        plain = json.loads(written, parse_constant=lambda _: None)
        cells[name] = written if form == "csv" and isinstance(plain, (list, dict)) else plain
    return cells


def read_rows(
    inputs: Iterable[InputFile], files: type[TaskFiles[Any]], notes: Notes
) -> Iterator[Row[Any]]:
    """Yield each row to answer, in order; notes are logged at the end of each file."""
    previous_path = ""
    for source in inputs:
        if previous_path:
            for note in notes.notes():
                log.info(f"{previous_path}: {note}")
            notes.clear()
        previous_path = source.file.path
        if source.is_official:
            yield from files.stream_official(source.file, notes) or ()
        else:
            yield from files.stream(source.file, notes, text=source.text, pair=source.pair)
