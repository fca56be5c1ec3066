"""Answers from files to a file: in order and in constant memory; finished answers are kept."""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TextIO

from litebert.answer.engines.exits import EarlyExit
from litebert.answer.inputs import (
    ALL,
    DEFAULT_COLUMNS,
    Columns,
    InputFile,
    describe_reading,
    expand,
    format_cells,
    open_input,
    read_rows,
)
from litebert.answer.model import Method, Model
from litebert.answer.part_rows import PartRows, Stretches, make_answer_identity
from litebert.answer.predicting import generate_window_sizes
from litebert.base import progress
from litebert.base.errors import ConfigError
from litebert.base.storage import atomic_text, check_output, is_written_into
from litebert.judge.words import format_weights, require_words
from litebert.parts import EVERY, Part, Turns
from litebert.parts.finished import FinishedPart
from litebert.parts.windows import read_windows, write_part
from litebert.remote.names import as_url, is_url, shorten, suggest
from litebert.remote.output import check_output_file, open_output_file
from litebert.remote.reading import is_file
from litebert.tasks.predictions import write_records
from litebert.tasks.task import Row, Task
from litebert.text.files import leave_out, refuse_duplicates
from litebert.text.lines import BLOCK, COMPRESSIONS
from litebert.text.records import DEFAULT_LAYOUT, Layout, Notes
from litebert.text.tally import escape_name, format_count

log = logging.getLogger("litebert")

Form = Literal["csv", "jsonl", "json"]
"""Format of the answers; `json` is {id: answer}, as the scripts of SQuAD read it."""


def predict_file(
    model: Model,
    sources: str | Path | Sequence[str | Path],
    out: str | Path | TextIO,
    *,
    form: Form = "csv",
    columns: Columns = DEFAULT_COLUMNS,
    layout: Layout = DEFAULT_LAYOUT,
    explain: Method | None = None,
    part: Part | None = None,
) -> int:
    """Answer every row of files, or of standard input (`-`), in order, and return how many.

    The columns depend on the task. Classes and numbers of texts: the text, and the pair for pairs.
    Tagging: the text, or CoNLL columns. Questions: question and context. Multiple choice: context,
    question and choices (JSONL). Models of the last two tasks also read the official files of SQuAD
    and RACE, whose ids stand in the answers.

    `out` keeps what is answered before a malformed row or an interruption. Of several files, each
    answer names its file in `file`. `columns` are by default those of the training table, and
    `explain` adds `words` by this method. A `part` goes into a folder beside `out`, for `merge`.
    """
    predictor = model.predictor
    task, separator = predictor.task, predictor.task.output.separator
    if explain is not None:
        require_words(task)
    if form == "json" and task.suffix != ".json":
        better = suggest(out, ".jsonl") if isinstance(out, (str, Path)) else "a .jsonl file"
        raise ConfigError(f"answers of this model are written as CSV or JSONL; give --out {better}")
    files = files_of_sources(sources, out, task)
    work = _Answering(model, files, columns, layout, form, explain, Notes())
    if part is None:
        with (
            report_partial(out, "answer") as written,
            progress.task("answering", total=_count_rows(files), unit="rows") as bar,
            open_output(out) as file,
        ):

            def count_written() -> Iterator[dict[str, Any]]:
                for record in itertools.chain.from_iterable(work.answer_windows(work.read())):
                    yield record
                    bar.advance()  # when the next is asked for: by then it is written
                    written.count += 1

            _write_answers(count_written(), file, form, separator, files[0])
        count = written.count
    else:
        rows = PartRows.plan(files, layout.form, generate_window_sizes(), work.read)
        settings = {"form": form, "explain": explain, **describe_reading(columns, layout)}
        facts = {"form": form, "separator": separator, "first_file": files[0]}
        count = write_part(
            out,
            part,
            make_answer_identity("predict", model, settings, files, out, rows.rows),
            lambda turns: (
                (list(window), None) for window in work.answer_windows(rows.read(turns), turns)
            ),
            lambda: {"rows": rows.total, **facts},
            rows.windows,
        )
    for note in work.notes.notes():  # of the last file; `read_rows` has logged those before
        log.info(note)
    if isinstance(predictor.runtime, EarlyExit):
        log.info(
            f"texts used {predictor.runtime.share:.0%} of the layers; --exit-confidence off gives "
            "the answers of all layers"
        )
    if model.min_precision is not None and (answers := work.tally.total()):
        empty = work.tally[True]
        log.info(f"{empty:,} of {answers:,} answers stay empty ({empty / answers:.1%})")
    return count


@dataclass(frozen=True)
class _Answering:
    model: Model
    files: Sequence[str]
    columns: Columns
    layout: Layout
    form: Form
    explain: Method | None
    notes: Notes
    tally: Counter[bool] = field(default_factory=Counter)
    """How many answers there are, by whether they are empty."""

    def read(self, stretches: Stretches | None = None) -> Iterator[Row[Any]]:
        task = self.model.predictor.task
        inputs = open_all(self.model, task, self.files, self.columns, self.layout, stretches)
        return read_rows(inputs, task.files, self.notes)

    def answer_windows(
        self, rows: Iterator[Row[Any]], turns: Turns = EVERY
    ) -> Iterator[Iterator[dict[str, Any]]]:
        # Standard input and pipes may wait for somebody, who waits for the answer before.
        can_read_ahead = all(is_file(file) for file in self.files)
        windows = self.model.predictor.answer_windows(
            rows, ahead=can_read_ahead, notes=self.notes, turns=turns
        )
        return (itertools.starmap(self._make_record, window) for window in windows)

    def _make_record(self, row: Row[Any], answer: dict[str, Any]) -> dict[str, Any]:
        file = {"file": escape_name(row.file)} if len(self.files) > 1 else {}
        if self.explain is not None:
            words = self.model.explain_example(row.example, self.explain)
            answer["words"] = (
                [asdict(word) for word in words] if self.form == "jsonl" else format_weights(words)
            )
        self.tally[not answer.get("prediction")] += 1
        cells = format_cells(row.extras, {**file, **answer}, self.form)
        return {**file, **cells, **answer}


def _write_answers(
    records: Iterator[dict[str, Any]], file: TextIO, form: Form, separator: str, source: str
) -> None:
    """Write answers in a format. `source` is the first file that was read."""
    if form != "json":
        write_records(records, file, form, separator)
        return
    answers: dict[str, str] = {}
    try:
        for record in records:
            if "id" not in record:
                raise ConfigError(
                    f"{source} has no ids for JSON; give --out a .jsonl or .csv file, or --keep id"
                )
            answers[str(record["id"])] = record["prediction"]
    finally:
        if answers:
            file.write(json.dumps(answers, indent=2, ensure_ascii=False) + "\n")


def merge_answers(out: str | Path, parts: Sequence[FinishedPart]) -> None:
    """Write the answers of all parts in order."""
    marker = parts[0].marker
    check_output_file(out)
    records = (record for window, _ in read_windows(parts) for record in window)
    with open_output_file(out) as path, atomic_text(path) as file:
        _write_answers(records, file, marker["form"], marker["separator"], marker["first_file"])


def files_of_sources(
    sources: str | Path | Sequence[str | Path],
    out: str | Path | TextIO,
    task: Task[Any],
) -> list[str]:
    """List the files to read, of which none may be the output."""
    sources = [sources] if isinstance(sources, (str, Path)) else sources
    refuse_duplicates(sources)
    files = expand(sources, task)
    if isinstance(out, (str, Path)):
        output, files = Path(out), leave_out(files, out, sources)
        if is_url(out):
            check_output_file(out)
        for file in files:
            is_same = output.is_file() and Path(file).is_file() and output.samefile(file)
            if is_same or (is_url(out) and _name_object(out) == _name_object(file)):
                raise ConfigError(f"--out {shorten(out)} is the --input itself; give another file")
    return files


def _name_object(name: str | Path) -> str | None:
    """Return the name of an object of a store, however its kind is spelled; None for a file."""
    url = as_url(name)
    return None if url is None else re.sub("^s3a:", "s3:", url)


def open_all(
    model: Model,
    task: Task[Any],
    files: Sequence[str],
    columns: Columns,
    layout: Layout,
    stretches: Stretches | None = None,
) -> Iterator[InputFile]:
    """Open files one after the other, or those whose stretches are read; all columns that are kept
    are those of the first file.
    """
    first_columns: tuple[str, ...] | None = None if columns.keep == (ALL,) else ()
    is_alone = len(files) == 1
    for number, path in enumerate(files):
        is_wanted = stretches is None or number in stretches
        if not is_wanted and first_columns is not None:
            continue
        source = open_input(
            path, str(model.path), task, model.task, columns, layout, is_alone=is_alone
        )
        if first_columns is None:
            first_columns = source.file.optional
        if is_wanted:
            stretch = stretches[number] if stretches is not None else None
            file = replace(source.file, optional=first_columns, stretch=stretch)
            yield source._replace(file=file)


def _count_rows(files: Sequence[str]) -> int | None:
    """Estimate the rows by line ends; None of files that cannot be read twice, or have no lines."""
    count = 0
    for name in files:
        path = Path(name)
        if not path.is_file() or path.suffix.lower() in (*COMPRESSIONS, ".parquet", ".json"):
            return None
        with open(path, "rb") as file:
            while block := file.read(BLOCK):
                count += block.count(b"\n")
        count -= path.suffix.lower() in (".csv", ".tsv")  # the names of the columns
    return max(0, count) or None


@dataclass
class Written:
    """Counts the records of an output that are written."""

    count: int = 0


@contextmanager
def report_partial(out: str | Path | TextIO, noun: str) -> Iterator[Written]:
    """Log how much the file keeps when the block, which counts its records, ends early."""
    written = Written()
    try:
        yield written
    except OSError:  # the file could not be written, and `open_output` has dropped it
        raise
    except BaseException:
        # `open_output_file` says what of a file in a store was kept.
        if written.count and isinstance(out, (str, Path)) and not is_url(out):
            log.warning(f"saved {format_count(written.count, noun)} to {out}")
        raise


@contextmanager
def open_output(out: str | Path | TextIO) -> Iterator[TextIO]:
    """Open a file that gets its name when it is whole, or when writing ends early."""
    if not isinstance(out, (str, Path)):
        yield out
        return
    if is_url(out):
        with open_output_file(out) as path, open_output(path) as file:
            yield file
        return
    path, fault = Path(out), None
    check_output(path)
    written_into = is_written_into(path)
    with atomic_text(path) as file:
        try:
            yield file
        except BaseException as error:
            if isinstance(error, OSError) or written_into or file.tell() == 0:
                raise
            fault = error  # raised below, because `atomic_text` would drop the file
    if fault is not None:
        raise fault
