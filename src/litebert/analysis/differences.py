"""In which of their settings runs differ, and tables cut into parts that fit a screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from litebert.analysis.report import Table


def flat(fields: Any, path: str = "") -> dict[str, str]:
    """Nested fields by their dotted names, as text."""
    if isinstance(fields, Mapping):
        return {
            key: value
            for name, inner in fields.items()
            for key, value in flat(inner, f"{path}{name}.").items()
        }
    if not path or fields is None:
        return {}
    return {path[:-1]: ", ".join(map(str, fields)) if isinstance(fields, list) else str(fields)}


def differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """The names whose values are not the same everywhere, in order of first mention."""
    names = dict.fromkeys(name for one in settings for name in one)
    return [name for name in names if len({one.get(name) for one in settings}) > 1]


def short_names(runs: Sequence[str]) -> list[str]:
    """The last part of each path, where these tell the runs apart, and else the paths."""
    names = [Path(run).resolve().name for run in runs]
    return names if len(set(names)) == len(runs) else list(runs)


def parts(table: Table, width: int, keys: int = 1) -> list[Table]:
    """The table in parts of at most `width` characters where that can be, each with the first
    `keys` columns.
    """
    widths = [max(map(len, column)) + 2 for column in zip(table.columns, *table.rows, strict=True)]
    used = first = sum(widths[:keys])
    cuts: list[list[int]] = [[]]
    for place in range(keys, len(widths)):
        if cuts[-1] and used + widths[place] > width:
            cuts.append([])
            used = first
        cuts[-1].append(place)
        used += widths[place]

    def chosen(row: Sequence[str], places: Sequence[int]) -> tuple[str, ...]:
        return (*row[:keys], *(row[place] for place in places))

    return [
        Table(
            table.title,
            chosen(table.columns, places),
            tuple(chosen(row, places) for row in table.rows),
            "",
        )
        for places in cuts
    ]
