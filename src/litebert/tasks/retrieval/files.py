"""Folders in the layout of BEIR (Thakur et al. 2021, arXiv:2104.08663).

    corpus.jsonl     a document on each line: `_id`, `text` and perhaps `title`
    queries.jsonl    a query on each line: `_id` and `text`
    qrels/*.tsv      a judgment on each line: `query-id`, `corpus-id` and `score`, the grade

A grade of 1 or more means that the document is relevant to the query.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.base.errors import ConfigError, DataError, nearest
from litebert.text.lines import COMPRESSIONS, find_suffix
from litebert.text.records import Layout, Notes, format_value, read_lines, read_records

log = logging.getLogger("litebert")

CORPUS, QUERIES, JUDGMENTS = "corpus.jsonl", "queries.jsonl", "qrels"
_COLUMNS = ("query-id", "corpus-id", "score")
_GRADE = re.compile(r"([+-]?[0-9]{1,3})(?:\.0+)?")
_USUAL = "test"
"""The file of judgments that is read where a folder has several."""


@dataclass(frozen=True)
class Collection:
    """Documents, queries, and which documents are relevant to which query."""

    split: str
    """The name of the file of judgments."""
    documents: Mapping[str, str]
    """The text of each document by its id, the title before the text. The ids descend, so that the
    first of documents with equal scores is that which trec_eval ranks first."""
    queries: Mapping[str, str]
    """The text of each query that has a relevant document."""
    grades: Mapping[str, Mapping[str, int]]
    """The grade of each relevant document of each query."""
    drops_equal_ids: bool
    """True if a query never finds the document of its own id, which is then itself, as in BEIR.
    False where a judgment calls such a document relevant, so that the ids are two numberings.
    """


def list_splits(folder: Path) -> dict[str, Path]:
    """List the files of judgments in a folder by their names, sorted."""
    for name in (CORPUS, QUERIES):
        _find_file(folder, name)
    qrels = folder / JUDGMENTS
    files = sorted(qrels.iterdir()) if qrels.is_dir() else []
    splits: dict[str, Path] = {}
    for file in files:
        if find_suffix(file) != ".tsv" or file.name.startswith("."):
            continue
        name = file.name[: file.name.rindex(".tsv")]
        if name in splits:
            raise DataError(f"{qrels} holds {splits[name].name} and {file.name}; leave one of them")
        splits[name] = file
    if not splits:
        raise DataError(f"{qrels} holds no .tsv file of judgments, as BEIR lays it out; add one")
    return splits


def read_collection(folder: str | Path, split: str | None = None) -> Collection:
    """Read a folder in the layout of BEIR; `split` is test, or the only file in `qrels`, by
    default.

    Judged documents that the corpus lacks count as never found; judgments of missing queries are
    left out. Both are logged.
    """
    place = Path(folder)
    splits = list_splits(place)
    if split is None:
        split = next(iter(splits)) if len(splits) == 1 else _USUAL
    if split not in splits:
        raise ConfigError(
            f"qrels is '{split}', and {place / JUDGMENTS} has {', '.join(splits)}; "
            f"{nearest(split, splits)}"
        )
    notes = Notes()
    documents = _read_texts(_find_file(place, CORPUS), notes)
    queries = _read_texts(_find_file(place, QUERIES), notes)
    file = splits[split]
    grades: dict[str, dict[str, int]] = {}
    judged: dict[tuple[str, str], int] = {}
    for location, query, document, grade in _read_judgments(file, notes):
        if query not in queries:
            notes["judgments of queries that queries.jsonl lacks were left out"] += 1
            continue
        if judged.setdefault((query, document), grade) != grade:
            raise DataError(
                f"{location} repeats the document '{document}' of the query '{query}' with another "
                "score; give one score"
            )
        if grade < 1:
            continue
        if document not in documents:
            notes["relevant documents are not in corpus.jsonl, and count as never found"] += 1
        grades.setdefault(query, {})[document] = grade
    if not any(document in documents for row in grades.values() for document in row):
        raise DataError(
            f"{file} has no relevant document that is in {CORPUS} for a query of {QUERIES}; give "
            "judgments of their ids"
        )
    equal = [name for name in grades if name in documents]
    relevant = sum(name in grades[name] for name in equal)
    if relevant:
        notes["relevant documents have the id of their query, so equal ids mean nothing here"] = (
            relevant
        )
    elif equal:
        notes["queries do not find the document of their own id, as in BEIR"] = len(equal)
    for note in notes.notes():
        log.info(f"{place}: {note}")
    return Collection(
        split,
        dict(sorted(documents.items(), reverse=True)),
        {name: queries[name] for name in grades},
        grades,
        drops_equal_ids=not relevant,
    )


def _find_file(folder: Path, name: str) -> Path:
    for suffix in ("", *COMPRESSIONS):
        if (file := folder / (name + suffix)).is_file():
            return file
    raise DataError(
        f"{folder} has no {name}; give a folder in the layout of BEIR, with {CORPUS}, {QUERIES} "
        f"and {JUDGMENTS}/*.tsv"
    )


def _read_texts(file: Path, notes: Notes) -> dict[str, str]:
    texts: dict[str, str] = {}
    rows = read_records(file, ("_id", "text"), notes, optional=("title",), layout=Layout("jsonl"))
    for line, (name, *parts), _ in rows:
        location = f"{file}:{line}"
        identity = _format_id(name, "_id", location)
        if identity in texts:
            raise DataError(f"{location} repeats the _id {format_value(name)}; give each id once")
        for part in parts:
            if part is not None and not isinstance(part, str):
                raise DataError(f"{location} holds {format_value(part)}, not text; correct it")
        text, title = parts
        texts[identity] = " ".join(part for part in (title, text) if part)
    return texts


def _read_judgments(file: Path, notes: Notes) -> Iterator[tuple[str, str, str, int]]:
    head = next((line for _, line in read_lines(str(file), Notes()) if line.strip()), None)
    if head is not None and not set(_COLUMNS) & {cell.strip() for cell in head.split("\t")}:
        raise DataError(f"{file} has no header line; begin it with {'<TAB>'.join(_COLUMNS)}")
    rows = read_records(file, _COLUMNS, notes, layout=Layout("tsv"))
    for line, (query, document, score), _ in rows:
        location = f"{file}:{line}"
        match = _GRADE.fullmatch(str(score).strip())
        if match is None:
            raise DataError(
                f"{location}: 'score' is {format_value(score)}, not a whole number of at most "
                "three digits; correct it"
            )
        names = (
            _format_id(query, _COLUMNS[0], location),
            _format_id(document, _COLUMNS[1], location),
        )
        yield location, *names, int(match[1])


def _format_id(value: Any, column: str, location: str) -> str:
    is_id = isinstance(value, (str, int)) and not isinstance(value, bool)
    if not is_id or not str(value).strip():
        raise DataError(f"{location}: '{column}' is {format_value(value)}; give an id")
    return str(value)
