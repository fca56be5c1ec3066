"""The site builds strictly and offline, and every link, anchor and picture of it resolves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.thorough
ASSETS = {"script": "src", "img": "src", "link": "href", "source": "src", "iframe": "src"}


class Links(HTMLParser):
    """Where a page of the site leads, what it loads, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        if tag in ASSETS and values.get("rel") not in ("canonical", "alternate"):
            self.loads.add(values.get(ASSETS[tag], ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("mkdocs", "material", "mkdocstrings"):
        if find_spec(name) is None:
            pytest.skip("needs the extra docs: pip install 'litebert[docs]'")
    folder = tmp_path_factory.mktemp("site")
    paths = os.pathsep.join(str(ROOT / name) for name in ("src", "docs"))
    settings = {**os.environ, "PYTHONPATH": paths, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    contents = {}
    for path in site.rglob("*.html"):
        if path.name == "404.html":  # its addresses are those of the server
            continue
        contents[path] = Links()
        contents[path].feed(path.read_text(encoding="utf-8"))
    assert len(contents) > 30
    return contents


def resolve(page: Path, link: str) -> tuple[Path, str]:
    parts = urlsplit(link)
    return (page.parent / unquote(parts.path)).resolve() if parts.path else page, parts.fragment


def test_every_link_leads_to_a_page_and_an_anchor(pages: dict[Path, Links]) -> None:
    lost = []
    for page, content in pages.items():
        for link in content.links:
            if urlsplit(link).scheme:
                continue
            target, anchor = resolve(page, link)
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].anchors if target in pages else {""}
            if not target.is_file() or (anchor and anchor not in anchors):
                lost.append(f"{page.name}: {link}")
    assert lost == []


def test_nothing_is_loaded_from_another_server(site: Path, pages: dict[Path, Links]) -> None:
    loads = {(page, name) for page, content in pages.items() for name in content.loads if name}
    assert {name for _, name in loads if urlsplit(name).scheme or name.startswith("//")} == set()
    assert [name for page, name in loads if not resolve(page, name)[0].exists()] == []
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert [
        match for text in styles for match in re.findall(r"url\([\"']?(https?:[^)]+)", text)
    ] == []


def test_search_and_the_python_reference_are_there(site: Path) -> None:
    assert "calibrated" in (site / "search" / "search_index.json").read_text(encoding="utf-8")
    reference = (site / "reference" / "python.html").read_text(encoding="utf-8")
    assert 'id="litebert.load"' in reference
    assert 'id="litebert.answer.model.Model.predict"' in reference
