"""Check the Python values that `predict` reads, and write its answers as CSV or JSON Lines."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Set
from typing import Any, Literal, TextIO

from litebert.base.storage import json_text


def list_members(value: Any) -> tuple[Any, ...]:
    if isinstance(value, (str, bytes, Mapping, Set)):
        raise TypeError
    return tuple(value)


def list_texts(value: Any, *counts: int) -> tuple[str, ...]:
    """Return the texts of a list, whose number must be among `counts` if there are any."""
    members = list_members(value)
    if not all(isinstance(member, str) for member in members):
        raise TypeError
    if counts and len(members) not in counts:
        raise TypeError
    return members


def write_records(
    records: Iterable[Mapping[str, Any]],
    file: TextIO,
    form: Literal["csv", "jsonl"],
    separator: str = ";",
) -> int:
    """Write records of answers in order, each as it comes, and return their number.

    CSV has a column `p_LABEL` for each label's probability. Other lists share a cell, with
    `separator` between their members, or as JSON if these have parts.
    """
    rows = csv.writer(file, lineterminator="\n")
    count = 0
    for record in records:
        if form == "jsonl":
            file.write(json_text(record, indent=None))
        else:
            cells = {
                name: _join(value, separator) if isinstance(value, list) else value
                for name, value in flatten_record(record).items()
            }
            if count == 0:
                rows.writerow(cells)
            rows.writerow(cells.values())
        count += 1
    return count


def _join(members: list[Any], separator: str) -> str:
    if any(isinstance(member, (list, tuple, dict)) for member in members):
        return json_text(members, indent=None).strip()
    return separator.join(map(str, members))


def flatten_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cells of a record by column: each label's probability has a column `p_LABEL`."""
    cells: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            cells |= {f"p_{name}": probability for name, probability in value.items()}
        else:
            cells[key] = value
    return cells
