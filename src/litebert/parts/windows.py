"""The records and vectors of a part, window by window, and those of all parts in order.

OUT.parts/2-of-4/windows.jsonl has one line for each finished window of the part; one that a crash
tore is cut off. A window is the rows that one run computes together, because other neighbors would
change its numbers' last bits. A part's windows are neighbors where the rows are counted before
(answer/part_rows.py); else each part reads all rows, and window w is that of part w modulo n.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from litebert.base.errors import DataError
from litebert.base.storage import naming
from litebert.parts import (
    BEGUN,
    MARKER,
    Part,
    Turns,
    finish_part,
    is_finished,
    lock_part,
    read_marker,
)
from litebert.parts.finished import FinishedPart

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FILE = "windows.jsonl"
Window: TypeAlias = "tuple[list[dict[str, Any]], NDArray[np.float32] | None]"
"""The records of some rows, and their vectors (n, D) if they have any."""


def write_part(
    out: Any,
    part: Part,
    identity: Mapping[str, Any],
    compute: Callable[[Turns], Iterator[Window]],
    describe: Callable[[], Mapping[str, Any]],
    windows: int | None = None,
) -> int:
    """Compute the windows of a part that are missing, finish it, and return its rows.

    `compute` yields windows in order; `describe` tells what the marker holds for `merge`, with
    `rows`, after the last row is read; `windows` is how many all parts have, if counted.
    """
    with lock_part(out, part, identity) as target:
        folder = target.folder
        if not is_finished(folder):
            path = folder / FILE
            finished = _read_finished(path)
            turns = Turns(part, finished, windows)
            units = itertools.count() if windows is None else turns.stretch
            numbers = (number for number in units if number in turns)
            with naming(path), open(path, "ab") as file:
                for (records, vectors), number in zip(compute(turns), numbers, strict=False):
                    line: dict[str, Any] = {"window": number, "records": records}
                    if vectors is not None:
                        line["width"] = vectors.shape[1]
                        data = vectors.astype("<f4").tobytes()
                        line["vectors"] = base64.b64encode(data).decode()
                    file.write(json.dumps(line).encode() + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
                    finished[number] = len(records)
                    target.send_growing(FILE)
            count = sum(finished.values())
            finish_part(folder, part, identity, files=[FILE], count=count, **describe())
            target.send(FILE)
            target.finish(MARKER)
            target.delete(BEGUN)
        return int(read_marker(folder)["count"])


def _parse_line(line: bytes) -> tuple[int, Window]:
    if not line.endswith(b"\n"):
        raise ValueError("the line has no end")
    content = json.loads(line)
    vectors = None
    if "vectors" in content:
        import numpy as np

        data = base64.b64decode(content["vectors"])
        vectors = np.frombuffer(data, "<f4").reshape(-1, content["width"])
    return int(content["window"]), (content["records"], vectors)


def _read_finished(path: Path) -> dict[int, int]:
    finished: dict[int, int] = {}
    end = 0
    with open(path, "a+b") as file:
        file.seek(0)
        for line in file:
            try:
                number, (records, _) = _parse_line(line)
            except (ValueError, KeyError, TypeError):
                break
            finished[number] = len(records)
            end += len(line)
        file.truncate(end)
    return finished


def read_windows(parts: Sequence[FinishedPart]) -> Iterator[Window]:
    """Yield the windows of all parts in order, in constant memory."""
    rows = [part.marker.get("rows") for part in parts]
    for part, count in zip(parts, rows, strict=True):
        if count != rows[0]:
            raise DataError(
                f"part {part.part} ({part.folder}) read {count} rows, and part {parts[0].part} "
                f"read {rows[0]}; delete {part.folder} and run its command again"
            )
    total = 0
    for expected, (part, number, window) in enumerate(_order_windows(parts)):
        if number != expected:
            raise _make_damage_error(part)
        total += len(window[0])
        yield window
    if total != rows[0]:
        raise _make_damage_error(parts[-1])


def _order_windows(parts: Sequence[FinishedPart]) -> Iterator[tuple[FinishedPart, int, Window]]:
    lines = [_read_lines(part) for part in parts]
    if "rows" in parts[0].marker["identity"]["input"]:  # a part has neighbors
        for part, windows in zip(parts, lines, strict=True):
            for number, window in windows:
                yield part, number, window
        return
    for part, windows in itertools.cycle(zip(parts, lines, strict=True)):
        line = next(windows, None)
        if line is None:
            return
        yield part, *line


def _read_lines(part: FinishedPart) -> Iterator[tuple[int, Window]]:
    with open(part.open_file(FILE), "rb") as file:
        for line in file:
            try:
                yield _parse_line(line)
            except (ValueError, KeyError, TypeError):
                raise _make_damage_error(part) from None


def _make_damage_error(part: FinishedPart) -> DataError:
    return DataError(
        f"{part.folder / FILE} of part {part.part} is damaged; delete {part.folder} and run its "
        "command again"
    )
