"""What the README shows works: its commands run in order, its verbs, options and files exist, its links lead somewhere.

Every `sh` and `python` block of the README is run in one folder, in the page's order, as it is printed but for the
sizes in `SIZES`. What installs is left out (`pip`, `make`). The folder holds what the page says it does: a corpus
`my-text/`, a table `reviews.csv` and a pair of sentences in `pairs.jsonl`.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.run import get_args_parser

from litebert.config import replace
from litebert.recipes import RECIPES
from litebert.studies import packages
from litebert.text import python_docs
from litebert.train.measure import Rate

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```(sh|python)\n(.*?)^```$", re.M | re.S)
SIZES = {
    "litebert quickstart": "litebert quickstart --vocab-size 400 --budget '1 steps'",
    "--vocab-size 8192": "--vocab-size 400",
    "--budget 30m": "--budget '2 steps'",
}
"""What is printed, and what a test has time for."""


def commands_of(text: str) -> list[tuple[str, list[str] | str]]:
    """Each command of the page's blocks, as printed, and the words after `litebert`; a Python block is one command."""
    commands: list[tuple[str, list[str] | str]] = []
    for language, code in FENCED.findall(text):
        if language == "python":
            commands.append((code, code))
            continue
        for line in code.splitlines():
            run = line
            for printed, small in SIZES.items():
                run = re.sub(rf"{re.escape(printed)}(?![\w-])", small, run)
            words = shlex.split(run, comments=True)
            if not words or words[0] in ("pip", "make"):
                continue
            words = words[2:] if words[:2] == ["python", "-m"] else words
            assert Path(words[0]).name == "litebert", f"cannot run: {line}"
            commands.append((line, words[1:]))
    return commands


@pytest.fixture
def folder(tmp_path: Path, tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a reader of the page stands; the built-in corpus is small, and nothing is timed."""
    (tmp_path / "my-text").mkdir()
    shutil.copy(tiny_corpus, tmp_path / "my-text")
    sentences = tiny_corpus.read_text(encoding="utf-8").replace("\n", " ").split(". ")[:60]
    rows = [f"{sentence},{i % 3}" for i, sentence in enumerate(sentences)]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,stars", *rows, ""]), encoding="utf-8")
    pair = {"sentence_good": sentences[0], "sentence_bad": sentences[0][::-1]}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair), encoding="utf-8")

    few = [(where, list(texts)) for i, (where, texts) in enumerate(python_docs._modules()) if i % 40 == 0]
    monkeypatch.setattr(python_docs, "_modules", lambda: ((where, iter(texts)) for where, texts in few))
    settings = replace(packages.settings(), steps=2)
    monkeypatch.setattr(packages, "settings", lambda: settings)
    for name, size in (("CLASSES", 2), ("TRAIN", 8), ("DEV", 4)):
        monkeypatch.setattr(packages, name, size)
    monkeypatch.setattr("litebert.studies.quickstart.measure", lambda *_: Rate(((1.0, 0.1),), 0.1))
    monkeypatch.setattr("litebert.train.measure.measure", lambda *_: Rate(((1.0, 0.1),), 0.1))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_run_as_printed(folder: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    commands = commands_of(README.read_text(encoding="utf-8"))
    assert len(commands) > 10
    for printed, command in commands:
        if isinstance(command, str):
            found: dict[str, Any] = {}
            exec(command, found)
            assert found["answers"], printed
            continue
        status, out, err = run(*command)
        assert status == 0, f"{printed}\n{out}\n{err}"
    assert (folder / "quickstart" / "report.html").is_file()


def test_the_readme_is_read_in_five_minutes() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert not [page.name for page in PAGES if "<!--" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_that_are_shown_exist(page: Path) -> None:
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    known = set(re.findall(r"`--([a-z0-9-]+)`", reference))
    known |= {field.replace("_", "-") for field in re.findall(r"^\| `([a-z0-9_.]+)` \|", reference, re.M)}
    known |= {"help", "version", "strict", "deps", "build-context"}  # of every program; of mypy, pip and docker
    known |= set(re.findall(r"--([a-z][a-z-]*[a-z])", get_args_parser().format_help()))  # of torchrun
    programs = [path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").rglob("*.py")]
    known |= {option for text in programs for option in re.findall(r'add_argument\("--([a-z-]+)"', text)}
    shown = re.findall(r"(?<![\w-])--([a-z][a-z0-9.-]*[a-z0-9])", page.read_text(encoding="utf-8"))
    assert {option if option in known else option.removeprefix("no-") for option in shown} <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_verbs_and_recipes_that_are_shown_exist(page: Path) -> None:
    from litebert.cli import VERBS

    text = page.read_text(encoding="utf-8")
    code = re.findall(r"^```.*?^```|^ {4}[^\n]*|`[^`\n]+`", text, re.M | re.S)
    commands = [
        found for part in code for found in re.findall(r"(?:^ *|[`/:] ?)litebert +([a-z]+)(?: +([^\s`]+))?", part, re.M)
    ]
    assert {verb for verb, _ in commands} <= set(VERBS)
    named = {point for verb, point in commands if verb in ("plan", "pretrain") and point.islower() and point[0] != "-"}
    assert {point for point in named if "." not in point} <= set(RECIPES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_named_tests_are_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if not link.startswith("http") and not (page.parent / link).exists()]
    tests = re.findall(r"\btests/[\w/]+\.py\b", page.read_text(encoding="utf-8"))
    assert not missing + [name for name in tests if not (ROOT / name).is_file()]


def test_the_tree_names_every_package() -> None:
    text = README.read_text(encoding="utf-8")
    tree = text[text.index("    src/litebert/") :].split("\n\n")[0]
    shown = set(re.findall(r"\b([a-z]+)/(?=\s)", tree.split("\n    tests/")[0]))
    source = ROOT / "src" / "litebert"
    assert shown >= {path.name for path in source.iterdir() if (path / "__init__.py").is_file()}
    assert all((source / name).is_dir() for name in shown - {"litebert"})
    assert all((source / name).is_file() for name in re.findall(r"\b([a-z]+\.py)\b", tree))


def test_python_in_the_pages_names_what_exists() -> None:
    import litebert

    for page in PAGES:
        for names in re.findall(r"from litebert import ([\w, ]+)", page.read_text(encoding="utf-8")):
            assert {name.strip() for name in names.split(",")} <= set(litebert.__all__), page.name


# ---- the mechanism -------------------------------------------------------------------------------------------------


def test_commands_are_found_and_made_small() -> None:
    page = (
        "```sh\npip install .\nmake test\nlitebert a --budget 30m  # a remark\n\n.venv/bin/litebert b 'c d'\n```\n"
        "    litebert not --this\n```python\nx = 1\n```\n```sh\npython -m litebert recipes\n```\n"
    )
    assert [command for _, command in commands_of(page)] == [
        ["a", "--budget", "2 steps"], ["b", "c d"], "x = 1\n", ["recipes"],
    ]  # fmt: skip


def test_another_program_is_not_passed_over() -> None:
    with pytest.raises(AssertionError, match="cannot run"):
        commands_of("```sh\nls\n```\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_rows_of_tables_have_the_cells_of_their_header(page: Path) -> None:
    """So that no figure stands under another's heading."""
    cells = 0
    for line in page.read_text(encoding="utf-8").splitlines():
        row = re.sub(r"`[^`]*`|\\\|", "", line) if line.startswith("|") else ""
        assert not row or not cells or row.count("|") == cells, line
        cells = row.count("|")
