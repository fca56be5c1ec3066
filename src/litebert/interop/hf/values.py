"""One value of a settings file, checked; the error names the file and the key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litebert.base.errors import ModelError
from litebert.base.json_reader import read_json


def whole(
    settings: Mapping[str, Any], key: str, source: str, least: int = 1, default: int | None = None
) -> int:
    """A whole number of at least `least`; required unless it has a default."""
    value = settings.get(key, default)
    if key not in settings and value is None:
        raise ModelError(f"{source} has no '{key}'; add it, as the weights were made with it")
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ModelError(
            f"{source} has {key}={value!r}; it must be a whole number of at least {least}"
        )
    return value


def number(settings: Mapping[str, Any], key: str, source: str, default: float) -> float:
    """A number, whole or not."""
    value = settings.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ModelError(f"{source} has {key}={value!r}; it must be a number")
    return float(value)


def read_longest(folder: Path, positions: int) -> int:
    """To how many tokens `truncation=True` cuts; where the folder does not say, all there is room
    for.
    """
    file = folder / "tokenizer_config.json"
    longest = read_json(file, ModelError).get("model_max_length") if file.is_file() else None
    # Theirs say 1e30 where they do not know.
    return (
        int(min(longest, positions))
        if isinstance(longest, (int, float)) and longest >= 1
        else positions
    )
