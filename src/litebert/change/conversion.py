"""Read a model folder and write it in another format, longer or smaller where that is asked for; or
write it to the Hub.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from litebert import hub, progress
from litebert.change.lengthening import lengthen
from litebert.change.shrinking import Shrinking, Shrunk, shrink
from litebert.config.finetuning import HeadName
from litebert.errors import ConfigError, ModelError
from litebert.interop.cards import CARD, address_card
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


@dataclass(frozen=True)
class Push:
    """The result of `push`."""

    page: str
    """The address of the commit's page."""
    notes: tuple[str, ...]


def push(
    source: str | Path, destination: str, *, private: bool = False, message: str | None = None
) -> Push:
    """Write a model, its tokenizer and its model card to a repository of the Hub, as one commit.

    The model is converted to a folder for transformers, or to a litebert folder where transformers
    has no class for it.

    Args:
        destination: the repository, as in `hf:me/name`; it is created if need be.
        private: create a private repository, and write to no public one.
        message: what the commit says of itself.

    Raises:
        ConfigError: `destination` is no name of a repository.
        ModelError: the model cannot be opened, or the Hub cannot be reached or refuses.
    """
    if not hub.is_hub_name(destination):
        raise ConfigError(
            f"{destination} names no repository of the Hugging Face Hub; write hf:OWNER/NAME"
        )
    name = hub.parse_name(destination, ConfigError)
    if name.revision is not None:
        raise ConfigError(
            f"{destination} names a revision, and a push makes a new one; leave @{name.revision} "
            "out"
        )
    if "/" not in name.repository:
        raise ConfigError(f"{destination} has no owner; write hf:OWNER/{name.repository}")
    loaded = read_folder(source)
    with TemporaryDirectory(prefix="litebert-push-") as parent:
        folder = Path(parent) / "model"
        try:
            notes = FORMATS["hf"](loaded, folder, None)
        except ModelError as error:
            reason = f"transformers cannot hold the model, so it goes as a litebert folder: {error}"
            notes = (reason, *FORMATS["litebert"](loaded, folder, None))
        card = folder / CARD
        card.write_text(address_card(card.read_text("utf-8"), name.repository), "utf-8")
        page = hub.push_folder(
            folder, name, private=private, message=message or "Model written by litebert"
        )
    return Push(page, (*loaded.notes, *notes))
