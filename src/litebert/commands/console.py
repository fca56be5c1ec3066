"""Shared by the verbs: parsing, tables, JSON, the log on standard error.

Heavy modules are imported inside the functions that need them, so that `--help` stays quick.
"""

from __future__ import annotations

import io
import logging
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeVar

from litebert.base import launch, progress
from litebert.base.errors import ConfigError, GroupError, require
from litebert.base.registry import pause_collection
from litebert.base.storage import json_text
from litebert.commands.options import (
    Arg,
    Option,
    asks_help,
    build,
    convert,
    format_help,
    list_options,
    read,
)
from litebert.remote.names import require_local

if TYPE_CHECKING:
    from rich.console import Console

    from litebert.analysis.report import Table
    from litebert.config import Config
    from litebert.config.finetuning import FinetuneConfig
    from litebert.train.ranks import Ranks
    from litebert.train.run_folder import RunFolder

log = logging.getLogger("litebert")

T = TypeVar("T")
Json = Annotated[bool, Arg(help="Print JSON instead of tables.")]
RecipeName = Annotated[
    str, Arg("RECIPE", "A recipe, a TOML or JSON file, or file.py:function.", positional=True)
]
ModelPath = Annotated[
    str, Arg("MODEL", "A folder of a run or a model, or hf:OWNER/NAME.", positional=True)
]
ModelTokenizer = Annotated[
    Path | None,
    Arg(help="Tokenizer of a MODEL that has none: a folder, *.model, vocab.txt or tokenizer.json."),
]
VectorSize = Annotated[int | None, Arg(help="Numbers of each vector to keep, the first ones.")]
DeviceName = Annotated[str, Arg(help="cpu, cuda, cuda:N, mps, or auto for a GPU if any.")]
DataPath = Annotated[str, Arg("PATH")]
"""A folder or a URL. A `Path` would drop a slash of a URL, which messages and records then lack."""


def parse(cls: type[T], words: Sequence[str], verb: str, default: T | None = None) -> T:
    """Read the words after a verb; with --help among them, print the help and end."""
    return parse_known(cls, words, verb, default=default)[0]


def parse_known(
    cls: type[T],
    words: Sequence[str],
    verb: str,
    recipe: Config | FinetuneConfig | None = None,
    *,
    refuse_unknown: Callable[[str], object] = lambda name: None,
    default: T | None = None,
) -> tuple[T, list[str]]:
    """Return the arguments of a verb, and the words that set fields of a recipe.

    Args:
        recipe: the recipe, whose values are the defaults that the help shows.
    """
    own = [*list_options(cls, default)]
    names = {option.name for option in own}
    fields = [*list_options(type(recipe), recipe)] if recipe is not None else []
    fields = [option for option in fields if option.name not in names]
    if asks_help(words):
        sys.stdout.write(format_help(cls, verb, words, [*own, *fields]))
        raise SystemExit(0)
    if ("--out", "") in pairwise(words) or "--out=" in words:
        raise ConfigError("--out is empty; give the name of what is to be written")

    def refuse_elsewhere(name: str) -> None:
        refuse_unknown(name)
        if verbs := list_verbs_with(name):
            raise ConfigError(f"{verb} has no option {name}, which is of {', '.join(verbs)}")

    example = getattr(cls, "examples", ("",))[0] if default is None else ""
    given = read([*own, *fields], words, example, refuse_elsewhere)
    _refuse_table(given, names)
    values = {each.path: convert(each, given[each]) for each in given if each.name in names}
    parsed: T = build(cls, default, values)
    for name, value in vars(parsed).items():
        if isinstance(value, Path) or (name == "model" and isinstance(value, str)):
            require_local(value)
        if name == "device":
            require(
                re.fullmatch("auto|cpu|mps|cuda(:[0-9]+)?", value) is not None,
                f"--device is '{value}'; give auto, cpu, cuda, cuda:N or mps",
            )
    return parsed, [word for each in given if each in fields for word in each.write(given[each])]


def refuse_lessons(words: Sequence[str], teacher: object) -> None:
    """Refuse options of what is learned from a teacher where none teaches."""
    option = next((word.partition("=")[0] for word in words if word.startswith("--distill.")), "")
    require(
        teacher is not None or not option,
        f"{option} is of a teacher; name one with --teacher, or leave it out",
    )


def _refuse_table(given: Mapping[Option, list[str]], names: Collection[str]) -> None:
    """Refuse a table in the place of a model, as in `litebert finetune train.csv`."""
    data = next((name for name in ("--input", "--data") if name in names), None)
    model = next((words[0] for option, words in given.items() if option.name == "MODEL"), "")
    if data is not None and Path(model).is_file():
        from litebert.recipes.files import is_recipe_name

        require(is_recipe_name(model), f"{model} is a file and no model; give MODEL {data} {model}")


def list_verbs_with(option: str) -> list[str]:
    """List the verbs that have an option of this name."""
    from litebert.commands.completion import verbs
    from litebert.config import Config
    from litebert.config.finetuning import FinetuneConfig

    recipes: list[tuple[str, type[Any]]] = [("pretrain", Config), ("finetune", FinetuneConfig)]
    parts = [*verbs(), *recipes]
    found = (verb for verb, cls in parts if option in (each.name for each in list_options(cls)))
    return [*dict.fromkeys(found)]


def parse_with_recipe(
    cls: type[T], words: Sequence[str], verb: str, unnamed: Callable[[T], Config] | None = None
) -> tuple[T, Config]:
    """A verb's arguments, then the recipe's own fields as further options: `--encoder.layers 6`.

    Args:
        unnamed: gives the recipe where there is none and --from names a model, for a verb that then
            needs none.
    """
    from litebert.config import Config
    from litebert.recipes.files import is_recipe_name, recipe

    shown = next(filter(is_recipe_name, words if asks_help(words) else ()), "albert-tiny")
    parsed, rest = parse_known(cls, words, verb, recipe(shown))
    known: Any = parsed
    shards = [*getattr(known, "shards", [])]
    if not known.recipe and len(shards) > 1 and is_recipe_name(shards[-1]):
        # `--shards a:3 b:1 RECIPE`: behind an option of several values, the recipe is the last.
        parsed = replace(known, recipe=shards[-1], shards=tuple(shards[:-1]))
    name, short = parsed.recipe, parsed.short  # type: ignore[attr-defined]
    rest = short.expand("--sequences.length", rest)
    config = recipe(name) if name or unnamed is None else unnamed(parsed)
    return parsed, parse(Config, rest, verb, default=config)


def output() -> Console:
    """Standard output, for tables and sentences."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            """Leave a reader that has gone to the command line, where rich would end the program
            with status 1.
            """
            raise

    return Output(highlight=False)


@cache
def errors() -> Console:
    """Standard error, shared with the bars so that words and bars do not overwrite each other."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def _may_be_terminal() -> bool:
    """Tell whether rich may find a terminal in standard error; where it cannot, it is not
    imported.
    """
    return sys.stderr.isatty() or not {"FORCE_COLOR", "TTY_COMPATIBLE"}.isdisjoint(os.environ)


class _ShownLog(logging.Handler):
    """Prints the package's log on standard error; with `--verbose`, each line starts with the
    seconds so far.
    """

    verbose = False

    def emit(self, record: logging.LogRecord) -> None:
        label = "warning: " if record.levelno >= logging.WARNING else ""
        seconds = f"{record.relativeCreated / 1000:8.2f} s  " if self.verbose else ""
        try:
            line = f"{seconds}{label}{record.getMessage()}"
            if _may_be_terminal():
                errors().print(line, markup=False, soft_wrap=True)
            else:
                sys.stderr.write(f"{line}\n")
                sys.stderr.flush()
        except OSError:  # what is said on a full disk is lost, but not the work
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


_SHOWN_LOG = _ShownLog()


def show_log(quiet: bool = False, verbose: bool = False) -> None:
    """Show what the library logs on standard error, and bars where that is a terminal.

    `quiet` keeps warnings only; `verbose` adds timings, paths and what is loaded.
    """
    log.setLevel(logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO)
    _SHOWN_LOG.verbose = verbose
    log.addHandler(_SHOWN_LOG)  # a second time does nothing
    if quiet or not _may_be_terminal() or not errors().is_terminal or errors().is_dumb_terminal:
        progress.set_display(None)
    else:
        from litebert.commands.bars import Bars

        progress.set_display(Bars(errors()))


@contextmanager
def group() -> Iterator[Ranks]:
    """The processes that torchrun started for this verb, around its work. Only the main one prints,
    unless another is the first to fail."""
    from litebert.train.ranks import join_group

    try:
        with join_group() as ranks:
            yield ranks
    except GroupError:
        raise
    except BaseException:
        if sys.__stderr__ is not None and not launch.main_process():
            sys.stderr = sys.__stderr__
        raise


def say(message: str) -> None:
    """Tell the person something on standard error, unless they asked for --quiet."""
    log.info(message)


def warn(*messages: str) -> None:
    """Tell the person on standard error what may be wrong, also with --quiet."""
    for message in messages:
        log.warning(message)


@contextmanager
def loading() -> Iterator[None]:
    """Around the imports of a verb, which take seconds where the disk is slow."""
    with progress.task("loading libraries"), pause_collection():
        yield


def ending(wrote: object = None, *following: Sequence[object] | str) -> None:
    """The last lines of a verb: what it wrote, and what likely comes next.

    A sequence of words is a command of ours, printed so that it can be pasted; what only the person
    knows stands in it in capitals. A text is printed as it is.
    """
    if wrote is not None:
        say(f"wrote {wrote}")
    for i, command in enumerate(following):
        text = (
            command if isinstance(command, str) else f"{program()} {shlex.join(map(str, command))}"
        )
        say(f"{'next:' if i == 0 else '     '} {text}")


def suggest_finetuning(model: object) -> tuple[object, ...]:
    return ("finetune", model, "--task", "table", "--data", "TABLE.csv", "--out", "CLASSIFIER")


def program() -> str:
    """Find how `litebert` is called from this shell."""
    if shutil.which("litebert"):
        return "litebert"
    path = Path(sys.argv[0])
    if path.stem == "litebert":
        return shlex.quote(str(path))
    return f"{shlex.quote(sys.executable)} -m litebert"


def confirm_overwrite(*folders: RunFolder) -> None:
    """On a terminal, ask before runs are deleted; elsewhere the option suffices."""
    from litebert.base.errors import RunError

    removable = {folder.path: names for folder in folders if (names := folder.list_removable())}
    if not removable or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    files = ", ".join(sorted({name for names in removable.values() for name in names}))
    folders_named = " and ".join(map(str, removable))
    errors().print(f"This deletes the run in {folders_named}: {files}", markup=False)
    answer = errors().input("Delete it and start again? [y/N] ", markup=False)
    if answer.strip().lower() not in ("y", "yes"):
        raise RunError(
            "nothing was deleted; leave --overwrite out to continue the run, or choose "
            "another --out"
        )


def show(text: str) -> None:
    """A line of the result, on standard output."""
    output().print(text, markup=False)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """Print a table under its title, numbers to the right and words to the left."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for i, column in enumerate(columns):
        numeric = all(row[i][:1].isdigit() or row[i] in ("", "-") for row in rows)
        whole = i == 0 and all(len(row[0]) <= 40 for row in rows)  # sentences may wrap, names not
        grid.add_column(
            column, justify="right" if numeric else "left", overflow="fold", no_wrap=whole
        )
    for row in rows:
        grid.add_row(*map(Text, row))  # texts may hold [brackets], which are no markup
    if title:  # a title of the grid would wrap at the grid's width
        output().print(Text(title, style="italic"))
    output().print(grid, "")


def wide_table(wide: Table, keys: int = 1, title: str | None = None) -> None:
    """Print a table in parts that each fit the terminal; its first `keys` columns are in all."""
    from litebert.analysis.compare import split_table

    for part in split_table(wide, output().width, keys):
        table(part.columns, part.rows, title)


def data_output() -> TextIO:
    """Standard output for what programs read: UTF-8 whatever the locale, as our files are."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="", errors="backslashreplace")
    if sys.stdout.isatty():
        progress.set_display(None)  # bars would be drawn between its lines
    return sys.stdout


def print_json(data: Any) -> None:
    data_output().write(json_text(data))


def print_markdown(columns: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> None:
    """A table as GitHub draws it, and a paragraph."""
    for cells in (columns, ["---"] * len(columns), *rows):
        sys.stdout.write("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    sys.stdout.write(f"\n{note}\n")
