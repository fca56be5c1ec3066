"""What MkDocs calls while it builds the site (mkdocs.yml).

The pages are those that a reader of the repository sees. The navigation follows docs/index.md, so a
page that no link of it leads to stops the build. Pages beside docs/ are copied into the site, and
links to other files of the repository become absolute.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from litebert.cli import REPOSITORY, SITE
from python_page import OBJECTS

ROOT = Path(__file__).resolve().parents[1]
BESIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md")
"""Pages of the repository that lie beside docs/ and belong to the site."""
PROJECT = ("AGENTS.md", "README.md")
"""Pages that only the repository has."""
FOLDERS = {"Studies": "reports/studies/"}
"""Folders whose pages form a section at the end, in the order of their names."""
LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)\s#]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)

Entry = dict[str, Any] | str


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the addresses and the navigation."""
    # Not `repo_url`, for which the theme asks GitHub for stars at every visit.
    config.extra["social"] = [{"icon": "fontawesome/brands/github", "link": REPOSITORY}]
    config.site_url = SITE
    docs = Path(config.docs_dir)
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    config.nav = make_navigation((docs / "index.md").read_text(encoding="utf-8"), pages)
    return config


def make_navigation(index: str, pages: set[str]) -> list[Entry]:
    """The navigation that index.md describes.

    Each heading of the second level is a section, and so is each item that begins with a bold name.
    A page stands where it is first linked to, outside of tables.

    Raises:
        PluginError: no link leads to a page.
    """
    sections: dict[str, list[str]] = {}
    title, seen = "", {"index.md"}
    for line in index.splitlines():
        if match := re.match(r"## (.+)|- \*\*(.+?):?\*\*", line):
            title = match[1] or match[2]
        if not line.startswith("|"):
            for link in re.findall(r"\]\(([^)#\s]+\.md)", line):
                if link in pages - seen:
                    sections.setdefault(title, []).append(link)
                    seen.add(link)
    for section, folder in FOLDERS.items():
        first = [page for page in seen if page.startswith(folder)]
        rest = sorted(page for page in pages - seen if page.startswith(folder))
        for items in sections.values():
            items[:] = [page for page in items if page not in first]
        sections[section] = [*first, *rest]
        seen |= {*rest}
    if pages - seen:
        raise PluginError(f"docs/index.md has no link to {', '.join(sorted(pages - seen))}")
    sections["Project"] = list(BESIDE)
    return ["index.md", *({name: items} for name, items in sections.items() if items)]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie beside docs/, and llms.txt."""
    for name in BESIDE:
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    overview = (ROOT / "llms.txt").read_text(encoding="utf-8")
    files.append(File.generated(config, "llms.txt", content=overview))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files of the repository into links of the site or of the repository."""
    if page.file.src_uri == "reference/python.md":
        markdown += "\n\n## Every argument" + "".join(f"\n\n::: {name}" for name in OBJECTS)
    folder = posixpath.dirname(page.file.src_uri)
    beside = page.file.src_uri in BESIDE

    def resolve(match: re.Match[str]) -> str:
        begin, target, end = match.groups()
        path = posixpath.normpath(posixpath.join("" if beside else "docs", folder, target))
        inside = posixpath.normpath(posixpath.join(folder, target)).removeprefix("../" * 9)
        if beside and files.get_file_from_path(target):
            return match[0]
        if path in BESIDE:
            return begin + posixpath.relpath(path, folder or ".") + end
        if files.get_file_from_path(inside) or not (ROOT / path).exists():
            return match[0]  # a page, or a fault that MkDocs reports
        return f"{begin}{REPOSITORY}/blob/main/{path}{end}"

    parts = FENCE.split(markdown)
    code = [*FENCE.findall(markdown), ""]
    return "".join(LINK.sub(resolve, part) + block for part, block in zip(parts, code, strict=True))
