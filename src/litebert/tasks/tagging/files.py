"""Read sentences with a tag for each word: CoNLL columns, rows of words and tags, texts with spans.

A CoNLL file has a word on each line, its tag last, and a blank line between sentences. Rows are
JSON, Parquet, or CSV with a word a row. A text with spans is a JSON object.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

from litebert.base.errors import DataError, nearest
from litebert.base.json_reader import parse_json
from litebert.tasks.tagging.scores import OUTSIDE, as_iob2
from litebert.text.lines import find_suffix
from litebert.text.records import (
    BYTE_ORDER_MARK,
    MARK_NOTE,
    Layout,
    Notes,
    Record,
    RowFile,
    RowSource,
    clean,
    format_value,
    read_header,
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
_DOCUMENT = re.compile(r"-DOCSTART-|#\s*(newdoc\b|begin document)")
_INDICES = (["0", "1"], ["1", "2"], ["1-2", "1"])
"""How the words of a sentence begin where a column counts them."""
_WORDS = ("tokens", "words", "word", "token")
_TAGS = ("ner_tags", "ner", "tags", "tag", "labels", "label", "pos_tags", "pos")
_SPANS = ("spans", "entities", "label", "labels")
_FORMS = (
    '{"tokens": ["Ana", "left"], "ner_tags": ["B-PER", "O"]}, or '
    '{"text": "Ana left", "spans": [[0, 3, "PER"]]}'
)


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
    """The raw text whose words were found; None of words that were given."""


Columns = tuple[str | None, str | None]
"""The columns of words and of tags by name, or by number from 0; None to find them."""
_Read = Iterator[tuple[Sentence, Sequence[int]]]
"""Sentences with their tags as the file has them, and the line or row of each word."""


def make_sentence(words: Sequence[str], tags: Sequence[str] | None = None) -> Sentence:
    """Make a sentence of words that no CoNLL file has, each on a line of its own."""
    rows = [words] if tags is None else [words, tags]
    lines = ["\t".join(" ".join(cell.splitlines()) for cell in row) for row in zip(*rows)]  # noqa: B905
    tags = None if tags is None else tuple(tags)
    return Sentence(tuple(words), tags, (*lines, ""), tuple(range(len(lines))))


def cut_text(text: str) -> Sentence:
    return make_sentence([text[a:b] for a, b in find_words(text)])._replace(text=text)


def split_cells(line: str) -> list[str]:
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
    """Read the sentences of a file, with IOB2 tags; `plain` tags mark no entities.

    The suffix tells the form of a path; a `RowFile` has CoNLL columns. With `tagged` every word
    must have a tag.
    """
    suffix = "" if isinstance(path, RowFile) else find_suffix(path)
    if suffix in (".ann", ".spacy"):
        raise DataError(f"{path} is no form that is read; write a JSON line of each text: {_FORMS}")
    if suffix in (".json", ".jsonl", ".ndjson", ".parquet"):
        rows = _read_objects(path, suffix, columns, notes, encoding)
        sentences = _read_rows(path, rows, columns, notes)
    elif suffix in (".csv", ".tsv") and (header := _read_csv_header(path, suffix, encoding)):
        rows = _read_csv(path, header, columns, notes, encoding)
        sentences = _read_rows(path, rows, (None, None), notes)
    else:
        sentences = _read_conll(path, notes, plain, encoding, columns)
    begin_with_i = begin_with_b = 0  # entities
    sentence = None
    for sentence, numbers in sentences:
        if sentence.tags is None:
            if tagged:
                raise DataError(f"{path}:{numbers[0]} has no tag; write a tag after the word")
            yield sentence
            continue
        tag_before, tags = OUTSIDE, list[str]()
        for tag, number in zip(sentence.tags, numbers, strict=True):
            if not tag:
                raise DataError(f"{path}:{number} has an empty tag; write a tag after the word")
            if not plain:
                if not _ANY_TAG.fullmatch(tag):
                    remedy = "write O, B-TYPE or I-TYPE"
                    raise DataError(f"{path}:{number} has the tag {format_value(tag)}; {remedy}")
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
    if begin_with_i:
        scheme = "against IOB2" if begin_with_b else "(IOB1)"
        notes[f"entities begin with I- {scheme} and were read as beginning with B- (IOB2)"] += (
            begin_with_i
        )


def survey(sentences: Iterable[Sentence], name: str) -> tuple[bool, tuple[str, ...]]:
    """Return True if no tag marks an entity, and the labels of sentences: O, then B- and I- of each
    type, sorted; or else the tags, the commonest first.
    """
    words, tags = set[str](), Counter[str]()
    for sentence in sentences:
        words.update(sentence.words)
        tags.update(sentence.tags or ())
    if all(map(_ANY_TAG.fullmatch, tags)) or any(tag[:2] in ("B-", "I-") for tag in tags):
        types = {tag[2:] for tag in tags if tag != OUTSIDE}
        return False, (OUTSIDE, *sorted(f"{first}-{each}" for first in "BI" for each in types))
    if words != {OUTSIDE} and all(map(_ANY_TAG.fullmatch, words)):
        remedy = "name the columns, numbered from 0: --word-column 1 --tag-column 0"
        raise DataError(f"the first column of {name} holds tags; {remedy}")
    return True, tuple(sorted(tags, key=lambda tag: (-tags[tag], tag)))


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
    names, place = [*map(str, range(columns))], f"{path}:{first}"
    wanted = wanted if columns > 1 else (None, None)
    word = int(_find_column(names, wanted[0], "0", place) or 0)
    tag = int(_find_column(names, wanted[1], names[-1:], place) or 0)
    is_tagged, is_checked = word != tag, wanted[0] is not None or columns == 1
    lines: list[str] = []
    words: dict[int, tuple[int, str, str]] = {}  # number, word and tag by the index of its line
    document = document_of_sentence = None

    def finish() -> tuple[Sentence, Sequence[int]]:
        numbers, texts, tags = zip(*words.values(), strict=True)
        known = tags if is_tagged else None
        return Sentence(texts, known, tuple(lines), tuple(words), document_of_sentence), numbers

    for number, line in chain(head, numbered_lines):
        if BYTE_ORDER_MARK in line:
            notes[MARK_NOTE] += line.count(BYTE_ORDER_MARK)
            line = line.replace(BYTE_ORDER_MARK, "")
        cells = split_cells(line)
        is_comment = line.startswith("#") and len(lines) - 1 not in words
        if is_comment and len(cells) == columns and not _COMMENT.match(line):
            is_comment = is_tagged and not plain and not _ANY_TAG.fullmatch(cells[tag])
        if is_comment:
            notes["comment lines were skipped"] += 1
        if not cells or is_comment or cells[0] == DOCUMENT:
            document = (str(path), number) if _DOCUMENT.match(line) else document
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
        if not is_checked and len(words) == 2:
            is_checked = True
            if [text for _, text, _ in words.values()] in _INDICES:
                remedy = "--word-column 1 --tag-column 2 (--text-column 1 of a trained model)"
                raise DataError(
                    f"the first column of {path} counts the words of a sentence; name the columns, "
                    f"numbered from 0: {remedy}"
                )
    if words:
        yield finish()


def _find_column(
    names: Sequence[str], wanted: str | None, likely: Sequence[str], location: str
) -> str | None:
    """Find a column by its name or number, or the first likely one; None if there is none."""
    if wanted is None:
        spelled = {name.lower(): name for name in names}
        return next((spelled[name] for name in likely if name in spelled), None)
    if wanted not in names and not (wanted.isdecimal() and int(wanted) < len(names)):
        raise DataError(f"{location} has no column '{wanted}'; {nearest(wanted, names)}")
    return wanted if wanted in names else names[int(wanted)]


def _read_csv_header(path: RowSource, suffix: str, encoding: str) -> list[str]:
    """Return the columns of CSV; none of CoNLL columns, which have tabs or spaces between them."""
    names, delimiter = read_header(path, ("Sentence #", "Word", "Tag"), encoding)
    plain = [name.lower() for name in names]
    has_words = any(map(plain.count, _WORDS))
    is_table = has_words and any(name.startswith("sentence") for name in plain)
    is_csv = suffix == ".csv" and len(names) > 1
    is_csv = is_csv and (delimiter == "," or (has_words and delimiter != "\t"))
    return names if is_table or is_csv else []


def _read_csv(
    path: RowSource, names: Sequence[str], wanted: Columns, notes: Notes, encoding: str
) -> Iterator[tuple[int, Any]]:
    """Read CSV with a word a row, where a column names the sentence of each row or of the first."""
    header = f"the first line of {path}"
    word = _find_column(names, wanted[0], _WORDS, header)
    tag = _find_column(names, wanted[1], _TAGS, header)
    sentence = next((name for name in names if name.lower().startswith("sentence")), None)
    if word is None or tag is None or sentence is None:
        raise DataError(f"{header} lacks one of the columns Sentence #, Word and Tag; add it")
    rows = read_records(path, (word, tag, sentence), notes, layout=Layout("csv", encoding=encoding))
    begun = ""

    def name_sentence(row: Record) -> str:
        nonlocal begun
        begun = row.values[2] or begun
        return begun

    for _, group in groupby(rows, name_sentence):
        words = list(group)
        tokens, tags = ([row.values[i] for row in words] for i in (0, 1))
        yield words[0].line, {"tokens": tokens, "ner_tags": tags}


def _read_objects(
    path: RowSource, suffix: str, wanted: Columns, notes: Notes, encoding: str
) -> Iterator[tuple[int, Any]]:
    if suffix == ".json":
        try:
            value = parse_json("\n".join(line for _, line in read_lines(path, Notes(), encoding)))
            value = value.get("data", value) if isinstance(value, dict) else value
            yield from enumerate(value if isinstance(value, list) else [value], 1)
            return
        except ValueError:  # JSON Lines, or damaged
            pass
    known = (*wanted, *_WORDS, *_TAGS, *_SPANS, "text", "data", "annotations", "answer")
    names = [name for name in dict.fromkeys(known) if name is not None]
    layout = Layout("parquet" if suffix == ".parquet" else "jsonl", encoding=encoding)
    rows = read_records(path, (), notes, optional=names, layout=layout)
    for number, cells, _ in rows:
        yield number, {n: cell for n, cell in zip(names, cells, strict=True) if cell is not None}


def _read_rows(
    path: RowSource, rows: Iterable[tuple[int, Any]], columns: Columns, notes: Notes
) -> _Read:
    for number, row in rows:
        location = f"{path}:{number}"
        if isinstance(row, list) and len(row) == 2 and isinstance(row[1], dict):  # spaCy
            row = {"text": row[0], **row[1]}
        if not isinstance(row, dict):
            raise DataError(f"{location} is not a JSON object; write {_FORMS}")
        if row.get("answer") in ("reject", "ignore"):
            notes["rows whose answer is reject or ignore were skipped"] += 1
            continue
        words = row.get(_find_column(list(row), columns[0], _WORDS, location))
        if not isinstance(words, list) or not all(isinstance(each, str) for each in words):
            words, tags = _tag_spans(row, notes, location)
        elif tag := _find_column(list(row), columns[1], _TAGS, location):
            tags = row[tag]
            if not isinstance(tags, list) or len(tags) != len(words):
                fault = f"has {len(words)} words, and '{tag}' is {format_value(tags)}"
                raise DataError(f"{location} {fault}; write a tag for each word")
            if nameless := [each for each in tags if not isinstance(each, str)]:
                raise DataError(
                    f"{location}: '{tag}' holds {format_value(nameless[0])}, which has no name; "
                    "write the tags as text, or Parquet with the names of a ClassLabel"
                )
        else:
            tags = None
        if words:
            yield make_sentence(clean(words, notes), clean(tags, notes)), [number] * len(words)
        else:
            notes["rows without words were skipped"] += 1


def _tag_spans(row: Mapping[str, Any], notes: Notes, location: str) -> tuple[list[str], list[str]]:
    """Cut the text of a row of doccano, Prodigy, spaCy or Label Studio into words, and tag them."""
    data, text = row.get("data"), row.get("text")
    name = next((name for name in _SPANS if isinstance(row.get(name), list)), "")
    spans, text = row.get(name), data if text is None else text
    if isinstance(data, dict):  # Label Studio
        text = data.get("text") or next((v for v in data.values() if isinstance(v, str)), None)
        try:
            made = [each for each in row["annotations"] if not each.get("was_cancelled")]
            spans = [each["value"] for each in made[0]["result"]] if made else []
            spans = [span for span in spans if "start" in span]
        except (AttributeError, KeyError, TypeError):
            spans = None
    if not isinstance(text, str) or not isinstance(spans, list):
        raise DataError(f"{location} has no list of words, and no text with spans; write {_FORMS}")
    offsets, parts = find_words(text), list[tuple[int, int, str]]()
    for span in spans:
        names = (("start", "start_offset"), ("end", "end_offset"), ("label", "labels", "type"))
        start, end, label = (
            [next((span[name] for name in some if name in span), None) for some in names]
            if isinstance(span, dict)
            else [*(span if isinstance(span, list) else []), None, None, None][:3]
        )
        label = label[0] if isinstance(label, list) and label else label
        if (
            not (isinstance(start, int) and isinstance(end, int) and isinstance(label, str))
            or not 0 <= start < end <= len(text)
            or not label
        ):
            raise DataError(
                f"{location} has the span {format_value(span)} in a text of {len(text)} "
                "characters; give the first, the one after the last, and a label"
            )
        parts.append((start, end, label))
    tags = [OUTSIDE] * len(offsets)
    for start, end, label in sorted(parts, key=lambda part: (part[0] - part[1], part)):
        inside = [i for i, (a, b) in enumerate(offsets) if a < end and b > start]
        if not inside or any(tags[i] != OUTSIDE for i in inside):
            notes["spans without words, or within longer ones, were left out"] += 1
            continue
        if offsets[inside[0]][0] < start or offsets[inside[-1]][1] > end:
            notes["spans that begin or end inside a word were widened"] += 1
        tags[inside[0] : inside[-1] + 1] = [f"B-{label}", *[f"I-{label}"] * (len(inside) - 1)]
    return [text[a:b] for a, b in offsets], tags
