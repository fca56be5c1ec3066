"""The metadata that depends on the address of the repository: links, and the README.

The address is `REPOSITORY` in src/litebert/cli.py. A package index shows the README without the
files around it, so its relative links become absolute.
"""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent


def read_value(name: str, file: str) -> str:
    """The text that a line `name = "text"` of a file sets."""
    match = re.search(rf'^{name} = "(.+?)"', (ROOT / file).read_text(encoding="utf-8"), re.M)
    assert match, f"{file} has no line {name} = ..."
    return match[1]


REPOSITORY = read_value("REPOSITORY", "src/litebert/cli.py")
TAG = "v" + read_value("version", "pyproject.toml")


def make_absolute(match: re.Match[str]) -> str:
    """A link of the README, with the address of the file at this version."""
    kind = "raw" if match["picture"] else "blob"
    return f"{match['picture']}{match['text']}({REPOSITORY}/{kind}/{TAG}/{match['target']})"


def format_readme() -> str:
    """The README with absolute links, in Markdown."""
    relative = r"(?P<picture>!?)(?P<text>\[[^\]]*\])\((?P<target>(?!https?:)[^)\s]+)\)"
    return re.sub(relative, make_absolute, (ROOT / "README.md").read_text(encoding="utf-8"))


setup(
    long_description=format_readme(),
    long_description_content_type="text/markdown",
    project_urls={
        "Homepage": REPOSITORY,
        "Documentation": "https://{}.github.io/{}/".format(*REPOSITORY.split("/")[-2:]),
        "Changelog": f"{REPOSITORY}/blob/{TAG}/CHANGELOG.md",
        "Issues": f"{REPOSITORY}/issues",
    },
)
