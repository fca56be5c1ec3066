"""Deletions and words of make, in a copy of the project without anything in it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the Makefile, an environment that looks made, and trained models."""
    if shutil.which("make") is None:
        pytest.skip("this machine has no make")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("src", "tests", "benchmarks", "docs", ".venv/bin", "quickstart", "five-systems"):
        (tmp_path / name).mkdir(parents=True)
    for name in (
        "quickstart/model",
        "five-systems/model",
        ".venv/.created",
        ".venv/.runtime",
        ".venv/.dev",
    ):
        (tmp_path / name).touch()
    return tmp_path


def make(project: Path, target: str) -> str:
    done = subprocess.run(["make", "-s", target], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_clean_leaves_trained_models_and_clean_runs_names_them(project: Path) -> None:
    make(project, "clean")
    assert not (project / ".venv").exists()
    assert (project / "quickstart" / "model").exists()
    assert (project / "five-systems" / "model").exists()
    output = make(project, "clean-runs")
    assert "quickstart" in output
    assert "five-systems" in output
    assert not (project / "quickstart").exists()
    assert not (project / "five-systems").exists()
    assert make(project, "clean-runs") == ""


@pytest.mark.thorough
def test_setup_ends_with_how_to_call_litebert(project: Path) -> None:
    assert make(project, "setup").rstrip().endswith("source .venv/bin/activate")
    program = project / ".venv" / "bin" / "litebert"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    output = make(project, "quickstart")
    assert output.startswith("ran\n")
    assert output.rstrip().endswith("source .venv/bin/activate")
