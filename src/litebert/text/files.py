"""The files that folders and patterns stand for, and counts of the other files in a folder."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from litebert.base.errors import DataError, suggest_path
from litebert.base.registry import SOURCES
from litebert.remote.names import get_scheme, is_url, path_of, shorten
from litebert.remote.reading import list_source
from litebert.text.lines import COMPRESSIONS, STANDARD_INPUT, find_suffix
from litebert.text.records import IN_FOLDERS, SUFFIXES, FileFormat, list_values
from litebert.text.tally import HIDDEN, Tally, format_counts

PLAIN_SUFFIXES = (".txt", ".text", ".md", ".rst")
"""Suffixes of plain text in a folder; a file that the user names or matches may have any other."""
HTML_SUFFIXES = (".html", ".htm", ".xhtml")
"""Suffixes of web pages. They are taken from a folder only where markup is stripped."""
TABLES: dict[str, FileFormat] = {
    suffix: form for suffix, form in SUFFIXES.items() if form not in ("text", "conll")
}

_BROKEN_LINKS = "links that lead nowhere"


def expand(
    sources: Sequence[str], *, html: bool = False, tally: Tally | None = None, out: str | Path = ""
) -> list[str]:
    """List the files that folders and patterns stand for, sorted within each source; other sources,
    such as standard input, stay. With `html` web pages are taken from folders too. `out` is what is
    written, which is no source where it lies in one.
    """
    if not list_values(sources, "sources"):
        raise DataError(
            "no source of text is given; name files, a folder, a pattern, hf:NAME or python-docs"
        )
    tally = tally or Tally()
    names: list[str] = []
    for source in sources:
        if not source:
            raise DataError("a source of text has an empty name; name a file, or . for this folder")
        path, (scheme, colon, _) = Path(source), source.partition(":")
        if is_remote(source):
            names += _expand_url(source, html, tally)
            continue
        if source == STANDARD_INPUT or source in SOURCES or scheme + colon in SOURCES:
            tally.files["standard input" if source == STANDARD_INPUT else source] += 1
            names.append(source)
            continue
        if not path.exists() and not glob.has_magic(source):
            remedy = "check the path"
            if not path.parent.is_dir():
                remedy = f"neither does its folder {path.parent}"
            raise DataError(f"{source} does not exist; {suggest_path(path, remedy)}")
        optional = not path.is_dir()
        list_inside = partial(_list_folder, html=html, tally=tally, optional=optional, out=out)
        files = leave_out(list_files([source], list_inside), out, sources)
        # A pattern also matches links whose target is missing.
        existing = [file for file in files if os.path.exists(file)]
        if len(existing) < len(files):
            tally.skipped[_BROKEN_LINKS] += len(files) - len(existing)
        tally.files.update(map(_describe_suffix, existing))
        names += existing
    return names


def is_remote(source: str | Path) -> bool:
    """Return whether a source is in a store, and not of a scheme that a reader was added for, such
    as `hf:NAME`, a data set; `hf://` names a file.
    """
    scheme = get_scheme(str(source))
    return is_url(source) and (scheme == "hf" or f"{scheme}:" not in SOURCES)


def _expand_url(source: str, html: bool, tally: Tally) -> list[str]:
    entries, is_folder = list_source(source)
    names = [entry.url for entry in entries]
    if is_folder:
        skipped: Counter[str] = Counter()
        suffixes, below = _list_suffixes(html), len(source.rstrip("/")) + 1
        chosen = []
        for name in names:
            if any(part.startswith(".") for part in name[below:].split("/")):
                skipped[HIDDEN] += 1
            elif find_suffix(name) in suffixes:
                chosen.append(name)
            else:
                skipped[_describe_suffix(name)] += 1
        if not chosen:
            raise _make_nothing_error(shorten(source), suffixes, skipped)
        tally.skipped.update(skipped)
        names = chosen
    tally.files.update(map(_describe_suffix, names))
    return names


def list_files(
    sources: Iterable[str | Path], inside: Callable[[Path], Sequence[Path]]
) -> list[str]:
    """List the files that paths, folders and patterns stand for, each once; `inside` lists those of
    a folder. A path that does not exist is left to its reader.
    """
    files: list[str] = []
    for source in map(str, list_values(sources, "data")):
        if is_remote(source):
            entries, is_folder = list_source(source)
            names = [entry.url for entry in entries]
            if is_folder:
                names = [name for name in names if find_suffix(name) in IN_FOLDERS]
            if not names:
                raise DataError(f"{shorten(source)} holds no file that can be read; name the files")
            files += names
            continue
        # A file whose name looks like a pattern is that file.
        is_pattern = glob.has_magic(source) and not Path(source).exists()
        matches = sorted(glob.glob(source, recursive=True)) if is_pattern else [source]
        if not matches:
            raise DataError(f"no file matches {source}; check the pattern and its quotes")
        for match in matches:
            files += map(str, inside(Path(match))) if Path(match).is_dir() else [match]
    return list(dict.fromkeys(files))


def _list_own(out: str | Path) -> list[str]:
    if not str(out) or is_url(out):
        return []
    return [os.path.realpath(out), os.path.realpath(f"{os.path.normpath(out)}.parts")]


def leave_out(files: Iterable[str], out: str | Path, named: Iterable[str | Path] = ()) -> list[str]:
    """Return the files without those of the output and of its parts, unless they are `named`."""
    own, stay = tuple(f"{place}{os.sep}" for place in _list_own(out)), set(map(str, named))
    return [
        file
        for file in files
        if file in stay or not f"{os.path.realpath(file)}{os.sep}".startswith(own)
    ]


def refuse_duplicates(sources: Iterable[str | Path]) -> None:
    """Refuse a file that is named twice, for its rows may be meant once or twice. A file that is
    named, and that a folder or a pattern holds as well, is read once.
    """
    locations: set[str] = set()
    for source in map(str, list_values(sources, "data")):
        location = source if source == STANDARD_INPUT else os.path.abspath(source)
        if location in locations:
            label = "standard input" if source == STANDARD_INPUT else source
            raise DataError(f"{label} is given twice; give each input once")
        locations.add(location)


def _list_folder(
    folder: Path, html: bool, tally: Tally, optional: bool, out: str | Path
) -> list[Path]:
    """List the files below a folder that can be read, at least one unless `optional`, and count the
    others in `tally`. What is hidden, or a place of the output, is left out.
    """
    suffixes, own = _list_suffixes(html), _list_own(out)
    skipped: Counter[str] = Counter()
    files: list[Path] = []

    def count_unreadable(error: OSError) -> None:
        skipped["folders that cannot be read"] += 1

    for parent, folders, names in os.walk(folder, onerror=count_unreadable):
        place = os.path.realpath(parent)
        for entries in (folders, names):
            entries[:] = [name for name in entries if os.path.join(place, name) not in own]
            hidden = [name for name in entries if name.startswith(".")]
            if hidden:
                skipped[HIDDEN] += len(hidden)
                entries[:] = [name for name in entries if not name.startswith(".")]
        links = sum(os.path.islink(os.path.join(parent, name)) for name in folders)
        if links:
            skipped["links to folders"] += links
        for path in (Path(parent, name) for name in names):
            if not path.exists():
                skipped[_BROKEN_LINKS] += 1
            elif not path.is_file():
                skipped["pipes and devices"] += 1
            elif find_suffix(path) in suffixes:
                files.append(path)
            else:
                skipped[_describe_suffix(str(path))] += 1
    if not files and not optional:
        raise _make_nothing_error(str(folder), suffixes, skipped)
    tally.skipped.update(skipped)
    return sorted(files)


def _list_suffixes(html: bool) -> tuple[str, ...]:
    tables = [suffix for suffix in TABLES if suffix in IN_FOLDERS]
    suffixes = (*PLAIN_SUFFIXES, *tables, *(key for key in SOURCES if key.startswith(".")))
    return suffixes + (HTML_SUFFIXES if html else ())


def _make_nothing_error(folder: str, suffixes: Sequence[str], skipped: Counter[str]) -> DataError:
    content = f"it holds {format_counts(skipped)}" if skipped else "it is empty"
    return DataError(
        f"{folder} holds no file with a name ending in {', '.join(suffixes)} (or .gz, .xz, .zst "
        f"after it): {content}; name other kinds of text files with a pattern, e.g. '{folder}/*'"
    )


def _describe_suffix(name: str) -> str:
    path = path_of(name)
    compression = path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""
    return find_suffix(name) + compression or "no suffix"
