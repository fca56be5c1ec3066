"""The Python values that `predict` reads, and what it writes: answers as rows of CSV or JSON
Lines."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Set
from typing import Any, Literal, TextIO

from litebert.storage import json_text


def members(value: Any) -> tuple[Any, ...]:
    """What a list holds.

    Raises:
        TypeError: it is none; a text, a set or a dictionary has no order that could be meant.
    """
    if isinstance(value, (str, bytes, Mapping, Set)):
        raise TypeError
    return tuple(value)


def texts(value: Any, *counts: int) -> tuple[str, ...]:
    """The texts that a list holds, as many as one of `counts` where these are given.

    Raises:
        TypeError: it holds something else.
    """
    found = members(value)
    if not all(isinstance(text, str) for text in found) or (counts and len(found) not in counts):
        raise TypeError
    return found


def write_records(
    records: Iterable[Mapping[str, Any]],
    file: TextIO,
    form: Literal["csv", "jsonl"],
    separator: str = ";",
) -> int:
    """Write records of answers as they come, in order; return how many there were.

    In CSV, after a line of names, probabilities by label have a column `p_LABEL` each, and the
    members of any other list stand in one cell with `separator` between them.
    """
    rows = csv.writer(file, lineterminator="\n")
    count = 0
    for record in records:
        if form == "jsonl":
            file.write(json_text(record, indent=None))
        else:
            cells = _cells(record, separator)
            if count == 0:
                rows.writerow(cells)
            rows.writerow(cells.values())
        count += 1
    return count


def _cells(record: Mapping[str, Any], separator: str) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            cells.update({f"p_{name}": p for name, p in value.items()})
        else:
            cells[key] = separator.join(map(str, value)) if isinstance(value, list) else value
    return cells
