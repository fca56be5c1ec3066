"""Answers from files to a file: in order and in constant memory; finished answers are kept."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from litebert import progress
from litebert.answer.exits import EarlyExit
from litebert.answer.inputs import Columns, Opened, carried, examples_of, expand, opened
from litebert.answer.predictor import Model
from litebert.errors import ConfigError
from litebert.finetuning.task import Task
from litebert.storage import atomic_text, check_output, is_written_into
from litebert.tasks.predictions import write_records
from litebert.text import encodings
from litebert.text.files import refuse_duplicates
from litebert.text.lines import BLOCK, COMPRESSIONS
from litebert.text.records import FileFormat
from litebert.text.tally import format_count

log = logging.getLogger("litebert")

Form = Literal["csv", "jsonl", "json"]
"""Of the answers; `json` is {id: answer}, as the scripts of SQuAD read it."""


def predict_file(
    model: Model,
    sources: str | Path | Sequence[str | Path],
    out: str | Path | TextIO,
    *,
    form: Form = "csv",
    source_form: FileFormat | None = None,
    text: str | None = None,
    pair: str | None = None,
    keep: Sequence[str] = (),
    header: bool = True,
    encoding: str = "utf-8",
) -> int:
    """Answer every row of files, or of standard input (`-`), in order.

    Columns: `text` and `pair` of texts to classify; `text`, or CoNLL columns, of sentences to tag;
    question and context; context, question and choices (JSONL). Official files of SQuAD and RACE
    are read by models of these tasks, and their ids stand in the answers.

    Args:
        sources: a file, a folder or a pattern, or several; of several files, the answers name
            theirs in `file`.
        out: a path or an open file. What is answered before a malformed row or an interruption is
            kept there.
        source_form: what the files are; by their suffixes where None, and without one by their
            content.
        text, pair: columns, or in CSV and TSV their numbers from 0; where None, those of the
            training table, else `text`.
        keep: columns of the input that the answers carry along, or ("all",).
        header: whether the first line of CSV and TSV names the columns.

    Returns:
        How many answers there are.

    Raises:
        DataError: a file is missing or malformed; the message names the line.
        ConfigError: a `pair` for a model of single texts, none for one of pairs, or an output that
            cannot be written.
    """
    predictor = model.predictor
    task = predictor.task
    if form == "json" and task.suffix != ".json":
        better = (
            Path(out).with_suffix(".jsonl") if isinstance(out, (str, Path)) else "a .jsonl file"
        )
        raise ConfigError(
            f"answers of this model are written as CSV or JSONL; give --output {better}"
        )
    columns = Columns(text, pair, tuple(keep), header, encoding)
    files = files_of_sources(sources, out, task, encoding)
    inputs = all_opened(model, task, files, source_form, columns)
    rows: deque[tuple[dict[str, Any], str]] = deque()

    def examples() -> Iterator[Any]:
        for example, cells, place in examples_of(inputs, task):
            rows.append((cells, place))
            yield example

    def records() -> Iterator[dict[str, Any]]:
        for answer in predictor.answers(
            examples(), ahead=all(Path(file).is_file() for file in files)
        ):
            cells, place = rows.popleft()
            file = {"file": place} if len(files) > 1 else {}
            yield {**file, **carried(cells, {**file, **answer}, place, form), **answer}
            bar.advance()
            written.count += 1

    with (
        report_kept(out, "answer") as written,
        progress.task("answering", total=_rows_of(files), unit="rows") as bar,
        kept_file(out) as file,
    ):
        if form == "json":
            _write_by_id(records(), file, files)
        else:
            write_records(records(), file, form, task.output.separator)
    for note in task.notes:
        log.info(note)
    if isinstance(predictor.engine, EarlyExit):
        log.info(
            f"texts used {predictor.engine.share:.0%} of the layers; --exit off gives the "
            "answers of all layers"
        )
    return written.count


def files_of_sources(
    sources: str | Path | Sequence[str | Path],
    out: str | Path | TextIO,
    task: Task[Any],
    encoding: str,
) -> list[str]:
    """The files to read."""
    encodings.check(encoding, error=ConfigError)
    named = [sources] if isinstance(sources, (str, Path)) else sources
    refuse_duplicates(named)
    files = expand(named, task)
    for file in files:
        if (
            isinstance(out, (str, Path))
            and Path(out).is_file()
            and Path(file).is_file()
            and Path(out).samefile(file)
        ):
            raise ConfigError(f"--output {out} is the --input itself; give another file")
    return files


def all_opened(
    model: Model, task: Task[Any], files: Sequence[str], form: FileFormat | None, columns: Columns
) -> Iterator[Opened]:
    """The files, one after the other; all are asked for the columns to keep that the first
    one has."""
    first: tuple[str, ...] | None = None
    for file in files:
        one = opened(file, str(model.path), task, model.task, form, columns, alone=len(files) == 1)
        if first is None:
            first = one.source.optional
        one.source.optional = first
        yield one


def _write_by_id(records: Iterator[dict[str, Any]], file: TextIO, files: Sequence[str]) -> None:
    answers: dict[str, str] = {}
    try:
        for record in records:
            if "id" not in record:
                raise ConfigError(
                    f"{files[0]} has no ids for JSON; give --output a .jsonl or .csv file, "
                    "or --keep id"
                )
            answers[str(record["id"])] = record["prediction"]
    finally:
        if answers:
            file.write(json.dumps(answers, indent=2, ensure_ascii=False) + "\n")


def _rows_of(files: Sequence[str]) -> int | None:
    """About how many rows there are, by the line ends; None where that takes reading more than
    once.
    """
    count = 0
    for name in files:
        path = Path(name)
        if not path.is_file() or path.suffix.lower() in (*COMPRESSIONS, ".parquet", ".json"):
            return None
        with open(path, "rb") as file:
            while block := file.read(BLOCK):
                count += block.count(b"\n")
    return count or None


@dataclass
class Written:
    """How much of an output is written."""

    count: int = 0


@contextmanager
def report_kept(out: str | Path | TextIO, noun: str) -> Iterator[Written]:
    """Log how much the file keeps when the block ends early. The block counts what it writes."""
    written = Written()
    try:
        yield written
    except OSError:  # the file could not be written, and `kept_file` has dropped it
        raise
    except BaseException:
        if written.count and isinstance(out, (str, Path)):
            log.warning(f"kept {format_count(written.count, noun)} in {out}")
        raise


@contextmanager
def kept_file(out: str | Path | TextIO) -> Iterator[TextIO]:
    """A file that gets its name when it is written, or in part when that ends early with something
    in it.

    Raises:
        OSError: the file cannot be written; it is then as it was before.
    """
    if not isinstance(out, (str, Path)):
        yield out
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
            fault = error
    if fault is not None:
        raise fault
