"""Which columns of a file hold the texts and the labels, where nobody says it."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.base.errors import DataError
from litebert.tasks.label_cells import is_blank
from litebert.text.lines import Meter, read_blocks
from litebert.text.records import JOINT, Layout, detect_format, find_parts, read_sample

_SAMPLE = 2000
_TEXT_NAMES = (
    "text", "sentence", "review", "message", "content", "body", "comment", "document", "abstract",
    "tweet", "question", "utterance", "query", "description", "title", "subject", "texte", "texto",
    "nachricht",
)  # fmt: skip
_LABEL_NAMES = (
    "label", "labels", "class", "category", "categories", "target", "sentiment", "topic", "tag",
    "tags", "intent", "type", "rating", "stars", "score", "y", "team", "queue", "department",
    "kategorie", "klasse", "categoria",
)  # fmt: skip
TITLE_NAMES = ("subject", "title", "headline", "summary", "betreff", "titel")
"""A title is read before its text."""
_PAIRS = (
    ("sentence1", "sentence2"), ("text1", "text2"), ("premise", "hypothesis"), ("text_a", "text_b"),
    ("question1", "question2"), ("text", "pair"), ("query", "document"), ("question", "sentence"),
)  # fmt: skip
GUESS = "guess"
"""The column of rows to label that has the model's answer, which is never read."""
_LONG = 40
"""Characters of a cell that no header has."""
_TELLING = 15
"""Mean characters of a column, above which it may tell what the texts do not."""
_MOST_CLASSES = 0.5
"""Share of the rows that have a label of their own, above which a column holds no labels."""


@dataclass(frozen=True)
class Columns:
    """What `fit` takes a file for."""

    text: str
    label: tuple[str, ...]
    pair: str | None = None
    header: bool = True
    encoding: str = "utf-8"
    parts: tuple[str, ...] = ()
    """The columns that `text` joins, if it is not one."""
    unread: tuple[str, ...] = ()
    """Other columns that look like texts."""

    def options(self) -> dict[str, Any]:
        """As `open_task` takes them."""
        chosen = {"text_column": self.text, "label_column": self.label, "header": self.header}
        return {**chosen, "encoding": self.encoding, "pair_column": self.pair}


def find_columns(
    file: Path,
    text: str | None = None,
    label: Sequence[str] = (),
    pair: str | None = None,
    *,
    header: bool = True,
    encoding: str | None = None,
    delimiter: str | None = None,
    need_label: bool = True,
) -> Columns:
    """Find the columns that are not named: by their names, else by their contents: texts are the
    longest cells, and labels few different ones.

    Raises:
        DataError: no column looks like texts, or like labels.
    """
    form = detect_format(file)
    encoding = encoding or (find_encoding(file) if form not in ("parquet", "xlsx") else "utf-8")
    layout = Layout(header=header, encoding=encoding, delimiter=delimiter)
    names, rows = read_sample(file, _SAMPLE, layout)
    if not rows:
        raise DataError(f"{file} holds no rows; give a file with texts and their labels")
    if header and form in ("csv", "tsv") and _is_row(names, rows, (text, pair, *label)):
        rows, names, header = [tuple(names), *rows], [*map(str, range(len(names)))], False
    cells = dict(zip(names, zip(*rows, strict=True), strict=True))
    lowered = {name.lower(): name for name in reversed(names)}
    if text is None and pair is None:
        for one, two in _PAIRS:
            if one in lowered and two in lowered and not {lowered[one], lowered[two]} & {*label}:
                text, pair = lowered[one], lowered[two]
                break
    taken = {part for name in (text, pair) if name for part in find_parts(name, names)}
    free = [name for name in names if name not in (*taken, *label, GUESS)]
    unnamed = text is None and pair is None
    if text is None:
        lengths = {name: _measure(cells[name]) for name in free}
        named = [lowered[name] for name in _TEXT_NAMES if lowered.get(name) in lengths]
        long = [name for name in free if lengths[name] > 0]
        best = max(long, key=lambda name: lengths[name], default=None)
        if best is not None and best.lower() not in TITLE_NAMES:
            named = [name for name in named if name.lower() not in TITLE_NAMES]
        # A name is believed unless another column has texts ten times as long.
        if best is not None:
            text = next((name for name in named if lengths[name] * 10 >= lengths[best]), best)
            if named and lengths[text] < 1:  # no column has sentences, so a name says more
                text = named[0]
        if text is None:
            raise DataError(
                f"{file} has no column of texts ({_list(names)}); name one with --text-column"
            )
        free.remove(text)
    if not label and need_label:
        named = [lowered[name] for name in _LABEL_NAMES if lowered.get(name) in free]
        counts = [(_count(cells[name]), -place, name) for place, name in enumerate(free)]
        fitting = [name for count, _, name in sorted(counts) if count]
        label = tuple(named[:1] or fitting[:1])
        if not label:
            raise DataError(
                f"{file} has no column that looks like labels ({_list(names)}); name it with "
                "--label-column, or give --labels to begin without labels"
            )
    free = [name for name in free if name not in label]
    if unnamed and text.lower() not in TITLE_NAMES:
        # Single words are a category, which may say the label. Many rows may have no title.
        titles = {
            name: _measure([cell for cell in cells[name] if not is_blank(cell)])
            for name in free
            if name.lower() in TITLE_NAMES
        }
        title = max(titles, key=lambda name: titles[name], default=None)
        if title is not None and titles[title] > 1:
            free.remove(title)
            text = f"{title}{JOINT}{text}"
    unread = [] if pair else [name for name in free if _measure(cells[name]) > _TELLING]
    parts = find_parts(text, names)
    return Columns(text, tuple(label), pair, header, encoding, parts, tuple(unread))


def find_encoding(file: Path) -> str:
    """UTF-8, or what a mark says, or else the Windows code page that nothing can contradict."""
    decoder, begins = codecs.getincrementaldecoder("utf-8")(), True
    try:
        for block in read_blocks(file, Meter()):
            if begins and block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                return "utf-16"
            decoder.decode(block)
            begins = False
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _is_row(names: Sequence[str], rows: Sequence[tuple[Any, ...]], asked: Iterable[Any]) -> bool:
    """True if the first line is no header: it has a long cell, or some words beside a number or a
    cell that stands below it, and no name that is known."""
    if any(asked) or {name.lower() for name in names} & {*_TEXT_NAMES, *_LABEL_NAMES}:
        return False
    if any(len(name) > _LONG and " " in name for name in names):
        return True
    if not any(" " in name or not name.isascii() for name in names):  # as in `sms,spam` or `0,1`
        return False
    columns = zip(names, zip(*rows, strict=True), strict=True)
    return any(name in column or re.fullmatch(r"-?\d+", name) for name, column in columns)


def _measure(column: Sequence[Any]) -> float:
    """The mean characters of a column's texts; 0 of numbers, and of one and the same text. Single
    words such as ids and addresses measure next to nothing."""
    texts = [cell for cell in column if isinstance(cell, str) and not is_blank(cell)]
    if 2 * len(texts) < len(column) or (len({*texts}) < 2 < len(texts)):
        return 0.0
    if sum(re.fullmatch(r"[-+.,\d\s%:/]*", cell) is not None for cell in texts) > len(texts) / 2:
        return 0.0
    codes = sum(re.fullmatch(r"[!-~]*", cell) is not None for cell in texts) > len(texts) / 2
    return sum(map(len, texts)) / len(texts) / (1000 if codes else 1)


def _count(column: Sequence[Any]) -> int:
    """The different labels of a column; 0 where it holds none."""
    values = [str(cell) for cell in column if not is_blank(cell)]
    different = len({*values})
    few = 1 < different <= max(2, _MOST_CLASSES * len(values))
    return different if few and max(map(len, values)) <= 2 * _LONG else 0


def _list(names: Sequence[str]) -> str:
    return "its columns are " + ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
