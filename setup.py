"""The metadata that depends on the address of the repository, and the compiled kernels of a wheel.

A wheel that is built where there is a C compiler holds answers.c compiled for the processors of
this kind of machine (`VARIANTS` in kernels/loader.py), or of another kind, by a cross compiler:

    CC=aarch64-linux-gnu-gcc _PYTHON_HOST_PLATFORM=linux-aarch64 python -m build --wheel

A source tree, an editable one too, compiles it at the first use.

The address is `REPOSITORY` in src/litebert/cli.py. A package index shows the README without the
files around it, so its relative links become absolute.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT / "src"))

from litebert.kernels.loader import VARIANTS, Unavailable, compile_source  # noqa: E402


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


def find_compiler() -> list[str]:
    """The command of a C compiler; empty where there is none."""
    command = shlex.split(os.environ.get("CC") or "cc")
    return command if sys.platform.startswith("linux") and shutil.which(command[0]) else []


class Package(Distribution):
    """The package, which is of one platform where kernels are compiled."""

    def has_ext_modules(self) -> bool:
        return bool(find_compiler())


class Kernels(build_py):
    """Copies the modules, and compiles the kernels beside them."""

    def run(self) -> None:
        super().run()
        compiler = find_compiler()
        if self.editable_mode or not compiler:
            return
        machine = sysconfig.get_platform().rpartition("-")[2]
        for name, (processor, _) in VARIANTS.items():
            made = Path(self.build_lib, "litebert", "kernels", f"answers-{name}.so")
            if name.partition("-")[0] == machine:
                try:
                    compile_source("answers", compiler, processor, made)
                except Unavailable as reason:
                    print(f"{made.name} is left out: {reason}")  # noqa: T201


class Wheel(bdist_wheel):
    """Names a wheel after the oldest C library that has what its kernels call."""

    def get_tag(self) -> tuple[str, str, str]:
        tag, kernels = super().get_tag()[2], Path(self.bdist_dir or "").rglob("answers-*.so")
        called = [re.findall(rb"GLIBC_(\d+)\.(\d+)", file.read_bytes()) for file in kernels]
        if versions := [(int(major), int(minor)) for each in called for major, minor in each]:
            tag = re.sub("^linux_", "manylinux_{}_{}_".format(*max(versions)), tag)
        return "py3", "none", tag


setup(
    distclass=Package,
    cmdclass={"build_py": Kernels, "bdist_wheel": Wheel},
    long_description=format_readme(),
    long_description_content_type="text/markdown",
    project_urls={
        "Homepage": REPOSITORY,
        "Documentation": "https://{}.github.io/{}/".format(*REPOSITORY.split("/")[-2:]),
        "Changelog": f"{REPOSITORY}/blob/{TAG}/CHANGELOG.md",
        "Issues": f"{REPOSITORY}/issues",
    },
)
