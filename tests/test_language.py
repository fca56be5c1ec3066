"""The language of the house (docs/reference/glossary.md), read from the source: names, docstrings
and the size of functions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import litebert

SOURCE = Path(litebert.__file__).parent
ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(SOURCE.rglob("*.py"))
OTHERS = [path for name in ("tests", "benchmarks", "docs") for path in (ROOT / name).rglob("*.py")]
"""The code around the source, which keeps the rules of names and lengths."""
FORBIDDEN = frozenset(
    [
        "one",
        "own",
        "its",
        "theirs",
        "ours",
        "mine",
        "found",
        "given",
        "known",
        "kept",
        "there",
        "here",
        "said",
        "told",
        "asked",
        "anew",
    ]
)
"""Pronouns, adverbs and participles that are no names."""
PARTICIPLE = re.compile(
    r"_*([a-z]+ed|built|spread|kept|shown|taught|known|given|found|drawn|written|held|cut|taken|"
    r"chosen|settled|left|put)(_|$)"
)
VERBS = frozenset(("embed", "need", "feed", "seed", "speed", "shed", "proceed"))
"""Verbs that end like participles."""
FRAGMENT = re.compile(r"(Of|What|Whose|Whether|Where|Which|As|By|For|In|With)\b")
"""The beginning of a docstring that is no sentence and no noun."""
MOST_LINES, MOST_POSITIONAL = 60, 8

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(tree: ast.Module) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def list_stored_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every name that the code gives to a value: variables, attributes and parameters."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every text that stands as a statement: below a definition, or below a value."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text.strip()


def is_property(function: Function) -> bool:
    decorators = (
        getattr(node, "id", getattr(node, "attr", "")) for node in function.decorator_list
    )
    return bool({*decorators} & {"property", "cached_property"})


def is_participle(name: str) -> bool:
    return PARTICIPLE.match(name) is not None and name.strip("_").split("_")[0] not in VERBS


@pytest.mark.parametrize("path", [*MODULES, *OTHERS], ids=lambda path: str(path.relative_to(ROOT)))
class TestEveryFile:
    def test_no_pronoun_or_adverb_is_a_name(self, path: Path) -> None:
        tree = tree_of(path)
        names = [*list_stored_names(tree), *((node.lineno, node.name) for node in functions(tree))]
        assert not [f"{path.name}:{line} {name}" for line, name in names if is_forbidden(name)]

    def test_functions_are_short(self, path: Path) -> None:
        for function in functions(tree_of(path)):
            assert function.end_lineno is not None
            where = f"{path.name}:{function.lineno} {function.name}"
            assert function.end_lineno - function.lineno < MOST_LINES, f"split {where}"
            positional = len(function.args.posonlyargs) + len(function.args.args)
            assert positional <= MOST_POSITIONAL, f"make parameters of {where} keyword-only"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
class TestEveryModule:
    def test_functions_are_verbs(self, path: Path) -> None:
        tree = tree_of(path)
        assert not [
            f"{path.name}:{function.lineno} {function.name}"
            for function in functions(tree)
            if is_participle(function.name) and not is_property(function)
        ]

    def test_docstrings_begin_with_a_verb_or_say_what_a_thing_is(self, path: Path) -> None:
        tree = tree_of(path)
        assert not [
            f"{path.name}:{line} {text[:60]}"
            for line, text in docstrings(tree)
            if FRAGMENT.match(text)
        ]


def is_forbidden(name: str) -> bool:
    return name.strip("_") in FORBIDDEN


@pytest.mark.parametrize(
    "code", ["one = 1", "self._kept = 2", "def f(own): ...", "for found in x: ...", "[given := 1]"]
)
def test_every_way_to_name_is_seen(code: str) -> None:
    assert any(is_forbidden(name) for _, name in list_stored_names(ast.parse(code)))


def test_every_docstring_is_seen() -> None:
    code = '"""Of a module."""\nx = 1\n"""Of x."""\nclass C:\n    """Of C."""\n    y: int = 2\n'
    tree = ast.parse(code + '    """Of y."""\n    def f(self):\n        """Of f."""\n')
    assert len([text for _, text in docstrings(tree) if FRAGMENT.match(text)]) == 5
