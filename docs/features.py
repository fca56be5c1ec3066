"""The features of an encoder, and which ways of computing it have each of them.

Four ways compute an encoder: PyTorch (`model/`), compiled C for answers (`kernels/`), a graph of
ONNX (`interop/onnx/`), and the classes of transformers (`interop/hf/`). Each cell of the table is
`YES`, where the way gives the outputs of PyTorch, or `REFUSED`, where it says in a sentence that it
does not. Some features have a class of transformers only beside others, so a row may have several.

A new value of a field of `EncoderConfig` needs a row. tests/test_features.py builds the encoder of
each row and proves its cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from litebert.config.encoder import EncoderConfig

Support = Literal["yes", "refused"]
YES: Support = "yes"
REFUSED: Support = "refused"

SMALLEST = EncoderConfig(
    vocab_size=64,
    embedding_size=16,
    hidden_size=32,
    layers=4,
    heads=4,
    intermediate_size=48,
    max_positions=32,
    activation="gelu",
)
"""The encoder to which a row adds its features."""
_SAME_WIDTH = {"embedding_size": SMALLEST.hidden_size}
_MODERN: Mapping[str, Any] = {
    **_SAME_WIDTH,
    "sharing": "none",
    "norm": "pre",
    "first_norm": False,
    "embedding_norm": "after",
    "feedforward": "gated",
    "positions": "rotary",
    "segment_types": 0,
    "bias": False,
    "prediction": "hidden",
    "pooler": False,
}
"""The features that only one family of transformers computes, and only together."""


@dataclass(frozen=True)
class Feature:
    """A row of the table."""

    name: str
    fields: Mapping[str, Any] = field(hash=False)
    """The fields of `SMALLEST` that change; the first one is named by a refusal."""
    torch: Support = YES
    compiled: Support = YES
    onnx: Support = YES
    transformers: Support = YES

    @property
    def encoder(self) -> EncoderConfig:
        """The smallest encoder with this feature."""
        values = {name: getattr(SMALLEST, name) for name in SMALLEST.__dataclass_fields__}
        return EncoderConfig(**{**values, **self.fields})


FEATURES: tuple[Feature, ...] = (
    Feature("one block for all layers", {"sharing": "all"}),
    Feature("blocks of each layer", {"sharing": "none"}),
    Feature("shared attention", {"sharing": "attention"}),
    Feature("shared feed-forward", {"sharing": "feedforward"}),
    Feature("groups of layers", {"sharing": "groups", "groups": 2}),
    Feature("no map E -> H", {**_SAME_WIDTH, "sharing": "none"}),
    Feature("a map where E = H", {"always_project": True, **_SAME_WIDTH}),
    Feature("no pooler", {"pooler": False}),
    Feature("no token types", {"segment_types": 0}),
    Feature("one token type", {"segment_types": 1}),
    Feature("gelu by tanh", {"activation": "gelu_tanh"}),
    Feature("relu", {"activation": "relu"}),
    Feature("silu", {"activation": "silu"}),
    Feature(
        "positions from an offset",
        {"position_offset": 2, **_SAME_WIDTH, "sharing": "none", "pooler": False},
    ),
    Feature("an offset with a map", {"position_offset": 2}, transformers=REFUSED),
    Feature("norm before the block", {"norm": "pre"}, transformers=REFUSED),
    Feature(
        "no norm before the first block", {"norm": "pre", "first_norm": False}, transformers=REFUSED
    ),
    Feature("norm behind the map E -> H", {"embedding_norm": "after"}, transformers=REFUSED),
    Feature("gated feed-forward", {"feedforward": "gated"}, transformers=REFUSED),
    Feature("rotary positions", {"positions": "rotary"}, transformers=REFUSED),
    Feature("no biases", {"bias": False}, transformers=REFUSED),
    Feature(
        "prediction from width H", {"prediction": "hidden", "pooler": False}, transformers=REFUSED
    ),
    Feature("a table of the head", {"untied": True}, transformers=REFUSED),
    Feature("windows", {"window": 4, "global_every": 2}, transformers=REFUSED),
    Feature(
        "windows in all layers, with global tokens",
        {"window": 4, "global_every": 0, "global_tokens": 2},
        transformers=REFUSED,
    ),
    Feature("ModernBERT's, together", {**_MODERN}),
    Feature("ModernBERT's, with biases", {**_MODERN, "bias": True}),
    Feature("ModernBERT's, with a map E -> H", {**_MODERN, "embedding_size": 16}),
    Feature("ModernBERT's, with a table of the head", {**_MODERN, "untied": True}),
    Feature("ModernBERT's, with another rotary base", {**_MODERN, "rotary_base": 500.0}),
    Feature(
        "ModernBERT's, with windows",
        {"window": 4, "global_every": 2, **_MODERN, "window_rotary_base": 100.0},
    ),
)
"""Every feature of an encoder, with what computes it."""
