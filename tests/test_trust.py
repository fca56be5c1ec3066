"""The page on trust says where files are written and what connects to the network, and leaves
nothing out.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from abuse import forked
from answer.test_engines import model_folder
from litebert.answer.engines.graphs import FOLDER
from toys.finetuning import write_table
from toys.hub import hub_server

ROOT = Path(__file__).resolve().parents[1]
TRUST = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")

Run = Callable[..., tuple[int, str, str]]


def places(folder: Path) -> set[str]:
    """Every file below a folder, by its path from there."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_every_default_destination_is_on_the_page() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    rows = re.findall(r"^- `--(?:out|page)` \(`([\w.]+)`\)", reference, re.M)
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

    words = ("--input", text / "texts.txt", "--out")
    assert run("predict", model, *words, "answers.csv", "--engine", "onnx")[0] == 0
    assert run("embed", model, *words, "vectors.npy", "--vector-dtype", "int8")[0] == 0

    assert places(text) == {"texts.txt"}
    assert places(work) == {"answers.csv", "vectors.npy", "vectors.scale.npy"}
    added = places(model) - before
    assert added
    assert all(name.startswith(f"{FOLDER}/") for name in added)
    assert all(name.startswith("cache/litebert/") for name in places(home))


def watch_connections(file: Path) -> None:
    """Write the address of every connection of this process, and every name that it looks up, into
    a file."""

    def write(address: object) -> None:
        with open(file, "a", encoding="utf-8") as log:
            log.write(f"{address}\n")

    connect, look_up = socket.socket.connect, socket.getaddrinfo

    def watched_connect(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX:
            write(f"{address[0]}:{address[1]}")
        connect(self, address)

    def watched_look_up(host: Any, *rest: Any, **options: Any) -> Any:
        write(host)
        return look_up(host, *rest, **options)

    sockets: Any = socket
    sockets.socket.connect = watched_connect
    sockets.getaddrinfo = watched_look_up


def test_only_names_of_the_hub_connect(tiny_tokenizer: Path, tmp_path: Path) -> None:
    """The environment allows connections to a Hub on this machine: folders open without one, and
    names connect to nothing else."""
    model = model_folder(tmp_path / "model", tiny_tokenizer, "classes")
    work, log = tmp_path / "work", tmp_path / "log"
    work.mkdir()
    write_table(work / "table.csv", 40)
    with hub_server() as server:
        server.add("me/model", model)

        def connections(*words: object) -> set[str]:
            log.write_text("")
            ended = forked.run(
                [str(word) for word in words],
                work,
                environment=server.environment(tmp_path / "home"),
                before=partial(watch_connections, log),
            )
            assert ended.status == 0, ended.err
            return set(log.read_text().split())

        table = ("--input", "table.csv", "--out")
        tuned = ("--task", "table", "--data", "table.csv", "--steps", "1", "--length", "16")
        assert not connections("embed", model, *table, "vectors.npy")
        assert not connections(
            "prepare", "table.csv", "--tokenizer", tiny_tokenizer, "--out", "data"
        )
        assert not connections("finetune", model, *tuned, "--out", "run")
        assert not connections("predict", "run", *table, "answers.csv")
        assert not connections("convert", "run", "--out", "converted", "--to", "hf")
        assert not connections("export", "run", "--out", "exported")
        for tracker in ("tensorboard", "mlflow", "trackio"):
            tracked = ("--tracker", tracker, "--no-baseline", "--out", tracker)
            assert not connections("finetune", model, *tuned, *tracked)
        address = server.url.removeprefix("http://")
        assert connections("embed", "hf:me/model", *table, "same.npy") == {"127.0.0.1", address}
        assert {path.name for path in (tmp_path / "home").iterdir()} == {"hub", "trackio"}
