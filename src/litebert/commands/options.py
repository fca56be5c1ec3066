"""A verb's options, read from a dataclass: a field is an option, the docstring below it is its
help, and its type says what it takes.

Libraries for this take longer to start than all else that answers `--help`, and print boxes where a
mistake should be one sentence with its remedy.
"""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from litebert.base.errors import ConfigError, nearest, require, suggest

OTHER_NAMES: Mapping[str, str] = {
    "--data": "--input",
    "--dataset": "--data",
    "--file": "--input",
    "--gpu": "--device",
    "--input": "--data",
    "--learning-rate": "--lr",
    "--num-train-epochs": "--epochs",
    "--output": "--out",
    "--output-dir": "--out",
    "--sep": "--delimiter",
    "--train-file": "--data",
}
"""Options of other programs, and the option here that a person means by each."""
_FILES = ("DATA", "DEV", "INPUT", "TEST", "UNLABELED")
"""Options that take files, also of tasks."""
_LEFT = 28
"""Columns of help before what an option means."""


@dataclass(frozen=True)
class Arg:
    """What the name and the type of a field do not say of its option: `Annotated[str, Arg("FILE")]`
    takes a FILE."""

    metavar: str = ""
    help: str = ""
    name: str = ""
    positional: bool = False
    repeat: bool = False
    """The option takes one value, and may be given again."""
    flat: bool = False
    """The fields of this dataclass are options without its name before theirs."""


@dataclass(frozen=True, eq=False)
class Option:
    """An option of a verb, or what it takes without a name."""

    owner: type
    path: tuple[str, ...]
    """The fields that lead to the value, from the dataclass of the verb."""
    name: str
    kinds: tuple[Any, ...]
    """The types that a value may have, without None."""
    default: Any
    """`MISSING` where the option must be given."""
    arg: Arg

    @property
    def is_flag(self) -> bool:
        return self.kinds == (bool,)

    @property
    def is_list(self) -> bool:
        return not self.arg.repeat and bool({tuple, dict} & {*map(get_origin, self.kinds)})

    @property
    def opposite(self) -> str:
        """The name that sets a flag to false."""
        return re.sub(r"^--(.*\.)?", r"\g<0>no-", self.name)

    @property
    def meaning(self) -> str:
        return meanings(self.owner).get(self.path[-1]) or self.arg.help

    @property
    def form(self) -> str:
        """The option with what it takes, as help and messages show it."""
        dots = "..." if self.is_list else ""
        if self.arg.positional:
            return f"{self.name}{dots}" if self.default is MISSING else f"[{self.name}{dots}]"
        if self.is_flag:
            return self.name if self.default is False else self.opposite.replace("no-", "[no-]", 1)
        value = self.arg.metavar or "|".join(map(self._name_value, self.kinds))
        return f"{self.name} {value}{dots}"

    def _name_value(self, kind: Any) -> str:
        if get_origin(kind) is tuple:
            kind = bare(get_args(kind)[0])
        if get_origin(kind) is Literal:
            return "|".join(get_args(kind))
        if get_origin(kind) in (tuple, dict):
            return "X N" if get_origin(kind) is tuple else "NAME X"
        word = re.split(r"[-.]", self.name)[-1].upper()
        return {int: "N", float: "X", Path: "PATH"}.get(kind, "FILE" if word in _FILES else word)

    def write(self, values: Sequence[str]) -> list[str]:
        """Return the words that set the option to what `read` found."""
        if self.is_flag:
            return [self.name if values == ["yes"] else self.opposite]
        if any(map(is_option, values)):
            return [f"{self.name}={values[0]}"]
        return [self.name, *values]

    @property
    def help(self) -> str:
        if self.default in (MISSING, None, (), "", False, "auto", "-", ("-",)):
            return self.meaning
        values = self.default if isinstance(self.default, tuple) else (self.default,)
        return f"{self.meaning} Default {'on' if self.is_flag else ' '.join(map(str, values))}."


def list_options(
    cls: type[Any], default: Any = None, path: tuple[str, ...] = (), prefix: str = "--"
) -> Iterator[Option]:
    """List the options of a dataclass and of those within it; `default` is an instance with other
    defaults than those of the class.
    """
    kinds = get_type_hints(cls, include_extras=True)
    for field in fields(cls):
        kind, arg = bare(kinds[field.name]), note_of(kinds[field.name])
        value = field.default
        if default is not None:
            value = getattr(default, field.name)
        elif value is MISSING and field.default_factory is not MISSING:
            value = field.default_factory()
        place, name = (*path, field.name), arg.name or field.name.replace("_", "-")
        if is_dataclass(kind):
            inner = prefix if arg.flat else f"{prefix}{name}."
            yield from list_options(kind, value, place, inner)  # type: ignore[arg-type]
        else:
            name = arg.metavar if arg.positional else prefix + name
            yield Option(cls, place, name, _split_union(kind), value, arg)


def build(cls: type[Any], default: Any, values: Mapping[tuple[str, ...], Any]) -> Any:
    """Make an instance of values by their paths; what has none is as in `default`, or else as the
    class says.
    """
    changes: dict[str, Any] = {}
    for name, group in groupby(sorted(values, key=str), key=lambda path: path[0]):
        paths = [*group]
        if paths == [(name,)]:
            changes[name] = values[name,]
        else:
            kind = bare(get_type_hints(cls, include_extras=True)[name])
            whole = None if default is None else getattr(default, name)
            changes[name] = build(kind, whole, {path[1:]: values[path] for path in paths})
    return cls(**changes) if default is None else replace(default, **changes)


def list_changes(values: Any) -> dict[str, Any]:
    """The fields of a dataclass whose values are not their defaults."""
    return {
        field.name: value
        for field in fields(values)
        if (value := getattr(values, field.name)) != field.default
    }


def spell_name(field: str, value: object = True) -> str:
    return f"--{'no-' if value is False else ''}{field.replace('_', '-')}"


def spell(values: Mapping[str, Any]) -> list[str]:
    """The words that set fields to values, as a person types them."""
    words: list[str] = []
    for name, value in values.items():
        words.append(spell_name(name, value))
        if not isinstance(value, bool):
            words += map(str, value if isinstance(value, (list, tuple)) else (value,))
    return words


def drop_options(
    words: Sequence[str], flags: Collection[str], valued: Collection[str] = ()
) -> list[str]:
    """Return the words of a command without some flags, and some options with their values."""
    kept: list[str] = []
    is_value = False
    for word in words:
        name, equals, _ = word.replace("_", "-").partition("=")
        if not is_value and name not in (*flags, *valued):
            kept.append(word)
        is_value = not is_value and name in valued and not equals
    return kept


def require_beside(owner: str, arguments: Any, *names: str) -> None:
    """Refuse options that a verb reads only with another one, `owner`, where that is not given."""
    changes = list_changes(arguments)
    for name in names if owner not in changes else ():
        option, other = spell_name(name, changes.get(name)), spell_name(owner)
        require(
            name not in changes,
            f"{option} is read only with {other}; leave {option} out, or give {other}",
        )


@dataclass(frozen=True)
class ShortForms:
    """Short forms of fields of the recipe."""

    lr: float | None = None
    """Peak learning rate, such as 1e-4."""
    batch_size: int | None = None
    """Sequences of an optimizer step."""
    max_length: int | None = None
    """Longest sequence, in tokens."""
    bf16: bool = False
    """Compute in bfloat16."""
    fp32: bool = False
    """Compute in float32."""
    seed: int | None = None
    """Seed of all random choices."""

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


Short = Annotated[ShortForms, Arg(flat=True)]
"""The type of a verb's field for its short forms."""


# ------------------------------------------------------------------------------------ reading words


def read(
    options: Sequence[Option],
    words: Sequence[str],
    example: str,
    refuse_unknown: Callable[[str], object] = lambda name: None,
) -> dict[Option, list[str]]:
    """Return the words of each option that is given, in the order of their first words.

    Args:
        example: a command of the verb, for the message that an option is missing.
        refuse_unknown: may raise a better error for the name of an option that there is not.
    """
    named = {option.name: option for option in options if not option.arg.positional}
    opposites = {option.opposite: option for option in named.values() if option.is_flag}
    given: dict[Option, list[str]] = {}
    plain: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            plain += rest
            break
        if not is_option(word):
            plain.append(word)
            continue
        typed, equals, value = word.partition("=")
        name = typed.replace("_", "-")
        option = named.get(name) or opposites.get(name)
        if option is None:
            hint = suggest_option(name, [*named, *opposites])
            if not hint:
                refuse_unknown(name)
                hint = suggest(name, named) or "--help all lists the options"
            raise ConfigError(f"there is no option {typed}; {hint}")
        require(
            option not in given or option.arg.repeat,
            f"{typed} is given twice; give it once, with all that it shall hold",
        )
        values = [value] if equals else []
        if option.is_flag:
            require(not equals, f"{typed} takes no value; leave out ={value}")
            values = ["yes" if name in named else "no"]
        while rest and not is_option(rest[0]) and not equals and (option.is_list or not values):
            values.append(rest.pop(0))
        may_be_empty = option.is_list and get_args(option.kinds[0])[:1] != (str,)
        require(bool(values) or may_be_empty, f"{typed} lacks a value; give {option.form}")
        given[option] = [*given.get(option, ()), *values]
    plain = _place(plain, [option for option in options if option.arg.positional], given)
    hint = f"write it as in: {example}" if example else "--help shows how to write it"
    require(not plain, f"'{''.join(plain[:1])}' is a word too many; {hint}")
    missing = [each.form for each in options if each.default is MISSING and each not in given]
    require(not missing, f"{' and '.join(missing)} must be given too; {hint}")
    return given


def _place(
    plain: list[str], positional: Sequence[Option], given: dict[Option, list[str]]
) -> list[str]:
    """Give the words that follow no option to what has no name, and return the others."""
    for option in positional:
        if not plain and option.default is MISSING:
            # `--data a.csv MODEL`: behind an option of several values, the model is the last.
            lists = [values for values in given.values() if len(values) > 1]
            plain = [lists[0].pop()] if len(lists) == 1 else []
        if plain:
            given[option] = plain if option.is_list else plain[:1]
            plain = plain[len(given[option]) :]
    return plain


def is_option(word: str) -> bool:
    return re.match("--?[A-Za-z]", word) is not None


def suggest_option(name: str, names: Iterable[str]) -> str:
    """A hint for an option that other programs have, or of which a part is left out; may be
    empty.
    """
    meant, last = OTHER_NAMES.get(name, name), f".{name.removeprefix('--')}"
    alike = [each for each in names if each == meant or each.startswith(f"{name}-")]
    alike = alike or [each for each in names if each.endswith(last)]
    return f"did you mean '{min(alike, key=len)}'?" if alike else ""


def convert(option: Option, words: Sequence[str]) -> Any:
    """Return the value that the words of an option mean."""
    for kind in option.kinds:
        for name in words[::2] if get_origin(kind) is dict else ():
            once = words[::2].count(name) == 1
            require(once, f"{option.name} names '{name}' twice; give it once")
        try:
            return _convert(kind, words)
        except ValueError:
            continue
    typed, kinds = " ".join(words), option.kinds
    hint = f"give {' or '.join(map(_describe, kinds))}"
    if len(kinds) == 1 and get_origin(kinds[0]) is Literal:
        hint = nearest(typed, get_args(kinds[0]))
    raise ConfigError(f"{option.name} is '{typed}'; {hint}")


def _convert(kind: Any, words: Sequence[str]) -> Any:
    origin, arguments = get_origin(kind), tuple(map(bare, get_args(kind)))
    if origin is tuple and get_origin(arguments[0]) is tuple:
        kinds = get_args(arguments[0])
        rows = [words[i : i + len(kinds)] for i in range(0, len(words), len(kinds))]
        return tuple(
            tuple(_convert(each, [word]) for each, word in zip(kinds, row, strict=True))
            for row in rows
        )
    if origin is tuple:
        return tuple(_convert(arguments[0], [word]) for word in words)
    if origin is dict:
        pairs = zip(words[::2], words[1::2], strict=True)
        return {name: _convert(arguments[1], [value]) for name, value in pairs}
    (word,) = words
    if origin is Literal and word not in arguments:
        raise ValueError
    if kind in (str, bool) or origin is Literal:
        return word == "yes" if kind is bool else word
    return kind(word)


def _describe(kind: Any) -> str:
    origin, arguments = get_origin(kind), tuple(map(bare, get_args(kind)))
    if origin is Literal:
        return " or ".join(arguments)
    if origin is dict:
        return "names, each with a number"
    if origin is tuple and get_origin(arguments[0]) is tuple:
        return "pairs of numbers"
    if origin is tuple:
        return f"{_describe(arguments[0])}, or several of them"
    return {int: "a whole number", float: "a number"}.get(kind, "a text")


# --------------------------------------------------------------------------------------------- help


def asks_help(words: Sequence[str]) -> bool:
    return not {"-h", "--help"}.isdisjoint(words)


def format_help(cls: type[Any], verb: str, words: Sequence[str], options: Sequence[Option]) -> str:
    """The help of a verb: with `--help all` among the words, or of a dataclass without `common`,
    all options, otherwise those that must be given and the common ones.
    """
    place = next(i for i, word in enumerate(words) if word in ("-h", "--help"))
    common = getattr(cls, "common", "").split()
    everything = words[place + 1 : place + 2] == ["all"] or not common
    needed = [option for option in options if option.default is MISSING or option.arg.positional]
    named = {option.name.removeprefix("--"): option for option in options}
    others = options if everything else [named[name] for name in common if name in named]
    shown = [*needed, *(option for option in others if option not in needed)]
    text = join_lines(cls.__doc__ or "").split("\n\n")
    examples = getattr(cls, "examples", ())
    forms = " ".join(option.form for option in needed)
    lines = [*_wrap(f"litebert {verb} {forms} [OPTIONS]", "    "), ""]
    for paragraph in text:
        lines += [*_wrap(paragraph), ""]
    lines += [*(f"  {example}" for example in examples), ""] if examples else []
    for owner, group in groupby(shown, key=lambda option: option.owner):
        if everything and owner is not cls:
            lines += ["", *_wrap(join_lines(owner.__doc__ or "").partition("\n\n")[0])]
        for option in group:
            lines += _format_option(option)
    rest = len(options) - len(shown)
    more = f"litebert {verb} --help all shows {rest} more. " if rest else ""
    lines += ["", *_wrap(f"{more}Every verb takes --quiet, --verbose.")]
    return "\n".join(lines) + "\n"


def _format_option(option: Option) -> list[str]:
    left, indent = f"  {option.form}", " " * _LEFT
    meaning = _wrap(option.help.replace("\n\n", " "), indent, indent) or [""]
    if len(left) > _LEFT - 2:
        return [left, *meaning]
    return [f"{left:<{_LEFT}}{meaning[0].lstrip()}".rstrip(), *meaning[1:]]


def _wrap(text: str, indent: str = "", first: str = "") -> list[str]:
    width = min(shutil.get_terminal_size().columns, 100)
    return textwrap.wrap(
        text,
        max(width, 60),
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


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


# -------------------------------------------------------------------------------------------- types


def _split_union(kind: Any) -> tuple[Any, ...]:
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return tuple(bare(part) for part in parts if part is not NoneType)


def is_flag(kind: Any) -> bool:
    """Return whether an option is a pair --x and --no-x: it is a bool, or a bool or None."""
    return _split_union(bare(kind)) == (bool,)


def bare(kind: Any) -> Any:
    """A type without its annotations."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def note_of(kind: Any) -> Arg:
    """Return what an annotation says of an option, perhaps within `X | None`."""
    parts = (kind, *(get_args(kind) if get_origin(kind) in (Union, UnionType) else ()))
    notes = (note for part in parts for note in getattr(part, "__metadata__", ()))
    return next((note for note in notes if isinstance(note, Arg)), Arg())
