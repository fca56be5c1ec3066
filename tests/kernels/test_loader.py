"""The library of compiled functions: where it is kept, what happens without a compiler, and beside
other processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from litebert.kernels import loader

needs_compiler = pytest.mark.skipif(
    loader.library() is None, reason=f"compiled kernels are {loader.describe()}"
)


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, and nothing loaded yet. The compiler takes no time to optimize."""
    hasty = tmp_path / "cc"
    hasty.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    hasty.chmod(0o755)
    monkeypatch.setenv("CC", str(hasty))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    loader._load_library.cache_clear()
    yield tmp_path / "litebert"
    monkeypatch.undo()
    loader._load_library.cache_clear()


def states(processes: Any, count: int = 1) -> set[str]:
    """Descriptions of the loader in so many processes at once."""
    queue = processes.SimpleQueue()
    running = [processes.Process(target=find, args=(dict(os.environ), queue)) for _ in range(count)]
    for process in running:
        process.start()
    for process in running:
        process.join()
        assert process.exitcode == 0
    return {queue.get() for _ in running}


def find(environment: dict[str, str], queue: Any) -> None:
    os.environ.update(environment)
    loader._load_library.cache_clear()
    queue.put(loader.describe())


@needs_compiler
def test_it_is_compiled_once_and_again_when_it_is_damaged(fresh: Path, processes: Any) -> None:
    descriptions = states(processes)
    (file,) = fresh.iterdir()
    assert descriptions == {f"in use ({file})"}
    made, size = file.stat().st_mtime_ns, file.stat().st_size
    assert states(processes) == descriptions
    assert file.stat().st_mtime_ns == made
    file.write_bytes(file.read_bytes()[:1000])
    assert states(processes) == descriptions
    assert file.stat().st_size == size


@needs_compiler
def test_processes_that_compile_at_once_do_not_disturb_each_other(
    fresh: Path, processes: Any
) -> None:
    descriptions = states(processes, 3)
    (file,) = fresh.iterdir()
    assert descriptions == {f"in use ({file})"}


@pytest.mark.parametrize(
    ("variable", "value"),
    [("LITEBERT_KERNELS", "off"), ("CC", "/bin/false"), ("XDG_CACHE_HOME", "/dev/null")],
)
def test_without_it_the_reference_computes(
    fresh: Path, variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from litebert.model.operations import linear_activation

    monkeypatch.setenv(variable, value)
    if variable == "CC":  # the next compiler must not be found either
        monkeypatch.setenv("PATH", os.devnull)
    assert loader.library() is None
    assert loader.describe().startswith("not used")
    linear = torch.nn.Linear(3, 4)
    x = torch.randn(2, 3, requires_grad=True)
    assert torch.equal(linear_activation(x, linear, "silu"), torch.nn.functional.silu(linear(x)))
