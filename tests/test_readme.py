"""Everything that the README shows works: its commands run in order, its verbs, options and files
exist, its links lead somewhere.

Every `sh` block of the README is run in one folder, in the page's order, as it is
printed but for the sizes in `SIZES`. What installs is left out (`git`, `cd`, `pip`, `make`). The
folder holds what the page says it does: a corpus `my-text/`, and the tables `train.csv` and
`test.csv`. Figures of the README are read from the pages that it cites.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from torch.distributed.run import get_args_parser

from litebert.config import replace
from litebert.demo import tickets
from litebert.recipes import RECIPES
from litebert.studies import packages
from litebert.text import python_docs
from litebert.train.measure import Rate
from toys.serving import serving

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)
SIZES = {
    "litebert fit tickets/train.csv": "litebert fit tickets/train.csv --methods tfidf frozen",
    "litebert demo": "litebert demo 'A lovely film.'",
    "litebert quickstart": "litebert quickstart --vocab-size 400 --budget '1 steps'",
    "--vocab-size 8192": "--vocab-size 400",
    "--budget 30m": "--budget '2 steps'",
    "--label-column team": "--label-column team --steps 2",
}
"""Sizes that are printed, and those that a test has time for."""
LINK = re.compile(r"\]\(([^)\s]+)\)")
NUMBER = re.compile(r"\d{4}-\d\d-\d\d|\d+(?:[.,]\d+)*")
MACHINE = re.compile(r"AMD EPYC|Intel Xeon|AVX-512|AVX2")


def commands_of(text: str) -> list[tuple[str, list[str]]]:
    """Each command of the page's blocks, as printed, and its words without the program."""
    commands: list[tuple[str, list[str]]] = []
    for code in FENCED.findall(text):
        for line in code.splitlines():
            run = line
            for printed, small in SIZES.items():
                run = re.sub(rf"{re.escape(printed)}(?![\w-])", small, run)
            words = shlex.split(run, comments=True)
            if not words or words[0] in ("git", "cd", "pip", "make"):
                continue
            module = ["python", "-m", "litebert.demo.tickets"]
            assert words[0] == "litebert" or words[:3] == module, f"cannot run: {line}"
            commands.append((line, words[1:] if words[0] == "litebert" else words[2:]))
    return commands


@dataclass(frozen=True)
class Block:
    """A paragraph, an item or a row of a table, with what it cites."""

    text: str
    row: bool
    links: tuple[str, ...]

    @property
    def numbers(self) -> set[str]:
        """Its numbers, dates and kinds of machine, but for those in code and in links."""
        plain = re.sub(r"`[^`]*`|\]\([^)]*\)", "", self.text)
        return {*NUMBER.findall(plain), *MACHINE.findall(plain)}


def list_cited_blocks(page: str) -> list[Block]:
    """The blocks of a page. A row without a link of its own cites what the text before its table
    does.
    """
    blocks: list[Block] = []
    text = re.sub(r"^```.*?^```|^ {4}[^\n]*", "", page, flags=re.M | re.S)
    for part in re.split(r"\n\n+", text):
        if part.lstrip().startswith(("#", "!")):
            continue
        row = part.lstrip().startswith("|")
        before = blocks[-1].links if row and blocks else ()
        for block in part.strip().split("\n") if row else re.split(r"^- ", part, flags=re.M):
            links = tuple(link for link in LINK.findall(block) if "#" in link)
            blocks.append(Block(block.strip(), row, links or before))
    return blocks


def anchors_of(page: str) -> list[tuple[str, int, int]]:
    """Each heading's anchor, as GitHub writes it, its level, and where it begins."""
    code = re.sub(r"^```.*?^```", lambda match: " " * len(match[0]), page, flags=re.M | re.S)
    return [
        (
            re.sub(r"[^\w\- ]", "", heading[2].strip().lower()).replace(" ", "-"),
            len(heading[1]),
            heading.start(),
        )
        for heading in re.finditer(r"^(#+) +(.+)$", code, re.M)
    ]


def section_of(link: str) -> str:
    """The text under the heading that a link of the README names, with what is below that
    heading."""
    name, _, anchor = link.partition("#")
    page = (ROOT / name).read_text(encoding="utf-8")
    headings = anchors_of(page)
    level, start = next((level, start) for heading, level, start in headings if heading == anchor)
    ends = [place for _, below, place in headings if place > start and below <= level]
    return page[start : min(ends, default=len(page))]


def leads_somewhere(page: Path, link: str) -> bool:
    """True if a link of a page names a file that is there, and a heading of it."""
    name, _, anchor = link.partition("#")
    target = page.parent / name if name else page
    if not target.exists() or not anchor or target.suffix != ".md":  # GitHub's of a picture
        return target.exists()
    return anchor in {heading for heading, _, _ in anchors_of(target.read_text(encoding="utf-8"))}


@pytest.fixture
def folder(tmp_path: Path, tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where a reader of the page stands; the built-in corpus is small, and nothing is
    timed.
    """
    (tmp_path / "my-text").mkdir()
    shutil.copy(tiny_corpus, tmp_path / "my-text")
    sentences = tiny_corpus.read_text(encoding="utf-8").replace("\n", " ").split(". ")[:60]
    rows = [f"{sentence},{'abc'[i % 3]}" for i, sentence in enumerate(sentences)]
    for name, part in (("train", rows[:40]), ("test", rows[40:])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,team", *part, ""]), encoding="utf-8")

    few = [
        (where, list(texts))
        for i, (where, texts) in enumerate(python_docs._list_modules())
        if i % 40 == 0
    ]
    monkeypatch.setattr(
        python_docs, "_list_modules", lambda: ((where, iter(texts)) for where, texts in few)
    )
    settings = replace(packages.make_config(), steps=2)
    monkeypatch.setattr(packages, "make_config", lambda: settings)
    for name, size in (("CLASSES", 2), ("TRAIN", 8), ("DEV", 4)):
        monkeypatch.setattr(packages, name, size)
    monkeypatch.setattr("litebert.studies.quickstart.measure", lambda *_: Rate(((1.0, 0.1),), 0.1))
    monkeypatch.setattr("litebert.train.measure.measure", lambda *_: Rate(((1.0, 0.1),), 0.1))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.thorough
def test_the_commands_run_as_printed(
    folder: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    commands = commands_of(README.read_text(encoding="utf-8"))
    assert len(commands) > 10
    for printed, command in commands:
        if command[0] == "litebert.demo.tickets":
            assert tickets.main(command[1:]) == 0
            continue
        if command[0] == "serve":
            with serving(folder, *command[1:]) as service, service.client() as client:
                assert client.get("/health").status_code == httpx.codes.OK, printed
            continue
        status, out, err = run(*command)
        assert status == 0, f"{printed}\n{out}\n{err}"
    assert (folder / "quickstart" / "report.html").is_file()


def test_figures_of_the_readme_are_those_of_the_pages_that_it_cites() -> None:
    """Every number, date and machine of a table is in a section that its row, or the text before
    it, links to.
    """
    blocks = [
        block for block in list_cited_blocks(README.read_text(encoding="utf-8")) if block.numbers
    ]
    assert sum(block.row for block in blocks) >= 4
    wrong = {}
    for block in blocks:
        assert block.links or not block.row, f"this row cites no page: {block.text}"
        sections = [section_of(link) for link in block.links]
        figures = {
            item
            for section in sections
            for item in [*NUMBER.findall(section), *MACHINE.findall(section)]
        }
        if sections and (missing := block.numbers - figures):
            wrong[block.text] = missing
    assert wrong == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_that_are_shown_exist(page: Path) -> None:
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    option_names = set(re.findall(r"`--([a-z0-9-]+)`", reference))
    option_names |= {
        field.replace("_", "-") for field in re.findall(r"^- `([a-z0-9_.]+)`", reference, re.M)
    }
    # Of every program; mypy, pip, docker, hf, curl, tensorboard, sbatch; earlier versions.
    option_names |= {
        "help",
        "version",
        "strict",
        "build-arg",
        "build-context",
        "local-dir",
        "http2",
    }
    option_names |= {
        "http2",
        "logdir",
        "silent",
        "retry",
        "retry-connrefused",
        "retry-delay",
        "array",
    }
    option_names |= {"extra-index-url", "search", "watch", "teacher-answers"}
    option_names |= {"config.file", "web.listen-address", "cluster.listen-address", "now"}
    option_names |= {"storage.tsdb.path", "storage.path", "alertmanager.url"}
    option_names |= set(
        re.findall(r"--([a-z][a-z-]*[a-z])", get_args_parser().format_help())
    )  # of torchrun
    programs = [path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").rglob("*.py")]
    option_names |= {
        option
        for text in programs
        for option in re.findall(r'add_argument\(\s*"--([a-z-]+)"', text)
    }
    text = page.read_text(encoding="utf-8")
    shown = re.findall(r"(?<![\w-])--([a-z][a-z0-9.-]*[a-z0-9])", text)
    assert {
        option if option in option_names else option.removeprefix("no-") for option in shown
    } <= option_names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_verbs_and_recipes_that_are_shown_exist(page: Path) -> None:
    from litebert.cli import VERBS

    text = page.read_text(encoding="utf-8")
    code = re.findall(r"^```.*?^```|^ {4}[^\n]*|`[^`\n]+`", text, re.M | re.S)
    commands = [
        command
        for part in code
        for command in re.findall(
            r"(?:^ *|[`/:] ?)litebert +([a-z]+(?:-[a-z]+)*)(?: +([^\s`]+))?", part, re.M
        )
    ]
    assert {verb for verb, _ in commands} <= set(VERBS)
    named = {
        point
        for verb, point in commands
        if verb in ("plan", "pretrain") and point.islower() and point[0] != "-"
    }
    assert {point for point in named if "." not in point} <= set(RECIPES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_named_tests_are_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    missing = [
        link for link in links if not link.startswith("http") and not leads_somewhere(page, link)
    ]
    tests = re.findall(r"\btests/[\w/]+\.py\b", page.read_text(encoding="utf-8"))
    assert not missing + [name for name in tests if not (ROOT / name).is_file()]


def test_the_tree_names_every_package() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tree = text[text.index("    src/litebert/") :].split("\n\n")[0]
    shown = set(re.findall(r"\b([a-z]+)/(?=\s)", tree.split("\n    tests/")[0]))
    source = ROOT / "src" / "litebert"
    assert shown >= {path.name for path in source.iterdir() if (path / "__init__.py").is_file()}
    assert all((source / name).is_dir() for name in shown - {"litebert"})
    assert all((source / name).is_file() for name in re.findall(r"\b([a-z]+\.py)\b", tree))


def test_python_in_the_pages_names_what_exists() -> None:
    import litebert

    for page in PAGES:
        for names in re.findall(
            r"from litebert import ([\w, ]+)", page.read_text(encoding="utf-8")
        ):
            assert {name.strip() for name in names.split(",")} <= set(litebert.__all__), page.name


# ------------------------------------------------------------------------------------ the mechanism


def test_a_figure_that_the_cited_page_lacks_is_found() -> None:
    table = "| a | b |\n|---|---|\n| `x 7` 393.8 | 393.9, 2026-11-28 |\n"
    page = f"It is fast ([how](docs/reports/performance.md#answering)):\n\n{table}"
    head, rule, row = [block for block in list_cited_blocks(page) if block.row]
    assert (head.numbers, rule.numbers) == (set(), set())
    assert row.numbers == {"393.8", "393.9", "2026-11-28"}
    assert row.numbers - set(NUMBER.findall(section_of(row.links[0]))) == {"393.9"}


def test_a_heading_that_is_not_there_is_found() -> None:
    assert leads_somewhere(README, "docs/reports/performance.md#answering")
    assert leads_somewhere(README, "#fast")
    assert not leads_somewhere(README, "docs/reports/performance.md#answers")
    assert not leads_somewhere(README, "docs/missing.md")
