"""`litebert merge`: the parts that several machines made, as one machine would have written it."""

from __future__ import annotations

from pathlib import Path

from litebert.data.part_shards import merge_shards
from litebert.errors import DataError
from litebert.parts import FinishedPart, read_parts


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
    if verb == "prepare":
        merge_shards(out, parts)
    else:
        raise DataError(f"{parts[0].folder} is of litebert {verb}, which has no parts to merge")
    return parts
