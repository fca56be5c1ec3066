"""Environments with libraries that cannot be installed beside litebert's own."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path


def python_with(packages: Sequence[str], folder: Path, variable: str) -> str:
    """The Python of a new environment with these packages, or the one that an environment variable
    names.
    """
    if named := os.environ.get(variable):
        return named
    venv.create(folder, symlinks=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        f"--python={python}",
        "install",
    ]
    subprocess.run([*command, *packages], check=True)
    return str(python)
