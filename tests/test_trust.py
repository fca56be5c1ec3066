"""The page on trust says where files are written: the places are those of the program,
and all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from answer.test_engines import model_folder
from litebert.answer.graphs import FOLDER

ROOT = Path(__file__).resolve().parents[1]
TRUST = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")

Run = Callable[..., tuple[int, str, str]]


def places(folder: Path) -> set[str]:
    """Every file below a folder, by its path from there."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_every_default_destination_is_on_the_page() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `--(?:out|output|page)` \|[^|]*\| `([\w.]+)` \|", reference, re.M)
    assert {"tokenizer", "data", "quickstart", "analysis.html"} <= set(rows)
    table = TRUST[TRUST.index("## What is written") :].split("\n## ")[0]
    assert {name for name in rows if f"`{name}`" not in table} == set()


@pytest.mark.skipif(find_spec("onnxruntime") is None, reason="needs onnxruntime")
def test_answering_writes_where_the_page_says(
    tiny_tokenizer: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the named file only what the table lists: graphs in the model's folder, kernels in the
    cache.
    """
    home, work, text = tmp_path / "home", tmp_path / "work", tmp_path / "text"
    for folder in (home, work, text):
        folder.mkdir()
    model = model_folder(tmp_path / "model", tiny_tokenizer, "classes")
    (text / "texts.txt").write_text("a fine film\ndull\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.chdir(work)
    before = places(model)

    words = ("--input", text / "texts.txt", "--output")
    assert run("predict", model, *words, "answers.csv", "--engine", "onnx")[0] == 0
    assert run("embed", model, *words, "vectors.npy", "--dtype", "int8")[0] == 0

    assert places(text) == {"texts.txt"}
    assert places(work) == {"answers.csv", "vectors.npy", "vectors.scale.npy"}
    added = places(model) - before
    assert added
    assert all(name.startswith(f"{FOLDER}/") for name in added)
    assert all(name.startswith("cache/litebert/") for name in places(home))
