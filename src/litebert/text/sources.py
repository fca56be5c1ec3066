"""Sources to documents, streaming, in the order of the sources (folders and globs sorted).

A source is a file (.txt and other plain text, .jsonl, .csv, .tsv, each also .gz, .xz or .zst, and .parquet), a folder
or a glob of them, `-` for standard input, or what `SOURCES` has a reader for: `python-docs`, the built-in corpus,
`hf:NAME` for the `datasets` library, and those you add:

    SOURCES.add("poems", read)      the source `poems`
    SOURCES.add("wiki:", read)      every source `wiki:NAME`; the reader gets NAME
    SOURCES.add(".eml", read)       files, and folders of files, with this suffix; the reader gets the path

where `read(name: str, reading: Reading)` yields (text, place), a document each; the place, a line number say, names it
in messages. A document of more than `MAX_DOCUMENT` characters is cut at line ends into several, so that memory stays
constant even where a gigabyte has no blank line; the price is that the pieces count as documents of their own.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from litebert.errors import DataError, MissingExtraError, nearest
from litebert.registry import SOURCES
from litebert.text.lines import STANDARD_INPUT, Meter, blocks, cut, decoded, lines, plain_suffix
from litebert.text.records import SUFFIXES, Notes, read_rows

DocumentSplit = Literal["blank-line", "file", "line"]

MAX_DOCUMENT = 1 << 20
"""Characters of one document."""

_OTHER_FIELD = " (--text-field names it)"
_PLAIN_SUFFIXES = (".txt", ".text", ".md", ".rst")
"""Taken from a folder as plain text; a file named directly, or by a glob, is so whatever its suffix."""
_TABLES = {suffix: form for suffix, form in SUFFIXES.items() if form in ("csv", "tsv", "jsonl", "parquet")}


@dataclass(frozen=True)
class Document:
    """A text and where it starts, `file:line`, for messages."""

    text: str
    source: str


@dataclass(frozen=True)
class Reading:
    """How sources are read; DataError where there is no such split or encoding."""

    text_field: str = "text"
    """The field or column that holds the text; each row of a table is a document."""
    split: DocumentSplit = "blank-line"
    """What ends a document of plain text: a blank line, the file, or the line."""
    encoding: str = "utf-8"
    """Of every text file."""
    meter: Meter = field(default_factory=Meter)
    """Is told the bytes read, for a progress bar."""

    def __post_init__(self) -> None:
        if self.split not in get_args(DocumentSplit):
            raise DataError(f"split is '{self.split}'; {nearest(self.split, get_args(DocumentSplit))}")
        try:
            "".encode(self.encoding)
        except LookupError as error:
            message = f"there is no encoding '{self.encoding}'; use one like utf-8, latin-1, cp1252, utf-16"
            raise DataError(message) from error


Texts: TypeAlias = Iterator[tuple[str, int | str]]
"""Texts, and where in its source each starts."""


def documents(sources: Sequence[str], reading: Reading | None = None) -> Iterator[Document]:
    """The documents of `sources`, stripped and never empty.

    Raises DataError, naming the file and the byte, line or field, also when the corpus is empty; MissingExtraError for
    `hf:` without the `datasets` library.
    """
    names, reading = expand(sources), reading or Reading()
    paths = [Path(name) for name in names]
    if all(path.is_file() for path in paths):
        reading.meter.total = sum(path.stat().st_size for path in paths)
    empty = True
    for name in names:
        for text, place in _texts(name, reading):
            for piece in filter(None, map(str.strip, cut(text, MAX_DOCUMENT))):
                empty = False
                yield Document(piece, f"{name}:{place}")
    if empty:
        raise DataError(f"there is no text in {', '.join(sources)}; give files that hold some")


def _texts(source: str, reading: Reading) -> Texts:
    scheme, _, rest = source.partition(":")
    for key, name in ((f"{scheme}:", rest), (source, source), (plain_suffix(Path(source)), source)):
        if key in SOURCES:
            texts: Texts = SOURCES[key](name, reading)
            return texts
    return _file(source, reading)


def _file(name: str, reading: Reading) -> Texts:
    form = _TABLES.get(plain_suffix(Path(name)))
    shown = "standard input" if name == STANDARD_INPUT else name
    texts = decoded(blocks(name, reading.meter), shown, reading.encoding, prose=True)
    if form is None:
        yield from _plain(lines(texts, longest=MAX_DOCUMENT), reading.split)
        return
    numbered, field = enumerate(lines(texts), 1), reading.text_field
    rows = read_rows(form, name, numbered, [field], Notes(), meter=reading.meter, remedy=_OTHER_FIELD)
    yield from _checked(((row.values[0], row.line) for row in rows), name, field)


def _checked(values: Iterable[tuple[Any, int]], name: str, field: str) -> Texts:
    """The values of a field that are texts; DataError for anything else, but a row may have none."""
    for value, number in values:
        if isinstance(value, str):
            yield value, number
        elif value is not None:
            kind = type(value).__name__
            raise DataError(f"{name}:{number}: field '{field}' is {kind}, not text; name another with --text-field")


def _plain(lines: Iterable[str], split: str) -> Iterator[tuple[str, int]]:
    """Documents of plain text with the number of their first line."""
    if split == "line":
        for number, line in enumerate(lines, 1):
            yield line, number
        return
    held: list[str] = []
    size, start = 0, 1
    for number, line in enumerate(lines, 1):
        ends = split == "blank-line" and (not line or line.isspace())
        if ends or size + len(line) > MAX_DOCUMENT:
            if held:
                yield "\n".join(held), start
            held, size, start = [], 0, number + ends
        if not ends:
            held.append(line)
            size += len(line) + 1
    yield "\n".join(held), start


# ---- sources -------------------------------------------------------------------------------------------------------


def expand(sources: Sequence[str]) -> list[str]:
    """The files that folders and globs stand for, sorted within each source; other sources as they are."""
    if not sources:
        raise DataError("no source of text is given; name files, a folder, a glob, hf:NAME or python-docs")
    names: list[str] = []
    for source in sources:
        path, (scheme, colon, _) = Path(source), source.partition(":")
        if source == STANDARD_INPUT or source in SOURCES or scheme + colon in SOURCES:
            names.append(source)
        elif path.is_dir():
            names += _folder(path)
        elif path.exists():
            names.append(source)
        elif glob.has_magic(source):
            found = sorted(glob.glob(source, recursive=True))
            if not found:
                raise DataError(f"no file matches {source}; check the pattern and its quotes")
            for name in found:
                names += _folder(Path(name), optional=True) if Path(name).is_dir() else [name]
        else:
            raise DataError(f"{source} does not exist; {_neighbour(path)}")
    return names


def _folder(folder: Path, optional: bool = False) -> list[str]:
    suffixes = (*_PLAIN_SUFFIXES, *_TABLES, *(key for key in SOURCES if key.startswith(".")))
    names = [
        str(path)
        for path in sorted(folder.rglob("*"))
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and plain_suffix(path) in suffixes
        and path.is_file()
    ]
    if not names and not optional:
        raise DataError(
            f"{folder} holds no file with a name ending in {', '.join(suffixes)} (or .gz, .xz, .zst after it); "
            f"name other text files by a pattern, e.g. '{folder}/*'"
        )
    return names


def _neighbour(path: Path) -> str:
    if not path.parent.is_dir():
        return f"neither does its folder {path.parent}"
    close = get_close_matches(path.name, [entry.name for entry in path.parent.iterdir()], n=1)
    return f"did you mean '{path.parent / close[0]}'?" if close else "check the path"


# ---- the `datasets` library ----------------------------------------------------------------------------------------


def is_saved(folder: str | Path) -> bool:
    """Whether `datasets` saved this folder; any other folder may just be called as a set on the hub is."""
    return any((Path(folder) / file).is_file() for file in ("dataset_dict.json", "dataset_info.json"))


def open_dataset(name: str, config: str | None = None, *, streaming: bool = False) -> Any:
    """The splits by name, or the one split, of a saved folder or of `NAME[:CONFIG]`; `config` where NAME has none.

    Raises DataError where the library cannot open it, MissingExtraError where there is no such library.
    """
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("datasets", "datasets") from error
    try:
        if is_saved(name):
            return datasets.load_from_disk(name)
        repository, _, named = name.partition(":")
        words = [word for word in (repository, named or config) if word]
        return datasets.load_dataset(*words, **({"streaming": True} if streaming else {}))
    except Exception as error:  # the library raises many kinds, its own and those of the network
        reason = str(error).split("\n")[0]
        raise DataError(f"hf:{name} cannot be opened ({reason}); a folder works too: hf:FOLDER") from error


def read_dataset(name: str, reading: Reading) -> Texts:
    """The texts of the split "train", or of the only one, each with the number of its row."""
    data = open_dataset(name, streaming=True)
    if isinstance(data, dict):
        if "train" not in data and len(data) > 1:
            raise DataError(f"hf:{name} has no split 'train' among {', '.join(data)}; save the one you want alone")
        data = data["train"] if "train" in data else next(iter(data.values()))
    field = reading.text_field
    if data.column_names is not None and field not in data.column_names:
        raise DataError(f"hf:{name} has no column '{field}'; {nearest(field, data.column_names)}{_OTHER_FIELD}")
    values = (value for batch in data.select_columns([field]).iter(batch_size=1000) for value in batch[field])
    yield from _checked(((value, number) for number, value in enumerate(values, 1)), f"hf:{name}", field)
