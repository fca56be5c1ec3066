"""Shared by the verbs: parsing, tables, JSON, the log on standard error.

Heavy modules are imported inside the functions that need them, so that `--help` stays quick.
"""

from __future__ import annotations

import io
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeVar, cast, get_type_hints

import tyro

from litebert.base import launch, progress
from litebert.base.errors import ConfigError, GroupError, require
from litebert.base.registry import pause_collection
from litebert.base.storage import json_text
from litebert.commands.options import READING, bare, is_flag, join_lines, metadata_of
from litebert.config import Config
from litebert.remote.names import require_local

if TYPE_CHECKING:
    from rich.console import Console

    from litebert.train.ranks import Ranks
    from litebert.train.run_folder import RunFolder

log = logging.getLogger("litebert")

T = TypeVar("T")
Json = Annotated[bool, tyro.conf.arg(name="json", help="Print JSON instead of tables.")]
RecipeName = Annotated[
    tyro.conf.Positional[str],
    tyro.conf.arg(
        metavar="RECIPE", help="A recipe's name, a TOML or JSON file, or file.py:function."
    ),
]
ModelPath = Annotated[
    tyro.conf.Positional[str],
    tyro.conf.arg(
        metavar="MODEL",
        help="A run, a litebert or a Hugging Face folder; or hf:OWNER/NAME, or "
        "hf:OWNER/NAME@REVISION, on the Hugging Face Hub.",
    ),
]


DataPath = Annotated[str, tyro.conf.arg(metavar="PATH")]
"""A folder or a URL. A `Path` would drop a slash of a URL, which messages and records then lack."""


def parse(cls: type[T], words: Sequence[str], verb: str, **options: Any) -> T:
    """Parse the arguments of a verb; a mistake prints the likely intention and exits with
    status 2."""
    _refuse_twice(cls, words)
    if ("--out", "") in pairwise(words) or "--out=" in words:
        raise ConfigError("--out is empty; give the name of what is to be written")
    parser_options = {"description": join_lines(cls.__doc__ or ""), **options}
    with READING, pause_collection():
        parsed: T = tyro.cli(cls, prog=f"litebert {verb}", args=list(words), **parser_options)
    values = vars(parsed[0] if isinstance(parsed, tuple) else parsed)
    for name, value in values.items():
        if isinstance(value, Path) or (name == "model" and isinstance(value, str)):
            require_local(value)
    return parsed


def _refuse_twice(cls: type, words: Sequence[str]) -> None:
    # Of an option that is given twice, the parser would drop the first without a word.
    kinds = get_type_hints(cls, include_extras=True) if is_dataclass(cls) else {}
    repeated = [name for name, kind in kinds.items() if "UseAppendAction" in repr(kind)]
    several = {f"--{name.replace('_', '-')}" for name in repeated}
    options = [word for word in words if word[:2] == "--" and len(word) > 2]
    names = [word.partition("=")[0].replace("_", "-") for word in options]
    for name in names:
        if names.count(name) > 1 and name not in several | _flags_of(cls):
            raise ConfigError(f"{name} is given twice; give it once, with all that it shall hold")


def refuse_lessons(words: Sequence[str], teacher: object) -> None:
    """Refuse options of what is learned from a teacher where none teaches."""
    option = next((word.partition("=")[0] for word in words if word.startswith("--distill.")), "")
    require(
        teacher is not None or not option,
        f"{option} is of a teacher; name one with --teacher, or leave it out",
    )


def parse_known(cls: type[T], words: Sequence[str], verb: str) -> tuple[T, list[str]]:
    parsed: Any = parse(cls, words, verb, return_unknown_args=True)
    return parsed[0], list(parsed[1])


def first(
    words: Sequence[str],
    *options: type,
    wanted: Callable[[str], bool] = lambda word: not word.startswith("-"),
) -> list[str]:
    """The words with the first wanted one in front, for `options` may come before a recipe or a
    model.
    """
    # An option's value may look like one too, so a word right after an option that takes one is
    # passed over.
    flags = {"--help"}.union(*map(_flags_of, options))
    plain = [word.replace("_", "-") for word in words]
    values = {
        i + 1
        for i, word in enumerate(plain)
        if word[:2] == "--" and "=" not in word and word not in flags
    }
    place = next((i for i, word in enumerate(words) if i not in values and wanted(word)), 0)
    return [*words[place : place + 1], *words[:place], *words[place + 1 :]]


def _flags_of(cls: type, prefix: str = "--") -> set[str]:
    flags = set()
    for field, kind in get_type_hints(cls, include_extras=True).items():
        name = field.replace("_", "-")
        if is_flag(kind):
            flags |= {f"{prefix}{name}", f"{prefix}no-{name}"}
        elif is_dataclass(bare(kind)):
            # The options of a task are a group without a prefix.
            has_prefix = tyro.conf.OmitArgPrefixes not in metadata_of(kind)
            inner = f"{prefix}{name}." if has_prefix else prefix
            flags |= _flags_of(cast(type, bare(kind)), inner)
    return flags


def parse_with_recipe(
    cls: type[T], words: Sequence[str], verb: str, unnamed: Callable[[T], Config] | None = None
) -> tuple[T, Config]:
    """A verb's arguments, then the recipe's own fields as further options: `--encoder.layers 6`.

    Args:
        unnamed: gives the recipe where the words begin with an option and have --from, for a verb
            that then needs none.
    """
    from litebert.recipes.files import is_recipe_name, recipe

    words = first(words, cls, Config, wanted=is_recipe_name)
    from_model = any(word.partition("=")[0] == "--from" for word in words)
    asks = "-h" in words or "--help" in words
    if unnamed is not None and from_model and words[0].startswith("-") and not asks:
        words = ["", *words]
    if asks:
        name = words[0] if is_recipe_name(words[0]) else "albert-tiny"
        with suppress(SystemExit):
            parse(cls, ["--help"], verb)
        _with_fields(recipe(name), ["--help"], verb, name)
    parsed, rest = parse_known(cls, words, verb)
    rest = parsed.short.expand("--sequences.length", rest)  # type: ignore[attr-defined]
    name = parsed.recipe  # type: ignore[attr-defined]
    config = unnamed(parsed) if unnamed is not None and not name else recipe(name)
    return parsed, _with_fields(config, rest, verb, name or config.name) if rest else config


def _with_fields(config: Config, words: Sequence[str], verb: str, name: str) -> Config:
    return parse(
        Config, words, f"{verb} {name}", default=config, description="Fields of the recipe."
    )


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


def width() -> int:
    """How many characters a line of a table may have."""
    return output().width


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
