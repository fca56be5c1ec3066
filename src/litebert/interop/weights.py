"""The one interpreter of the name tables, applied forwards and backwards.

`pairs` spells a table out for one config; `to_ours` and `to_theirs` are then the two directions of the same list. A
block of ours that sits in several slots of theirs is written once per slot: that is how sharing becomes copies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

import torch
from torch import Tensor

from litebert.config import EncoderConfig, replace
from litebert.errors import ModelError
from litebert.interop.layouts import Layout

_OLD_LEAVES = {"gamma": "weight", "beta": "bias"}
"""Names that files from before 2019 give to the parameters of a layer norm."""
_BUFFERS = ("position_ids", "token_type_ids")
"""Constants that older files hold beside the weights."""


class Pair(NamedTuple):
    """A parameter of ours and those of theirs that stack to it."""

    ours: str
    theirs: tuple[str, ...]


def slots(layout: Layout, config: EncoderConfig) -> list[tuple[int, int]]:
    """Our (attention, feed-forward) blocks in each of their slots, which are groups of layers or layers."""
    if layout.grouped and config.sharing in ("all", "groups") and groups_agree(config.layers, config.groups):
        return [(group, group) for group in range(config.groups)]
    return list(zip(config.attention_of(), config.feedforward_of(), strict=True))


def groups_agree(layers: int, groups: int) -> bool:
    """Whether transformers gives every layer the group that i * G // L does; its floats round otherwise for a few L."""
    return all(int(i / (layers / groups)) == i * groups // layers for i in range(layers))


def pairs(layout: Layout, parts: Collection[str], config: EncoderConfig, sentence: str = "") -> list[Pair]:
    """The names of some parts, spelled out for a config; `sentence` names our sentence objective."""
    # In order of first mention and without repeats: most templates do not depend on the slot.
    found: dict[Pair, None] = {}
    for module in (module for part in parts for module in layout.parts[part]):
        for slot, (attention, feedforward) in enumerate(slots(layout, config)):
            ours = module.ours.format(attention=attention, feedforward=feedforward, sentence=sentence)
            theirs = [name.format(slot=slot) for name in module.theirs]
            leaves = (*module.leaves, *["bias"] * (module.may_bias and config.bias))
            for leaf in leaves if slot or module.first else ():
                found[Pair(f"{ours}.{leaf}", tuple(f"{name}.{leaf}" for name in theirs))] = None
    return list(found)


def to_ours(table: Sequence[Pair], tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Their tensors as our state dict.

    Raises:
        ModelError: a key is missing or unknown; `source` is the file it names.
    """
    known = [name for pair in table for name in pair.theirs]
    unknown = sorted(tensors.keys() - set(known))
    missing = [name for name in known if name not in tensors]
    if missing:
        raise ModelError(
            f"{source} has no {_named(missing, unknown)}; the file and its config.json are not of one model"
        )
    if unknown:
        raise ModelError(
            f"{source} has {_named(unknown, known)}, which no part of this model holds; "
            "if it is not needed, remove it from the file"
        )
    return {pair.ours: torch.cat([tensors[name] for name in pair.theirs]).float() for pair in table}


def shared_again(layout: Layout, config: EncoderConfig, tensors: Mapping[str, Tensor]) -> EncoderConfig:
    """The config, with blocks shared where a layout without sharing holds bit-equal copies of them.

    Args:
        config: one that shares nothing.
    """
    if layout.grouped or config.layers == 1:
        return config
    blocks: dict[str, list[dict[str, Tensor]]] = {
        kind: [{} for _ in range(config.layers)] for kind in ("attention", "feedforward")
    }
    for pair in pairs(layout, ["backbone"], config):
        _, kind, number, *leaf = pair.ours.split(".", 3)
        if kind in blocks:
            held = {f"{leaf} {i}": tensors[name] for i, name in enumerate(pair.theirs) if name in tensors}
            blocks[kind][int(number)].update(held)
    attention, feedforward = map(_runs, blocks.values())
    layers, groups = range(config.layers), attention[-1] + 1
    if attention == feedforward and groups < config.layers:
        if groups == 1:
            return replace(config, sharing="all")
        if attention == [i * groups // config.layers for i in layers]:
            return replace(config, sharing="groups", groups=groups)
    if max(attention) == 0 and feedforward == [*layers]:
        return replace(config, sharing="attention")
    if max(feedforward) == 0 and attention == [*layers]:
        return replace(config, sharing="feedforward")
    return config


def _runs(blocks: Sequence[Mapping[str, Tensor]]) -> list[int]:
    """For each of adjacent blocks, in which run of equal ones it is; one may lack a tensor that the others have."""
    runs = [0]
    for block, last in zip(blocks[1:], blocks, strict=False):
        same = all(torch.equal(block[name], last[name]) for name in block.keys() & last.keys())
        runs.append(runs[-1] + (not same))
    return runs


def _named(names: Sequence[str], others: Sequence[str]) -> str:
    """The first of some names, how many more there are, and the nearest of the others where one is near."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    close = get_close_matches(names[0], others, n=1)
    return f"'{names[0]}'{more}" + (f" (nearest: '{close[0]}')" if close else "")


def to_theirs(table: Sequence[Pair], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our state dict as their tensors, each with memory of its own."""
    tensors: dict[str, Tensor] = {}
    for pair in table:
        whole = state[pair.ours].detach().cpu()
        for name, piece in zip(pair.theirs, whole.chunk(len(pair.theirs)), strict=True):
            tensors[name] = piece.clone()
    return tensors


def modernise(layout: Layout, tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Their tensors under today's names: prefixed, old spellings renamed, buffers and tied repeats dropped.

    Raises:
        ModelError: keys that must be tied differ.
    """
    prefix = layout.backbone_prefix
    bare = not any(name.startswith(prefix) for name in tensors)
    clean: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        leaf = name.rpartition(".")[2]
        if leaf in _BUFFERS:
            continue
        current = name.removesuffix(leaf) + _OLD_LEAVES.get(leaf, leaf)
        clean[prefix + current if bare else current] = tensor
    for name, target in layout.tied.items():
        if name in clean:
            tensor = clean.pop(name)
            if not torch.equal(clean.setdefault(target, tensor), tensor):
                raise ModelError(
                    f"{source} has its own '{name}', different from '{target}'; only tied embeddings can be computed"
                )
    return clean
