"""`litebert merge`: the parts that several machines made, as one machine would have written it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from litebert.answer.files import merge_answers
from litebert.answer.vector_files import merge_vectors
from litebert.base.errors import DataError
from litebert.base.storage import lock_folder
from litebert.data.part_shards import merge_shards
from litebert.parts import MARKER, find_parts
from litebert.parts.finished import FinishedPart, read_parts
from litebert.remote.names import is_url, join


def merge(out: str | Path) -> list[FinishedPart]:
    """Make `out` of its parts, bit for bit what the same command without `--part` writes.

    The same call again continues. The parts stay.

    Returns:
        The parts.

    Raises:
        DataError: a part is missing, unfinished, doubled, damaged or of other work; the message
            names the part and the file.
    """
    parts = read_parts(out)
    verb = parts[0].marker["identity"]["verb"]
    if verb not in _MERGERS:
        raise DataError(
            f"{join(parts[0].name, MARKER)} was made by litebert {verb}, whose parts this version "
            "cannot merge; merge them with the version that made them"
        )
    run, *fields = _MERGERS[verb]
    for part in parts:
        known = {**part.marker["identity"]["settings"], **part.marker}
        if missing := [name for name in fields if name not in known]:
            raise DataError(
                f"{join(part.name, MARKER)} has no {missing[0]}, which a part of litebert {verb} "
                "has; delete that part and run its command again"
            )
    folder = Path(find_parts(out))
    is_locked = not is_url(out) and os.access(folder, os.W_OK)  # else it is only read
    with lock_folder(folder, DataError) if is_locked else nullcontext():
        run(out, parts)
    return parts


_MERGERS: Mapping[str, tuple[Any, ...]] = {
    "prepare": (merge_shards, "header", "shards", "documents", "tally"),
    "predict": (merge_answers, "form", "separator", "first_file", "rows"),
    "embed": (merge_vectors, "width", "dtype", "rows"),
}
"""Merges the parts of a verb; and the fields that their markers have."""
