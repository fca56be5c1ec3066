"""EncoderConfig to Hugging Face's config.json and back, and which of their layouts can hold a config at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from litebert.config import Activation, EncoderConfig
from litebert.data.tokenizer import Tokenizer
from litebert.errors import ConfigError, ModelError, nearest
from litebert.interop.names import ACTIVATIONS, ALBERT, BERT, LAYOUTS, HeadName, Layout, Row
from litebert.interop.weights import groups_agree

_COMPUTED: Mapping[str, object] = {"norm": "post", "feedforward": "plain", "positions": "learned", "bias": True}
"""Fields for which their classes have one value only."""


def layout_of(settings: Mapping[str, Any], source: str) -> Layout:
    """The layout a config.json names.

    Raises:
        ModelError: it names none, or one that is not known here.
    """
    model_type = settings.get("model_type")
    if model_type is None:
        raise ModelError(f"{source} has no 'model_type'; add it: {' or '.join(LAYOUTS)}")
    if model_type not in LAYOUTS:
        raise ModelError(f"{source} has model_type '{model_type}', which cannot be read; {_one_of(str(model_type))}")
    return LAYOUTS[str(model_type)]


def _one_of(name: str) -> str:
    return nearest(name, LAYOUTS)


def layout_for(config: EncoderConfig) -> tuple[Layout, list[str]]:
    """The layout that can hold a config, and notes on what had to be written differently.

    Raises:
        ModelError: no class of theirs computes it.
    """
    refused = [f"{name}={getattr(config, name)}" for name, value in _COMPUTED.items() if getattr(config, name) != value]
    if config.segment_types == 0:
        refused.append("segment_types=0")
    if refused:
        raise ModelError(
            f"Hugging Face has no class that computes encoder.{', encoder.'.join(refused)}; keep the model as a "
            "litebert folder, or train one with norm=post, feedforward=plain, positions=learned and biases"
        )
    if config.sharing == "none" and not config.projects:
        return BERT, []
    notes = []
    if not config.projects:
        notes.append("the map from embeddings to hidden states is written as an identity matrix: E = H needs none, and "
                     "AlbertModel always has one")  # fmt: skip
    if config.sharing in ("attention", "feedforward"):
        other = "feed-forward" if config.sharing == "attention" else "attention"
        notes.append(
            f"the shared {config.sharing} block is written {config.layers} times, one copy per layer: AlbertModel "
            f"cannot share it while every layer has its own {other} block"
        )
    if config.sharing == "groups" and not groups_agree(config.layers, config.groups):
        notes.append(
            f"the {config.groups} groups are written as {config.layers} layers with copied weights: AlbertModel would "
            f"round {config.layers} layers to other groups"
        )
    return ALBERT, notes


def encoder_config(layout: Layout, settings: Mapping[str, Any], pooler: bool, source: str) -> EncoderConfig:
    """Our config of a config.json; keys that do not change the computation are not looked at.

    Raises:
        ModelError: a key is missing, of the wrong kind, or asks for a computation that is not supported.
    """
    for key, value in layout.fixed.items():
        if settings.get(key, value) != value:
            raise ModelError(f"{source} has {key}={settings[key]!r}; only {value!r} can be computed")
    values: dict[str, Any] = {}
    for field, key in layout.sizes.items():
        values[field] = _whole(settings, key, source)
    values.setdefault("embedding_size", values["hidden_size"])
    values["max_positions"] -= _position_row(layout).skip
    for field, (key, default) in layout.numbers.items():
        number = settings.get(key, default)
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise ModelError(f"{source} has {key}={number!r}; it must be a number")
        values[field] = float(number)
    if layout.grouped:
        groups = _whole(settings, "num_hidden_groups", source) if "num_hidden_groups" in settings else 1
        values.update(_sharing(values["layers"], groups, source))
    else:
        values["sharing"] = "none"
    try:
        return EncoderConfig(
            activation=_activation(settings.get("hidden_act", layout.activation), source),
            always_project=layout.always_projects and values["embedding_size"] == values["hidden_size"],
            pooler=pooler,
            init="normal",
            **values,
        )
    except ConfigError as error:
        raise ModelError(f"{source}: {error}") from None


def _whole(settings: Mapping[str, Any], key: str, source: str) -> int:
    if key not in settings:
        raise ModelError(f"{source} has no '{key}'; add it, as the weights were made with it")
    value = settings[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelError(f"{source} has {key}={value!r}; it must be a whole number above 0")
    return value


def _position_row(layout: Layout) -> Row:
    return next(row for row in layout.parts["backbone"] if row.ours == "encoder.embedding.position")


def _sharing(layers: int, groups: int, source: str) -> dict[str, object]:
    if groups == 1:
        return {"sharing": "all"}
    if groups == layers:
        return {"sharing": "none"}
    if groups < layers and not groups_agree(layers, groups):
        raise ModelError(
            f"{source} has num_hidden_groups={groups} for num_hidden_layers={layers}, which transformers rounds to "
            "groups of uneven place; only i * groups // layers can be computed"
        )
    return {"sharing": "groups", "groups": groups}


def _activation(name: object, source: str) -> Activation:
    if name not in ACTIVATIONS:
        raise ModelError(f"{source} has hidden_act={name!r}; {nearest(str(name), ACTIVATIONS)}")
    return ACTIVATIONS[str(name)]


def settings_of(
    layout: Layout,
    config: EncoderConfig,
    head: HeadName,
    slots: int,
    tokenizer: Tokenizer | None,
    labels: Sequence[str],
    dropout: float,
) -> dict[str, Any]:
    """The config.json of a model; `slots` is how many blocks their list has, `labels` the names of its classes."""
    settings: dict[str, Any] = {
        "architectures": [layout.heads[head].architecture],
        "model_type": layout.model_type,
        "dtype": "float32",
        "tie_word_embeddings": True,
        "hidden_act": next(name for name, ours in ACTIVATIONS.items() if ours == config.activation),
        layout.classifier_dropout: dropout,
    }
    settings.update({key: getattr(config, field) for field, key in layout.sizes.items()})
    settings[layout.sizes["max_positions"]] += _position_row(layout).skip
    settings.update({key: getattr(config, field) for field, (key, _) in layout.numbers.items()})
    settings.update({key: getattr(tokenizer, name, default) for key, (name, default) in layout.token_ids.items()})
    if layout.grouped:
        settings.update(num_hidden_groups=slots, inner_group_num=1)
    if labels:
        settings["id2label"] = {str(index): label for index, label in enumerate(labels)}
        settings["label2id"] = {label: index for index, label in enumerate(labels)}
    return settings
