"""What the verbs share: parsing, tables, JSON, the progress bar.

Heavy modules are imported inside the functions that need them, so that `--help` stays quick.
"""

from __future__ import annotations

import io
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeVar, cast, get_type_hints

import tyro

from litebert.config import Config
from litebert.recipes.files import names_recipe, recipe
from litebert.storage import json_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from litebert.text.lines import Meter
    from litebert.text.sources import Document
    from litebert.train.loop import Loop

T = TypeVar("T")
Json = Annotated[bool, tyro.conf.arg(name="json", help="Print JSON instead of tables.")]
RecipeName = Annotated[
    tyro.conf.Positional[str],
    tyro.conf.arg(metavar="RECIPE", help="A recipe's name, a TOML or JSON file, or file.py:function."),
]
ModelPath = Annotated[
    tyro.conf.Positional[str],
    tyro.conf.arg(metavar="MODEL", help="A run folder, a litebert model folder or a Hugging Face folder."),
]
_FLAGS = (tyro.conf.FlagCreatePairsOff,)  # for verbs; a recipe's fields need --no-X as well, for variants


def parse(cls: type[T], words: Sequence[str], verb: str, **options: Any) -> T:
    """The arguments of a verb; a mistake prints what was meant and exits with status 2."""
    parsed: T = tyro.cli(cls, prog=f"litebert {verb}", args=list(words), **{"config": _FLAGS, **options})
    return parsed


def first(
    words: Sequence[str], *options: type, wanted: Callable[[str], bool] = lambda word: not word.startswith("-")
) -> list[str]:
    """The words with the first wanted one in front, for `options` may come before a recipe or a model."""
    # An option's value may look like one too, so a word right after an option that takes one is passed over.
    flags = {"--help"}.union(*map(_flags_of, options))
    plain = [word.replace("_", "-") for word in words]
    values = {i + 1 for i, word in enumerate(plain) if word[:2] == "--" and "=" not in word and word not in flags}
    place = next((i for i, word in enumerate(words) if i not in values and wanted(word)), 0)
    return [*words[place : place + 1], *words[:place], *words[place + 1 :]]


def _flags_of(cls: type, prefix: str = "--") -> set[str]:
    """The options of a dataclass that take no value."""
    flags = set()
    for field, kind in get_type_hints(cls).items():
        name = field.replace("_", "-")
        if kind is bool:
            flags |= {f"{prefix}{name}", f"{prefix}no-{name}"}
        elif is_dataclass(kind):
            flags |= _flags_of(cast(type, kind), f"{prefix}{name}.")
    return flags


def parse_with_recipe(cls: type[T], words: Sequence[str], verb: str) -> tuple[T, Config]:
    """A verb's arguments, then the recipe's own fields as further options: `--encoder.layers 6`."""
    words = first(words, cls, Config, wanted=names_recipe)
    if "-h" in words or "--help" in words:
        name = words[0] if names_recipe(words[0]) else "albert-tiny"
        with suppress(SystemExit):
            parse(cls, ["--help"], verb)
        _with_fields(recipe(name), ["--help"], verb, name)
    parsed, rest = tyro.cli(cls, prog=f"litebert {verb}", args=list(words), return_unknown_args=True, config=_FLAGS)
    name = parsed.recipe  # type: ignore[attr-defined]
    config = recipe(name)
    return parsed, _with_fields(config, rest, verb, name) if rest else config


def _with_fields(config: Config, words: Sequence[str], verb: str, name: str) -> Config:
    return parse(Config, words, f"{verb} {name}", default=config, description="Fields of the recipe.", config=())


@cache
def errors() -> Console:
    """Standard error, shared with the progress bar so that words and bar do not overwrite each other."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def say(message: str) -> None:
    """A remark to the person, on standard error."""
    errors().print(message, markup=False, soft_wrap=True)


class _Remarks(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


_REMARKS = _Remarks()


def show_log() -> None:
    """From now on what the library logs is a remark to the person."""
    log = logging.getLogger("litebert")
    log.setLevel(logging.INFO)
    log.addHandler(_REMARKS)  # a second time does nothing


def show(text: str) -> None:
    """A line of the result, on standard output."""
    from rich.console import Console

    Console(highlight=False).print(text, markup=False)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """Numbers to the right, words to the left."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", show_edge=False, padding=(0, 1, 0, 0))
    for i, column in enumerate(columns):
        numeric = all(row[i][:1].isdigit() or row[i] in ("", "-") for row in rows)
        whole = i == 0 and all(len(row[0]) <= 40 for row in rows)  # sentences may wrap, names not
        grid.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=whole)
    for row in rows:
        grid.add_row(*map(Text, row))  # texts may hold [brackets], which are no markup
    Console().print(grid, "")


def width() -> int:
    """How many characters a line of a table may have."""
    from rich.console import Console

    return Console().width


def data_output() -> TextIO:
    """Standard output for what programs read: UTF-8 whatever the locale, as our files are."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="")
    return sys.stdout


def print_json(data: Any) -> None:
    data_output().write(json_text(data))


def print_markdown(columns: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> None:
    """A table as GitHub draws it, and a paragraph."""
    for cells in (columns, ["---"] * len(columns), *rows):
        sys.stdout.write("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    sys.stdout.write(f"\n{note}\n")


@contextmanager
def training_progress() -> Iterator[Callable[[Loop[Any]], None]]:
    """A progress bar on a terminal, nothing elsewhere; yields what to call after every step."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn(),
        console=errors(), disable=not sys.stderr.isatty(), transient=True,
    )  # fmt: skip
    with bar:
        task: TaskID | None = None
        text, mark = "", (time.monotonic(), 0)

        def on_step(loop: Loop[Any]) -> None:
            nonlocal task, text, mark
            if task is None:
                task, mark = bar.add_task("", total=loop.steps), (time.monotonic(), loop.tokens)
            seconds = time.monotonic() - mark[0]
            if seconds > 0.5:
                row = loop.row  # reading the window itself would wait for the device
                rate = (loop.tokens - mark[1]) / seconds
                scores = "  ".join(f"{name[:-9]} {row[name]:.0%}" for name in row if name.endswith("_accuracy"))
                loss = f"  loss {row['loss']:.2f}  {scores}" if row else ""
                text = f"{rate:,.0f} tokens/s{loss}"
                mark = (time.monotonic(), loop.tokens)
            bar.update(task, completed=loop.step, description=text)

        yield on_step


def reading_progress(documents: Iterable[Document], meter: Meter) -> Iterator[Document]:
    """Pass documents on; on a terminal, draw a bar of the bytes read, the documents and the time left."""
    if not sys.stderr.isatty():
        yield from documents
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("preparing"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[documents]:,} documents"), console=Console(stderr=True)) as bar:
        task, number = bar.add_task("prepare", total=None, documents=0), 0
        for number, document in enumerate(documents, 1):
            if number % 64 == 1:
                bar.update(task, completed=meter.read, total=meter.total, documents=number)
            yield document
        bar.update(task, completed=meter.read, total=meter.total, documents=number)
