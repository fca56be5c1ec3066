"""What a table of other programs' names and settings is made of; `layouts.py` holds the tables.

A `Layout` is what one `model_type` of Hugging Face means: rows of name templates, the heads its classes put together,
and the keys of its config.json. A template is filled with `{slot}`, the index of a block in their list, on their side
and with `{attention}`, `{feedforward}` (the blocks that slot holds) and `{sentence}` (sop or nsp) on ours.
`weights.py` reads every table in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from litebert.config import Activation
from litebert.config.heads import HeadName

TASKS: tuple[HeadName, ...] = ("sequence", "tokens", "span", "choice")
"""Heads of a fine-tuned model."""

TASK_PARTS = ("dense", "output", "summary", "classifier", "span")
"""Parts of a table that belong to those heads."""


@dataclass(frozen=True)
class Row:
    """One of our modules and theirs. Several of theirs are ours stacked along the first dimension."""

    ours: str
    theirs: tuple[str, ...]
    leaves: tuple[str, ...] = ("weight", "bias")


@dataclass(frozen=True)
class Head:
    """A class of theirs and the parts of the table it holds, beyond the backbone."""

    architecture: str
    parts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """All that is particular to one `model_type`."""

    model_type: str
    prefix: str
    """Comes before backbone names in every class but the bare backbone."""
    parts: Mapping[str, tuple[Row, ...]]
    """Rows by part: backbone, projection, pooler, mlm, sentence, discriminator, and those of TASK_PARTS."""
    heads: Mapping[HeadName, Head]
    tied: Mapping[str, str]
    """Keys that repeat another one; never written, accepted when equal."""
    sentence: Literal["sop", "nsp"] | None = None
    """The sentence objective its pretraining class has."""
    dense: Literal["tanh", "gelu"] | None = None
    """The activation after the dense map of its classifiers of sequences; None where they read the pooler."""
    erf_mlm: bool = False
    """Its vocabulary head computes gelu whatever hidden_act says."""
    grouped: bool = False
    """Slots are groups of layers (num_hidden_groups), else layers."""
    always_projects: bool = False
    """The map E -> H exists where E = H too."""
    offset_positions: bool = False
    """The first token's position is pad_token_id + 1 and padding is not counted, else every place is, from 0."""
    sizes: Mapping[str, str]
    """Fields of EncoderConfig and their required whole-number keys."""
    numbers: Mapping[str, tuple[str, float]]
    """Fields of EncoderConfig, their keys, and what an absent key means."""
    activation: str = "gelu"
    """What an absent hidden_act means."""
    fixed: Mapping[str, object]
    """Keys that change the computation, with the one value ours has; an absent key means that value."""
    fixed_by_part: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """The same for keys that only some part reads."""
    token_ids: Mapping[str, tuple[str, int]]
    """Keys of special tokens: the tokenizer's attribute, and the value without a tokenizer."""
    classifier_dropout: str = "classifier_dropout"


ACTIVATIONS: Mapping[str, Activation] = MappingProxyType(
    {
        "gelu": "gelu",
        "gelu_new": "gelu_tanh",
        "relu": "relu",
        "silu": "silu",
        # Other spellings of the same functions, read and never written.
        "gelu_python": "gelu",
        "gelu_pytorch_tanh": "gelu_tanh",
        "gelu_fast": "gelu_tanh",
        "swish": "silu",
    }
)
"""Their hidden_act, ours; the first spelling of each of ours is the one written."""

PROBLEM_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "single_label_classification": "classes",
        "multi_label_classification": "labels",
        "regression": "number",
    }
)
"""Their problem_type, which says how the outputs of a classifier of texts are read; ours."""

OLD_LEAVES: Mapping[str, str] = MappingProxyType({"gamma": "weight", "beta": "bias"})
"""Names that files from before 2019 give to the parameters of a layer norm."""

BUFFERS = ("position_ids", "token_type_ids")
"""Constants that older files hold beside the weights."""
