"""The one interpreter of the name tables, applied forwards and backwards.

`pairs` spells a table out for one config; `to_ours` and `to_theirs` are then the two directions of
the same list. A block of ours that sits in several slots of theirs is written once per slot: that
is how sharing becomes copies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

import torch
from torch import Tensor

from litebert.config import EncoderConfig, replace
from litebert.errors import ModelError
from litebert.interop.layouts import Layout

_OLD_LEAVES = {"gamma": "weight", "beta": "bias"}
"""Names that files from before 2019 give to the parameters of a layer norm."""
BUFFERS = ("position_ids", "token_type_ids")
"""Constants that older files hold beside the weights."""
GENERATOR = "generator."
"""What stands in the place of the backbone's prefix in files that hold a generator too."""


class Pair(NamedTuple):
    """A parameter of ours and those of theirs that stack to it."""

    ours: str
    theirs: tuple[str, ...]


def slots(layout: Layout, config: EncoderConfig) -> list[tuple[int, int]]:
    """Our (attention, feed-forward) blocks in each of their slots, which are groups of layers or
    layers.
    """
    if layout.grouped and as_groups(config):
        return [(group, group) for group in range(config.groups)]
    return list(zip(config.attention_of(), config.feedforward_of(), strict=True))


def as_groups(config: EncoderConfig) -> bool:
    """Whether the groups of transformers say what these layers share."""
    return config.sharing in ("all", "groups") and groups_agree(config.layers, config.groups)


def groups_agree(layers: int, groups: int) -> bool:
    """Whether transformers gives every layer the group that i * G // L does; its floats round
    otherwise for a few L.
    """
    return all(int(i / (layers / groups)) == i * groups // layers for i in range(layers))


def pairs(
    layout: Layout, parts: Collection[str], config: EncoderConfig, sentence: str = ""
) -> list[Pair]:
    """The names of some parts, spelled out for a config; `sentence` names our sentence
    objective."""
    # In order of first mention and without repeats: most templates do not depend on the slot.
    found: dict[Pair, None] = {}
    for module in (module for part in parts for module in layout.parts[part]):
        for slot, (attention, feedforward) in enumerate(slots(layout, config)):
            ours = module.ours.format(
                attention=attention, feedforward=feedforward, sentence=sentence
            )
            theirs = [name.format(slot=slot) for name in module.theirs]
            leaves = (*module.leaves, *["bias"] * (module.may_bias and config.bias))
            there = (slot or module.first) and (config.untied or not module.untied)
            for leaf in leaves if there else ():
                found[Pair(f"{ours}.{leaf}", tuple(f"{name}.{leaf}" for name in theirs))] = None
    return list(found)


def generator_pairs(layout: Layout, config: EncoderConfig) -> list[Pair]:
    """The names of a generator's own weights, beside the embeddings that it borrows from the
    encoder.
    """
    parts = ["backbone", *["projection"] * config.projects]
    return [
        Pair(
            pair.ours.replace("encoder.", "objectives.mlm.generator.", 1),
            tuple(name.replace(layout.backbone_prefix, GENERATOR, 1) for name in pair.theirs),
        )
        for pair in pairs(layout, parts, config)
        if not pair.ours.startswith("encoder.embedding.") or ".project." in pair.ours
    ]


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
            f"{source} has no {_named(missing, unknown)}; the file and its config.json are "
            "not of one model"
        )
    if unknown:
        raise ModelError(
            f"{source} has {_named(unknown, known)}, which no part of this model holds; "
            "if it is not needed, remove it from the file"
        )
    return {pair.ours: torch.cat([tensors[name] for name in pair.theirs]).float() for pair in table}


def shared_again(
    layout: Layout, config: EncoderConfig, tensors: Mapping[str, Tensor]
) -> EncoderConfig:
    """The config, where it shares nothing, with blocks shared of which the file holds bit-equal
    copies.
    """
    if config.sharing != "none" or config.layers == 1:
        return config
    blocks: dict[str, list[dict[str, Tensor]]] = {
        kind: [{} for _ in range(config.layers)] for kind in ("attention", "feedforward")
    }
    for pair in pairs(layout, ["backbone"], config):
        _, kind, number, *leaf = pair.ours.split(".", 3)
        if kind in blocks:
            held = {
                f"{leaf} {i}": tensors[name]
                for i, name in enumerate(pair.theirs)
                if name in tensors
            }
            blocks[kind][int(number)].update(held)
    attention, feedforward = map(_kinds, blocks.values())
    for like in _sharings(config, 1 + max(attention), 1 + max(feedforward)):
        if attention == _numbered(like.attention_of()) and feedforward == _numbered(
            like.feedforward_of()
        ):
            return like
    return config


def _sharings(config: EncoderConfig, attention: int, feedforward: int) -> Iterator[EncoderConfig]:
    """Every way to share so many blocks of either kind between the layers, the simplest first."""
    if attention == feedforward == 1:
        yield replace(config, sharing="all")
    elif attention == feedforward < config.layers:
        yield replace(config, sharing="groups", groups=attention)
    if attention == 1:
        yield replace(config, sharing="attention")
    if feedforward == 1:
        yield replace(config, sharing="feedforward")


def _kinds(blocks: Sequence[Mapping[str, Tensor]]) -> list[int]:
    """The number of each block among the different ones; one may lack a tensor that its equals
    have.
    """
    different: list[dict[str, Tensor]] = []
    kinds = []
    for block in blocks:
        same = (
            i
            for i, other in enumerate(different)
            if all(torch.equal(block[name], other[name]) for name in block.keys() & other.keys())
        )
        kinds.append(next(same, len(different)))
        if kinds[-1] == len(different):
            different.append({})
        different[kinds[-1]].update(block)
    return kinds


def _numbered(blocks: Sequence[int]) -> list[int]:
    """The same map with blocks numbered as they come."""
    numbers: dict[int, int] = {}
    return [numbers.setdefault(block, len(numbers)) for block in blocks]


def _named(names: Sequence[str], others: Sequence[str]) -> str:
    """The first of some names, how many more there are, and the nearest of the others where one is
    near.
    """
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


def modernise(
    layout: Layout, tensors: Mapping[str, Tensor], source: str, untied: bool = False
) -> dict[str, Tensor]:
    """Their tensors under today's names: prefixed, old spellings renamed, buffers and tied repeats
    dropped.

    Args:
        untied: whether what is usually tied is not.

    Raises:
        ModelError: keys that must be tied differ.
    """
    prefix = layout.backbone_prefix
    bare = not any(name.startswith(prefix) for name in tensors)
    clean: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        leaf = name.rpartition(".")[2]
        if leaf in BUFFERS:
            continue
        current = name.removesuffix(leaf) + _OLD_LEAVES.get(leaf, leaf)
        clean[prefix + current if bare else current] = tensor
    for name, target in () if untied else layout.tied.items():
        if name in clean:
            tensor = clean.pop(name)
            if not torch.equal(clean.setdefault(target, tensor), tensor):
                raise ModelError(
                    f"{source} has its own '{name}', different from '{target}'; only tied "
                    "embeddings can be computed"
                )
    return clean
