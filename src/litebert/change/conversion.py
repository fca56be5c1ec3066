"""Read a model folder and write it in another format, in another shape, or to the Hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from litebert import hub
from litebert.base import progress
from litebert.base.errors import ConfigError, ModelError
from litebert.base.registry import FORMATS
from litebert.change.lengthening import lengthen
from litebert.change.shrinking import Shrinking, Shrunk, shrink
from litebert.config.finetuning import HeadName
from litebert.interop.cards import CARD, address_card
from litebert.interop.files import require_new
from litebert.interop.models import read_folder
from litebert.interop.sentence_modules import map_note, truncate_saved_vectors


@dataclass(frozen=True)
class Conversion:
    """The result of `convert`."""

    path: Path
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Resized(Conversion):
    """The result of `resize`."""

    shrunk: Shrunk | None = None
    """The losses, where the model was made smaller."""


@progress.task("converting")
def convert(
    model: str | Path,
    out: str | Path,
    *,
    to: str = "litebert",
    head: HeadName | None = None,
    tokenizer: str | Path | None = None,
    vector_size: int | None = None,
) -> Conversion:
    """Read any model folder and write it in another format.

    Args:
        to: a name in `FORMATS`: hf or litebert.
        head: the Hugging Face class to write or, of a model without a class name, to read; by
            default the one that holds most of the model.
        tokenizer: of a model that has none, or one that cannot be read; it is written with the
            model.
        vector_size: of a model of sentence vectors, the numbers of a vector that are left, the
            first ones; all by default.

    Raises:
        ConfigError: there is no such format, the model has another tokenizer, or its vectors have
            no such size.
        ModelError: the model cannot be read, `out` is taken or lies in the model, or the format
            cannot express the model.
    """
    save = FORMATS[to]
    require_new(Path(out), model)
    loaded = truncate_saved_vectors(read_folder(model, head, tokenizer=tokenizer), vector_size)
    return Conversion(Path(out), (*loaded.notes, *save(loaded, out, head)))


@progress.task("resizing")
def resize(
    model: str | Path,
    out: str | Path,
    *,
    positions: int | None = None,
    window: int | None = None,
    global_every: int | None = None,
    global_tokens: int | None = None,
    shrinking: Shrinking | None = None,
    tokenizer: str | Path | None = None,
) -> Resized:
    """Write a model with another shape as a litebert folder: for longer texts (`lengthen`), or
    smaller.

    Args:
        shrinking: how to make a pretrained model smaller (change/shrinking.py).
        tokenizer: as in `convert`.

    Raises:
        ConfigError: nothing is to change, a size cannot be, or the model has another tokenizer.
        ModelError: the model cannot be read, or `out` is taken or lies in the model.
    """
    longer = (positions, window, global_every, global_tokens)
    is_stretched = any(value is not None for value in longer)
    if not is_stretched and (shrinking is None or not shrinking.is_active):
        raise ConfigError(
            "nothing says what to change; give a size, such as --positions or --layers"
        )
    save = FORMATS["litebert"]
    require_new(Path(out), model)
    loaded = read_folder(model, tokenizer=tokenizer)
    if is_stretched:
        loaded = lengthen(loaded, *longer)
    if shrinking is None or not shrinking.is_active:
        return Resized(Path(out), (*loaded.notes, *save(loaded, out, None)))
    shrunk = shrink(loaded, shrinking)
    notes = (*loaded.notes, *save(shrunk.loaded, out, None))
    left_out = tuple(
        f"the head of objective {name} does not fit the smaller model and is left out"
        for name in shrunk.left_out
    )
    return Resized(Path(out), (*notes, *left_out, *map_note(loaded)), shrunk)


@dataclass(frozen=True)
class Push:
    """The result of `push`."""

    page: str
    """The address of the commit's page."""
    notes: tuple[str, ...]


def push(
    model: str | Path, destination: str, *, private: bool = False, message: str | None = None
) -> Push:
    """Write a model, its tokenizer and its model card to a repository of the Hub, as one commit.

    The model is converted to a folder for transformers, or to a litebert folder where transformers
    has no class for it.

    Args:
        destination: the repository, as in `hf:me/name`; it is created if needed.
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
    loaded = read_folder(model)
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
