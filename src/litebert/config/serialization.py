"""Frozen dataclasses as plain dictionaries and JSON, and strictly back: what a config file may
hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from litebert.base.errors import ConfigError, nearest

T = TypeVar("T")

RETIRED: dict[str, tuple[Any, ...]] = {
    "train.parallel": ("auto", "ddp", "fsdp"),
    "distill.top_k": (0,),
    "choose": ([], ()),
}
"""Fields of files that earlier versions wrote, and the values that say nothing now."""


def to_dict(config: Any) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(to_json(config))
    return plain


def from_dict(cls: type[T], data: Mapping[str, Any], path: str = "", base: T | None = None) -> T:
    """Build `cls` strictly: an unknown key, a missing one without default, or a wrong type is a
    ConfigError.

    With `base`, keys that are absent keep the base's values.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(
            f"{path.rstrip('.') or cls.__name__} must be a table of fields, not {data!r}"
        )
    hints = get_type_hints(cls)
    names = {field_.name for field_ in fields(cls)}  # type: ignore[arg-type]
    for key, value in data.items():
        if key not in names and value not in RETIRED.get(f"{path}{key}", ()):
            raise ConfigError(f"unknown field '{path}{key}'; {nearest(str(key), names)}")
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key not in names:
            continue
        inner = getattr(base, key) if base is not None else None
        values[key] = _coerce(hints[key], value, f"{path}{key}", inner)
    if base is not None:
        return replace(base, **values)  # type: ignore[type-var]
    for field_ in fields(cls):  # type: ignore[arg-type]
        if field_.name not in values and field_.default is field_.default_factory is MISSING:
            raise ConfigError(f"field '{path}{field_.name}' is missing; add it")
    return cls(**values)


def _coerce(hint: Any, value: Any, path: str, base: Any) -> Any:
    if is_dataclass(hint) and isinstance(hint, type):
        return from_dict(hint, value, path + ".", base)
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{path} must be a list, not {value!r}")
        hints = args[:1] * len(value) if args[-1] is Ellipsis else args
        if len(value) != len(hints):
            raise ConfigError(f"{path} must have {len(hints)} items, not {len(value)}")
        return tuple(_coerce(hints[i], item, f"{path}[{i}]", None) for i, item in enumerate(value))
    if origin is Literal:
        if value not in args:
            raise ConfigError(f"{path} is {value!r}; {nearest(str(value), map(str, args))}")
        return value
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{path} must be a table, not {value!r}")
        return {key: _coerce(args[1], item, f"{path}.{key}", None) for key, item in value.items()}
    if origin in (Union, UnionType):  # a number, a word, or nothing
        if value is None and NoneType in args:
            return None
        words = [word for arg in args if get_origin(arg) is Literal for word in get_args(arg)]
        number = next((a for a in args if get_origin(a) is not Literal and a is not NoneType), None)
        if number not in (str, None) and isinstance(value, str) and value not in words:
            raise ConfigError(
                f"{path} is {value!r}; it must be {_KINDS.get(number, 'a table')} or "
                f"{' or '.join(words)}"
            )
        if number is None and value not in words:
            raise ConfigError(f"{path} is {value!r}; {nearest(str(value), words)}")
        is_word = isinstance(value, str) and number is not str
        return value if is_word else _coerce(number, value, path, base)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(f"{path} is {value!r}; it must be {_KINDS.get(hint, hint.__name__)}")
    return value


_KINDS = {int: "a whole number", float: "a number", str: "a text in quotes", bool: "true or false"}


def to_json(config: Any) -> str:
    """The text of `recipe.json`; a field that most configs leave empty is left out where it is."""
    plain = asdict(config)
    _leave_out_empty(config, plain)
    return json.dumps(plain, indent=2) + "\n"


def _leave_out_empty(config: Any, plain: dict[str, Any]) -> None:
    for field_ in fields(config):
        value = getattr(config, field_.name)
        if is_dataclass(value):
            _leave_out_empty(value, plain[field_.name])
        elif field_.metadata.get("left_out_if_empty") and not value:
            del plain[field_.name]
