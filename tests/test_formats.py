"""Files of every release open, with the numbers that the release read in them.

`tests/formats` has an archive for each release, and README.md there says how to make one.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from formats.write_archive import FOLDER, read_numbers
from litebert.base.errors import RunError
from litebert.base.json_reader import read_json

ARCHIVES = sorted(FOLDER.glob("*.tar.xz"))
pytestmark = pytest.mark.thorough


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name)
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with what a release wrote."""
    with tarfile.open(request.param) as file:
        file.extractall(tmp_path, filter="data")
    return tmp_path


def test_each_folder_opens_with_the_recorded_numbers(archive: Path) -> None:
    recorded = json.loads((archive / "numbers.json").read_text(encoding="utf-8"))
    numbers = read_numbers(archive)
    assert numbers.keys() == recorded.keys()
    assert numbers["tokens"] == recorded["tokens"]
    assert_near(numbers, recorded)


def assert_near(value: Any, expected: Any, place: str = "") -> None:
    """Compare numbers to rounding, at any depth."""
    if isinstance(expected, dict):
        assert value.keys() == expected.keys(), place
        for key in expected:
            assert_near(value[key], expected[key], f"{place}.{key}")
    elif isinstance(expected, list):
        assert len(value) == len(expected), place
        for i, item in enumerate(expected):
            assert_near(value[i], item, f"{place}[{i}]")
    else:
        assert value == pytest.approx(expected, abs=1e-4), place


def test_a_run_continues_from_its_checkpoint(
    archive: Path, run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(archive)
    words = ("--shards", "data", "--out", "run", "--add-budget", "2 steps")
    status, _, err = run("pretrain", "run/recipe.json", *words)
    assert status == 0, err
    assert read_json(Path("run/run.json"), RunError)["steps"] == 10
    rows = Path("run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(row)["step"] for row in rows][-1] == 10
