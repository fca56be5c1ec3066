"""Read sentences in CoNLL columns: a word on each line, its tag last, a blank line between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from litebert.errors import DataError
from litebert.tasks.tagging.scores import OUTSIDE, as_iob2
from litebert.text.records import (
    BYTE_ORDER_MARK,
    MARK_NOTE,
    Notes,
    RowSource,
    format_value,
    read_lines,
)

DOCUMENT = "-DOCSTART-"
TAG = re.compile(r"O|[BI]-.+")


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


def split_cells(line: str) -> list[str]:
    """Return the cells of a line, between tabs or spaces."""
    line = line.rstrip(" \t")
    return line.split("\t") if "\t" in line else [cell for cell in line.split(" ") if cell]


def read_sentences(
    path: RowSource, notes: Notes, tagged: bool, *, plain: bool = False, encoding: str = "utf-8"
) -> Iterator[Sentence]:
    """Read the sentences of a CoNLL file, with IOB2 tags.

    Args:
        tagged: True if every word must have a tag.
        plain: True if tags mark no entities, as those of parts of speech.

    Raises:
        DataError: a line is malformed, or the file has no words; the message names the line.
    """
    sentence_lines: list[str] = []
    words: dict[int, list[str]] = {}  # the cells of each word by the index of its line
    columns = first = 0
    begin_with_i = begin_with_b = 0  # entities
    tag_before = OUTSIDE
    for number, line in read_lines(path, notes, encoding):
        if BYTE_ORDER_MARK in line:
            notes[MARK_NOTE] += line.count(BYTE_ORDER_MARK)
            line = line.replace(BYTE_ORDER_MARK, "")
        cells = split_cells(line)
        if not cells or cells[0] == DOCUMENT:
            sentence_lines.append(line)
            continue
        # The sentence ended if the last line was no word.
        if words and len(sentence_lines) - 1 not in words:
            yield _make_sentence(sentence_lines, words, columns, plain)
            sentence_lines, words, tag_before = [], {}, OUTSIDE
        if not first:
            columns, first = len(cells), number
        _check(cells, columns, first, tagged, plain, f"{path}:{number}")
        if columns > 1 and not plain:
            tag = cells[-1]
            if tag != OUTSIDE and tag[2:] != tag_before[2:]:
                begin_with_i += tag[0] == "I"
                begin_with_b += tag[0] == "B"
            tag_before = tag
        words[len(sentence_lines)] = cells
        sentence_lines.append(line)
    if not first:
        raise DataError(f"{path} holds no words; write a word on each line, with its tag after it")
    yield _make_sentence(sentence_lines, words, columns, plain)
    if begin_with_i and not begin_with_b:
        iob1 = "entities begin with I- (IOB1) and were read as beginning with B- (IOB2)"
        notes[iob1] += begin_with_i
    elif begin_with_i:
        mixed = "entities begin with I- against IOB2 and were read as beginning with B-"
        notes[mixed] += begin_with_i


def _make_sentence(
    sentence_lines: Sequence[str], words: Mapping[int, Sequence[str]], columns: int, plain: bool
) -> Sentence:
    """Make a sentence from its lines, and the cells of its words by the index of their line."""
    tags = tuple(cells[-1] for cells in words.values()) if columns > 1 else None
    if tags is not None and not plain:
        tags = as_iob2(tags)
    texts = tuple(cells[0] for cells in words.values())
    return Sentence(texts, tags, tuple(sentence_lines), tuple(words))


def has_entities(paths: Sequence[Path], encoding: str = "utf-8") -> bool:
    """Return True if a tag begins with B- or I-, or if all tags are O."""
    tags = {
        tag
        for path in paths
        for sentence in read_sentences(path, Notes(), True, plain=True, encoding=encoding)
        for tag in sentence.tags or ()
    }
    return tags <= {OUTSIDE} or any(tag.startswith(("B-", "I-")) for tag in tags)


def _check(
    cells: list[str], columns: int, first: int, tagged: bool, plain: bool, location: str
) -> None:
    """Refuse the cells of a malformed line.

    Args:
        columns: the number of columns of line `first`, which all lines must have.
    """
    if len(cells) != columns:
        raise DataError(
            f"{location} has {len(cells)} columns where line {first} has {columns}; write a "
            "word, then its tag last, between tabs or spaces"
        )
    if columns == 1 and tagged:
        raise DataError(f"{location} has no tag; write a word, then a tab or a space, then its tag")
    if not cells[0]:
        raise DataError(f"{location} has a tag and no word; write the word before it")
    if columns > 1 and not plain and not TAG.fullmatch(cells[-1]):
        raise DataError(
            f"{location} has the tag {format_value(cells[-1])}; write O, B-TYPE or I-TYPE"
        )
    if columns > 1 and not cells[-1]:
        raise DataError(f"{location} has an empty tag; write a tag after the word")
