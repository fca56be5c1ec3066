"""How tyro reads a dataclass of options: the docstring below a field is its help.

tyro would keep the line breaks that a docstring has in the source, and wrap its lines once more in
the terminal.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from litebert.base.errors import require


@dataclass(frozen=True)
class ShortForms:
    """Short forms of the fields that most runs set; the long forms are below."""

    lr: float | None = None
    """Peak learning rate, such as 1e-4 (--train.optimizer.learning-rate)."""
    batch_size: int | None = None
    """Sequences of an optimizer step (--train.batch)."""
    max_length: int | None = None
    """Longest sequence in tokens (--sequences.length, or --length in fine-tuning)."""
    bf16: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Compute in bfloat16 (--train.precision bfloat16)."""
    fp32: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Compute in float32 (--train.precision float32)."""
    seed: int | None = None
    """Seed of all random choices (--train.seed)."""

    def expand(self, length: str, words: Sequence[str]) -> list[str]:
        """Return the words of a recipe's fields with the short forms as long forms.

        Args:
            length: the long form of --max-length.
        """
        require(not (self.bf16 and self.fp32), "--bf16 and --fp32 exclude each other; give one")
        precision = "bfloat16" if self.bf16 else "float32" if self.fp32 else None
        batch = None if self.batch_size is None else f"{self.batch_size} sequences"
        long_forms = {
            "--lr": ("--train.optimizer.learning-rate", self.lr),
            "--batch-size": ("--train.batch", batch),
            "--max-length": (length, self.max_length),
            "--bf16" if self.bf16 else "--fp32": ("--train.precision", precision),
            "--seed": ("--train.seed", self.seed),
        }
        typed = {word.partition("=")[0].replace("_", "-") for word in words}
        expanded = list(words)
        for short, (option, value) in long_forms.items():
            if value is None:
                continue
            require(
                option not in typed, f"{short} and {option} set the same field; give one of them"
            )
            expanded += [option, str(value)]
        return expanded


Short = Annotated[ShortForms, tyro.conf.OmitArgPrefixes]
"""The type of a verb's field for its short forms."""

READING = ConstructorRegistry()
"""A context: within it, tyro reads dataclasses as below."""


@READING.struct_rule
def _dataclass(info: StructTypeInfo) -> StructConstructorSpec | None:
    if not is_dataclass(info.type) or info.type.__module__.startswith("tyro."):
        return None
    kinds, about = get_type_hints(info.type, include_extras=True), meanings(info.type)
    specs = []
    for field in fields(info.type):
        kind, default = kinds[field.name], _default(field, info.default)
        is_strings = bare(kind) == tuple[str, ...] and isinstance(default, tuple)
        specs.append(
            StructFieldSpec(
                name=field.name,
                type=_spell(_optional(kind, default)),
                default=_Strings(default) if is_strings else default,
                helptext=about.get(field.name) or _about_group(kind),
            )
        )
    return StructConstructorSpec(instantiate=info.type, fields=tuple(specs))


class _Strings(tuple[str, ...]):
    """A `tuple[str, ...]` whose instances tyro knows without another library."""


@READING.primitive_rule
def _strings(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    if info.type is not _Strings:
        return None
    spec = ConstructorRegistry.get_primitive_spec(
        PrimitiveTypeInfo.make(tuple[str, ...], set(info.markers))
    )
    assert isinstance(spec, PrimitiveConstructorSpec)
    return spec


def _spell(kind: Any) -> Any:
    """Spell a type as tyro compares defaults with it by itself. Of `X | None` and `tuple[str, ...]`
    it asks the library typeguard, whose import takes as long as all else of the parser.
    """
    plain = bare(kind)
    if isinstance(plain, UnionType):
        spelled: Any = Union[get_args(plain)]  # noqa: UP007 - the other spelling
    elif plain == tuple[str, ...]:
        spelled = _Strings
    else:
        return kind
    # Python takes `X | None` and `Optional[X]` for equal and would return the annotated type that
    # it made before, but for another note.
    for note in ("spelled", *metadata_of(kind)):
        spelled = Annotated[spelled, note]
    return spelled


@cache
def meanings(cls: type[Any]) -> dict[str, str]:
    """Read the docstring of each field of a dataclass, each paragraph as one line.

    The result is empty where the source is not installed.
    """
    docs: dict[str, str] = {}
    for base in filter(is_dataclass, reversed(cls.__mro__)):
        body = _parse_classes(base.__module__).get(base.__name__, [])
        for field, below in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                docs[ast.unparse(field.target)] = join_lines(ast.literal_eval(below.value))
    return docs


@cache
def _parse_classes(module: str) -> dict[str, list[ast.stmt]]:
    """The bodies of the classes of a module; empty where its source is not installed."""
    try:
        source = Path(sys.modules[module].__file__ or "").read_text(encoding="utf-8")
    except (AttributeError, KeyError, OSError):
        return {}
    classes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))
    return {node.name: node.body for node in classes}


def join_lines(text: str) -> str:
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
        named = [choice for choice in get_args(bare(kind)) if choice is not type(None)]
        if default is tyro.MISSING or len(named) != 1 or type(None) not in get_args(bare(kind)):
            return kind
        given: Any = named[0]  # nobody types None
        for note in metadata_of(kind):
            given = Annotated[given, note]
        return given
    if is_flag(kind):  # a pair --x and --no-x, or neither
        described: Any = Annotated[
            bare(kind), tyro.conf.arg(help_behavior_hint="(optional)"), tyro.conf.DisallowNone
        ]
        return described
    shown = None
    if default is None:
        choices = (choice for choice in get_args(bare(kind)) if choice is not type(None))
        shown = "|".join(map(_format_type, choices))
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
    return getattr(kind, "__metadata__", ())


def _format_type(kind: Any) -> str:
    return (
        f"{{{','.join(get_args(kind))}}}" if get_origin(kind) is Literal else kind.__name__.upper()
    )
