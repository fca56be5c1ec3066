"""`litebert doctor`: what it finds holds, and it works where litebert itself would not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from answer.test_engines import model_folder
from litebert.answer.engines import speed as engine_speed
from litebert.answer.engines.runtime import Runtime
from litebert.answer.export import export
from litebert.base.registry import ENGINES
from litebert.tasks.rows import PaddedRows
from toys.folders import save_litebert, small_tokenizer, tiny
from toys.refusals import names

Output = tuple[int, str, str]


def test_it_says_what_there_is(
    run: Callable[..., Output], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text("")
    bad.write_text("1 / 0")
    monkeypatch.setenv("LITEBERT_EXTENSIONS", os.pathsep.join(map(str, (good, bad))))
    status, out, _ = run("doctor", "--json")
    record = json.loads(out)
    assert status == 0
    assert record["litebert"] == metadata.version("litebert")
    assert record["libraries"]["torch"] == metadata.version("torch")
    assert record["broken"] == {}
    assert record["threads"] == torch.get_num_threads()
    assert record["cores"] >= 1
    assert record["kernels"].startswith(("in use", "not used"))
    assert set(record["multiplied_types"]) <= {"float32", "bfloat16", "int8"}
    assert ("float32" in record["multiplied_types"]) == record["kernels"].startswith("in use")
    assert record["free_disk"] > 0
    assert record["extensions"][str(good)] is None
    assert "ZeroDivisionError" in record["extensions"][str(bad)]
    extras = {*(metadata.metadata("litebert").get_all("Provides-Extra") or ())} - {"dev"}
    assert set(record["extras"]) == extras
    for name, extra in record["extras"].items():
        for package in extra["missing"]:
            with pytest.raises(metadata.PackageNotFoundError):
                metadata.version(package)
        assert extra["install"] == (f"pip install 'litebert[{name}]'" if extra["missing"] else None)
    status, out, _ = run("doctor")
    assert status == 0
    for word in (platform_word(record["system"]), metadata.version("torch"), *extras):
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


@pytest.mark.thorough
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
    record = json.loads(done.stdout)
    assert "libcudart.so.13" in record["broken"]["torch"]
    assert record["threads"] is None


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["tuned", "pretrained", "exported"])
def test_engines_are_measured_with_a_model(
    kind: str,
    run: Callable[..., Output],
    tiny_tokenizer: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_speed, "SECONDS", 0.01)
    monkeypatch.setitem(ENGINES._parts, "broken", Broken)
    folder = tmp_path / "model"
    if kind == "pretrained":
        save_litebert(tiny(("mlm",)), small_tokenizer(), folder)
    else:
        model_folder(folder, tiny_tokenizer, "classes")
    if kind == "exported":
        export(folder, tmp_path / "exported", format="onnx")
        folder = tmp_path / "exported"
    status, out, _ = run("doctor", "--engines", folder, "--json")
    speeds = {(speed["engine"], speed["dtype"]): speed for speed in json.loads(out)["engines"]}
    assert status == 0
    assert list(dict.fromkeys(engine for engine, _ in speeds)) == list(ENGINES)
    able = {name for name, speed in speeds.items() if not speed["fault"]}
    engines = {"onnx"} | (set() if kind == "exported" else {"compiled", "torch"})
    float32 = {(engine, "float32") for engine in engines}
    assert float32 <= able
    for name in able:
        assert speeds[name]["texts_per_second"] > 0
        assert speeds[name]["difference"] < (1e-4 if name in float32 else 1)
    for name in set(speeds) - able:
        assert speeds[name]["texts_per_second"] is speeds[name]["difference"] is None
    assert speeds["broken", "float32"]["fault"] == "it has no wheels"
    status, out, _ = run("doctor", "--engines", folder)
    assert status == 0
    assert all(engine in out and dtype in out for engine, dtype in speeds)


class Broken(Runtime):
    """An engine of a user's that fails when it computes."""

    def __init__(self, loaded: object, device: str) -> None: ...

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        raise RuntimeError("it has no wheels\nand no road")


def test_a_model_without_a_tokenizer_is_not_measured(
    run: Callable[..., Output], tmp_path: Path
) -> None:
    save_litebert(tiny(("mlm",)), None, tmp_path / "model")
    status, _, error = run("doctor", "--engines", tmp_path / "model")
    assert status == 2
    names(error, tmp_path / "model", "tokenizer")
