"""What the README shows works: its marked commands run, its verbs and files exist, its links lead somewhere.

A block of commands is run when the line above its fence is `<!-- tested -->`, or
`<!-- tested, with "30m" as "4 steps", "8192" as "400" -->` where the page's sizes are too large for a test. The blocks
run in the page's order in one folder, which holds a small corpus `my-text/` and a small table `reviews.csv`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from litebert.recipes import RECIPES

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^<!-- tested(?P<changes>[^>]*)-->\n```(?:sh|console)\n(?P<code>.*?)^```$", re.M | re.S)
CHANGE = re.compile(r'"([^"]+)" as "([^"]+)"')


@dataclass(frozen=True)
class Block:
    """Commands of the page, as written and as run."""

    shown: str
    run: str


def blocks_of(text: str) -> list[Block]:
    blocks = []
    for match in FENCED.finditer(text):
        run = match["code"]
        for old, new in CHANGE.findall(match["changes"]):
            assert old in run, f"the marker changes '{old}', which the block does not hold"
            run = run.replace(old, shlex.quote(new))
        blocks.append(Block(match["code"], run))
    return blocks


def test_marked_commands_run(tmp_path: Path, tiny_corpus: Path, warm_litebert: Path) -> None:
    blocks = blocks_of(README.read_text(encoding="utf-8"))
    assert blocks, "the README marks no commands as tested"
    (tmp_path / "my-text").mkdir()
    shutil.copy(tiny_corpus, tmp_path / "my-text")
    sentences = tiny_corpus.read_text(encoding="utf-8").replace("\n", " ").split(". ")[:60]
    rows = [f"{sentence},{i % 3}" for i, sentence in enumerate(sentences)]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,stars", *rows, ""]), encoding="utf-8")
    path = os.pathsep.join([str(warm_litebert.parent), os.environ["PATH"]])
    for block in blocks:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.run], cwd=tmp_path, env={**os.environ, "PATH": path},
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{block.run}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_verbs_and_recipes_that_are_shown_exist(page: Path) -> None:
    from litebert.cli import VERBS

    text = page.read_text(encoding="utf-8")
    code = re.findall(r"^```.*?^```|^ {4}[^\n]*|`[^`\n]+`", text, re.M | re.S)
    commands = [
        found for part in code for found in re.findall(r"(?:^ *|[`/:] ?)litebert +([a-z]+)(?: +([^\s`]+))?", part, re.M)
    ]
    assert {verb for verb, _ in commands} <= set(VERBS)
    named = {point for verb, point in commands if verb in ("plan", "pretrain") and point.islower()}
    assert {point for point in named if "." not in point} <= set(RECIPES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if not link.startswith("http") and not (page.parent / link).exists()]
    assert not missing


def test_the_tree_shows_the_rooms_there_are() -> None:
    text = README.read_text(encoding="utf-8")
    tree = text[text.index("    src/litebert/") :].split("\n\n")[0]
    shown = set(re.findall(r"^ {6}([a-z]+(?:/|\.py))", tree, re.M))
    source = ROOT / "src" / "litebert"
    rooms = {f"{path.name}/" for path in source.iterdir() if (path / "__init__.py").is_file()}
    assert shown == rooms | {path.name for path in source.glob("[a-z]*.py")}


def test_python_in_the_pages_names_what_exists() -> None:
    import litebert

    for page in PAGES:
        for names in re.findall(r"from litebert import ([\w, ]+)", page.read_text(encoding="utf-8")):
            assert {name.strip() for name in names.split(",")} <= set(litebert.__all__), page.name


# ---- the mechanism -------------------------------------------------------------------------------------------------


def test_blocks_are_found_and_changed() -> None:
    page = (
        'x\n<!-- tested, with "30m" as "4 steps" -->\n```sh\nrun --budget 30m\n```\n```sh\nnot this\n```\n'
        "<!-- tested -->\n```console\nsecond\n```\n"
    )
    assert blocks_of(page) == [
        Block("run --budget 30m\n", "run --budget '4 steps'\n"),
        Block("second\n", "second\n"),
    ]


def test_a_change_of_something_absent_is_refused() -> None:
    with pytest.raises(AssertionError, match="does not hold"):
        blocks_of('<!-- tested, with "1h" as "2 steps" -->\n```sh\nrun\n```\n')
