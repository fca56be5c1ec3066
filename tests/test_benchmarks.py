"""The campaign for a GPU works from start to end, so that no hour on one is lost to a slip."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of transformers
def test_the_gpu_campaign_runs_dry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "gpu.json"
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--dry", "--device", "cpu", "--out", str(out)])
    assert runpy.run_path(str(ROOT / "benchmarks" / "gpu.py"))["main"]() == 0
    report = json.loads(out.read_text())
    assert report["products_per_second"] > 0
    assert [(shape["name"], shape["same_loss"]) for shape in report["shapes"]] == [
        ("albert-base", True), ("bert-base", True)
    ]  # fmt: skip
    for shape in report["shapes"]:
        assert len({one["system"] for one in shape["systems"]}) == 4
        assert all(one["share_of_products"] > 0 and one["seconds"] > 0 for one in shape["systems"])
    assert {one["batch_processes"] for one in report["runs"]} == {0, 1}


@pytest.mark.slow
def test_a_step_is_measured_by_one_process_and_by_two(tmp_path: Path) -> None:
    out = tmp_path / "scaling.json"
    words = [sys.executable, ROOT / "benchmarks" / "scaling.py", "--shapes", "h128", "--rounds", "1", "--json", out]
    subprocess.run(words, check=True)  # it ends with an error where the losses differ
    sides = json.loads(out.read_text())["h128"]
    assert {name: one["processes"] for name, one in sides.items()} == {
        "one thread": 1, "one process": 1, "ddp": 2, "fsdp": 2, "no exchange": 2, "transformers": 2
    }  # fmt: skip
    assert all(one["seconds"] > 0 for one in sides.values())


def test_its_script_can_be_run(tmp_path: Path) -> None:
    """It calls the tests of the GPU, then the comparison, and reports the status of either."""
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\necho "$@" >> "$CALLS"\ncase "$*" in *pytest*) exit 5;; esac\n')
    fake.chmod(0o755)
    environment = {**os.environ, "PYTHON": str(fake), "CALLS": str(tmp_path / "calls")}
    done = subprocess.run([ROOT / "benchmarks" / "gpu.sh", "--dry"], env=environment, check=False)
    assert done.returncode == 5
    tests, comparison = (tmp_path / "calls").read_text().splitlines()
    assert "-m cuda tests/test_cuda.py" in tests
    assert comparison == "benchmarks/gpu.py --dry"
