"""The English of pages, help, messages and public docstrings keeps the countable rules of
CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import litebert
from commands.test_help import EVERY, parser_of
from litebert.cli import VERBOSITY, VERBS
from toys.prose import BANNED, list_blocks, list_faults

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "litebert"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
MOST_LINES, MOST_WORDS_OF_DOCS = 150, 25_000
LOGGED = ("info", "warning", "error", "exception", "critical")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_keeps_the_rules(page: Path) -> None:
    assert list_faults(page.read_text(encoding="utf-8")) == []


def test_pages_are_short() -> None:
    """Reports, decisions and what is looked up may be long."""
    docs = ROOT / "docs"
    pages = {
        page.relative_to(docs).as_posix(): page.read_text(encoding="utf-8")
        for page in docs.rglob("*.md")
        if page != docs / "reference.md"
        and page.relative_to(docs).parts[0] not in ("reports", "reference", "adr")
    }
    lines = {name: text.count("\n") for name, text in pages.items()}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
    assert sum(len(text.split()) for text in pages.values()) <= MOST_WORDS_OF_DOCS


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", EVERY)
def test_help_keeps_the_rules(name: str) -> None:
    parser = parser_of(EVERY[name])
    texts = [parser.description or "", *(str(action.help) for action in parser._actions)]
    assert len(texts) > 2
    assert [fault for text in texts for fault in list_faults(text)] == []


def test_the_list_of_verbs_keeps_the_rules() -> None:
    texts = [*(line for _, line in VERBS.values()), *VERBOSITY.values()]
    assert [fault for text in texts for fault in list_faults(text)] == []


@pytest.mark.parametrize("name", litebert.__all__)
def test_public_docstrings_keep_the_rules(name: str) -> None:
    value = getattr(litebert, name)
    members = (
        [member for key, member in vars(value).items() if key[0] != "_"]
        if isinstance(value, type)
        else []
    )
    texts = [inspect.getdoc(item) or "" for item in [value, *members] if is_documented(item)]
    assert texts
    assert [fault for text in texts for fault in list_faults(text)] == []


def is_documented(value: Any) -> bool:
    """True for what has a docstring of its own: no default of a field."""
    return callable(value) or isinstance(value, property | classmethod | staticmethod)


@pytest.mark.thorough
def test_messages_keep_the_rules() -> None:
    faults = {}
    count = 0
    for path in sorted(SOURCE.rglob("*.py")):
        for line, text in list_messages(ast.parse(path.read_text(encoding="utf-8"))):
            count += 1
            if wrong := list_faults(text):
                faults[f"{path.relative_to(SOURCE)}:{line}"] = wrong
    assert count > 800
    assert faults == {}


def list_messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The texts of errors and of lines in the log; what is filled in is one word."""
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Call(args=arguments)):
                texts = arguments
            case ast.Call(func=ast.Attribute(attr=name), args=[first, *_]) if name in LOGGED:
                texts = [first]
            case _:
                continue
        for argument in texts:
            if text := text_of(argument):
                yield argument.lineno, text


def text_of(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) or "X" for part in parts)
        case ast.BinOp(left=left, right=right):
            return text_of(left) + text_of(right)
        case ast.IfExp(body=body, orelse=other):
            return f"{text_of(body)}\n\n{text_of(other)}"
    return ""


# ------------------------------------------------------------------------------------ the mechanism


@pytest.mark.parametrize(
    "text",
    [
        "a piece of a word",
        "| a | matrix products |",
        "- trained from nothing",
        "its guesses",
        "faster beside the peer",
        "there is none at hand",
        "measured in turns",
        "it stays on a plateau",
        "texts that leave the network early",
        "no token hears of it",
        "the width is that of the heads",
        "it does the same for text",
        "the behaviour of a model",
        f"{'word ' * 31}.",
        f"- An item.\n  {'word ' * 31}.",
        f"| a cell | {'word ' * 31} |",
    ],
)
def test_a_fault_is_found(text: str) -> None:
    assert len(list_faults(f"A line.\n\n{text}\n")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "`--piece` and\n\n    a piece of code\n\n```sh\nguess\n```\n",
        "[a link](products.md)",
        "The result is the same.",
        f"{'word ' * 29}. {'word ' * 29}.",
        "It leaves out what the same command needs.",
    ],
)
def test_what_is_no_fault_is_not_found(text: str) -> None:
    assert list_faults(text) == []


def test_every_ban_has_an_example() -> None:
    marks = test_a_fault_is_found.pytestmark  # type: ignore[attr-defined]
    faults = [fault for text in marks[0].args[1] for fault in list_faults(text)]
    assert {fault.split(":")[0] for fault in faults} >= {name.split(":")[0] for name in BANNED}


def test_blocks_are_paragraphs_items_and_cells() -> None:
    text = "# Head\nOne\nline.\n\n- item\n  more\n- next\n\n| a | b |\n|---|---|\n\n    code\n"
    assert [block for block in list_blocks(text) if "---" not in block] == [
        "# Head One line.",
        "- item more",
        "- next",
        "a",
        "b",
    ]


def test_messages_are_found() -> None:
    code = 'raise E(f"{x} is bad")\nraise E("c" if y else "d")\nlog.warning("a" "b")\n'
    assert {text for _, text in list_messages(ast.parse(code))} == {"X is bad", "ab", "c\n\nd"}
