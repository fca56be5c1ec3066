"""docs/reference/files.md shows every file of the folders that verbs write."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toys.finetuning import RECIPE, write_table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "files.md"
COPY = "a copy of the tokenizer"
TRAIN = 'budget = "2 steps"\nbatch = "4 sequences"\ndepth_schedule = []\nevaluate_sequences = 8\n'


def list_trees(page: str) -> Iterator[tuple[str, set[str]]]:
    """The root of each indented tree, and the paths of its files.

    A folder that is "a copy of the tokenizer", or "as below", holds what its own tree shows.
    """
    text = re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S)
    for block in re.findall(r"(?:^ {4}.*\n)+", text, re.M):
        folders: list[str] = []
        files = set()
        for line in block.splitlines():
            name, _, meaning = line.strip().partition(" ")
            depth = (len(line) - len(line.lstrip()) - 4) // 2
            folders[depth:] = [name]
            if not name.endswith("/"):
                files.add("".join(folders[1:]))
            elif meaning.endswith((COPY, "as below")):
                files.add("".join(folders[1:]) + "*")
        yield folders[0], files


def expand(trees: dict[str, set[str]], root: str) -> set[str]:
    """The files of a tree, with those of the folders that it names."""
    files = set()
    for name in trees[root]:
        folder = name.removesuffix("*")
        if folder == name:
            files.add(name)
        else:
            files |= {folder + part for part in expand(trees, folder.split("/")[-2] + "/")}
    return files


@pytest.mark.thorough
def test_the_page_shows_every_file_of_every_folder(
    tmp_path: Path,
    tiny_corpus: Path,
    run: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(f'base = "albert-tiny"\n{RECIPE}\n[train]\n{TRAIN}')
    write_table(Path("train.csv"), 64)
    columns = ("--data", "train.csv", "--text-column", "text", "--label-column", "label")
    for words in (
        ("tokenizer", "train", tiny_corpus, "--vocab-size", 300, "--out", "tokenizer"),
        ("prepare", tiny_corpus, "--tokenizer", "tokenizer", "--out", "data", "--heldout", 0.1),
        ("pretrain", "small.toml", "--shards", "data", "--out", "run"),
        (
            "finetune",
            "run",
            "--task",
            "table",
            *columns,
            "--no-fit-head",
            "--epochs",
            20,
            "--lr",
            0.01,
            "--out",
            "classifier",
        ),
        ("convert", "classifier", "--out", "converted", "--to", "hf"),
        ("export", "classifier", "--out", "exported"),
        ("export", "classifier", "--out", "graph", "--format", "onnx"),
    ):
        status, _, err = run(*words)
        assert status == 0, err
    trees = dict(list_trees(PAGE.read_text(encoding="utf-8")))
    assert set(trees) == {
        *("tokenizer/", "data/", "run/", "classifier/", "model/", "converted/", "exported/"),
        "graph/",
    }
    for root in trees:
        folder = tmp_path / ("classifier/model" if root == "model/" else root)
        written = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
        steps = {re.sub(r"step-\d+", "step-N", path.as_posix()) for path in written}
        assert {re.sub(r"step-\d+", "step-N", name) for name in expand(trees, root)} == steps, root
