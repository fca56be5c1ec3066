"""Read a model folder and write it in another format, in another shape, or to the Hub."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from litebert import hub
from litebert.base import progress
from litebert.base.errors import ConfigError, ModelError
from litebert.base.registry import FORMATS, POSITIONS
from litebert.change.shrinking import Shrinking, Shrunk, shrink
from litebert.config import EncoderConfig
from litebert.config.finetuning import HeadName
from litebert.demo import locate
from litebert.interop.cards import CARD, address_card
from litebert.interop.files import require_new
from litebert.interop.loaded import LoadedModel
from litebert.interop.models import read_folder
from litebert.interop.networks import rebuild
from litebert.interop.sentence_modules import map_note, truncate_saved_vectors


@dataclass(frozen=True)
class Conversion:
    path: Path
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Resized(Conversion):
    shrunk: Shrunk | None = None


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
    loaded = read_folder(locate(model), head, tokenizer=tokenizer)
    loaded = truncate_saved_vectors(loaded, vector_size)
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
    loaded = read_folder(locate(model), tokenizer=tokenizer)
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
    page: str
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


# ------------------------------------------------------------------------------------- longer texts


GLOBAL_EVERY = 3
"""The default with a window: every third layer reads everything, as in ModernBERT."""


def lengthen(
    loaded: LoadedModel,
    positions: int | None = None,
    window: int | None = None,
    global_every: int | None = None,
    global_tokens: int | None = None,
) -> LoadedModel:
    """A model with more positions, or with windows and global tokens; None keeps what is there. It
    must be trained further at the new length before it is used there.

    A learned table is repeated: row p of the longer one is row p mod n of the n there are, as
    Longformer began from RoBERTa (Beltagy et al. 2020, section 5), so neighbors keep the difference
    that the model has learned (docs/reports/results.md has it measured beside stretching). Rotary
    positions have no table: in layers that read everything the base grows so that the slowest pair
    of features turns over the longer text as far as it did over the shorter one, and the fastest as
    before ("NTK-aware" scaling: Peng et al. 2023, "YaRN", section 3.1).
    """
    was = loaded.config.encoder
    positions = was.max_positions if positions is None else positions
    if positions < was.max_positions:
        raise ModelError(
            f"{loaded.path} reads {was.max_positions} tokens, more than --positions "
            f"{positions}; give more"
        )
    changes: dict[str, Any] = {"max_positions": positions}
    if window is not None or global_every is not None:
        width = was.window if window is None else window
        usual = 1 if not width else was.global_every if was.window else GLOBAL_EVERY
        changes |= {"window": width}
        changes |= {"global_every": usual if global_every is None else global_every}
        changes |= {} if width else {"global_tokens": 0}
    changes |= {} if global_tokens is None else {"global_tokens": global_tokens}
    rotates = POSITIONS[was.positions](was).rotates
    if rotates:
        changes |= _bases(was, positions, changes.get("window", was.window))
    elif was.positions != "learned" and positions > was.max_positions:
        raise ModelError(
            f"{loaded.path} has encoder.positions={was.positions}, which cannot be stretched; "
            "leave --positions out"
        )
    config = replace(loaded.config, encoder=replace(was, **changes))
    other = replace(config, encoder=replace(config.encoder, max_positions=positions + 1))

    def repeat_rows(table: Tensor) -> Tensor:
        offset = was.position_offset  # rows before the first position
        rows = offset + torch.arange(positions) % (len(table) - offset)
        return torch.cat((table[:offset], table[rows]))

    return rebuild(loaded, config, other, repeat_rows)


def _bases(was: EncoderConfig, positions: int, window: int) -> dict[str, float]:
    size = was.hidden_size // was.heads
    grown = (positions / was.max_positions) ** (size / (size - 2) if size > 2 else 1)
    base = min(was.rotary_base * grown, 1e12)
    if not window:
        return {"rotary_base": base, "window_rotary_base": EncoderConfig.window_rotary_base}
    return {
        "rotary_base": base,
        "window_rotary_base": was.window_rotary_base if was.window else was.rotary_base,
    }
