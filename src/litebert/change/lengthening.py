"""A model for longer texts: more positions, and windows so that attention costs no more per token.
Either way it must be trained further at the new length before it is used there.

A learned table is repeated: row p of the longer one is row p mod n of the n there are, as
Longformer began from RoBERTa (Beltagy et al. 2020, section 5), so neighbors keep the difference
that the model has learned (docs/reports/results.md has it measured beside stretching). Rotary
positions have no table: in layers that read everything the base grows so that the slowest pair of
features turns over the longer text as far as it did over the shorter one, and the fastest as before
("NTK-aware" scaling: Peng et al. 2023, "YaRN", section 3.1).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from litebert.base.errors import ModelError
from litebert.base.registry import POSITIONS
from litebert.config import EncoderConfig
from litebert.interop.loaded import LoadedModel
from litebert.interop.networks import rebuild

GLOBAL_EVERY = 3
"""The default with a window: every third layer reads everything, as in ModernBERT."""


def lengthen(
    loaded: LoadedModel,
    positions: int | None = None,
    window: int | None = None,
    global_every: int | None = None,
    global_tokens: int | None = None,
) -> LoadedModel:
    """A model with more positions, or with windows and global tokens; None keeps what is there."""
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
