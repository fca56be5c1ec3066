"""The journal of an unfinished shard folder: what it is being made from, and which shards are done.

One JSON object a line: first the settings and the tokenizer, then a `ShardInfo` per finished shard, each synced to
the disk. A line torn by a crash is cut off. It is removed once the index is written.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from litebert.data.shards import ShardInfo
from litebert.errors import DataError
from litebert.storage import LOCK, sha256_of


class Journal:
    """Opens or continues the journal of `folder`, whose lock the caller holds.

    Raises:
        DataError: the folder was begun with other settings.
    """

    NAME = "unfinished.jsonl"

    def __init__(self, folder: Path, header: dict[str, Any]) -> None:
        self._folder = folder
        with open(folder / self.NAME, "a+b") as file:
            file.seek(0)
            lines, end = _whole_lines(file)
            begun = len(lines) > 1  # otherwise nothing is finished yet, so a corrected command may start afresh
            file.truncate(end if begun else 0)
        if begun:
            check_same(folder, lines[0], header)
        else:
            self._write(header)
        infos = [ShardInfo(**line) for line in lines[1:]]
        self.finished = {info.file: info for info in infos if self._is_whole(info)}
        """Shards that are on the disk as they were written, by file name."""

    def _is_whole(self, info: ShardInfo) -> bool:
        file = self._folder / info.file
        return file.is_file() and file.stat().st_size == info.bytes and sha256_of(file) == info.sha256

    def _write(self, entry: dict[str, Any]) -> None:
        with open(self._folder / self.NAME, "ab") as file:
            file.write(json.dumps(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def add(self, info: ShardInfo) -> None:
        """Record a shard that is on the disk."""
        self._write(asdict(info))
        self.finished[info.file] = info

    def remove(self) -> None:
        """The set is whole."""
        (self._folder / self.NAME).unlink(missing_ok=True)


def _whole_lines(file: IO[bytes]) -> tuple[list[dict[str, Any]], int]:
    """The entries before a line that a crash tore, and where they end."""
    entries: list[dict[str, Any]] = []
    end = 0
    for line in file:
        try:
            entry = json.loads(line)
        except ValueError:
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
            raise DataError(f"{folder} holds other files ({foreign[0]}); give an empty folder or a new name")


def check_same(folder: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise DataError naming what differs between the settings of `folder` and those asked for now.

    Files may differ in their times: only their text counts, and the checksums of the shards' text judge that.
    """
    if found.get("tokenizer") != wanted["tokenizer"]:
        raise DataError(f"{folder} is made with another tokenizer; give --out another folder, or delete this one")
    old, new = found.get("settings", {}), wanted["settings"]
    for key in new:
        if key != "files" and old.get(key) != new[key]:
            raise DataError(
                f"{folder} is made with {key}={old.get(key)!r}, not {new[key]!r}; give --out another folder, or "
                "delete this one"
            )
