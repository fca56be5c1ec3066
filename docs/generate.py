"""Writes docs/reference.md from the code: the recipes, every field of the space, every option of
every verb.

What a field means is written once, below the field. The tables of docs/reports/projection.md,
docs/reference/features.md and docs/reference/filters.md are made here too, and the notebooks of
docs/tutorials. `--check` writes nothing and fails where a page is stale.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from litebert.base import registry
from litebert.cli import VERBOSITY, VERBS
from litebert.commands import options
from litebert.config import Config, TaskDistillConfig, cost
from litebert.config.features import FEATURES
from litebert.config.finetuning import FinetuneConfig
from litebert.recipes import PUBLISHED, RECIPES
from litebert.recipes.finetuning import FINETUNE_PRESETS
from litebert.text.filters import LINE_RULES, RULES
from notebooks import TUTORIALS, write_notebook
from overview import ROOT, format_citation, format_overview, format_readme
from projection import Cluster, project_step
from python_page import format_python_page

PAGE, PROJECTION, FEATURES_PAGE, FILTERS_PAGE = (
    Path(__file__).parent / name
    for name in (
        "reference.md",
        "reports/projection.md",
        "reference/features.md",
        "reference/filters.md",
    )
)
TYPES = {
    "int": "whole number",
    "float": "number",
    "str": "text",
    "bool": "true or false",
    "Path": "path",
    "dict": "numbers by name",
}


def main(arguments: Sequence[str]) -> int:
    reference = "\n".join([*_head(), *_recipes(), *_space(), *_verbs()]).rstrip() + "\n"
    projection = _replace_tables(PROJECTION, _projection())
    features = _replace_tables(FEATURES_PAGE, _features())
    filters = _replace_tables(FILTERS_PAGE, *map(_filters, RULES))
    status = 0
    notebooks = [
        (page.with_suffix(".ipynb"), write_notebook(page.read_text(encoding="utf-8")))
        for page in sorted(TUTORIALS.glob("*.md"))
    ]
    for page, text in (
        (PAGE, reference),
        (PROJECTION, projection),
        (FEATURES_PAGE, features),
        (FILTERS_PAGE, filters),
        (ROOT / "docs" / "reference" / "python.md", format_python_page()),
        (ROOT / "llms.txt", format_overview()),
        (ROOT / "CITATION.cff", format_citation()),
        (ROOT / "README.md", format_readme()),
        *notebooks,
    ):
        if "--check" not in arguments:
            page.write_text(text, encoding="utf-8")
        elif not page.is_file() or page.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{page} is not what the code says; write it again with: make docs\n")
            status = 1
    return status


def _replace_tables(page: Path, *tables: Iterator[str]) -> str:
    """The text of a page with new rows in its tables; a table is known by its head, and ends at an
    empty line.
    """
    text = page.read_text(encoding="utf-8")
    for table in tables:
        rows = [line for line in table if line]
        begin = text.index(rows[0])
        text = text[:begin] + "\n".join(rows) + text[text.index("\n\n", begin) :]
    return text


def _head() -> Iterator[str]:
    yield "# Reference"
    yield ""
    yield "Written from the code by `make docs`; edit the docstrings, not this page."
    yield ""


def _recipes() -> Iterator[str]:
    yield "## Recipes"
    yield ""
    yield (
        "Parameters are of the encoder with its pooler, exactly; the next column is what the "
        "paper prints."
    )
    yield ""
    rows = []
    for name, function in RECIPES.items():
        config = function()
        shape, mask = config.encoder, config.masking
        span = f"n-gram up to {mask.max_span}" if mask.span == "ngram" else mask.span
        rows.append(
            (
                f"`{name}`",
                f"{sum(cost.encoder_parameters(shape).values()):,}",
                PUBLISHED.get(name, ("", ""))[0],
                str(shape.layers),
                str(shape.hidden_size),
                str(shape.embedding_size),
                shape.sharing,
                f"{mask.unit}, {span}",
                f"{mask.copies} copies" if mask.copies else "fresh",
                " + ".join(config.objectives),
                config.train.budget,
                config.train.batch,
            )
        )
    yield from _table(
        "recipe | parameters | in print | L | H | E | sharing | masks | drawn | objectives "
        "| budget | batch",
        rows,
    )


def _space() -> Iterator[str]:
    yield "## The space"
    yield ""
    yield "A recipe file and the command line name a field by its path, as in `--encoder.layers 6`."
    yield ""
    yield from _fields_of(Config, "")
    yield "### Fine-tuning"
    yield ""
    yield inspect.getdoc(FinetuneConfig) or ""
    yield ""
    rows = list(_rows(FinetuneConfig, ""))
    place = next(i for i, row in enumerate(rows) if row[0] == "`distill`")
    rows[place : place + 1] = _rows(TaskDistillConfig, "distill.")
    yield from _table("field | kind | default | meaning", rows)
    yield "What `--preset` gives a task:"
    yield ""
    rows = [
        (
            name,
            task,
            f"{point.train.optimizer.peak:g}",
            str(point.train.batch).removesuffix(" sequences"),
            str(point.length),
            f"{point.steps} steps" if point.steps else f"{point.epochs:g} epochs",
            f"{point.train.schedule.warmup:g}",
            "the model's" if point.dropout < 0 else f"{point.dropout:g}",
            f"{point.deletion:g}",
            f"{point.train.optimizer.weight_decay:g}",
            f"{point.layer_decay:g}",
        )
        for name, points in FINETUNE_PRESETS.items()
        for task, point in points.items()
    ]
    yield from _table(
        "recipe | task | rate | batch | tokens | how long | warm-up | dropout | deletion | "
        "weight decay | layer decay",
        rows,
    )


def _fields_of(cls: type[Any], path: str) -> Iterator[str]:
    hints = get_type_hints(cls)
    nested = [
        item.name for item in dataclasses.fields(cls) if dataclasses.is_dataclass(hints[item.name])
    ]
    yield f"### `{path.rstrip('.')}`" if path else "### A complete config"
    yield ""
    yield inspect.getdoc(cls) or ""
    yield ""
    rows = [row for row in _rows(cls, path) if row[0].strip("`").removeprefix(path) not in nested]
    yield from _table("field | kind | default | meaning", rows)
    for name in nested:
        yield from _fields_of(hints[name], f"{path}{name}.")


def _verbs() -> Iterator[str]:
    yield "## The command line"
    yield ""
    yield from _table(
        "verb | what it does", [(f"`litebert {verb}`", line) for verb, (_, line) in VERBS.items()]
    )
    yield "Every other flag `--x` has an opposite `--no-x`."
    yield ""
    yield "Every verb takes these flags, at any position:"
    yield ""
    yield from _table(
        "flag | what it does", [(f"`{flag}`", line) for flag, line in VERBOSITY.items()]
    )
    for module in dict.fromkeys(f"litebert.commands.{file}" for file, _ in VERBS.values()):
        for name, cls in vars(import_module(module)).items():
            if name.endswith("Arguments") and cls.__module__ == module:
                verb = options.name_verb(cls)
                yield f"### `litebert {verb}`"
                yield ""
                yield inspect.getdoc(cls) or ""
                yield ""
                yield from _table("argument | kind | default | meaning", list(_rows(cls, "--")))
                if verb == "finetune":
                    yield from _task_options()


def _task_options() -> Iterator[str]:
    """The options of each task, once for the tasks that share them."""
    tasks: dict[type[Any], list[str]] = {}
    for name, task in registry.TASKS.items():
        tasks.setdefault(task.options, []).append(name)
    for cls, names in tasks.items():
        yield f"#### Options of `--task` {', '.join(f'`{name}`' for name in names)}"
        yield ""
        if dataclasses.fields(cls):
            yield from _table("argument | kind | default | meaning", list(_rows(cls, "--")))
        else:
            yield "None: their files come from the benchmark's folder."
            yield ""


def _rows(cls: type[Any], prefix: str) -> Iterator[tuple[str, ...]]:
    """Name, kind, default and meaning of every field; `--` as prefix makes them options of a
    verb."""
    meanings = options.meanings(cls)  # type: ignore[arg-type]  # a class is hashable
    kinds = get_type_hints(cls, include_extras=True)
    for item in dataclasses.fields(cls):
        option, kind, meaning = prefix == "--", kinds[item.name], meanings.get(item.name, "")
        if option and dataclasses.is_dataclass(group := options.bare(kind)):
            yield from _rows(group, prefix)  # type: ignore[arg-type]  # a class
            continue
        name = item.name.replace("_", "-") if option else item.name
        notes = getattr(kind, "__metadata__", ())
        meaning = next(
            filter(None, [meaning, *(getattr(note, "help", None) for note in notes)]), ""
        )
        name = next(filter(None, [*(getattr(note, "name", None) for note in notes), name]))
        name = (
            name.upper().removesuffix("S")
            if any(getattr(note, "positional", False) for note in notes)
            else prefix + name
        )
        default = "" if item.default is dataclasses.MISSING else f"`{item.default}`"
        if item.default in ("", (), None):
            default = "none"
        elif isinstance(item.default, tuple):
            default = f"`{' '.join(item.default)}`"
        kind = options.bare(kind)
        what = "flag" if option and options.is_flag(kind) else _kind(kind)
        if named := re.search("name in `([A-Z]+)`", meaning):
            what = ", ".join(f"`{part}`" for part in getattr(registry, named[1]))
        yield (f"`{name}`", what, default, meaning)


def _kind(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(
            _kind(argument) for argument in get_args(kind) if argument is not type(None)
        )
    return "list" if get_origin(kind) is tuple else TYPES.get(kind.__name__, kind.__name__)


def _features() -> Iterator[str]:
    rows = [
        (
            feature.name,
            ", ".join(f"`{name}={value}`" for name, value in feature.fields.items()),
            *(getattr(feature, way) for way in ("torch", "compiled", "onnx", "transformers")),
        )
        for feature in FEATURES
    ]
    yield from _table("feature | fields | PyTorch | compiled | ONNX | transformers", rows)


def _filters(name: str) -> Iterator[str]:
    """The rules of a filter; those of lines come last."""
    rules = [(f"`{name}-{rule}`", text) for rule, text in RULES[name].items()]
    rules += [(f"`{name}-{rule}`", text) for rule, text in LINE_RULES.get(name, {}).items()]
    yield from _table(f"rule of {name} | it drops documents, or lines, with", rules)


def _projection() -> Iterator[str]:
    rows = []
    for name in ("albert-xxlarge", "bert-large", "modernbert-base"):
        config = RECIPES[name]()
        for devices in (8, 64):
            estimate = project_step(config, Cluster(devices))
            assert estimate  # no batch has fewer sequences than GPUs
            days = "-".join(dict.fromkeys(f"{day:,.1f}" for day in estimate.days or ()))
            each = f"{estimate.sequences} in passes of {estimate.micro_batch}"
            rows.append(
                (
                    name,
                    f"{config.batch_sequences:,}",
                    str(devices),
                    each,
                    f"{estimate.memory_bytes / 1e9:.0f} GB",
                    f"{estimate.compute_seconds:.3f} s",
                    f"{estimate.communication_seconds:.3f} s",
                    days,
                )
            )
    yield from _table(
        "recipe | batch | GPUs | sequences of each | memory | compute | communication | days", rows
    )


def _table(head: str, rows: Sequence[Sequence[str]]) -> Iterator[str]:
    columns = head.count("|") + 1
    yield f"| {head} |"
    yield "|" + "---|" * columns
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    yield ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
