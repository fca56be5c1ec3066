"""A narrower network from a wide one: the features, the heads and the inner units that matter most
are kept.

What matters is measured by gradients (Michel et al. 2019, "Are Sixteen Heads Really Better than
One?", section 4.1): a part that is multiplied by a gate of 1 matters as much as the loss changes
with that gate, up or down. The paper takes the absolute value for each text, and we for each batch.
The gate of a head, or of a unit of a feed-forward block, stands before the block's last matrix;
that of a feature of the states behind every layer norm. Heads keep their width, so the hidden size
decides how many there are.

Shapes: H hidden size, A heads, D = H / A head size, I intermediate size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from litebert.config import Config, EncoderConfig
from litebert.errors import ConfigError, ModelError
from litebert.model.encoder import Encoder
from litebert.model.pretrainer import Pretrainer


@dataclass(frozen=True)
class Importance:
    """How much each part matters, at least 0; comparable among the parts of one block, or among
    features.
    """

    features: Tensor
    """(H,)"""
    heads: tuple[Tensor, ...]
    """(A,) of each attention block."""
    units: tuple[Tensor, ...]
    """(I,) of each feed-forward block."""

    def __add__(self, other: Importance) -> Importance:
        def sums(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(entry + another for entry, another in zip(ours, theirs, strict=True))

        return Importance(
            self.features + other.features,
            sums(self.heads, other.heads),
            sums(self.units, other.units),
        )


def importance_of(encoder: Encoder) -> Importance:
    """Of one batch, whose gradients are in the parameters of the encoder."""
    hidden, heads = encoder.config.hidden_size, encoder.config.heads

    def products(one: Tensor | None) -> Tensor:
        if (
            one is None or one.grad is None
        ):  # a bias that is left out, or a block that the batch did not reach
            return torch.zeros(())
        return (one.detach() * one.grad).cpu()

    def gates(output: nn.Linear, parts: int) -> Tensor:
        found = products(output.weight).expand(output.weight.shape)
        return found.sum(0).view(parts, -1).sum(1).abs()

    norms = [
        module
        for module in encoder.modules()
        if isinstance(module, nn.LayerNorm) and module.weight.numel() == hidden
    ]
    features = sum(
        ((products(norm.weight) + products(norm.bias)).abs() for norm in norms), torch.zeros(hidden)
    )
    outputs = [
        [block.get_submodule("output") for block in part]
        for part in (encoder.attention, encoder.feedforward)
    ]
    return Importance(
        features,
        tuple(gates(output, heads) for output in outputs[0] if isinstance(output, nn.Linear)),
        tuple(
            gates(output, encoder.config.intermediate_size)
            for output in outputs[1]
            if isinstance(output, nn.Linear)
        ),
    )


def widths(
    theirs: EncoderConfig, path: str | Path, hidden_size: int | None, intermediate_size: int | None
) -> tuple[int, int]:
    """The hidden and the intermediate size of a narrower network; None keeps one.

    Raises:
        ConfigError: a size that cannot be.
        ModelError: a map between tables and states of the same width, which nothing tells apart.
    """
    head = theirs.hidden_size // theirs.heads
    width = theirs.hidden_size if hidden_size is None else hidden_size
    inner = theirs.intermediate_size if intermediate_size is None else intermediate_size
    for option, own, size in (
        ("hidden-size", width, theirs.hidden_size),
        ("intermediate-size", inner, theirs.intermediate_size),
    ):
        if not 1 <= own <= size:
            raise ConfigError(
                f"--{option} is {own}, and that of {path} is {size}; give 1 to {size}"
            )
    if width % head:
        raise ConfigError(
            f"--hidden-size is {width}, and heads of {path} are {head} wide; give a "
            f"multiple of {head}"
        )
    if (
        width < theirs.hidden_size
        and theirs.projects
        and theirs.embedding_size == theirs.hidden_size
    ):
        raise ModelError(
            f"{path} has a map between tables and states of one width "
            "(encoder.always_project), which "
            "cannot be told apart; leave --hidden-size out"
        )
    return width, inner


def narrow(
    state: Mapping[str, Tensor],
    config: Config,
    path: Path,
    hidden_size: int | None,
    intermediate_size: int | None,
    measure: Callable[[], Importance],
) -> tuple[dict[str, Tensor], EncoderConfig, dict[str, float]]:
    """The weights of a pretrained model without the parts that matter least, its shape, and by kind
    of part the share of the importance that is kept. A head of an objective that cannot be cut
    stays as it is.

    Args:
        path: of the model, for messages.
        hidden_size, intermediate_size: what they become; None keeps them.
        measure: what tells what matters; it is called when nothing speaks against the sizes.

    Raises:
        ConfigError: a size that cannot be.
        ModelError: as `widths`.
    """
    theirs = config.encoder
    width, inner = widths(theirs, path, hidden_size, intermediate_size)
    shape = replace(
        theirs,
        hidden_size=width,
        heads=theirs.heads * width // theirs.hidden_size,
        intermediate_size=inner,
        embedding_size=theirs.embedding_size if theirs.projects else width,
        always_project=theirs.projects and theirs.embedding_size == width,  # the map stays
    )
    importance = measure()
    features = _most(importance.features, width)
    heads = [_most(head, shape.heads) for head in importance.heads]
    units = [_most(unit, inner) for unit in importance.units]
    with torch.device("meta"):
        wanted = Pretrainer(replace(config, encoder=shape)).state_dict()
    cut: dict[str, Tensor] = {}
    for name, tensor in state.items():
        part, _, leaf = name.removeprefix("encoder.").partition(".")
        block, _, leaf = leaf.partition(".")
        if part == "attention" and block.isdecimal():
            cut[name] = _of_attention(leaf, tensor, theirs.heads, heads[int(block)], features)
        elif part == "feedforward" and block.isdecimal():
            cut[name] = _of_feedforward(
                leaf, tensor, theirs.intermediate_size, units[int(block)], features
            )
        else:
            sizes = zip(tensor.shape, wanted[name].shape, strict=True) if name in wanted else ()
            axes = [
                i
                for i, pair in enumerate(sizes)
                if pair == (theirs.hidden_size, width) and pair[0] != pair[1]
            ]
            cut[name] = tensor
            for axis in axes:
                cut[name] = cut[name].index_select(axis, features)
    kept = {
        "features": _share([importance.features], [features]),
        "heads": _share(importance.heads, heads),
        "inner units": _share(importance.units, units),
    }
    return cut, shape, kept


def _of_attention(leaf: str, tensor: Tensor, parts: int, heads: Tensor, features: Tensor) -> Tensor:
    """The fused map (3 A D, H), the last one (H, A D), their biases, and the norm."""
    if leaf.startswith("qkv."):
        rows = tensor.view(3, parts, -1, *tensor.shape[1:])[:, heads].flatten(0, 2)
        return rows[:, features] if tensor.ndim == 2 else rows
    if tensor.ndim == 2:
        return tensor[features].view(len(features), parts, -1)[:, heads].flatten(1)
    return tensor[features]


def _of_feedforward(
    leaf: str, tensor: Tensor, size: int, units: Tensor, features: Tensor
) -> Tensor:
    """The first map (I, H), or (2 I, H) when gated, the last one (H, I), their biases, and the
    norm.
    """
    if leaf.startswith("input."):
        rows = tensor.view(-1, size, *tensor.shape[1:])[:, units].flatten(0, 1)
        return rows[:, features] if tensor.ndim == 2 else rows
    return tensor[features][:, units] if tensor.ndim == 2 else tensor[features]


def _most(importance: Tensor, count: int) -> Tensor:
    """The places of the parts that matter most, in their order."""
    return importance.argsort(descending=True, stable=True)[:count].sort().values


def _share(importance: Sequence[Tensor], kept: Sequence[Tensor]) -> float:
    whole = sum(float(one.sum()) for one in importance)
    return (
        sum(float(one[own].sum()) for one, own in zip(importance, kept, strict=True)) / whole
        if whole
        else 1.0
    )
