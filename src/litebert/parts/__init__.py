"""Parts of some work, `--part i/n`, which any machines do in any order.

    OUT.parts/1-of-4/ ...        what part 1 has made
    OUT.parts/1-of-4/part.json   its marker, written last: the part is finished

A part is cut from the input alone, so nothing has to be agreed on between machines. The marker has
the identity of the work: the verb, the version, the settings, the model or tokenizer and the input.
`litebert merge OUT` takes parts of one identity, each once (finished.py), and writes OUT.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.base.errors import ConfigError, DataError
from litebert.base.json_reader import read_json
from litebert.base.storage import file_record, is_inside, lock_folder, write_json
from litebert.remote.names import as_url, is_url, join, shorten
from litebert.remote.reading import describe, is_file, size_of
from litebert.remote.target import Target, open_target

FORMAT_VERSION = 1
MARKER = "part.json"
BEGUN = "identity.json"
"""Holds the identity of a part until it is finished."""
SUFFIX = ".parts"
"""Follows the name of the output in the name of the folder of its parts."""

_PIECE, _PIECES = 1 << 20, 64
"""Bytes of a piece of a file, and the pieces that count."""
_OPTION = re.compile(r"([0-9]{1,7})/([0-9]{1,7})")


@dataclass(frozen=True)
class Part:
    """One part of some work."""

    number: int
    """1 to `count`."""
    count: int
    """The parts of the whole."""

    @classmethod
    def parse(cls, option: str) -> Part:
        """Read `i/n`."""
        match = _OPTION.fullmatch(option)
        number, count = map(int, match.groups()) if match else (0, 0)
        if not 1 <= number <= count:
            raise ConfigError(
                f"--part is '{option}'; give i/n, the number of the part and how many there are, "
                "such as 1/4"
            )
        return cls(number, count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.number}-of-{self.count}"

    def choose_neighbors(self, total: int) -> range:
        """Return the units of this part where each part computes neighbors among `total`."""
        begin, end = ((self.number - back) * total // self.count for back in (1, 0))
        return range(begin, end)

    def choose_stretches(self, sizes: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return the stretch of bytes of this part in each file that it has some of, by number.

        The files end to end are cut into equal stretches; one without a size counts as one byte.
        """
        lengths = [max(1, size) for size in sizes]
        whole = self.choose_neighbors(sum(lengths))
        return cut_stretches(lengths, whole.start, whole.stop)


def cut_stretches(lengths: Sequence[int], first: int, last: int) -> dict[int, tuple[int, int]]:
    """Return the stretch of each file that lies between two places of the files end to end."""
    begin, stretches = 0, {}
    for index, length in enumerate(lengths):
        low, high = max(first, begin) - begin, min(last, begin + length) - begin
        if low < high:
            stretches[index] = (low, high)
        begin += length
    return stretches


@dataclass(frozen=True)
class Turns:
    """The units of some work, numbered from 0, that are computed here: all, or those of a part."""

    part: Part | None = None
    finished: Container[int] = ()
    """Units of the part that are computed already."""
    total: int | None = None
    """The units of the whole work where known. Then a part computes neighbors, so that it reads its
    stretch only; otherwise every n-th unit.
    """

    def __contains__(self, turn: object) -> bool:
        if self.part is None or not isinstance(turn, int):
            is_due = self.part is None
        elif self.total is None:
            is_due = turn % self.part.count == self.part.number - 1
        else:
            is_due = turn in self.part.choose_neighbors(self.total)
        return is_due and turn not in self.finished

    @property
    def stretch(self) -> range:
        """The units from the first that is due to the last, where units were counted before."""
        assert self.part is not None
        assert self.total is not None
        units = self.part.choose_neighbors(self.total)
        first = next((unit for unit in units if unit not in self.finished), units.stop)
        return range(first, units.stop)

    @property
    def first(self) -> int:
        """The unit with which the input that is read begins."""
        return 0 if self.total is None else self.stretch.start


EVERY = Turns()


def find_parts(out: str | Path) -> str | Path:
    """Return the folder of the parts of an output; a URL where the output is in a store."""
    url, path = as_url(out), Path(os.path.normpath(out))
    has_name = path.name not in ("", "..") if url is None else url.rstrip("/").count("/") > 2
    if not has_name:
        raise ConfigError(f"the output '{shorten(out)}' has no name of its own; give --out a name")
    return path.with_name(path.name + SUFFIX) if url is None else url.rstrip("/") + SUFFIX


def describe_input(names: Sequence[str]) -> dict[str, Any]:
    """Return the identity of input files: how many, their bytes, a digest of names and contents.

    Times do not count, for a copy has others; of a large file pieces do, of a store's its mark.
    """
    digest, total = hashlib.sha256(), 0
    for name in names:
        path, size, mark = Path(name), 0, ""
        if name == "-" or (path.exists() and not path.is_file()):
            label = "standard input" if name == "-" else name
            raise ConfigError(
                f"{label} cannot be divided into parts, for it is read only once; write it to a "
                "file first"
            )
        if is_file(name):
            size = size_of(name)
        if is_url(name):
            mark = describe(name).mark
        elif path.is_file():
            with open(path, "rb") as file:
                pieces = range(0, size, max(_PIECE, size // _PIECES))
                for start in (*pieces, max(0, size - _PIECE)):
                    file.seek(start)
                    digest.update(file.read(_PIECE))
        total += size
        label = shorten(_normalize([name])[0])
        digest.update(f"{label}\0{size}\0{mark}\0".encode("utf-8", "surrogatepass"))
    return {"files": len(names), "bytes": total, "names_and_contents": digest.hexdigest()}


def make_identity(
    verb: str,
    settings: Mapping[str, Any],
    fingerprint: str,
    names: Sequence[str],
    rows: int | None = None,
) -> dict[str, Any]:
    """Return what the parts of the same work have in common: options that decide what is written,
    the tokenizer's or model's fingerprint, the files, and the rows, where they are counted.
    """
    from importlib.metadata import version  # late: it takes time

    counts = {} if rows is None else {"rows": rows}
    return {
        "verb": verb,
        "version": version("litebert"),
        "fingerprint": fingerprint,
        "input": describe_input(names) | counts,
        "settings": json.loads(json.dumps(dict(settings))),  # as a marker gives them back
    }


@contextmanager
def lock_part(out: str | Path, part: Part, identity: Mapping[str, Any]) -> Iterator[Target]:
    """Give the folder of a part, locked, to work in. It may be finished already (`is_finished`)."""
    target = open_target(join(find_parts(out), part.name))
    with target.open() as folder, lock_folder(folder, DataError):
        begun, existing = folder / BEGUN, None
        if is_finished(folder):
            existing = read_marker(folder)["identity"]
        elif begun.exists():
            existing = read_json(begun, DataError, f"delete {folder}")
            _check_identity(existing, begun, f"delete {folder} and run its command again")
        if existing is not None and (fault := compare_identities(existing, identity)):
            raise ConfigError(
                f"{folder} was made {fault}; delete {folder}, or give --out another name"
            )
        if is_finished(folder):
            target.delete(BEGUN)
        else:
            write_json(begun, identity)
            target.send(BEGUN)
        yield target


def is_finished(folder: Path) -> bool:
    return (folder / MARKER).exists()


def finish_part(folder: Path, part: Part, identity: Mapping[str, Any], **content: Any) -> None:
    """Write the marker of a part, which is then finished.

    `content` is what else it holds; `files` names the part's files, or has records in a store.
    """
    files = content.pop("files")
    if not isinstance(files, Mapping):
        files = {name: file_record(folder / name) for name in files}
    marker = {"format": FORMAT_VERSION, "part": part.number, "parts": part.count}
    write_json(folder / MARKER, {**marker, "identity": identity, "files": files, **content})
    (folder / BEGUN).unlink(missing_ok=True)


def read_marker(folder: Path) -> dict[str, Any]:
    """Read the marker of a finished part."""
    path = folder / MARKER
    remedy = f"delete {folder} and run its command again"
    marker = read_json(path, DataError, remedy)
    if marker.get("format") != FORMAT_VERSION:
        raise DataError(
            f"{path} has format {marker.get('format')}, and this version of litebert reads "
            f"{FORMAT_VERSION}; {remedy}"
        )
    _check_identity(marker.get("identity"), path, remedy)
    try:
        Part.parse(f"{marker['part']}/{marker['parts']}")
        for name, record in marker["files"].items():
            if not is_inside(name):
                raise ValueError(name)
            int(record["bytes"]), str(record["sha256"])
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError):
        raise DataError(f"{path} is damaged; {remedy}") from None
    return marker


def _check_identity(identity: Any, path: Path, remedy: str) -> None:
    try:
        for field in ("verb", "version", "fingerprint"):
            identity[field]
        identity["settings"].items(), identity["input"].items()
    except (KeyError, TypeError, AttributeError):
        raise DataError(f"{path} is damaged; {remedy}") from None


def _normalize(sources: Any) -> Any:
    """Return sources so that `x`, `./x` and `x/` are the same, on any machine."""
    if not isinstance(sources, list):
        return sources
    return [
        source.rstrip("/") if as_url(source) else os.path.normpath(source) for source in sources
    ]


def compare_identities(existing: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """Say how some work was made where it is not the wanted work; None where it is."""
    if existing["verb"] != wanted["verb"]:
        return f"by litebert {existing['verb']}, not {wanted['verb']}"
    if existing["version"] != wanted["version"]:
        return f"by version {existing['version']} of litebert, not {wanted['version']}"
    old, new = existing["settings"], wanted["settings"]
    for key in (*new, *(key for key in old if key not in new)):
        if key == "sources" and _normalize(old.get(key)) == _normalize(new.get(key)):
            continue
        if old.get(key) != new.get(key):
            return f"with {key}={old.get(key)!r}, not {new.get(key)!r}"
    if existing["fingerprint"] != wanted["fingerprint"]:
        return f"with another {'tokenizer' if existing['verb'] == 'prepare' else 'model'}"
    before, now = existing["input"], wanted["input"]
    if before.keys() != now.keys():
        return "by another litebert, which divides the rows otherwise"
    for key in ("files", "bytes", "rows"):
        if before.get(key) != now.get(key):
            return f"from another input ({before.get(key)} {key}, not {now.get(key)})"
    return None if before == now else "from another input (files of other names or contents)"
