"""Read sentences with a tag for each word: CoNLL columns, rows of words and tags, and texts with
spans.

A CoNLL file has a word on each line, its tag last, and a blank line between sentences. Rows are
JSON, Parquet, or CSV with a word a row. A text with spans is a JSON object or a file of brat; its
words are those of `find_words`.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from litebert.errors import DataError
from litebert.json_reader import parse_json
from litebert.tasks.tagging.scores import OUTSIDE, as_iob2
from litebert.text.lines import Meter, decode_blocks, find_suffix, read_blocks
from litebert.text.records import (
    BYTE_ORDER_MARK,
    MARK_NOTE,
    Notes,
    RowFile,
    RowSource,
    clean,
    describe_json_error,
    format_value,
    read_lines,
    read_records,
)
from litebert.tokenizer.words import find_words

DOCUMENT = "-DOCSTART-"
TAG = re.compile(r"O|[BI]-.+")
_ANY_TAG = re.compile(r"O|[BIELMSU]-.+")
_BIO = {"E": "I", "L": "I", "M": "I", "S": "B", "U": "B"}
"""The prefixes of IOBES, BILOU and BMES, as BIO has them."""
_COMMENT = re.compile(r"#\s*(\S+ = |newdoc\b|newpar\b|begin document|end document)")
_DOCUMENT = re.compile(r"-DOCSTART-|#\s*newdoc\b|#\s*begin document")
_WORD_COLUMNS = ("tokens", "words", "word", "token")
_TAG_COLUMNS = ("ner_tags", "ner", "tags", "tag", "labels", "label", "pos_tags", "pos")
_SPAN_COLUMNS = ("spans", "entities", "label", "labels")
_JSON = (".json", ".jsonl", ".ndjson")


class Sentence(NamedTuple):
    """The words of a sentence, and its lines."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    """A tag for each word, IOB2 if they mark entities; None if they are not known."""
    lines: tuple[str, ...]
    """Its lines in the file, with the blank lines and document marks after them. The first sentence
    has those before it too."""
    word_lines: tuple[int, ...]
    """The index in `lines` of each word's line."""
    document: tuple[str, int] | None = None
    """Its document: the file, and the line where it begins; None where the file tells none."""
    text: str | None = None
    """The raw text; None of a list of words."""
    offsets: tuple[tuple[int, int], ...] = ()
    """The characters of each word in the raw text."""


Columns = tuple[str | None, str | None]
"""The columns of words and of tags by name, or by number from 0; None to find them."""


def make_sentence(
    words: Sequence[str],
    tags: Sequence[str] | None = None,
    document: tuple[str, int] | None = None,
) -> Sentence:
    """Make a sentence of words that no CoNLL file has, each on a line of its own."""
    rows = [words] if tags is None else [words, tags]
    lines = [
        "\t".join(" ".join(cell.splitlines()) for cell in row) for row in zip(*rows, strict=True)
    ]
    places = tuple(range(len(lines)))
    return Sentence(
        tuple(words), None if tags is None else tuple(tags), (*lines, ""), places, document
    )


def cut_text(text: str) -> Sentence:
    """Make a sentence of a raw text."""
    offsets = tuple(find_words(text))
    words = tuple(text[start:end] for start, end in offsets)
    return make_sentence(words)._replace(text=text, offsets=offsets)


def split_cells(line: str) -> list[str]:
    """Return the cells of a line, between tabs or spaces."""
    line = line.rstrip(" \t")
    return line.split("\t") if "\t" in line else [cell for cell in line.split(" ") if cell]


def read_sentences(
    path: RowSource,
    notes: Notes,
    tagged: bool,
    *,
    plain: bool = False,
    encoding: str = "utf-8",
    columns: Columns = (None, None),
) -> Iterator[Sentence]:
    """Read the sentences of a file, with IOB2 tags.

    Args:
        path: a path, whose suffix tells the form; or a `RowFile` of CoNLL columns.
        tagged: True if every word must have a tag.
        plain: True if tags mark no entities, as those of parts of speech.

    Raises:
        DataError: a line is malformed, or the file has no words; the message names the line.
    """
    suffix = "" if isinstance(path, RowFile) else find_suffix(path)
    if suffix == ".spacy":
        raise DataError(
            f"{path} is in spaCy's binary form; write a JSON line for each text instead"
        )
    if suffix == ".ann":
        sentences = _read_brat(Path(str(path)), notes, encoding)
    elif suffix in (*_JSON, ".parquet"):
        read = _read_parquet if suffix == ".parquet" else _read_json
        sentences = _read_rows(str(path), read(str(path), notes, encoding, columns), columns, notes)
    elif suffix == ".csv" and len(header := _read_header(path, encoding)) > 1:
        sentences = _read_word_rows(path, header, columns, notes, encoding)
    else:
        sentences = _read_conll(path, notes, plain, encoding, columns)
    begin_with_i = begin_with_b = 0  # entities
    sentence = None
    for sentence, numbers in sentences:
        if sentence.tags is None:
            if tagged:
                raise DataError(
                    f"{path}:{numbers[0]} has no tag; write a tag for each word, in CoNLL columns "
                    "after a tab or a space"
                )
            yield sentence
            continue
        tag_before, tags = OUTSIDE, list[str]()
        for tag, number in zip(sentence.tags, numbers, strict=True):
            if not tag:
                raise DataError(f"{path}:{number} has an empty tag; write a tag after the word")
            if not plain:
                if not _ANY_TAG.fullmatch(tag):
                    raise DataError(
                        f"{path}:{number} has the tag {format_value(tag)}; write O, B-TYPE or "
                        "I-TYPE"
                    )
                if tag[0] in _BIO:
                    notes["tags of IOBES or BILOU were read as B- and I-"] += 1
                    tag = _BIO[tag[0]] + tag[1:]
                if tag != OUTSIDE and tag[2:] != tag_before[2:]:
                    begin_with_i += tag[0] == "I"
                    begin_with_b += tag[0] == "B"
                tag_before = tag
            tags.append(tag)
        yield sentence._replace(tags=tuple(tags) if plain else as_iob2(tags))
    if sentence is None:
        raise DataError(f"{path} holds no words; write a word on each line, with its tag after it")
    if begin_with_i and not begin_with_b:
        iob1 = "entities begin with I- (IOB1) and were read as beginning with B- (IOB2)"
        notes[iob1] += begin_with_i
    elif begin_with_i:
        mixed = "entities begin with I- against IOB2 and were read as beginning with B-"
        notes[mixed] += begin_with_i


def has_entities(sentences: Sequence[Sentence], name: str) -> bool:
    """Return True if a tag begins with B- or I-, or if all tags could mark entities.

    Raises:
        DataError: the words look like tags, and the tags do not.
    """
    words, tags = set[str](), set[str]()
    for sentence in sentences:
        words.update(sentence.words)
        tags.update(sentence.tags or ())
    found = all(map(_ANY_TAG.fullmatch, tags)) or any(tag[:2] in ("B-", "I-") for tag in tags)
    if not found and words != {OUTSIDE} and all(map(_ANY_TAG.fullmatch, words)):
        raise DataError(
            f"the first column of {name} holds tags; name the columns, numbered from 0: "
            "--word-column 1 --tag-column 0"
        )
    return found


# -------------------------------------------------------------------------------------------- CoNLL

_Read = Iterator[tuple[Sentence, Sequence[int]]]
"""Sentences with their tags as the file has them, and the line of each word."""


def _read_conll(
    path: RowSource, notes: Notes, plain: bool, encoding: str, wanted: Columns
) -> _Read:
    numbered_lines = read_lines(path, notes, encoding)
    head: list[tuple[int, str]] = []
    for number, line in numbered_lines:
        head.append((number, line))
        if line.startswith("#FORMAT=WebAnno"):
            raise DataError(f"{path} is WebAnno TSV, with several layers; export it as CoNLL 2002")
        if split_cells(line) and not line.startswith(("#", DOCUMENT)):
            break
    # A line that no comment can be tells the number of columns, but a file may hold hashtags alone.
    with_words = [entry for entry in head if split_cells(entry[1].replace(DOCUMENT, "", 1))]
    if not with_words:
        return
    first, line = with_words[-1]
    columns = len(split_cells(line))
    word, tag = _number_columns(wanted, columns, f"{path}:{first}")
    is_tagged = word != tag
    lines: list[str] = []
    words: dict[int, tuple[int, str, str]] = {}  # number, word and tag by the index of its line
    document = document_of_sentence = None
    is_checked = wanted[0] is not None or columns == 1

    def finish() -> tuple[Sentence, list[int]]:
        nonlocal is_checked
        numbers, texts, tags = zip(*words.values(), strict=True)
        if not is_checked and len(texts) > 1:
            is_checked = True
            if _is_index(texts):
                raise DataError(
                    f"the first column of {path} counts the words of each sentence; name the "
                    "columns, numbered from 0, such as --word-column 1 --tag-column 2 (in predict "
                    "--text-column 1)"
                )
        known = tags if is_tagged else None
        return Sentence(texts, known, tuple(lines), tuple(words), document_of_sentence), numbers

    for number, line in chain(head, numbered_lines):
        if BYTE_ORDER_MARK in line:
            notes[MARK_NOTE] += line.count(BYTE_ORDER_MARK)
            line = line.replace(BYTE_ORDER_MARK, "")
        cells = split_cells(line)
        is_comment = (
            line.startswith("#")
            and len(lines) - 1 not in words
            and (
                len(cells) != columns
                or _COMMENT.match(line) is not None
                or (is_tagged and not plain and not _ANY_TAG.fullmatch(cells[tag]))
            )
        )
        if is_comment:
            notes["comment lines were skipped"] += 1
        if not cells or is_comment or cells[0] == DOCUMENT:
            if _DOCUMENT.match(line):
                document = (str(path), number)
            lines.append(line)
            continue
        if words and len(lines) - 1 not in words:  # the sentence ended: the last line was no word
            yield finish()
            lines, words = [], {}
        if len(cells) != columns:
            raise DataError(
                f"{path}:{number} has {len(cells)} columns where line {first} has {columns}; write "
                "a word, then its tag last, between tabs or spaces"
            )
        if not cells[word]:
            raise DataError(f"{path}:{number} has a tag and no word; write the word before it")
        document_of_sentence = document_of_sentence if words else document
        words[len(lines)] = number, cells[word], cells[tag]
        lines.append(line)
    if words:
        yield finish()


def _number_columns(wanted: Columns, columns: int, location: str) -> tuple[int, int]:
    """Return the columns of words and tags; they are the same where there are no tags."""
    numbers = []
    for name, default in zip(wanted, (0, columns - 1), strict=True):
        if name is not None and not (name.isdecimal() and int(name) < columns):
            raise DataError(
                f"{location} has {columns} columns, numbered from 0, and none is '{name}'; give "
                "--word-column and --tag-column a number of these"
            )
        numbers.append(default if name is None else int(name))
    return numbers[0], numbers[1]


def _is_index(cells: Sequence[str]) -> bool:
    """Return True for 1, 2, 3, as CoNLL-U counts words: 2-3 stands before the words 2 and 3."""
    if not all(map(re.compile(r"\d+([-.]\d+)?").fullmatch, cells)):
        return False
    numbers = [int(re.split("[-.]", cell)[0]) for cell in cells]
    steps = {after - before for before, after in pairwise(numbers)}
    return numbers[0] < 2 and 1 in steps and steps <= {0, 1}


# --------------------------------------------------------------------------------------------- rows


def _find_column(names: Sequence[str], wanted: str | None, likely: Sequence[str]) -> str | None:
    """Find a column by its name or number, or the first likely one; None if there is none."""
    if wanted is not None:
        is_number = wanted not in names and wanted.isdecimal() and int(wanted) < len(names)
        return names[int(wanted)] if is_number else wanted if wanted in names else None
    spelled = {name.lower(): name for name in names}
    return next((spelled[name] for name in likely if name in spelled), None)


def _read_header(path: RowSource, encoding: str) -> list[str]:
    """Return the cells of the first line of a file, as CSV."""
    line = next(read_lines(path, Notes(), encoding), (1, ""))[1]
    return [cell.strip() for cell in next(csv.reader([line]), [])]


def _read_word_rows(
    path: RowSource, names: Sequence[str], wanted: Columns, notes: Notes, encoding: str
) -> _Read:
    """Read CSV with a word a row, and a column that names the sentence of a row or begins it."""
    word = _find_column(names, wanted[0], _WORD_COLUMNS)
    tag = _find_column(names, wanted[1], _TAG_COLUMNS)
    sentence = next((name for name in names if name.lower().startswith("sentence")), None)
    if word is None or sentence is None:
        missing = "words, such as Word" if word is None else "sentences, such as Sentence #"
        raise DataError(f"the first line of {path} names no column of {missing}; add it")
    rows: list[tuple[int, str, str]] = []
    name_before = ""
    columns = [word, sentence, *([] if tag is None else [tag])]
    for number, cells, _ in read_records(path, columns, notes, form="csv", encoding=encoding):
        text, name, *tags = cells
        if name and name != name_before and rows:
            yield _make_read(rows, tag is not None)
            rows = []
        name_before = name or name_before
        if not text:
            raise DataError(f"{path}:{number} has no word; write one, or leave out the row")
        rows.append((number, text, "".join(tags)))
    yield _make_read(rows, tag is not None)


def _make_read(
    rows: Sequence[tuple[int, str, str]], is_tagged: bool
) -> tuple[Sentence, Sequence[int]]:
    numbers, words, tags = zip(*rows, strict=True)
    return make_sentence(words, tags if is_tagged else None), numbers


def _read_json(
    path: str, notes: Notes, encoding: str, columns: Columns
) -> Iterator[tuple[int, Any]]:
    """Yield the objects of a JSON list, with their numbers, or of JSON Lines, with their lines."""
    lines = [entry for entry in read_lines(path, notes, encoding) if entry[1].strip()]
    number, text = lines[0] if lines else (1, "[]")
    try:
        try:
            value = parse_json(text)
        except ValueError:  # one value on several lines?
            if text.strip()[-1] == "}":
                raise
            lines, value = lines[:1], parse_json("\n".join(line for _, line in lines))
        if isinstance(value, dict) and isinstance(value.get("data"), list):
            value = value["data"]
        if len(lines) <= 1 and isinstance(value, list):
            yield from enumerate(value, 1)
            return
        yield number, value
        for number, text in lines[1:]:
            yield number, parse_json(text)
    except (ValueError, RecursionError) as error:
        fault = describe_json_error(error)
        raise DataError(
            f"{path}:{number} is not JSON ({fault}); write one whole object per line"
        ) from error


def _read_parquet(
    path: str, notes: Notes, encoding: str, columns: Columns
) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a Parquet file, with the names of tags that `datasets` numbered."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError):  # reading its rows will say what is wrong
        schema = pa.schema([])
    likely = {*_WORD_COLUMNS, *_TAG_COLUMNS, *_SPAN_COLUMNS, *columns, "text", "data"}
    present = [name for name in schema.names if name.lower() in likely or name in likely]
    tag = _find_column(present, columns[1], _TAG_COLUMNS)
    try:
        feature = json.loads(schema.metadata[b"huggingface"])["info"]["features"][tag]
        while "names" not in feature:
            feature = feature["feature"] if isinstance(feature, dict) else feature[0]
        name_of = dict(enumerate(feature["names"]))
    except (KeyError, TypeError, ValueError, IndexError):
        name_of = {}
    for number, cells, _ in read_records(path, present or ["tokens"], notes, form="parquet"):
        row = dict(zip(present, cells, strict=True))
        if tag is not None and isinstance(row[tag], list):
            row[tag] = [name_of.get(cell, cell) for cell in row[tag]]
        yield number, row


def _read_rows(path: str, rows: Iterator[tuple[int, Any]], columns: Columns, notes: Notes) -> _Read:
    """Read rows that hold a list of words, or a text with spans."""
    for number, row in rows:
        location = f"{path}:{number}"
        if isinstance(row, list) and len(row) == 2 and isinstance(row[1], dict):  # spaCy
            row = {"text": row[0], **row[1]}
        if not isinstance(row, dict):
            raise DataError(f"{location} is not a JSON object; write {_FORMS}")
        if row.get("answer") in ("reject", "ignore"):
            notes["rows whose answer is reject or ignore were skipped"] += 1
            continue
        word = _find_column(list(row), columns[0], _WORD_COLUMNS)
        words = row.get(word)
        if isinstance(words, list) and all(isinstance(each, str) for each in words):
            tag = _find_column(list(row), columns[1], _TAG_COLUMNS)
            tags = None if tag is None else row[tag]
            if tags is not None:
                if not isinstance(tags, list) or len(tags) != len(words):
                    count = len(tags) if isinstance(tags, list) else format_value(tags)
                    raise DataError(
                        f"{location} has {len(words)} words and '{tag}' {count}; write a tag for "
                        "each word"
                    )
                for each in tags:
                    if not isinstance(each, str):
                        raise DataError(
                            f"{location}: '{tag}' holds {format_value(each)}, which has no name; "
                            "write the tags as text, or Parquet with the names of a ClassLabel"
                        )
            if words:
                words, tags = clean(words, notes), clean(tags, notes)
                yield make_sentence(words, tags), [number] * len(words)
            else:
                notes["rows without words were skipped"] += 1
            continue
        text, spans = _find_spans(row)
        if not isinstance(text, str) or not isinstance(spans, list):
            raise DataError(
                f"{location} has no list of words and no text with spans; write {_FORMS}"
            )
        yield from _tag_spans(
            text, [_parse_span(each, location) for each in spans], notes, location
        )


_FORMS = (
    '{"tokens": ["Ana", "left"], "ner_tags": ["B-PER", "O"]}, or '
    '{"text": "Ana left", "spans": [[0, 3, "PER"]]}'
)


def _find_spans(row: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the text and the spans of a row of doccano, Prodigy, spaCy or Label Studio."""
    text, data = row.get("text"), row.get("data")
    if isinstance(data, dict):
        text = data.get("text") or next((v for v in data.values() if isinstance(v, str)), None)
        made = [each for each in row.get("annotations") or () if not each.get("was_cancelled")]
        return text, [
            each for each in made[0]["result"] if "labels" in each["value"]
        ] if made else []
    name = next((name for name in _SPAN_COLUMNS if isinstance(row.get(name), list)), None)
    return data if text is None else text, row.get(name)


def _parse_span(span: Any, location: str) -> tuple[int, int, str]:
    """Return the first character of a span, the one after its last, and its label."""
    parts = span
    if isinstance(span, dict):
        span = span.get("value", span)
        keys = (("start", "start_offset"), ("end", "end_offset"), ("label", "labels", "type"))
        parts = [next((span[key] for key in some if key in span), None) for some in keys]
        parts[2] = parts[2][0] if isinstance(parts[2], list) and parts[2] else parts[2]
    if (
        isinstance(parts, list)
        and len(parts) >= 3
        and all(type(part) is int for part in parts[:2])
        and isinstance(parts[2], str)
        and parts[2]
    ):
        return parts[0], parts[1], parts[2]
    raise DataError(f"{location} has the span {format_value(span)}; write {_FORMS}")


def _tag_spans(
    text: str, spans: Sequence[tuple[int, int, str]], notes: Notes, location: str
) -> _Read:
    """Cut a text, which is a document, into words with tags; each line is a sentence."""
    offsets, text = find_words(text), clean(text, notes)
    tags = [OUTSIDE] * len(offsets)
    for start, end, label in sorted(spans, key=lambda span: (span[0] - span[1], span)):
        if not 0 <= start < end <= len(text):
            raise DataError(
                f"{location} has a span from {start} to {end} in a text of {len(text)} characters; "
                "count characters from 0, up to the one after the span"
            )
        inside = [i for i, (b, e) in enumerate(offsets) if b < end and e > start]
        if not inside or any(tags[i] != OUTSIDE for i in inside):
            notes["spans without words, or inside longer ones, were left out"] += 1
            continue
        if offsets[inside[0]][0] < start or offsets[inside[-1]][1] > end:
            notes["spans that begin or end inside a word were widened"] += 1
        tags[inside[0] : inside[-1] + 1] = [f"B-{label}", *[f"I-{label}"] * (len(inside) - 1)]
    path, _, line = location.rpartition(":")
    begin = 0
    for i in range(1, len(offsets) + 1):
        gap = text[offsets[i - 1][1] : offsets[i][0]] if i < len(offsets) else "\n"
        if "\n" in gap and (i == len(offsets) or tags[i][0] != "I"):
            words = [text[b:e] for b, e in offsets[begin:i]]
            yield make_sentence(words, tags[begin:i], (path, int(line))), [int(line)] * (i - begin)
            begin = i


def _read_brat(path: Path, notes: Notes, encoding: str) -> _Read:
    """Read a text beside its annotations."""
    file = path.with_suffix(".txt")
    text = "".join(decode_blocks(read_blocks(file, Meter()), str(file), encoding))
    spans = []
    for number, line in read_lines(path, notes, encoding):
        cells = line.split("\t")
        if not line.startswith("T") or len(cells) < 3:  # a relation, an event, a note
            continue
        label, *places = re.split("[ ;]", cells[1])
        if not places or not all(place.isdecimal() for place in places):
            raise DataError(f"{path}:{number} has the span {format_value(cells[1])}; write PER 0 3")
        start, end = int(places[0]), int(places[-1])
        if len(places) == 2 and text[start:end].split() != cells[2].split():
            raise DataError(
                f"{path}:{number} names {format_value(cells[2])}, but {file.name} has "
                f"{format_value(text[start:end])} from {start} to {end}; give the text that was "
                "annotated"
            )
        spans.append((start, end, label))
    yield from _tag_spans(text, spans, notes, f"{path}:1")
