"""The journal of an unfinished shard folder: its settings, and the shards that are finished.

It has one JSON object a line, synced to the disk: first the settings and the tokenizer, then a
`ShardInfo` for each finished shard. A line that a crash tore is cut off. `prepare` removes the
journal once the index is written.
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
from litebert.remote.names import is_url
from litebert.remote.target import Target


class Journal:
    """The journal of a folder, whose lock the caller holds. It is begun or continued.

    Raises:
        DataError: the folder was begun with other settings.
    """

    NAME = "unfinished.jsonl"

    def __init__(self, target: Target, header: dict[str, Any]) -> None:
        self._target, folder = target, target.folder
        with open(folder / self.NAME, "a+b") as file:
            file.seek(0)
            lines, end = _read_entries(file)
            # Without a finished shard, a corrected command may start again.
            is_continued = len(lines) > 1
            file.truncate(end if is_continued else 0)
        if is_continued:
            check_same(folder, lines[0], header)
        else:
            self._write(header)
        self.finished: dict[str, ShardInfo] = {}
        """Unchanged shards on the disk, by file name."""
        infos = [ShardInfo.from_json(line) for line in lines[1:]] if is_continued else []
        with progress.track(infos, "checking finished shards", len(infos), "shards") as checked:
            for info in checked:
                if target.has_file(info):
                    self.finished[info.file] = info

    def _write(self, entry: dict[str, Any]) -> None:
        with open(self._target.folder / self.NAME, "ab") as file:
            file.write(json.dumps(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._target.send_growing(self.NAME)

    def add(self, info: ShardInfo) -> None:
        """Record a shard that is on the disk, and bring it to the store."""
        self._target.send(info.file)
        self._write(asdict(info))
        self.finished[info.file] = info


def _read_entries(file: IO[bytes]) -> tuple[list[dict[str, Any]], int]:
    """Return the entries before a line that a crash tore, and the offset where they end."""
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


def check_folder(target: Target) -> None:
    """Refuse a folder that holds files but no journal.

    Raises:
        DataError: another program wrote the files.
    """
    names = target.list_names()
    if names and Journal.NAME not in names:
        raise DataError(
            f"{target.name} holds other files ({names[0]}); give an empty folder or a new name"
        )


def check_same(folder: str | Path, existing: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse a folder that was made with other settings.

    The times of files and the spelling of their names do not count. The checksums of the shards'
    text decide whether the text is the same.

    Raises:
        DataError: a setting differs. The message names it.
    """
    remedy = "give --out another folder, or delete this one"
    if existing.get("tokenizer") != wanted["tokenizer"]:
        raise DataError(f"{folder} was made with another tokenizer; {remedy}")
    old, new = existing["settings"], wanted["settings"]
    for key in (*new, *(key for key in old if key not in new)):
        before, now = old.get(key), new.get(key)
        if key == "sources" and _normalize_sources(before) == _normalize_sources(now):
            continue
        if key != "files" and before != now:
            made, wanted_now = (
                f"with {key}={value!r}" if value is not None else f"without {key}"
                for value in (before, now)
            )
            raise DataError(f"{folder} was made {made}, not {wanted_now}; {remedy}")


def _normalize_sources(sources: Any) -> Any:
    """Return absolute paths of sources, so that `x`, `./x` and `x/` are the same."""
    if not isinstance(sources, list):
        return sources
    return [source.rstrip("/") if is_url(source) else os.path.abspath(source) for source in sources]
