"""ModernBERT's part of config.json: which layers attend within a window, and how queries and keys
rotate.

transformers 4.48 wrote `global_attn_every_n_layers`, `global_rope_theta` and `local_rope_theta`;
version 5 writes the kind of every layer (`layer_types`) and a table for each kind
(`rope_parameters`). Both are read. The older keys are written, because every version and other
programs read those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litebert.base.errors import ModelError
from litebert.config import EncoderConfig
from litebert.interop.hf.values import number, whole

_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
_EVERY, _WINDOW = 3, 128
"""The values of absent keys."""
_BASES = {_GLOBAL: ("global_rope_theta", 160000.0), _LOCAL: ("local_rope_theta", 10000.0)}
"""The key of the rotary base of each kind of layer in older files, and its value where it is
absent.
"""


def window_fields(settings: Mapping[str, Any], layers: int, source: str) -> dict[str, Any]:
    """The fields of EncoderConfig about windows and rotation."""
    base = _base(settings, _GLOBAL, source)
    every = _every(settings, layers, source)
    if every == 1 or layers == 1:  # nothing is local
        return {"rotary_base": base}
    return {
        "window": whole(settings, "local_attention", source, least=2, default=_WINDOW),
        "global_every": every,
        "rotary_base": base,
        "window_rotary_base": _base(settings, _LOCAL, source),
    }


def window_settings(config: EncoderConfig) -> dict[str, Any]:
    """The keys of a config.json for those fields."""
    return {
        "global_attn_every_n_layers": config.global_every,
        "local_attention": config.window or _WINDOW,
        "global_rope_theta": config.rotary_base,
        "local_rope_theta": config.window_rotary_base,
    }


def _every(settings: Mapping[str, Any], layers: int, source: str) -> int:
    """Every how many layers one reads the whole text, the first among them."""
    types = settings.get("layer_types")
    if types is None:
        return whole(settings, "global_attn_every_n_layers", source, default=_EVERY)
    if not isinstance(types, list) or len(types) != layers:
        raise ModelError(
            f"{source} has layer_types={types!r}; it must list the kinds of all {layers} layers"
        )
    every = next((i for i in range(1, layers) if types[i] == _GLOBAL), max(layers, 2))
    if types != [_LOCAL if i % every else _GLOBAL for i in range(layers)]:
        raise ModelError(
            f"{source} has layer_types={types!r}; only {_GLOBAL} in the first layer and in "
            "every n-th after it, and "
            f"{_LOCAL} in all others, can be computed"
        )
    return every


def _base(settings: Mapping[str, Any], kind: str, source: str) -> float:
    """The rotary base of a kind of layer."""
    key, default = _BASES[kind]
    tables = settings.get("rope_parameters")
    if tables is not None and not isinstance(tables, Mapping):
        raise ModelError(
            f"{source} has rope_parameters={tables!r}; it must have a table for {_GLOBAL} "
            f"and {_LOCAL}"
        )
    if unknown := sorted(set(map(str, tables or ())) - {_GLOBAL, _LOCAL}):
        raise ModelError(
            f"{source} has rope_parameters.{unknown[0]}; it must have tables for {_GLOBAL} "
            f"and {_LOCAL} alone"
        )
    table = (tables or {}).get(kind)
    if table is not None and not isinstance(table, Mapping):
        raise ModelError(
            f"{source} has rope_parameters.{kind}={table!r}; it must be a table with rope_theta"
        )
    rope_type = (table or {}).get("rope_type", "default")
    if rope_type != "default":
        raise ModelError(
            f"{source} has rope_parameters.{kind}.rope_type={rope_type!r}; only 'default' "
            "can be computed"
        )
    if table is not None and "rope_theta" in table:
        return number(table, "rope_theta", f"{source}, rope_parameters.{kind},", default)
    if (
        kind == _LOCAL and settings.get(key, default) is None
    ):  # version 4.48: the same as in the other layers
        return _base(settings, _GLOBAL, source)
    return number(settings, key, source, default)
