"""`litebert merge`: the parts that several machines made, as one machine would have written it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from litebert.answer.files import merge_answers
from litebert.answer.part_scores import merge_scores
from litebert.answer.vector_files import merge_vectors
from litebert.data.part_shards import merge_shards
from litebert.errors import DataError
from litebert.finished_parts import FinishedPart, read_parts
from litebert.parts import MARKER
from litebert.remote.names import join


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
    _MERGERS[verb](out, parts)
    return parts


_MERGERS: Mapping[str, Callable[[str | Path, Sequence[FinishedPart]], object]] = {
    "prepare": merge_shards,
    "predict": merge_answers,
    "embed": merge_vectors,
    "evaluate": merge_scores,
}
