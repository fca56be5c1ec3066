"""`metrics.jsonl`: one JSON object for each thing a run reports, appended and flushed at once.

A row has `step` (optimizer steps done), `kind`, and numbers or a message. A run that continues from
step s first cuts the rows after s. Write the rows of a step before its checkpoint, and none is ever
lost. `speed.jsonl`, with seconds and tokens per second, is a file of its own because equal runs
write equal metrics, but take different times.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, Literal

from litebert.base.errors import RunError
from litebert.base.storage import atomic_write, json_text
from litebert.train.trackers import TrackerGroup

log = logging.getLogger("litebert")

Kind = Literal["train", "heldout", "event", "speed"]


@contextmanager
def collect_remarks(heard: list[str]) -> Iterator[None]:
    """Add the warnings that the package logs in this block to `heard`, for the events of a run."""

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    ear = Ear(logging.WARNING)
    log.addHandler(ear)
    try:
        yield
    finally:
        log.removeHandler(ear)


class MetricsLog:
    """The log of one run, open for appending; call `close` at the end."""

    def __init__(
        self, folder: str | Path, resume: int | None = None, trackers: Sequence[str] = ()
    ) -> None:
        """Open `folder/metrics.jsonl`, empty or with the rows up to step `resume`."""
        self._path, self._speed_path = Path(folder) / "metrics.jsonl", Path(folder) / "speed.jsonl"
        self._file, rows, written = _open_rows(self._path, resume)
        self._events = {str(row.get("message")) for row in rows if row["kind"] == "event"}
        self._speed, *_ = _open_rows(self._speed_path, resume)
        self._trackers = TrackerGroup(Path(folder), trackers, resume, rows, written)

    def write(self, kind: Kind, step: int, **values: Any) -> None:
        """Append one row; a number that is not finite is null, which every JSON reader takes."""
        text = json_text({"step": step, "kind": kind, **values}, indent=None)
        line = text.encode()
        file, path = (
            (self._speed, self._speed_path) if kind == "speed" else (self._file, self._path)
        )
        try:
            if file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise RunError(
                f"cannot write {path}: {error.strerror}; fix that and run the same command again"
            ) from None
        self._trackers.log(json.loads(text))

    def note(self, step: int, messages: Iterable[str]) -> None:
        """Write the messages that are no events yet: a run that continues repeats some."""
        for message in messages:
            if message not in self._events:
                self._events.add(message)
                self.write("event", step, message=message)

    def sync(self) -> None:
        """Put all rows on the disk, as a checkpoint must not survive a power cut without them."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
        self._speed.close()
        self._trackers.close()


def _open_rows(path: Path, resume: int | None) -> tuple[FileIO, list[dict[str, Any]], int]:
    found = [] if resume is None or not path.exists() else _read_rows(path)
    written = max((row["step"] for _, row in found), default=-1)
    rows = [(line, row) for line, row in found if row["step"] <= (resume or 0)]
    content = b"".join(line + b"\n" for line, _ in rows)
    if not path.exists() or path.read_bytes() != content:
        with atomic_write(path) as file:
            file.write(content)
    return open(path, "ab", buffering=0), [row for _, row in rows], written


def read(path: str | Path) -> list[dict[str, Any]]:
    """Read the rows of a `metrics.jsonl` or `speed.jsonl`, but a last one that a kill cut short."""
    if not Path(path).exists():
        raise RunError(f"{path} does not exist; give the folder of a run, which has one")
    return [row for _, row in _read_rows(Path(path))]


def format_scores(scores: Mapping[str, float], metric: str = "") -> str:
    """Format the losses and accuracies, or else the first two, among some scores, `metric` first:
    mlm loss 6.1, mlm accuracy 12%.
    """
    main = [name for name in scores if name.endswith(("loss", "accuracy"))] or list(scores)[:2]
    if metric in scores:
        main = [metric, *(name for name in main if name != metric)]
    shown = (
        (name, f"{scores[name]:.1%}" if name.endswith("accuracy") else f"{scores[name]:.3g}")
        for name in main
    )
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown)


def _read_rows(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
    lines = path.read_bytes().split(b"\n")
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            whole = isinstance(row, dict) and isinstance(row.get("step"), int) and "kind" in row
        except (ValueError, RecursionError):
            whole = False
        if whole:
            rows.append((line, row))
        elif number < len(lines):
            raise RunError(f"{path}:{number} is not a row of a run's metrics; delete that line")
    return rows
