"""`litebert doctor`: what it finds holds, and it works where litebert itself would not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import torch

Output = tuple[int, str, str]


def test_it_says_what_there_is(
    run: Callable[..., Output], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text("")
    bad.write_text("1 / 0")
    monkeypatch.setenv("LITEBERT_EXTENSIONS", os.pathsep.join(map(str, (good, bad))))
    status, out, _ = run("doctor", "--json")
    found = json.loads(out)
    assert status == 0
    assert found["litebert"] == metadata.version("litebert")
    assert found["libraries"]["torch"] == metadata.version("torch")
    assert found["broken"] == {}
    assert found["threads"] == torch.get_num_threads()
    assert found["cores"] >= 1
    assert found["kernels"].startswith(("in use", "not used"))
    assert found["free_disk"] > 0
    assert found["extensions"][str(good)] is None
    assert "ZeroDivisionError" in found["extensions"][str(bad)]
    extras = {*(metadata.metadata("litebert").get_all("Provides-Extra") or ())} - {"dev"}
    assert set(found["extras"]) == extras
    for name, extra in found["extras"].items():
        for package in extra["missing"]:
            with pytest.raises(metadata.PackageNotFoundError):
                metadata.version(package)
        assert extra["install"] == (f"pip install 'litebert[{name}]'" if extra["missing"] else None)
    status, out, _ = run("doctor")
    assert status == 0
    for word in (platform_word(found["system"]), metadata.version("torch"), *extras):
        assert word in out


def platform_word(system: str) -> str:
    return system.split("-")[0]


def test_a_missing_extra_comes_with_its_command(
    run: Callable[..., Output], monkeypatch: pytest.MonkeyPatch
) -> None:
    def requires(name: str) -> list[str]:
        return ["torch>=2", "no-such-package>=1; extra == 'one'", 'numpy; extra == "two"']

    monkeypatch.setattr(metadata, "requires", requires)
    extras = json.loads(run("doctor", "--json")[1])["extras"]
    assert extras["one"] == {
        "missing": ["no-such-package"],
        "install": "pip install 'litebert[one]'",
    }
    assert extras["two"] == {"missing": [], "install": None}


def test_a_broken_torch_is_what_it_reports(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        'raise OSError("libcudart.so.13: cannot open shared object file")'
    )
    places = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "litebert", "doctor", "--json"],
        env={**os.environ, "PYTHONPATH": places},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "libcudart.so.13" in found["broken"]["torch"]
    assert found["threads"] is None
