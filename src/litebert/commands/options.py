"""How tyro reads a dataclass of options: the docstring below a field is its help.

tyro would keep the line breaks that a docstring has in the source, and wrap its lines once more in
the terminal.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

READING = ConstructorRegistry()
"""A context: within it, tyro reads dataclasses as below."""


@READING.struct_rule
def _dataclass(info: StructTypeInfo) -> StructConstructorSpec | None:
    if not is_dataclass(info.type) or info.type.__module__.startswith("tyro."):
        return None
    kinds, about = get_type_hints(info.type, include_extras=True), meanings(info.type)
    specs = [
        StructFieldSpec(
            name=field.name,
            type=_optional(kinds[field.name], default := _default(field, info.default)),
            default=default,
            helptext=about.get(field.name) or _about_group(kinds[field.name]),
        )
        for field in fields(info.type)
    ]
    return StructConstructorSpec(instantiate=info.type, fields=tuple(specs))


@cache
def meanings(cls: type[Any]) -> dict[str, str]:
    """Read the docstring of each field of a dataclass, each paragraph as one line.

    The result is empty where the source is not installed.
    """
    docs: dict[str, str] = {}
    for base in filter(is_dataclass, reversed(cls.__mro__)):
        try:
            (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError):
            continue
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
            ):
                docs[field.target.id] = join_lines(ast.literal_eval(below.value))
    return docs


def join_lines(text: str) -> str:
    """Make each paragraph of a docstring one line."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


def name_verb(arguments: type[Any]) -> str:
    """Return the verb of a class of arguments, with its action where it has some: `fill-mask` of
    FillMaskArguments, `tokenizer train` of TrainTokenizerArguments.
    """
    words = re.findall("[A-Z][a-z]+", arguments.__name__.removesuffix("Arguments"))
    if words[-1] == "Tokenizer":
        return " ".join(reversed(words)).lower()
    return "-".join(words).lower()


def _about_group(kind: Any) -> str | None:
    """The docstring of a group of options; other fields without a docstring have help in their
    annotation.
    """
    return join_lines(kind.__doc__) if is_dataclass(kind) and kind.__doc__ else None


def _default(field: Field[Any], whole: Any) -> Any:
    if is_dataclass(whole):
        return getattr(whole, field.name)
    if field.default is MISSING and field.default_factory is not MISSING:
        return field.default_factory()
    return tyro.MISSING if field.default is MISSING else field.default


def _optional(kind: Any, default: Any) -> Any:
    """Show no `None`: the help of an option that is left out by default says what happens then."""
    if default not in (None, ()):
        return kind
    if is_flag(kind):  # a pair --x and --no-x, or neither
        described: Any = Annotated[
            bare(kind), tyro.conf.arg(help_behavior_hint="(optional)"), tyro.conf.DisallowNone
        ]
        return described
    shown = (
        "|".join(
            _format_type(choice) for choice in get_args(bare(kind)) if choice is not type(None)
        )
        if default is None
        else None
    )
    described = Annotated[bare(kind), tyro.conf.arg(help_behavior_hint="(optional)", metavar=shown)]
    for note in metadata_of(kind):  # the last one counts
        described = Annotated[described, note]
    return described


def is_flag(kind: Any) -> bool:
    """Return whether an option is a pair --x and --no-x: it is a bool, or a bool or None."""
    return {bool} <= {bare(kind), *get_args(bare(kind))} <= {bool, bool | None, type(None)}


def bare(kind: Any) -> Any:
    """A type without its annotations."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def metadata_of(kind: Any) -> tuple[Any, ...]:
    """Return the annotations of a type."""
    return getattr(kind, "__metadata__", ())


def _format_type(kind: Any) -> str:
    return (
        f"{{{','.join(get_args(kind))}}}" if get_origin(kind) is Literal else kind.__name__.upper()
    )
