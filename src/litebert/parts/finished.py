"""The finished parts of some work, here or in a store, opened to be merged. All parts of one output
must be there, each once, and of one identity.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.base.errors import DataError
from litebert.base.storage import sha256_of
from litebert.parts import MARKER, Part, compare_identities, find_parts, is_finished, read_marker
from litebert.remote import cache, stores
from litebert.remote.names import as_url, join, shorten


@dataclass(frozen=True)
class FinishedPart:
    """A finished part, to be merged."""

    part: Part
    folder: Path
    """The part, or a copy of its small files if it is in a store."""
    marker: Mapping[str, Any]
    url: str | None = None
    """The part in a store."""

    @property
    def name(self) -> str:
        """The folder, for messages."""
        return str(self.folder) if self.url is None else shorten(self.url)

    def open_file(self, name: str) -> Path:
        """Return the path of a file of the part, after a check of its bytes."""
        path, record = self.folder / name, self.marker["files"].get(name)
        if self.url is not None and record is not None:
            return cache.fetch(join(self.url, name), record["bytes"], record["sha256"])
        if not path.is_file():
            fault = "is missing"
        elif (
            record is None
            or path.stat().st_size != record["bytes"]
            or sha256_of(path) != record["sha256"]
        ):
            fault = "has changed since it was written"
        else:
            return path
        raise DataError(
            f"{path} of part {self.part} {fault}; delete {self.name} and run its command again"
        )


def read_parts(out: str | Path) -> list[FinishedPart]:
    """Return the finished parts of an output, in order: all of them, each once, of one identity."""
    parent = find_parts(out)
    label, names = shorten(parent), _list_folders(parent)
    if names is None:
        raise DataError(
            f"{label} does not exist, so there are no parts of {shorten(out)}; make them with "
            "--part, or copy that folder here"
        )
    everything = [open_part(join(parent, name)) for name, has_marker in names.items() if has_marker]
    if not everything:
        raise DataError(f"{label} holds no finished part; run the commands with --part first")
    _require_fit(everything)
    finished: dict[int, FinishedPart] = {}
    for current in everything:
        if before := finished.get(current.part.number):
            raise DataError(
                f"part {current.part} is there twice, in {before.name} and {current.name}; "
                "delete one of them"
            )
        finished[current.part.number] = current
    for number in range(1, everything[0].part.count + 1):
        if number not in finished:
            part = Part(number, everything[0].part.count)
            state = "unfinished" if part.name in names else "missing"
            raise DataError(
                f"part {part} of {shorten(out)} is {state} ({join(label, part.name)}/{MARKER} does "
                f"not exist); run its command again, with --part {part}"
            )
    return [finished[number] for number in sorted(finished)]


def _list_folders(parent: str | Path) -> dict[str, bool] | None:
    """List the folders of parts, sorted, and whether each is finished; None without any."""
    url = as_url(parent)
    if url is None:
        path = Path(parent)
        if not path.is_dir():
            return None
        return {folder.name: is_finished(folder) for folder in sorted(path.iterdir())}
    names: dict[str, bool] = {}
    for entry in stores.list_below(url):
        name, _, file = entry.url[len(url) + 1 :].partition("/")
        names[name] = names.get(name, False) or file == MARKER
    return names or None


def open_part(folder: str | Path) -> FinishedPart:
    """Open a finished part, here or in a store."""
    url = as_url(folder)
    path = Path(folder)
    if url is not None:
        entries = stores.list_below(url)
        names = [entry.url[len(url) + 1 :] for entry in entries]
        below = [name for name in names if "/" in name]  # the tokenizer
        marker = stores.read_file(join(url, MARKER))
        path = cache.copy_records(url, below, marker, MARKER)
    content = read_marker(path)
    return FinishedPart(Part(content["part"], content["parts"]), path, content, url)


def _require_fit(parts: Sequence[FinishedPart]) -> None:
    """Refuse a part of another division, or of other work than most parts."""
    for other in parts:
        if other.part.count != parts[0].part.count:
            raise DataError(
                f"{other.name} is part {other.part}, and {parts[0].name} is part "
                f"{parts[0].part}; delete the parts of one of the two divisions"
            )
    texts = [json.dumps(part.marker["identity"], sort_keys=True) for part in parts]
    usual = parts[texts.index(Counter(texts).most_common(1)[0][0])]
    for other in parts:
        if fault := compare_identities(other.marker["identity"], usual.marker["identity"]):
            raise DataError(
                f"part {other.part} was made {fault} as part {usual.part}; delete {other.name} and "
                "run its command again with the options of the others"
            )
    from importlib.metadata import version  # late: it takes time

    made, current = usual.marker["identity"]["version"], version("litebert")
    if made != current:
        raise DataError(
            f"part {usual.part} ({join(usual.name, MARKER)}) was made by version {made} of litebert"
            f", and this is {current}; merge with {made}, or delete the parts and make them again"
        )
