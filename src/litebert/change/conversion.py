"""Read a model folder and write it in another format, longer or smaller where that is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from litebert import progress
from litebert.change.lengthening import lengthen
from litebert.change.shrinking import Shrinking, Shrunk, shrink
from litebert.config.finetuning import HeadName
from litebert.interop.files import require_new
from litebert.interop.models import read_folder
from litebert.interop.sentence_modules import map_note
from litebert.registry import FORMATS


@dataclass(frozen=True)
class Conversion:
    """The result of `convert`."""

    path: Path
    notes: tuple[str, ...]
    shrunk: Shrunk | None = None
    """The losses, where the model was made smaller."""


@progress.task("converting")
def convert(
    source: str | Path,
    destination: str | Path,
    *,
    to: str = "litebert",
    head: HeadName | None = None,
    positions: int | None = None,
    window: int | None = None,
    global_every: int | None = None,
    global_tokens: int | None = None,
    shrinking: Shrinking | None = None,
    tokenizer: str | Path | None = None,
) -> Conversion:
    """Read any model folder and write it in another format, for longer texts (`lengthen`)
    or smaller.

    Args:
        to: a name in `FORMATS`: hf or litebert.
        head: the Hugging Face class to write or, of a source without a class name, to read; by
            default the one that holds most of the model.
        shrinking: how to make a pretrained model smaller (change/shrinking.py).
        tokenizer: of a source that has none, or one that cannot be read; it is written with the
            model.

    Raises:
        ConfigError: there is no such format, a size to shrink to cannot be, or the source has
            another tokenizer.
        ModelError: the source cannot be read, the destination is taken or lies in the source, or
            the format cannot express the model.
    """
    save = FORMATS[to]
    require_new(Path(destination), source)
    loaded = read_folder(source, head, tokenizer=tokenizer)
    longer = (positions, window, global_every, global_tokens)
    if any(value is not None for value in longer):
        loaded = lengthen(loaded, *longer)
    if shrinking is None or not shrinking.is_active:
        return Conversion(Path(destination), (*loaded.notes, *save(loaded, destination, head)))
    shrunk = shrink(loaded, shrinking)
    notes = (*loaded.notes, *save(shrunk.loaded, destination, head))
    left_out = tuple(
        f"the head of objective {name} does not fit the smaller model and is left out"
        for name in shrunk.left_out
    )
    return Conversion(Path(destination), (*notes, *left_out, *map_note(loaded)), shrunk)
