"""The files that make the repository a project: version, address, citation, workflows and forms."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

import overview
from litebert.cli import REPOSITORY

ROOT = Path(__file__).resolve().parents[1]
HOSTING = sorted((ROOT / ".github").rglob("*.yml"))


def load(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def test_one_line_sets_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other source names the repository; what is written from the line follows it."""
    holders = {
        path.relative_to(ROOT).as_posix()
        for folder in ("src", "docs", "tests", "runs", "benchmarks", ".github", ".")
        for path in (ROOT.glob("*") if folder == "." else (ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".md", ".toml", ".yml", ".txt", ".cff", ".sh", ".html")
        and REPOSITORY in path.read_text(encoding="utf-8")
    }
    assert holders == {"src/litebert/cli.py", "llms.txt", "CITATION.cff"}
    monkeypatch.setattr(overview, "REPOSITORY", "https://example.org/a/b")
    texts = overview.format_overview() + overview.format_citation() + overview.format_readme()
    assert REPOSITORY not in texts
    assert "repository-code: https://example.org/a/b\n" in texts


def test_the_overview_names_every_page() -> None:
    text = overview.format_overview()
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    studies = ROOT / "docs" / "reports" / "studies"  # docs/studies.md lists these
    names = {path.relative_to(ROOT).as_posix() for path in pages if path.parent != studies}
    assert set(re.findall(r"/raw/main/([^)]+)\)", text)) == names
    assert text.startswith("# litebert\n\n> ")


@pytest.mark.parametrize("path", HOSTING, ids=lambda path: path.name)
def test_workflows_and_forms_name_what_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    load(path)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    assert {*re.findall(r"run: make ([a-z-]+)", text)} <= targets
    files = re.findall(r"\b(?:docs|runs|src)/[\w./-]+\.\w+|\b[A-Z]+\.md\b|constraints\.txt", text)
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_the_workflow_tries_the_versions_that_the_package_names() -> None:
    jobs = load(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    check = jobs["check"]["steps"][1]["with"]["python-version"]
    versions = {check, *jobs["test"]["strategy"]["matrix"]["python"]}
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert versions == set(re.findall(r"Python :: (3\.\d+)", project))


def test_the_compose_file_limits_the_service_and_names_what_serve_exposes() -> None:
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    block = re.search(r"^    # compose\.yaml\n((?: {4}.*\n)+)", page, re.M)
    assert block
    compose = yaml.safe_load(textwrap.dedent(block[1]))
    service = compose["services"]["reviews"]
    assert service["image"] == "reviews:${TAG:-latest}"
    assert {"mem_limit", "cpuset", "cap_drop", "security_opt"} <= set(service)
    assert service["read_only"] is True
    assert "LITEBERT_KEY:?" in service["environment"]["LITEBERT_KEY"]
    settings = yaml.safe_load(compose["configs"]["prometheus"]["content"])
    assert settings["scrape_configs"][0]["static_configs"] == [{"targets": ["reviews:8000"]}]
