"""Sources to documents to sentences, streaming, in the order of the sources (folders and globs sorted).

A source is a file (.txt and other plain text, .jsonl, .csv, .tsv, each also .gz, .xz or .zst, and .parquet), a folder
or a glob of them, `-` for standard input, `hf:NAME` for the `datasets` library, or `python-docs`, the built-in corpus.
A document is at most `MAX_DOCUMENT` characters: a longer one is cut at line ends into several, so that memory stays
constant even where a gigabyte has no blank line; the price is that the pieces count as documents of their own.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, get_args

import sentencex

from litebert.errors import DataError, nearest
from litebert.text import formats
from litebert.text.formats import Meter
from litebert.text.python_docs import python_docs

DocumentSplit = Literal["blank-line", "file", "line"]

MAX_DOCUMENT = 1 << 20
"""Characters of one document."""
MAX_SENTENCE = 10_000
"""Characters of one sentence: tokenizers slow down on text without an end."""

_FOLDER_SUFFIXES = (".txt", ".text", ".md", ".rst", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")
"""What is taken from a folder; a file named directly, or by a glob, is read as plain text when its suffix is none."""

# ISO 639-1. sentencex takes any code, and English rules for one that it does not know.
_LANGUAGES = frozenset(
    """
    aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el
    en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu
    ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na
    nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so
    sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
    """.split()  # noqa: SIM905 - one line per code would be ten times as long
)


@dataclass(frozen=True)
class Document:
    """A text and where it starts, `file:line`, for messages."""

    text: str
    source: str


def documents(
    sources: Sequence[str],
    *,
    text_field: str = "text",
    split: DocumentSplit = "blank-line",
    encoding: str = "utf-8",
    meter: Meter | None = None,
) -> Iterator[Document]:
    """The documents of `sources`, stripped and never empty.

    Args:
        text_field: the field or column that holds the text; each row of a table is a document.
        split: what ends a document of plain text: a blank line, the file, or the line.
        encoding: of every text file.
        meter: is told the bytes read, for a progress bar.

    Raises:
        DataError: naming the file and the byte, line or field; also when the corpus is empty.
        MissingExtraError: `hf:` without the `datasets` library.
    """
    if split not in get_args(DocumentSplit):
        raise DataError(f"split is '{split}'; {nearest(split, get_args(DocumentSplit))}")
    try:
        "".encode(encoding)
    except LookupError as error:
        raise DataError(f"there is no encoding '{encoding}'; use one like utf-8, latin-1, cp1252, utf-16") from error
    names = expand(sources)
    meter = meter or Meter()
    meter.total = _size(names)
    empty = True
    for name in names:
        for text, place in _texts(name, text_field, split, encoding, meter):
            for piece in formats.cut(text, MAX_DOCUMENT):
                stripped = piece.strip()
                if stripped:
                    empty = False
                    yield Document(stripped, f"{name}:{place}")
    if empty:
        raise DataError(f"there is no text in {', '.join(sources)}; give files that hold some")


def _texts(name: str, field: str, split: str, encoding: str, meter: Meter) -> Iterator[tuple[str, int]]:
    if name == "python-docs":
        return ((text, 1) for text, _ in python_docs())
    if name.startswith("hf:"):
        return formats.hugging_face(name[3:], field)
    path = Path(name)
    suffix = _kind(path)
    if suffix == ".parquet":
        return formats.parquet(path, field, meter)
    data = formats.standard_input(meter) if name == "-" else formats.blocks(path, meter)
    texts = formats.decoded(data, "standard input" if name == "-" else name, encoding)
    if suffix in formats.ROWS:
        return formats.ROWS[suffix](formats.lines(texts), name, field)
    return _plain(formats.lines(texts, longest=MAX_DOCUMENT), split)


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
        if source in ("-", "python-docs") or source.startswith("hf:"):
            names.append(source)
            continue
        path = Path(source)
        if path.is_dir():
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
    names = [
        str(path)
        for path in sorted(folder.rglob("*"))
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and _kind(path) in _FOLDER_SUFFIXES
        and path.is_file()
    ]
    if not names and not optional:
        raise DataError(
            f"{folder} holds no file with a name ending in {', '.join(_FOLDER_SUFFIXES)} (or .gz, .xz, .zst after it); "
            f"name other text files by a pattern, e.g. '{folder}/*'"
        )
    return names


def _kind(path: Path) -> str:
    """The suffix in lower case, without that of a compression."""
    plain = path.with_suffix("") if path.suffix.lower() in formats.COMPRESSIONS else path
    return plain.suffix.lower()


def _neighbour(path: Path) -> str:
    if not path.parent.is_dir():
        return f"neither does its folder {path.parent}"
    close = get_close_matches(path.name, [entry.name for entry in path.parent.iterdir()], n=1)
    return f"did you mean '{path.parent / close[0]}'?" if close else "check the path"


def _size(names: Sequence[str]) -> int | None:
    """Bytes on disk of all sources, None if one of them has no size."""
    sizes = [Path(name).stat().st_size if Path(name).is_file() else None for name in names]
    return None if None in sizes else sum(size for size in sizes if size is not None)


# ---- sentences -----------------------------------------------------------------------------------------------------


def split_sentences(text: str, language: str = "en") -> list[str]:
    """The sentences of a text, stripped; a line end always ends one.

    `language` is an ISO 639 code (en, de, ja, ...), or "line" where the text has one sentence per line already.

    Raises:
        DataError: a language that is no code.
    """
    if language == "line":
        sentences = text.split("\n")
    else:
        check_language(language)
        sentences = [sentence for line in text.split("\n") for sentence in sentencex.segment(language, line)]
    if len(text) > MAX_SENTENCE:
        sentences = [piece for sentence in sentences for piece in formats.cut(sentence, MAX_SENTENCE)]
    return [stripped for sentence in sentences if (stripped := sentence.strip())]


def check_language(language: str) -> None:
    """Raise DataError unless `language` is "line" or an ISO 639 code (with a region or variant, or without)."""
    code = re.fullmatch(r"([a-z]{2,3})(-[A-Za-z0-9]+)*", language)
    if language != "line" and (code is None or (len(code[1]) == 2 and code[1] not in _LANGUAGES)):
        close = get_close_matches(language, _LANGUAGES, n=1)
        raise DataError(
            f"language '{language}' is no ISO 639 code; use one like en, de, ja"
            + (f" (did you mean '{close[0]}'?)" if close else "")
            + ", or line where each line is one sentence"
        )
