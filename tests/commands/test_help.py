"""Help: every option has one, and a paragraph of it is one line that the terminal wraps."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tyro.extras import get_parser

from litebert.commands.completion import verbs
from litebert.commands.options import READING
from litebert.config import Config
from litebert.config.finetuning import FinetuneConfig
from litebert.recipes import RECIPES

EVERY = {**dict(verbs()), "a recipe": Config, "a fine-tuning recipe": FinetuneConfig}
DEFAULTS = {Config: RECIPES["albert-tiny"](), FinetuneConfig: FinetuneConfig()}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def parser_of(cls: type[Any]) -> ArgumentParser:
    options: dict[str, Any] = {"default": DEFAULTS[cls]} if cls in DEFAULTS else {}
    with READING:
        parser: Any = get_parser(cls, **options)
    assert isinstance(parser, ArgumentParser)
    return parser


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", EVERY)
def test_every_option_has_a_help_without_line_breaks(name: str) -> None:
    for action in parser_of(EVERY[name])._actions:
        option = "/".join(action.option_strings) or action.dest
        text = re.sub(
            r"\s*\((default|required|optional|repeatable)\b.*\)$", "", str(action.help), flags=re.S
        )
        assert len(text) > 10, option
        assert not re.search(r"(?<!\n)\n(?!\n)", text), option
        assert "None" not in f"{action.help} {action.metavar or ''}", option


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", EVERY)
def test_an_option_that_only_turns_something_off_has_a_field_of_that_name(name: str) -> None:
    """Otherwise the help of `--no-x` would say what `--x` does."""
    cls: Any = EVERY[name]
    fields = cls.__dataclass_fields__
    for action in parser_of(cls)._actions:
        if len(action.option_strings) == 1 and action.option_strings[0].startswith("--no-"):
            assert action.option_strings[0][2:].replace("-", "_") in fields


OLD = """--text --pair --pairs --label --text-field --output --train --recipe --extend --transplant
--exit --exits --exit-drop --unlabelled --memory --timeout --max-wait --batch-wait
--max-body"""
"""Names that the command line had before its renames."""
OF_SHARDS = ("pretrain", "compare", "analyze", "study", "resize")
VERBS_ALONE = {name: cls for name, cls in EVERY.items() if cls not in DEFAULTS}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", VERBS_ALONE)
def test_names_and_flags_keep_the_rules(name: str) -> None:
    for action in parser_of(VERBS_ALONE[name])._actions:
        options = {*action.option_strings}
        assert not options & {*OLD.split()}
        assert "--data" not in options or name not in OF_SHARDS, "--shards names prepared text"
        if action.nargs == 0 and not options & {"--help", "--bf16", "--fp32"}:
            opposites = {f"--no-{option[2:]}" for option in options if option[:5] != "--no-"}
            assert opposites <= options, f"{options} is no pair"


def test_a_long_help_fills_its_lines(
    run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    status, out, _ = run("tokenizer", "train", "--help")
    assert status == 0
    start = out.index("--encoding ")
    lines = [line.strip("│ ") for line in out[start : out.index("--unwrap", start)].splitlines()][
        1:-1
    ]
    assert len(lines) > 1
    assert all(len(line) > 55 for line in lines[:-1]), lines


def test_the_reference_shows_no_annotations() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "reference.md"
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"Annotated\[|tyro|typing|NoneType", text)
    items = [line for line in text.splitlines() if re.match(r"- `(--)?[\w.-]+`", line)]
    assert len(items) > 100
    assert not [item for item in items if item.endswith(": ")]
