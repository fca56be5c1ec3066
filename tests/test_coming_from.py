"""Every option, field, verb and recipe of litebert that docs/coming-from.md names exists, and so
does what it names of the programs that are installed here.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from litebert.cli import VERBS
from litebert.config import Config
from litebert.config.finetuning import FinetuneConfig
from litebert.recipes import RECIPES

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
PROGRAMS = (
    "transformers",
    "sentence-transformers",
    "SetFit",
    "ModernBERT's repository",
    "google-research/albert",
)


def rows_of(program: str) -> list[tuple[str, str]]:
    """What a program calls a thing, and what litebert does, of each item of its section."""
    section = PAGE.split(f"\n## {program}\n")[1].split("\n## ")[0]
    return re.findall(r"^- (.+?) → (.+)$", section, re.M)


def list_fields(cls: type[Any], path: str = "") -> Iterator[str]:
    hints = get_type_hints(cls)
    for item in dataclasses.fields(cls):
        yield f"{path}{item.name}"
        if dataclasses.is_dataclass(kind := hints[item.name]):
            yield from list_fields(kind, f"{path}{item.name}.")  # type: ignore[arg-type]


FIELDS = {*list_fields(Config), *list_fields(FinetuneConfig)}
OPTIONS = {
    *re.findall(r"^- `(--[a-z0-9-]+)`", REFERENCE, re.M),
    *(f"--{field.replace('_', '-')}" for field in FIELDS),
}


def list_unknown(cell: str) -> list[str]:
    """Names in the code of a cell that litebert does not have."""
    unknown = []
    for code in re.findall(r"`([^`]+)`", cell):
        words = code.split()
        if words[0] == "litebert":
            unknown += [words[1]] * (words[1] not in VERBS)
        options = [word.split("=")[0] for word in words if word.startswith("--")]
        unknown += [option for option in options if option not in OPTIONS]
        is_field = re.fullmatch(r"[a-z_]+(\.[a-z_0-9]+)+|objectives", code)
        unknown += [code] * (is_field is not None and code not in FIELDS)
        unknown += [code] * (re.fullmatch(r"[a-z]+-base", code) is not None and code not in RECIPES)
    return unknown


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_section_names_of_litebert_exists(program: str) -> None:
    rows = rows_of(program)
    assert len(rows) >= 8
    assert [(cell, list_unknown(cell)) for _, cell in rows if list_unknown(cell)] == []


@pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers")
@pytest.mark.thorough
def test_arguments_of_transformers_exist() -> None:
    from transformers import TrainingArguments

    cells = " ".join(cell for cell, _ in rows_of("transformers"))
    named = set(re.findall(r"`([a-z_0-9]+)`", cells))
    assert len(named) > 25
    assert named <= {item.name for item in dataclasses.fields(TrainingArguments)}


@pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="needs the package")
@pytest.mark.thorough
def test_classes_of_sentence_transformers_exist() -> None:
    import sentence_transformers
    from sentence_transformers.sentence_transformer import evaluation, losses

    cells = " ".join(cell for cell, _ in rows_of("sentence-transformers"))
    named = set(re.findall(r"\b[A-Z][a-z]+[A-Z]\w+", cells)) - {"SimCSE"}
    assert len(named) > 8
    places = (sentence_transformers, evaluation, losses)
    assert [name for name in named if not any(hasattr(place, name) for place in places)] == []


@pytest.mark.parametrize(
    ("cell", "unknown"),
    [
        ("`--lrr 1`", ["--lrr"]),
        ("`train.clipp`", ["train.clipp"]),
        ("`litebert tune run`", ["tune"]),
        ("`modern-base`", ["modern-base"]),
        ("`litebert tokenizer train --out x`, `train.clip`, `--train.clip`", []),
    ],
)
def test_an_unknown_name_is_found(cell: str, unknown: list[str]) -> None:
    assert list_unknown(cell) == unknown
