"""Writes docs/reference.md from the code: the recipes, every field of the space, every option of
every verb.

What a field means is written once, below the field. The tables of docs/space.md,
docs/reference/filters.md and docs/reference/http.md are made here too, and the code that
docs/tutorials quote. `--check` writes nothing and fails where a page is stale.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from features import FEATURES, YES
from litebert.base import registry
from litebert.cli import VERBOSITY, VERBS
from litebert.commands import options
from litebert.config import Config, DistillConfig, TaskDistillConfig, cost
from litebert.config.finetuning import FinetuneConfig
from litebert.recipes import PUBLISHED, RECIPES
from litebert.serve.routes import PAGES, make_schema
from litebert.text.filters import LINE_RULES, RULES
from overview import ROOT, format_citation, format_overview, format_readme
from python_page import format_python_page

PAGE, SPACE_PAGE, FILTERS_PAGE, HTTP_PAGE = (
    Path(__file__).parent / name
    for name in (
        "reference.md",
        "space.md",
        "reference/filters.md",
        "reference/http.md",
    )
)
QUOTE = re.compile(
    r"<!-- code: ([\w.]+):([\w.]+)(?: \| ([^|\n]+?))?(?: \| ([^|\n]+?))? -->\n```py\n.*?^```$",
    re.M | re.S,
)
"""Code that a page quotes: a function, or its lines from one that has a text to before one that has
another."""


def main(arguments: Sequence[str]) -> int:
    reference = "\n".join([*_head(), *_recipes(), *_space(), *_verbs()]).rstrip() + "\n"
    features = _replace_tables(SPACE_PAGE, _features())
    filters = _replace_tables(FILTERS_PAGE, *map(_filters, RULES))
    status = 0
    tutorials = [
        (page, quote_code(page.read_text(encoding="utf-8")))
        for page in sorted((ROOT / "docs" / "tutorials").glob("*.md"))
    ]
    for page, text in (
        (PAGE, reference),
        (SPACE_PAGE, features),
        (FILTERS_PAGE, filters),
        (HTTP_PAGE, _replace_tables(HTTP_PAGE, _routes())),
        (ROOT / "docs" / "reference" / "python.md", format_python_page()),
        (ROOT / "llms.txt", format_overview()),
        (ROOT / "CITATION.cff", format_citation()),
        (ROOT / "README.md", format_readme()),
        *tutorials,
    ):
        if "--check" not in arguments:
            page.write_text(text, encoding="utf-8")
        elif not page.is_file() or page.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{page} is not what the code says; write it again with: make docs\n")
            status = 1
    return status


def quote_code(page: str) -> str:
    """Return a page with its quotes as the code is now.

    Raises:
        AttributeError: the function is gone.
        StopIteration: the line that the quote begins with is.
    """

    def quote(match: re.Match[str]) -> str:
        module, name, begin, end = match.groups()
        code = inspect.getsource(attrgetter(name)(import_module(module)))
        lines = code.splitlines()
        first = next(i for i, line in enumerate(lines) if (begin or "") in line)
        last = next((i for i in range(first, len(lines)) if end and end in lines[i]), len(lines))
        code = textwrap.dedent("\n".join(lines[first:last]))
        fence = match[0][: match[0].index("```py\n")]
        return f"{fence}```py\n{code}\n```"

    return QUOTE.sub(quote, page)


def _routes() -> Iterator[str]:
    """The routes of the service with the fields of their bodies, as its schema has them."""
    schema = make_schema()
    rows: list[tuple[str, str, str]] = []
    for path, methods in schema["paths"].items():
        for method, route in methods.items():
            content = route.get("requestBody", {}).get("content", {}).get("application/json", {})
            name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
            body = schema["components"]["schemas"].get(name, {})
            needed = body.get("required", ())
            fields = [
                f"**`{field}`**" if field in needed else f"`{field}`"
                for field in body.get("properties", {})
            ]
            name = f"`{method.upper()} {path}`"
            if rows and rows[-1][2] and rows[-1][2] == ", ".join(fields):  # an alias
                rows[-1] = (f"{rows[-1][0]}, {name}", *rows[-1][1:])
            else:
                rows.append((name, route["summary"], ", ".join(fields)))
    rows += [(f"`GET {path}`", summary, "") for path, (_, summary) in PAGES.items()]
    yield from _table("route | answers | fields of its body, needed ones in bold", rows)


def _replace_tables(page: Path, *tables: Iterator[str]) -> str:
    """The text of a page with new rows in its tables and paragraphs, each of which is known by its
    first line and ends at an empty line.
    """
    text = page.read_text(encoding="utf-8")
    for table in tables:
        rows = [line for line in table if line]
        begin = text.index(rows[0])
        text = text[:begin] + "\n".join(rows) + text[f"{text}\n".index("\n\n", begin) :]
    return text


def _head() -> Iterator[str]:
    yield "# Reference"
    yield ""
    yield "Look up a recipe, a field of a recipe, or an option of a verb."
    yield ""


def _recipes() -> Iterator[str]:
    yield "## Recipes"
    yield ""
    yield (
        "L is the number of layers, H the hidden size and E the embedding size. Parameters are "
        "those of the encoder with its pooler, counted exactly, with the paper's figure behind "
        "them. [The systems](space.md#the-systems) shows what each recipe reads, masks and learns."
    )
    yield ""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, function in RECIPES.items():
        config = function()
        shape = config.encoder
        count = f"{sum(cost.encoder_parameters(shape).values()):,}"
        printed = PUBLISHED.get(name.removesuffix("-v1"), ("", ""))[0]
        cells = (
            f"{count} ({printed})" if printed else count,
            f"{shape.layers}, {shape.hidden_size}, {shape.embedding_size}",
            config.train.budget,
            config.train.batch.removesuffix(" sequences"),
        )
        rows.setdefault(cells, []).append(f"`{name}`")
    yield from _table(
        "recipe | parameters | L, H, E | budget | sequences a step",
        [(", ".join(names), *cells) for cells, names in rows.items()],
    )
    yield (
        "The recipes `-v1` have the dropout of ALBERT's first version. `albert-next-base` and "
        "`albert-next-large` are meant for GPUs and have not been trained yet."
    )
    yield ""


def _space() -> Iterator[str]:
    yield "## The space"
    yield ""
    yield (
        "A recipe file and the command line name a field by its path, as in `--encoder.layers 6`. "
        "Defaults stand in parentheses."
    )
    yield ""
    yield from _fields_of(Config, "")
    yield "### Fine-tuning"
    yield ""
    yield inspect.getdoc(FinetuneConfig) or ""
    yield ""
    yield from _items(FinetuneConfig, "", TaskDistillConfig)
    yield (
        "What `--preset` gives a task is in "
        "[`recipes/finetuning.py`](../src/litebert/recipes/finetuning.py), with the papers' tables."
    )
    yield ""


def _fields_of(cls: type[Any], path: str) -> Iterator[str]:
    hints = get_type_hints(cls)
    nested = [
        item.name for item in dataclasses.fields(cls) if dataclasses.is_dataclass(hints[item.name])
    ]
    yield f"### `{path.rstrip('.')}`" if path else "### A complete config"
    yield ""
    yield inspect.getdoc(cls) or ""
    yield ""
    yield from _items(cls, path, None, nested)
    for name in nested:
        yield from _fields_of(hints[name], f"{path}{name}.")


def _items(
    cls: type[Any], path: str, inner: type[Any] | None, left_out: Sequence[str] = ()
) -> Iterator[str]:
    """The fields of a config but those left out; `inner` is the class of its field `distill`."""
    for option in _list_options(cls, path):
        if inner is not None and option.name == "distill":
            known = set(_list_options(DistillConfig, "distill."))
            yield from (
                item.format() for item in _list_options(inner, "distill.") if item not in known
            )
            yield "- `distill.*`: the other fields of [`distill`](#distill) in pretraining."
        elif option.name.removeprefix(path) not in left_out:
            yield option.format()
    yield ""


def _verbs() -> Iterator[str]:
    yield "## The command line"
    yield ""
    yield (
        "`litebert VERB --help` says more about a verb. Fields of the recipe are options of "
        "`pretrain`, `finetune` and `distill` too. A flag `--x` has an opposite `--no-x`. Every "
        "verb takes these:"
    )
    yield ""
    yield from (f"- `{flag}`: {line}" for flag, line in VERBOSITY.items())
    yield ""
    sections = dict(_list_sections())
    holders: dict[Option, list[str]] = {}
    for title, (_, options_of) in sections.items():
        for option in options_of:
            holders.setdefault(option, []).append(title)
    groups: dict[tuple[str, ...], list[Option]] = {}
    for option, titles in holders.items():
        groups.setdefault(tuple(titles), []).append(option)
    shared = {
        titles: group
        for titles, group in groups.items()
        if len(titles) > 2 or (len(titles) == 2 and len(group) > 2)
    }
    yield "### Options that verbs share"
    yield ""
    for verbs, group in shared.items():
        names = [f"`{verb.removeprefix('finetune ')}`" for verb in verbs]
        yield f"{_join(names)}:"
        yield ""
        yield from (option.format() for option in group)
        yield ""
    common = {option for group in shared.values() for option in group}
    for title, (meaning, options_of) in sections.items():
        yield f"### `litebert {title}`"
        yield ""
        yield from (meaning, "") if meaning else ()
        yield from (option.format() for option in options_of if option not in common)
        yield ""


def _list_sections() -> Iterator[tuple[str, tuple[str, list[Option]]]]:
    """Each verb with what it does and its options, and each task of `finetune`."""
    for module in dict.fromkeys(f"litebert.commands.{file}" for file, _ in VERBS.values()):
        for name, cls in vars(import_module(module)).items():
            if name.endswith("Arguments") and cls.__module__ == module:
                verb = options.name_verb(cls)
                about = (inspect.getdoc(cls) or "").split("\n\n")[0]
                yield verb, (about, list(_list_options(cls, "--")))
                if verb == "finetune":
                    yield from _list_tasks()


def _list_tasks() -> Iterator[tuple[str, tuple[str, list[Option]]]]:
    """The options of each task, once for the tasks that share them."""
    tasks: dict[type[Any], list[str]] = {}
    for name, task in registry.TASKS.items():
        tasks.setdefault(task.options, []).append(name)
    for cls, names in tasks.items():
        if dataclasses.fields(cls):
            title = f"finetune --task {'|'.join(names)}"
            yield title, ("", list(_list_options(cls, "--")))


@dataclasses.dataclass(frozen=True)
class Option:
    """A field of a config, or an option of a verb, as the page shows it."""

    name: str
    choices: str
    default: str
    meaning: str

    def format(self) -> str:
        return f"- `{self.name}`{self.choices}{self.default}: {self.meaning}"


def _list_options(cls: type[Any], prefix: str) -> Iterator[Option]:
    """The fields of a class; `--` as prefix makes them options of a verb."""
    meanings = options.meanings(cls)  # type: ignore[arg-type]  # a class is hashable
    kinds = get_type_hints(cls, include_extras=True)
    for item in dataclasses.fields(cls):
        is_option, kind, meaning = prefix == "--", kinds[item.name], meanings.get(item.name, "")
        if is_option and dataclasses.is_dataclass(group := options.bare(kind)):
            yield from _list_options(group, prefix)  # type: ignore[arg-type]  # a class
            continue
        name = item.name.replace("_", "-") if is_option else item.name
        notes = getattr(kind, "__metadata__", ())
        meaning = next(
            filter(None, [meaning, *(getattr(note, "help", None) for note in notes)]), ""
        )
        name = next(filter(None, [*(getattr(note, "name", None) for note in notes), name]))
        is_positional = any(getattr(note, "positional", False) for note in notes)
        name = name.upper().removesuffix("S") if is_positional else prefix + name
        choices = _list_choices(options.bare(kind))
        if named := re.search("name in `([A-Z]+)`", meaning):
            choices = list(getattr(registry, named[1]))
        is_flag = is_option and options.is_flag(options.bare(kind))
        yield Option(
            name,
            f" `{'|'.join(choices)}`" if choices else "",
            _format_default(item, is_option, is_flag),
            meaning,
        )


def _list_choices(kind: Any) -> list[str]:
    """The words that a field accepts, or none where it accepts what it likes."""
    if get_origin(kind) is Literal:
        return [str(value) for value in get_args(kind)]
    if get_origin(kind) in (Union, UnionType):
        kinds = [argument for argument in get_args(kind) if argument is not type(None)]
        words = [word for argument in kinds for word in _list_choices(argument)]
        return [*words, "number"] if words and len(kinds) > 1 else words
    return []


def _format_default(item: dataclasses.Field[Any], is_option: bool, is_flag: bool) -> str:
    if item.default is dataclasses.MISSING:
        return " (required)" if is_option else ""
    if is_flag:
        return " (on)" if item.default else ""
    if item.default in ("", (), None):
        return ""
    values = item.default if isinstance(item.default, tuple) else (item.default,)
    return f" (`{' '.join(map(str, values))}`)"


def _join(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _features() -> Iterator[str]:
    """The features that an encoder may have, and whether a class of transformers computes them."""
    names: dict[str, list[str]] = {"yes": [], "no": []}
    for feature in FEATURES:
        assert {feature.torch, feature.compiled, feature.onnx} == {YES}, feature.name
        names["yes" if feature.transformers == YES else "no"].append(feature.name)
    rows = [(answer, "; ".join(group)) for answer, group in names.items()]
    yield from _table("a class in `transformers` | features", rows)


def _filters(name: str) -> Iterator[str]:
    """The rules of a filter; those of lines come last."""
    rules = [(f"`{name}-{rule}`", text) for rule, text in RULES[name].items()]
    rules += [(f"`{name}-{rule}`", text) for rule, text in LINE_RULES.get(name, {}).items()]
    yield from _table(f"rule of {name} | it drops documents, or lines, with", rules)


def _table(head: str, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    columns = head.count("|") + 1
    yield f"| {head} |"
    yield "|" + "---|" * columns
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    yield ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
