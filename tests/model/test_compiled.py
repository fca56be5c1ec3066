"""The library of compiled functions: where it is kept, what happens without a compiler, and beside other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from litebert.model import compiled

STATE = "from litebert.model import compiled; print(compiled.state())"
needs_compiler = pytest.mark.skipif(compiled.library() is None, reason=f"compiled kernels are {compiled.state()}")


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, and nothing loaded yet. The compiler takes no time to optimise."""
    hasty = tmp_path / "cc"
    hasty.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    hasty.chmod(0o755)
    monkeypatch.setenv("CC", str(hasty))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiled._loaded.cache_clear()
    yield tmp_path / "litebert"
    monkeypatch.undo()
    compiled._loaded.cache_clear()


def state() -> str:
    """As a process of its own finds it."""
    return subprocess.run([sys.executable, "-c", STATE], check=True, capture_output=True, text=True).stdout.strip()


@needs_compiler
def test_it_is_compiled_once_and_again_when_it_is_damaged(fresh: Path) -> None:
    found = state()
    (file,) = fresh.iterdir()
    assert found == f"in use ({file})"
    made, size = file.stat().st_mtime_ns, file.stat().st_size
    assert state() == found
    assert file.stat().st_mtime_ns == made
    file.write_bytes(file.read_bytes()[:1000])
    assert state() == found
    assert file.stat().st_size == size


@needs_compiler
def test_processes_that_compile_at_once_do_not_disturb_each_other(fresh: Path) -> None:
    running = [subprocess.Popen([sys.executable, "-c", STATE], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = {one.communicate()[0] for one in running}
    (file,) = fresh.iterdir()
    assert said == {f"in use ({file})\n"}


@pytest.mark.parametrize(
    ("variable", "value"), [("LITEBERT_KERNELS", "off"), ("CC", "/bin/false"), ("XDG_CACHE_HOME", "/dev/null")]
)
def test_without_it_the_reference_computes(
    fresh: Path, variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from litebert.model.kernels import linear_activation

    monkeypatch.setenv(variable, value)
    if variable == "CC":  # the next compiler must not be found either
        monkeypatch.setenv("PATH", os.devnull)
    assert compiled.library() is None
    assert compiled.state().startswith("not used")
    linear = torch.nn.Linear(3, 4)
    x = torch.randn(2, 3, requires_grad=True)
    assert torch.equal(linear_activation(x, linear, "silu"), torch.nn.functional.silu(linear(x)))
