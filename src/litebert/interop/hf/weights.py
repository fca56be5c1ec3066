"""The interpreter of the name tables, forwards and backwards, on arrays of NumPy without torch.

`pairs` spells a table out for one config; `to_litebert` and `to_foreign` are the directions of that
list. A block that sits in several foreign slots is written once per slot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import ModelError
from litebert.config import EncoderConfig, replace
from litebert.interop.hf.families import Family
from litebert.kernels.network import Weights

if TYPE_CHECKING:
    from torch import Tensor


_OLD_LEAVES = {"gamma": "weight", "beta": "bias"}
"""Names that files from before 2019 give to the parameters of a layer norm."""
BUFFERS = ("position_ids", "token_type_ids")
"""Constants that older files hold beside the weights."""
PARALLEL = "module."
"""The prefix of all names of a model that was saved inside DataParallel."""
GENERATOR = "generator."
"""The prefix that replaces the backbone's in files that hold a generator too."""


class Pair(NamedTuple):
    """A parameter of litebert and the foreign ones that stack to it."""

    name: str
    foreign: tuple[str, ...]


def slots(family: Family, config: EncoderConfig) -> list[tuple[int, int]]:
    """The (attention, feed-forward) blocks in each foreign slot, a group of layers or a layer."""
    shares_whole_layers = config.sharing in ("all", "groups")
    if family.grouped and shares_whole_layers and groups_agree(config.layers, config.groups):
        return [(group, group) for group in range(config.groups)]
    return list(zip(config.attention_of(), config.feedforward_of(), strict=True))


def groups_agree(layers: int, groups: int) -> bool:
    """True where transformers puts layer i into group i * G // L; its floats differ for a few L."""
    return all(int(i / (layers / groups)) == i * groups // layers for i in range(layers))


def pairs(
    family: Family, parts: Collection[str], config: EncoderConfig, sentence: str = ""
) -> list[Pair]:
    """Spell out the names of some parts for a config, with the sentence objective `sentence`."""
    # In order of first mention and without repeats: most templates do not depend on the slot.
    table: dict[Pair, None] = {}
    for module in (module for part in parts for module in family.parts[part]):
        for slot, (attention, feedforward) in enumerate(slots(family, config)):
            exists = (slot or module.first) and (config.untied or not module.untied)
            if not exists:
                continue
            path = module.module.format(
                attention=attention, feedforward=feedforward, sentence=sentence
            )
            foreign = [name.format(slot=slot) for name in module.foreign]
            for leaf in (*module.leaves, *["bias"] * (module.may_bias and config.bias)):
                pair = Pair(f"{path}.{leaf}", tuple(f"{name}.{leaf}" for name in foreign))
                table[pair] = None
    return list(table)


def generator_pairs(family: Family, config: EncoderConfig) -> list[Pair]:
    """The names of a generator's own weights, without the embeddings that it borrows."""
    parts = ["backbone", *["projection"] * config.projects]
    return [
        Pair(
            pair.name.replace("encoder.", "objectives.mlm.generator.", 1),
            tuple(name.replace(family.backbone_prefix, GENERATOR, 1) for name in pair.foreign),
        )
        for pair in pairs(family, parts, config)
        if not pair.name.startswith("encoder.embedding.") or ".project." in pair.name
    ]


def to_litebert(
    table: Sequence[Pair], tensors: Weights, source: str
) -> dict[str, NDArray[np.float32]]:
    """Turn foreign weights into litebert's state dict."""
    expected = [name for pair in table for name in pair.foreign]
    unknown = sorted(tensors.keys() - set(expected))
    missing = [name for name in expected if name not in tensors]
    if missing:
        raise ModelError(
            f"{source} has no {_list_names(missing, unknown)}; the file and its config.json are "
            "not of one model"
        )
    if unknown:
        raise ModelError(
            f"{source} has {_list_names(unknown, expected)}, which no part of this model holds; "
            "if it is not needed, remove it from the file"
        )
    state = {}
    for name, foreign in table:
        arrays = [tensors[each] for each in foreign]
        if len({array.shape[1:] for array in arrays}) > 1 or not all(a.ndim for a in arrays):
            raise ModelError(
                f"{source} holds {_list_names(foreign, ())} in shapes that do not fit; the file "
                "and its config.json are not of one model"
            )
        state[name] = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    return state


def find_sharing(family: Family, config: EncoderConfig, tensors: Weights) -> EncoderConfig:
    """Recognize sharing: a config without it gets the sharing of the blocks that are bit-equal."""
    if config.sharing != "none" or config.layers == 1:
        return config
    blocks: dict[str, list[dict[str, NDArray[np.float32]]]] = {
        kind: [{} for _ in range(config.layers)] for kind in ("attention", "feedforward")
    }
    for pair in pairs(family, ["backbone"], config):
        _, kind, number, *leaf = pair.name.split(".", 3)
        if kind in blocks:
            held = {
                f"{leaf} {i}": tensors[name]
                for i, name in enumerate(pair.foreign)
                if name in tensors
            }
            blocks[kind][int(number)].update(held)
    attention, feedforward = map(_kinds, blocks.values())
    for like in _sharings(config, 1 + max(attention), 1 + max(feedforward)):
        if attention == _renumber(like.attention_of()) and feedforward == _renumber(
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


def _kinds(blocks: Sequence[Weights]) -> list[int]:
    """Number the different blocks; one may lack a tensor that its equals have."""
    different: list[dict[str, NDArray[np.float32]]] = []
    kinds = []
    for block in blocks:
        same = (
            i
            for i, other in enumerate(different)
            if all(np.array_equal(block[name], other[name]) for name in block.keys() & other.keys())
        )
        kinds.append(next(same, len(different)))
        if kinds[-1] == len(different):
            different.append({})
        different[kinds[-1]].update(block)
    return kinds


def _renumber(blocks: Sequence[int]) -> list[int]:
    numbers: dict[int, int] = {}
    return [numbers.setdefault(block, len(numbers)) for block in blocks]


def _list_names(names: Sequence[str], others: Sequence[str]) -> str:
    """List the first of some names, the number of the others, and a near one of `others`."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    close = get_close_matches(names[0], others, n=1)
    return f"'{names[0]}'{more}" + (f" (nearest: '{close[0]}')" if close else "")


def to_foreign(table: Sequence[Pair], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Turn litebert's state dict into foreign tensors, each with memory of its own."""
    tensors: dict[str, Tensor] = {}
    for pair in table:
        whole = state[pair.name].detach().cpu()
        for name, tensor in zip(pair.foreign, whole.chunk(len(pair.foreign)), strict=True):
            tensors[name] = tensor.clone()
    return tensors


def modernize(
    family: Family, tensors: Weights, source: str, untied: bool = False
) -> dict[str, NDArray[np.float32]]:
    """Give foreign weights today's names: prefixed, old spellings renamed, tied repeats dropped
    unless `untied`.
    """
    if all(name.startswith(PARALLEL) for name in tensors):
        tensors = {name.removeprefix(PARALLEL): tensor for name, tensor in tensors.items()}
    prefix = family.backbone_prefix
    bare = not any(name.startswith(prefix) for name in tensors)
    clean: dict[str, NDArray[np.float32]] = {}
    for name, tensor in tensors.items():
        leaf = name.rpartition(".")[2]
        current = name.removesuffix(leaf) + _OLD_LEAVES.get(leaf, leaf)
        clean[prefix + current if bare else current] = tensor
    for name, target in () if untied else family.tied.items():
        if name in clean:
            tensor = clean.pop(name)
            if not np.array_equal(clean.setdefault(target, tensor), tensor):
                raise ModelError(
                    f"{source} has its own '{name}', different from '{target}'; only tied "
                    "embeddings can be computed"
                )
    return clean
