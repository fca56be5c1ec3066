"""Sources of text read as documents, streamed in the order of the sources.

A source is a file, here or in a store; a folder or a pattern, whose files are read in sorted order;
`-` for standard input; or a name that `SOURCES` has a reader for: `python-docs`, `hf:NAME` for the
`datasets` library, and those that you add:

    SOURCES.add("poems", read)      the source `poems`
    SOURCES.add("wiki:", read)      every source `wiki:NAME`; the reader gets NAME
    SOURCES.add(".eml", read)       files, and folders of files, with this suffix; the reader gets
                                    the path

There `read(name: str, reading: Reading)` yields (text, position) of each document. Messages name a
document by its position, such as a line number. A document of more than `MAX_DOCUMENT` characters
is cut at line ends into several, so that memory stays constant.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from litebert.base import progress
from litebert.base.errors import DataError, MissingExtraError, nearest
from litebert.base.registry import SOURCES
from litebert.parts import Part
from litebert.remote.reading import is_file, size_of
from litebert.text import encodings, markup
from litebert.text.files import HTML_SUFFIXES, TABLES, expand, is_remote
from litebert.text.lines import (
    STANDARD_INPUT,
    Meter,
    decode_blocks,
    find_suffix,
    read_blocks,
    split_blocks,
    split_text,
)
from litebert.text.records import Layout, read_rows, replace_surrogates
from litebert.text.stretches import Stretch, list_stretches
from litebert.text.tally import Tally, escape_name, format_counts
from litebert.text.wrapping import WrapDetector, unwrap_lines

log = logging.getLogger("litebert")

DocumentSplit = Literal["blank-line", "file", "line"]
Markup = Literal["keep", "strip"]

MAX_DOCUMENT = 1 << 20

_OTHER_FIELD = " (or name another with --text-column)"
_MEGABYTE = 1e6


@dataclass(frozen=True)
class Document:
    """A text, and where it starts, `file:line`, for messages."""

    text: str
    source: str


@dataclass(frozen=True)
class Reading:
    text_column: str = "text"
    """Field or column that holds the text. Each row of a table is a document."""
    split: DocumentSplit = "blank-line"
    """End of a document of plain text: a blank line, the end of the file, or the end of the line.
    """
    encoding: str = "utf-8"
    """Encoding of text files. With UTF-8, files with a byte-order mark of UTF-16 or UTF-32 are read
    as that.
    """
    encodings: Mapping[str, str] = field(default_factory=dict)
    """Encodings of the files that match a pattern, by pattern."""
    unwrap: bool = False
    """Join the lines of a paragraph of plain text."""
    markup: Markup = "keep"
    """`keep` reads Markdown and web pages as plain text. `strip` removes the markup."""
    meter: Meter = field(default_factory=Meter)
    """Counts the bytes read."""
    tally: Tally = field(default_factory=Tally)
    out: str | Path = ""

    def __post_init__(self) -> None:
        for name, choices in (("split", DocumentSplit), ("markup", Markup)):
            if getattr(self, name) not in get_args(choices):
                raise DataError(
                    f"{name} is '{getattr(self, name)}'; "
                    f"{nearest(getattr(self, name), get_args(choices))}"
                )
        if self.unwrap and self.split == "line":
            raise DataError(
                "--unwrap joins lines and --split line makes a document of each; give one of them"
            )
        encodings.check(self.encoding, *self.encodings.values())


Texts: TypeAlias = Iterator[tuple[str, int | str]]


def read_documents(
    sources: Sequence[str], reading: Reading | None = None, part: Part | None = None
) -> Iterator[Document]:
    """Yield the documents of `sources`, or of a part of them, stripped and never empty."""
    reading = reading or Reading()
    meter, tally = reading.meter, reading.tally
    names = expand(sources, html=reading.markup == "strip", tally=tally, out=reading.out)
    tally.log_skips()
    for pattern, encoding in reading.encodings.items():
        if not any(encodings.is_match(pattern, name) for name in names):
            raise DataError(
                f"no file that is read matches --encoding '{pattern}={encoding}'; check the pattern"
            )
    # Refuse options of tables where there is none, and of plain text where all are tables.
    tables = [find_suffix(name) in TABLES and is_file(name) for name in names]
    plain = [
        not table and (name == STANDARD_INPUT or is_file(name))
        for name, table in zip(names, tables, strict=True)
    ]
    if all(plain) and reading.text_column != "text":
        raise DataError(
            f"--text-column {reading.text_column} names a column, and no source is a table; "
            "leave it out"
        )
    for is_set, option in (
        (reading.unwrap, "--unwrap"),
        (reading.split != "blank-line", f"--split {reading.split}"),
    ):
        if all(tables) and is_set:
            first = escape_name(names[0])
            raise DataError(
                f"{option} is of plain text, and every row of {first} is a document; leave it out"
            )
    stretches = list_stretches(names, reading.markup, part)
    if all(is_file(stretch.name) for stretch in stretches):
        meter.total = sum(size_of(stretch.name) for stretch in stretches)
    total = None if meter.total is None else meter.total / _MEGABYTE
    with progress.task("reading text", total, "MB") as bar:
        for stretch in stretches:
            label = escape_name(stretch.name)
            for text, position in _read_stretch(stretch, reading):
                text, replaced = replace_surrogates(text)
                tally.replaced_characters += replaced
                pieces = split_text(text, MAX_DOCUMENT)
                tally.cuts += len(pieces) - 1
                for piece in filter(None, map(str.strip, pieces)):
                    tally.documents += 1
                    yield Document(piece, f"{label}:{position}")
                bar.done, bar.text = meter.read / _MEGABYTE, f"{tally.documents:,} documents"
    if not tally.documents and part is None:
        labels = (
            "standard input" if source == STANDARD_INPUT else escape_name(source)
            for source in sources
        )
        raise DataError(f"there is no text in {', '.join(labels)}; give files that hold some")
    if len(tally.encodings) > 1:
        log.info(f"encodings of the files: {format_counts(tally.encodings)}")


def _read_stretch(stretch: Stretch, reading: Reading) -> Texts:
    """Yield the texts of a stretch of a source. The file is read from its beginning, and the tally
    gets what was counted within the stretch, so that the counts of all parts add up.
    """
    if stretch.is_whole:
        yield from _read_source(stretch.name, reading)
        return
    counted = Tally()
    before = Tally() if stretch.first == 0 else None
    for text, position in _read_source(stretch.name, replace(reading, tally=counted)):
        number = int(position)
        if before is None and number > stretch.first:
            before = deepcopy(counted)
        if stretch.last is not None and number > stretch.last:
            break
        if number > stretch.first:
            yield text, position
    if before is not None:
        reading.tally.add(counted, before)


def _read_source(source: str, reading: Reading) -> Texts:
    scheme, _, rest = source.partition(":")
    suffix = find_suffix(source)
    for key, name in ((f"{scheme}:", rest), (source, source), (suffix, source)):
        if key in SOURCES and not (is_remote(source) and key != suffix):
            encoding = encodings.choose_encoding(
                source, b"", reading.encoding, reading.encodings, html=False
            )
            texts: Texts = SOURCES[key](name, replace(reading, encoding=encoding))
            return texts
    return _read_file(source, suffix, reading)


def _read_file(name: str, suffix: str, reading: Reading) -> Texts:
    form, html, tally = TABLES.get(suffix), suffix in HTML_SUFFIXES, reading.tally
    if form in ("parquet", "xlsx"):
        yield from _read_table(form, name, (), reading)
        return
    data = read_blocks(name, reading.meter)
    head = next(data, b"")
    encoding = encodings.choose_encoding(name, head, reading.encoding, reading.encodings, html)
    tally.encodings[encoding] += 1
    label = "standard input" if name == STANDARD_INPUT else escape_name(name)
    texts = decode_blocks(itertools.chain([head], data), label, encoding, prose=True)
    if form is not None:
        yield from _read_table(form, label, enumerate(split_blocks(texts), 1), reading)
        return
    if html or suffix == ".md":
        if reading.markup == "strip":
            sections = _split_documents(
                markup.strip_markup("".join(texts), suffix, label), reading.split, tally
            )
            yield from ((text, f"section {number}") for number, (text, _) in enumerate(sections, 1))
            return
        if html:
            log.warning(f"{label} was read with its tags; --markup strip removes them")
    detector = WrapDetector()
    text_lines = split_blocks(texts, MAX_DOCUMENT, tally if reading.split == "line" else None)
    for text, number in _split_documents(detector.watch(text_lines), reading.split, tally):
        yield unwrap_lines(text) if reading.unwrap else text, number
    if detector.is_wrapped and reading.split != "line":
        if not tally.hard_wrapped and not reading.unwrap:
            broken = (
                "has lines that end in the middle of sentences, and every line end ends a sentence"
            )
            log.warning(f"{label} {broken}; --unwrap joins the lines of each paragraph")
        tally.hard_wrapped.append(label)


def _read_table(
    form: Any, name: str, numbered_lines: Iterable[tuple[int, str]], reading: Reading
) -> Texts:
    field, notes = reading.text_column, reading.tally.notes
    rows = read_rows(
        Layout(form), name, numbered_lines, [field], notes, meter=reading.meter, remedy=_OTHER_FIELD
    )
    yield from _require_texts(((row.values[0], row.line) for row in rows), name, reading)


def _require_texts(values: Iterable[tuple[Any, int]], name: str, reading: Reading) -> Texts:
    for value, number in values:
        reading.tally.rows += 1
        if value is None or value == "" or (isinstance(value, str) and value.isspace()):
            reading.tally.empty_rows += 1
        elif isinstance(value, str):
            yield value, number
        else:
            kind = type(value).__name__
            field = f"field '{reading.text_column}'"
            raise DataError(
                f"{name}:{number}: {field} is {kind}, not text; name another with --text-column"
            )


def _split_documents(lines: Iterable[str], split: str, tally: Tally) -> Iterator[tuple[str, int]]:
    if split == "line":
        for number, line in enumerate(lines, 1):
            yield line, number
        return
    document: list[str] = []
    size, start, blank_ends = 0, 1, split == "blank-line"
    for number, line in enumerate(lines, 1):
        is_end = blank_ends and (not line or line.isspace())
        if is_end or size + len(line) > MAX_DOCUMENT:
            if document:
                tally.cuts += not is_end
                yield "\n".join(document), start
            document, size, start = [], 0, number + is_end
        if not is_end:
            document.append(line)
            size += len(line) + 1
    yield "\n".join(document), start


# --------------------------------------------------------------------------- the `datasets` library


def is_dataset_folder(folder: str | Path) -> bool:
    """Return whether `datasets` saved this folder, while another may just have the name of a
    dataset.
    """
    return any(
        (Path(folder) / file).is_file() for file in ("dataset_dict.json", "dataset_info.json")
    )


def open_dataset(name: str, config: str | None = None, *, streaming: bool = False) -> Any:
    """Open a saved folder, or `NAME[:CONFIG]` on the hub, as splits by name or its only split."""
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("datasets", "datasets") from error
    try:
        if is_dataset_folder(name):
            return datasets.load_from_disk(name)
        repository, _, chosen = name.partition(":")
        arguments = [argument for argument in (repository, chosen or config) if argument]
        return datasets.load_dataset(*arguments, **({"streaming": True} if streaming else {}))
    except Exception as error:  # the library raises its own errors and those of the network
        reason = str(error).split("\n")[0]
        raise DataError(
            f"hf:{name} cannot be opened ({reason}); a folder works too: hf:FOLDER"
        ) from error


def read_dataset(name: str, reading: Reading) -> Texts:
    """Yield the texts of the split "train", or of the only one, with the numbers of their rows."""
    data = open_dataset(name, streaming=True)
    if isinstance(data, dict):
        if "train" not in data and len(data) > 1:
            raise DataError(
                f"hf:{name} has no split 'train' among {', '.join(data)}; save the one you "
                "want alone"
            )
        data = data["train"] if "train" in data else next(iter(data.values()))
    field = reading.text_column
    if data.column_names is not None and field not in data.column_names:
        raise DataError(
            f"hf:{name} has no column '{field}'; {nearest(field, data.column_names)}{_OTHER_FIELD}"
        )
    values = (
        value
        for batch in data.select_columns([field]).iter(batch_size=1000)
        for value in batch[field]
    )
    yield from _require_texts(
        ((value, number) for number, value in enumerate(values, 1)), f"hf:{name}", reading
    )
