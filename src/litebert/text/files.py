"""The files that folders and patterns stand for, with a count of what a folder holds beside
them."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from litebert.errors import DataError
from litebert.registry import SOURCES
from litebert.text.lines import COMPRESSIONS, STANDARD_INPUT, find_suffix
from litebert.text.records import SUFFIXES, FileFormat
from litebert.text.tally import HIDDEN, Tally, format_counts

PLAIN_SUFFIXES = (".txt", ".text", ".md", ".rst")
"""Taken from a folder as plain text; a file named directly, or by a pattern, is plain text whatever
its suffix.
"""
HTML_SUFFIXES = (".html", ".htm", ".xhtml")
"""Taken from a folder where markup is stripped."""
TABLES: dict[str, FileFormat] = {
    suffix: form for suffix, form in SUFFIXES.items() if form in ("csv", "tsv", "jsonl", "parquet")
}

_BROKEN = "links that lead nowhere"


def expand(sources: Sequence[str], *, html: bool = False, tally: Tally | None = None) -> list[str]:
    """The files that folders and patterns stand for, sorted within each source; other sources as
    they are.

    Args:
        html: take web pages from folders too.
        tally: counts the files, and what was skipped.

    Raises DataError for a source that does not exist, and for a folder in which nothing can be
    read.
    """
    if not sources:
        raise DataError(
            "no source of text is given; name files, a folder, a pattern, hf:NAME or python-docs"
        )
    tally = tally or Tally()
    names: list[str] = []
    for source in sources:
        if not source:
            raise DataError("a source of text has an empty name; name a file, or . for this folder")
        path, (scheme, colon, _) = Path(source), source.partition(":")
        if source == STANDARD_INPUT or source in SOURCES or scheme + colon in SOURCES:
            tally.files["standard input" if source == STANDARD_INPUT else source] += 1
            names.append(source)
            continue
        if not path.exists() and not glob.has_magic(source):
            raise DataError(f"{source} does not exist; {_suggest_path(path)}")
        found = list_files(
            [source], partial(_list_folder, html=html, tally=tally, optional=not path.is_dir())
        )
        there = [name for name in found if os.path.exists(name)]
        if len(there) < len(found):
            tally.skipped[_BROKEN] += len(found) - len(there)
        tally.files.update(map(_describe_suffix, there))
        names += there
    return names


def list_files(
    sources: Iterable[str | Path], inside: Callable[[Path], Sequence[Path]]
) -> list[str]:
    """The files that paths, folders and patterns stand for, each once; those of a folder or a
    pattern are sorted.

    Args:
        inside: the files to read in a folder.

    Raises:
        DataError: a pattern matches nothing. A path that does not exist is left to its reader.
    """
    found: list[str] = []
    for one in map(str, sources):
        pattern = not Path(one).exists() and glob.has_magic(one)
        matches = sorted(glob.glob(one, recursive=True)) if pattern else [one]
        if not matches:
            raise DataError(f"no file matches {one}; check the pattern and its quotes")
        for match in matches:
            found += map(str, inside(Path(match))) if Path(match).is_dir() else [match]
    return list(dict.fromkeys(found))


def refuse_duplicates(sources: Iterable[str | Path]) -> None:
    """Refuse a file that is named twice: nobody knows whether its rows are wanted once or twice.

    A file that is named and that a folder or a pattern holds as well is meant once.

    Raises:
        DataError: two sources are one.
    """
    places: set[str] = set()
    for source in map(str, sources):
        place = source if source == STANDARD_INPUT else os.path.abspath(source)
        if place in places:
            label = "standard input" if source == STANDARD_INPUT else source
            raise DataError(f"{label} is given twice; give each input once")
        places.add(place)


def _list_folder(folder: Path, html: bool, tally: Tally, optional: bool) -> list[Path]:
    suffixes = (*PLAIN_SUFFIXES, *TABLES, *(key for key in SOURCES if key.startswith(".")))
    suffixes += HTML_SUFFIXES if html else ()
    skipped: Counter[str] = Counter()
    found: list[Path] = []
    for path in _walk(folder, skipped):
        if not path.exists():
            skipped[_BROKEN] += 1
        elif not path.is_file():
            skipped["pipes and devices"] += 1
        elif find_suffix(path) in suffixes:
            found.append(path)
        else:
            skipped[_describe_suffix(str(path))] += 1
    if not found and not optional:
        there = f"it holds {format_counts(skipped)}" if skipped else "it is empty"
        raise DataError(
            f"{folder} holds no file with a name ending in {', '.join(suffixes)} (or .gz, "
            ".xz, .zst after it), but "
            f"{there}; name other kinds of text files with a pattern, e.g. '{folder}/*'"
        )
    tally.skipped.update(skipped)
    return sorted(found)


def _walk(folder: Path, skipped: Counter[str]) -> Iterator[Path]:
    """All that is no folder below `folder`, but what is hidden."""

    def unreadable(error: OSError) -> None:
        skipped["folders that cannot be read"] += 1

    for place, folders, files in os.walk(folder, onerror=unreadable):
        for names in (folders, files):
            hidden = [name for name in names if name.startswith(".")]
            if hidden:
                skipped[HIDDEN] += len(hidden)
                names[:] = [name for name in names if not name.startswith(".")]
        links = sum(os.path.islink(os.path.join(place, name)) for name in folders)
        if links:
            skipped["links to folders"] += links
        yield from (Path(place, name) for name in files)


def _describe_suffix(name: str) -> str:
    """The suffix of a file, with that of its compression."""
    path = Path(name)
    packed = path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""
    return find_suffix(path) + packed or "no suffix"


def _suggest_path(path: Path) -> str:
    if not path.parent.is_dir():
        return f"neither does its folder {path.parent}"
    close = get_close_matches(path.name, [entry.name for entry in path.parent.iterdir()], n=1)
    return f"did you mean '{path.parent / close[0]}'?" if close else "check the path"
