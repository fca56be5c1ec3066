"""The journal of an unfinished shard folder: what it is being made from, and which shards are done.

One JSON object a line, synced to the disk: first the settings and the tokenizer, then a `ShardInfo`
per finished shard. A line torn by a crash is cut off. `prepare` removes the journal once the index
is written.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from litebert import progress
from litebert.data.shards import ShardInfo
from litebert.errors import DataError
from litebert.storage import LOCK, sha256_of


class Journal:
    """Begins or continues the journal of `folder`, whose lock the caller holds; DataError for other
    settings.
    """

    NAME = "unfinished.jsonl"

    def __init__(self, folder: Path, header: dict[str, Any]) -> None:
        self._folder = folder
        with open(folder / self.NAME, "a+b") as file:
            file.seek(0)
            lines, end = _whole_lines(file)
            begun = (
                len(lines) > 1
            )  # otherwise nothing is finished yet, so a corrected command may start afresh
            file.truncate(end if begun else 0)
        if begun:
            check_same(folder, lines[0], header)
        else:
            self._write(header)
        self.finished: dict[str, ShardInfo] = {}
        """Shards that are on the disk as they were written, by file name."""
        infos = [ShardInfo.from_json(line) for line in lines[1:]] if begun else []
        with progress.tracked(infos, "checking finished shards", len(infos), "shards") as checked:
            for info in checked:
                if (folder / info.file).is_file() and sha256_of(folder / info.file) == info.sha256:
                    self.finished[info.file] = info

    def _write(self, entry: dict[str, Any]) -> None:
        with open(self._folder / self.NAME, "ab") as file:
            file.write(json.dumps(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def add(self, info: ShardInfo) -> None:
        """Record a shard that is on the disk."""
        self._write(asdict(info))
        self.finished[info.file] = info


def _whole_lines(file: IO[bytes]) -> tuple[list[dict[str, Any]], int]:
    """The entries before a line that a crash tore, and where they end."""
    entries: list[dict[str, Any]] = []
    end = 0
    for line in file:
        try:
            entry = json.loads(line)
            if entries:
                ShardInfo.from_json(entry)
            else:
                entry["settings"].items(), entry["tokenizer"]
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
            break
        if not line.endswith(b"\n"):
            break
        entries.append(entry)
        end += len(line)
    return entries, end


def check_folder(folder: Path) -> None:
    """Raise DataError where a folder holds files and no journal says that they are ours."""
    if folder.exists() and not (folder / Journal.NAME).exists():
        foreign = [path.name for path in folder.iterdir() if path.name != LOCK]
        if foreign:
            raise DataError(
                f"{folder} holds other files ({foreign[0]}); give an empty folder or a new name"
            )


def check_same(folder: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise DataError naming what differs between the settings of `folder` and those asked for now.

    Not the times of files, nor how their names are spelled: only their text counts, and the
    checksums of the shards' text judge that.
    """
    remedy = "give --out another folder, or delete this one"
    if found.get("tokenizer") != wanted["tokenizer"]:
        raise DataError(f"{folder} was made with another tokenizer; {remedy}")
    old, new = found["settings"], wanted["settings"]
    for key in (*new, *(key for key in old if key not in new)):
        before, now = old.get(key), new.get(key)
        if key == "sources" and _places(before) == _places(now):
            continue
        if key != "files" and before != now:
            made, asked = (
                f"{key}={value!r}" if value is not None else f"no {key}" for value in (before, now)
            )
            raise DataError(f"{folder} was made with {made}, not {asked}; {remedy}")


def _places(sources: Any) -> Any:
    """Sources without what makes no difference, so that `x`, `./x` and `x/` are one."""
    return [os.path.abspath(source) for source in sources] if isinstance(sources, list) else sources
