"""llms.txt, CITATION.cff and the README, as far as they follow from the pages, the version and the
address.

llms.txt names every page with its address as Markdown and its first sentence, for programs that
read. generate.py writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from litebert.cli import REPOSITORY

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = {
    "Pages": ("docs/*.md", "docs/tutorials/*.md", "docs/how-to/*.md", "docs/explanation/*.md"),
    "Reference": ("docs/reference/*.md",),
    "Development": ("*.md",),
    "Optional": ("docs/reports/*.md",),
}
"""The pages of each section, by patterns. "Optional" is what the format calls pages that a reader
with little room leaves out."""
FENCE = re.compile(r"^```.*?^```", re.M | re.S)


def format_overview() -> str:
    """The text of llms.txt."""
    summary = read_value("description")
    return f"# litebert\n\n> {summary}\n\n" + "\n".join(_list_sections())


def format_readme() -> str:
    """The README with the address of the repository."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"git clone https://\S+", f"git clone {REPOSITORY}", text)


def format_citation() -> str:
    """CITATION.cff with the version of pyproject.toml and the address of the repository."""
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    for key, value in (("version", read_value("version")), ("repository-code", REPOSITORY)):
        text = re.sub(rf"^{key}: .*$", f"{key}: {value}", text, flags=re.M)
    return text


def read_value(name: str) -> str:
    """A text of pyproject.toml, such as the version."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    match = re.search(rf'^{name} = "(.+)"', project, re.M)
    assert match, f"pyproject.toml has no {name}"
    return match[1]


def _list_sections() -> Iterator[str]:
    for section, patterns in SECTIONS.items():
        yield f"## {section}\n"
        for page in (page for pattern in patterns for page in sorted(ROOT.glob(pattern))):
            title, sentence = read_lead(page.read_text(encoding="utf-8"))
            address = f"{REPOSITORY}/raw/main/{page.relative_to(ROOT).as_posix()}"
            yield f"- [{title}]({address}){f': {sentence}' if sentence else ''}"
        yield ""


def read_lead(text: str) -> tuple[str, str]:
    """The title of a page and its first sentence, without markup; empty where it has none."""
    text = FENCE.sub("", text)
    title = next(line for line in text.splitlines() if line.startswith("# "))[2:]
    for block in re.split(r"\n\n+", text):
        if block.strip() and not re.match(r"\s*[#|!>-]|    ", block):
            plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)|\*\*", r"\1", " ".join(block.split()))
            sentence = re.split(r"(?<=[.:?])\s", plain)[0]
            return title, re.sub(":$", ".", sentence)
    return title, ""
