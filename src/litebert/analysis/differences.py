"""Find the settings in which runs differ, and split tables that are wider than a screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from litebert.analysis.report import Table


def flatten(fields: Any, path: str = "") -> dict[str, str]:
    """Return nested fields by their dotted names, as text; None is left out."""
    if isinstance(fields, Mapping):
        return {
            key: value
            for name, inner in fields.items()
            for key, value in flatten(inner, f"{path}{name}.").items()
        }
    if not path or fields is None:
        return {}
    return {path[:-1]: ", ".join(map(str, fields)) if isinstance(fields, list) else str(fields)}


def find_differing(runs: Sequence[Mapping[str, str]]) -> list[str]:
    names = dict.fromkeys(name for settings in runs for name in settings)
    return [name for name in names if len({settings.get(name) for settings in runs}) > 1]


def shorten_names(runs: Sequence[str]) -> list[str]:
    """Return the folder name of each path, or the paths if two folder names are the same."""
    names = [Path(run).resolve().name for run in runs]
    return names if len(set(names)) == len(runs) else list(runs)


def split_table(table: Table, width: int, keys: int = 1) -> list[Table]:
    """Split a table by columns into tables of at most `width` characters, if possible.

    Args:
        keys: the number of first columns that every table repeats.
    """
    widths = [max(map(len, column)) + 2 for column in zip(table.columns, *table.rows, strict=True)]
    used = key_width = sum(widths[:keys])
    groups: list[list[int]] = [[]]
    for column in range(keys, len(widths)):
        if groups[-1] and used + widths[column] > width:
            groups.append([])
            used = key_width
        groups[-1].append(column)
        used += widths[column]

    def select(row: Sequence[str], columns: Sequence[int]) -> tuple[str, ...]:
        return (*row[:keys], *(row[column] for column in columns))

    return [
        Table(
            table.title,
            select(table.columns, chosen),
            tuple(select(row, chosen) for row in table.rows),
        )
        for chosen in groups
    ]
