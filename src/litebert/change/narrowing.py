"""A narrower network from a wide one: the features, heads and inner units that matter most stay.

A part that is multiplied by a gate of 1 matters as much as the loss changes with that gate, up or
down (Michel et al. 2019, "Are Sixteen Heads Really Better than One?", section 4.1). The paper takes
the absolute value for each text, and we for each batch. The gate of a head, or of a unit, stands
before the block's last matrix; that of a feature behind every layer norm. Heads keep their width.

Shapes: H hidden size, A heads, D = H / A head size, I intermediate size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from litebert.base.errors import ConfigError, ModelError
from litebert.config import Config, EncoderConfig
from litebert.model.encoder import Encoder
from litebert.model.pretrainer import Pretrainer


@dataclass(frozen=True)
class Importance:
    """How much each part matters, at least 0; comparable within a block, or among features."""

    features: Tensor
    """(H,)"""
    heads: tuple[Tensor, ...]
    """(A,) of each attention block."""
    units: tuple[Tensor, ...]
    """(I,) of each feed-forward block."""

    def __add__(self, other: Importance) -> Importance:
        def sums(first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(entry + another for entry, another in zip(first, second, strict=True))

        heads, units = sums(self.heads, other.heads), sums(self.units, other.units)
        return Importance(self.features + other.features, heads, units)


def importance_of(encoder: Encoder) -> Importance:
    """Measure the importance on one batch, whose gradients are in the encoder's parameters."""
    hidden, heads = encoder.config.hidden_size, encoder.config.heads

    def multiply_gradient(parameter: Tensor | None) -> Tensor:
        # A bias that is left out, or a block that the batch did not reach.
        if parameter is None or parameter.grad is None:
            return torch.zeros(())
        return (parameter.detach() * parameter.grad).cpu()

    def gates(output: nn.Linear, parts: int) -> Tensor:
        gradients = multiply_gradient(output.weight).expand(output.weight.shape)
        return gradients.sum(0).view(parts, -1).sum(1).abs()

    norms = [
        module
        for module in encoder.modules()
        if isinstance(module, nn.LayerNorm) and module.weight.numel() == hidden
    ]
    features = sum(
        ((multiply_gradient(norm.weight) + multiply_gradient(norm.bias)).abs() for norm in norms),
        torch.zeros(hidden),
    )

    def importances(blocks: nn.ModuleList, parts: int) -> tuple[Tensor, ...]:
        outputs = [block.get_submodule("output") for block in blocks]
        return tuple(gates(output, parts) for output in outputs if isinstance(output, nn.Linear))

    of_units = importances(encoder.feedforward, encoder.config.intermediate_size)
    return Importance(features, importances(encoder.attention, heads), of_units)


def widths(
    shape: EncoderConfig, path: str | Path, hidden_size: int | None, intermediate_size: int | None
) -> tuple[int, int]:
    """The hidden and the intermediate size of a narrower network; None keeps one."""
    head = shape.hidden_size // shape.heads
    width = shape.hidden_size if hidden_size is None else hidden_size
    inner = shape.intermediate_size if intermediate_size is None else intermediate_size
    for option, value, size in (
        ("hidden-size", width, shape.hidden_size),
        ("intermediate-size", inner, shape.intermediate_size),
    ):
        if not 1 <= value <= size:
            raise ConfigError(f"--{option} is {value}, and {path} has {size}; give 1 to {size}")
    if width % head:
        raise ConfigError(
            f"--hidden-size is {width}, and heads of {path} are {head} wide; give a "
            f"multiple of {head}"
        )
    if width < shape.hidden_size and shape.projects and shape.embedding_size == shape.hidden_size:
        raise ModelError(
            f"{path} has a map between tables and states of one width (encoder.always_project), "
            "which cannot be told apart; leave --hidden-size out"
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
    stays as it is. `measure` is called after the sizes, of which None keeps one, are validated.
    """
    wide = config.encoder
    width, inner = widths(wide, path, hidden_size, intermediate_size)
    shape = replace(
        wide,
        hidden_size=width,
        heads=wide.heads * width // wide.hidden_size,
        intermediate_size=inner,
        embedding_size=wide.embedding_size if wide.projects else width,
        always_project=wide.projects and wide.embedding_size == width,  # the map stays
    )
    importance = measure()
    features = _most(importance.features, width)
    heads = [_most(head, shape.heads) for head in importance.heads]
    units = [_most(unit, inner) for unit in importance.units]
    shares = {
        "features": _share([importance.features], [features]),
        "heads": _share(importance.heads, heads),
        "inner units": _share(importance.units, units),
    }
    with torch.device("meta"):
        expected = Pretrainer(replace(config, encoder=shape)).state_dict()
    narrowed: dict[str, Tensor] = {}
    for name, tensor in state.items():
        part, _, leaf = name.removeprefix("encoder.").partition(".")
        block, _, leaf = leaf.partition(".")
        if part == "attention" and block.isdecimal():
            narrowed[name] = _of_attention(leaf, tensor, wide.heads, heads[int(block)], features)
        elif part == "feedforward" and block.isdecimal():
            kept, size = units[int(block)], wide.intermediate_size
            narrowed[name] = _of_feedforward(leaf, tensor, size, kept, features)
        else:
            sizes = zip(tensor.shape, expected[name].shape, strict=True) if name in expected else ()
            axes = [
                i
                for i, pair in enumerate(sizes)
                if pair == (wide.hidden_size, shape.hidden_size) and pair[0] != pair[1]
            ]
            narrowed[name] = tensor
            for axis in axes:
                narrowed[name] = narrowed[name].index_select(axis, features)
    return narrowed, shape, shares


def _of_attention(leaf: str, tensor: Tensor, parts: int, heads: Tensor, features: Tensor) -> Tensor:
    if leaf.startswith("qkv."):
        rows = tensor.view(3, parts, -1, *tensor.shape[1:])[:, heads].flatten(0, 2)
        return rows[:, features] if tensor.ndim == 2 else rows
    if tensor.ndim == 2:
        return tensor[features].view(len(features), parts, -1)[:, heads].flatten(1)
    return tensor[features]


def _of_feedforward(
    leaf: str, tensor: Tensor, size: int, units: Tensor, features: Tensor
) -> Tensor:
    if leaf.startswith("input."):
        rows = tensor.view(-1, size, *tensor.shape[1:])[:, units].flatten(0, 1)
        return rows[:, features] if tensor.ndim == 2 else rows
    return tensor[features][:, units] if tensor.ndim == 2 else tensor[features]


def _most(importance: Tensor, count: int) -> Tensor:
    return importance.argsort(descending=True, stable=True)[:count].sort().values


def _share(importance: Sequence[Tensor], selections: Sequence[Tensor]) -> float:
    whole = sum(float(values.sum()) for values in importance)
    if not whole:
        return 1.0
    pairs = zip(importance, selections, strict=True)
    return sum(float(values[selection].sum()) for values, selection in pairs) / whole
