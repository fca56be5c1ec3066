"""Sentences in CoNLL columns: a word on each line, its tag last, a blank line between sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from litebert.errors import DataError
from litebert.tasks.tagging.scores import OUTSIDE, as_iob2
from litebert.text.records import BYTE_ORDER_MARK, MARK_NOTE, Notes, format_value, read_lines

DOCUMENT = "-DOCSTART-"
TAG = re.compile(r"O|[BI]-.+")


class Sentence(NamedTuple):
    """The words of a sentence, and its lines."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    """One for each word, those of entities in IOB2; None where they are not known."""
    lines: tuple[str, ...]
    """As they stand in the file, with the blank lines and document marks that follow (for the first
    sentence also those before it)."""
    places: tuple[int, ...]
    """Which line each word stands on."""


def cells_of(line: str) -> list[str]:
    """The cells of a line, between tabs or spaces."""
    line = line.rstrip(" \t")
    return line.split("\t") if "\t" in line else [cell for cell in line.split(" ") if cell]


def read_sentences(
    path: str | Path, found: Notes, tagged: bool, *, plain: bool = False, encoding: str = "utf-8"
) -> Iterator[Sentence]:
    """The sentences of a CoNLL file, with IOB2 tags.

    Args:
        tagged: whether they must have tags.
        plain: whether every tag stands for itself, as a part of speech does, and none for a piece
            of an entity.
    """
    kept: list[str] = []  # the lines of a sentence
    words: dict[int, list[str]] = {}  # the cells of its words by the place of their line
    columns = first = inside = begun = (
        0  # counts of entities that begin with I-, and of those that begin with B-
    )
    before = OUTSIDE

    def sentence() -> Sentence:
        tags = tuple(cells[-1] for cells in words.values()) if columns > 1 else None
        tags = tags if plain or tags is None else as_iob2(tags)
        return Sentence(
            tuple(cells[0] for cells in words.values()), tags, tuple(kept), tuple(words)
        )

    for number, line in read_lines(path, found, encoding):
        if BYTE_ORDER_MARK in line:
            found[MARK_NOTE] += line.count(BYTE_ORDER_MARK)
            line = line.replace(BYTE_ORDER_MARK, "")
        cells = cells_of(line)
        if not cells or cells[0] == DOCUMENT:
            kept.append(line)
            continue
        if words and len(kept) - 1 not in words:  # another line came after them
            yield sentence()
            kept, words, before = [], {}, OUTSIDE
        if not first:
            columns, first = len(cells), number
        _check(cells, columns, first, tagged, plain, f"{path}:{number}")
        if columns > 1 and not plain:
            tag = cells[-1]
            if tag != OUTSIDE and tag[2:] != before[2:]:
                inside += tag[0] == "I"
                begun += tag[0] == "B"
            before = tag
        words[len(kept)] = cells
        kept.append(line)
    if not first:
        raise DataError(f"{path} holds no words; write one on each line, with its tag after it")
    yield sentence()
    if inside and not begun:
        found["entities begin with I- (IOB1) and were read as beginning with B- (IOB2)"] += inside
    elif inside:
        found["entities begin with I- against IOB2 and were read as beginning with B-"] += inside


def has_entities(paths: Sequence[Path], encoding: str = "utf-8") -> bool:
    """Whether any tag begins with B- or I-, or all are O; else they are parts of speech, say."""
    tags = {
        tag
        for path in paths
        for one in read_sentences(path, Notes(), True, plain=True, encoding=encoding)
        for tag in one.tags or ()
    }
    return tags <= {OUTSIDE} or any(tag.startswith(("B-", "I-")) for tag in tags)


def _check(
    cells: list[str], columns: int, first: int, tagged: bool, plain: bool, where: str
) -> None:
    if len(cells) != columns:
        raise DataError(
            f"{where} has {len(cells)} columns where line {first} has {columns}; write a "
            "word, then its tag last, "
            "between tabs or spaces"
        )
    if columns == 1 and tagged:
        raise DataError(f"{where} has no tag; write a word, then a tab or a space, then its tag")
    if not cells[0]:
        raise DataError(f"{where} has a tag and no word; write the word before it")
    if columns > 1 and not plain and not TAG.fullmatch(cells[-1]):
        raise DataError(f"{where} has the tag {format_value(cells[-1])}; write O, B-TYPE or I-TYPE")
    if columns > 1 and not cells[-1]:
        raise DataError(f"{where} has an empty tag; write one after the word")
