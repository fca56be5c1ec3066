"""The main job from end to end on a small text, twice: the second time nothing is done again."""

from __future__ import annotations

import json
import os
import pydoc_data.topics
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.base.errors import RunError
from litebert.base.storage import lock_folder
from litebert.commands import console
from litebert.config import Config, replace
from litebert.recipes.files import recipe
from toys.refusals import names
from toys.typed import typed

pytestmark = pytest.mark.thorough


Output = tuple[int, str, str]


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small text in the current folder; measurements and batches are small."""

    def small(name: str) -> Config:
        config = recipe(name)
        return replace(
            config, train=replace(config.train, batch="8 sequences", evaluate_sequences=32)
        )

    monkeypatch.setattr("litebert.studies.quickstart.recipe", small)
    monkeypatch.setattr("litebert.train.measure._is_enough", lambda passes, *_: passes >= 2)
    monkeypatch.chdir(tmp_path)
    topics = [topic for topic in pydoc_data.topics.topics.values() if 400 < len(topic) < 4000][:40]
    path = tmp_path / "text.jsonl"
    path.write_text(
        "".join(json.dumps({"text": topic}) + "\n" for topic in topics), encoding="utf-8"
    )
    return path


def next_commands(err: str) -> list[list[str]]:
    """The words of every command that the quickstart prints at its end."""
    lines = err[err.index("Next:") :].splitlines()
    return [shlex.split(line) for line in lines if line.startswith("  ") and line.strip()]


def test_from_text_to_report(
    text: Path, run: Callable[..., Output], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Path("a quickstart")
    options = {"--source": text, "--vocab-size": "400", "--budget": "4 steps", "--out": out}
    command = ["quickstart", *(word for option in options.items() for word in option)]
    monkeypatch.setattr(console, "program", lambda: "litebert")

    status, first, err = run(*command)
    assert status == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "http" not in page.replace("http://www.w3.org", "")
    shown = ("MLM accuracy", "SOP accuracy", "nothing shared", "[MASK]", "unigram entropy")
    for word in ("albert-next-tiny", *shown):
        assert word in page
    assert "albert-next-tiny" in first
    lines = (out / "albert-next-tiny" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["step"] == 4
    weights = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}

    pairs = [
        {"sentence_good": f"The {noun} is here.", "sentence_bad": f"The {noun} are here."}
        for noun in ("cat", "dog")
    ]
    Path("pairs.jsonl").write_text(
        "".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8"
    )
    status, scored, err = run(*command, "--blimp", "pairs.jsonl")
    assert status == 0
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == weights
    title = "Good and bad sentences"
    assert title in scored
    assert title in (out / "report.html").read_text(encoding="utf-8")
    assert title not in page

    status, _, refusal = run(*("5 steps" if word == "4 steps" else word for word in command))
    assert status == 2
    names(refusal.splitlines()[-1], out, "--budget", "4 steps", "--out")

    following = next_commands(err)
    assert [words[1] for words in following] == ["pretrain", "compare"]
    for program, *words in following:  # in this order, from here; only the budget is another
        assert program == "litebert"
        assert run(*["4 steps" if word == "1h" else word for word in words])[0] == 0


@pytest.mark.slow
def test_the_next_commands_of_the_built_in_corpus(
    run: Callable[..., Output], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, err = run("quickstart", "--budget", "20 steps")
    assert status == 0
    following = next_commands(err)
    assert len(following) == 3
    for words in following:
        done = subprocess.run(
            ["4 steps" if word == "1h" else word for word in words], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def test_the_program_is_named_as_this_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "argv", [str(Path(sys.executable).parent / "litebert"), "quickstart"])
    assert shlex.split(console.program()) == [str(Path(sys.executable).parent / "litebert")]
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "__main__.py"), "quickstart"])
    words = shlex.split(console.program())
    done = subprocess.run([*words, "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("litebert 0.")
    (folder / "litebert").write_text("#!/bin/sh\n")
    (folder / "litebert").chmod(0o755)
    assert console.program() == "litebert"


def test_a_small_text_gets_a_smaller_vocabulary(text: Path, run: Callable[..., Output]) -> None:
    status, _, err = run("quickstart", "--source", text, "--budget", "2 steps", "--out", "out")
    assert status == 0
    recipe = json.loads(Path("out/albert-next-tiny/recipe.json").read_text())
    size = recipe["encoder"]["vocab_size"]
    assert 300 < size < 8192
    assert str(size) in err


@pytest.mark.parametrize(
    ("words", "places"),
    [
        (["--budget", "8 minits"], ["--budget", "8 minits"]),
        (["--budget", "256 sequences"], ["--budget", "256 sequences"]),
        (["--budget", "0.1s", "--vocab-size", "400"], ["--budget", "0.1s"]),
        (["--language", "englisch"], ["englisch"]),
        (["--source", "gone.txt"], ["gone.txt"]),
        (["--blimp", "gone.jsonl"], ["gone.jsonl"]),
        (["--source", "text.jsonl", "gone"], ["gone"]),
        (["--source", "-"], ["standard input", "--source"]),
        (["--vocab-size", "0"], [0]),
        (["--out", "text.jsonl"], ["text.jsonl", "--out"]),
    ],
)
def test_mistakes_are_refused_before_any_work(
    words: list[str], places: list[object], text: Path, run: Callable[..., Output], tmp_path: Path
) -> None:
    status, out, err = run("quickstart", *words)
    assert (status, out) == (2, "")
    names(err.splitlines()[-1], *places)  # a slow machine reports its progress before
    assert list(tmp_path.iterdir()) == [text]


def test_a_folder_that_another_process_works_in_is_left_alone(
    text: Path, run: Callable[..., Output]
) -> None:
    out = Path("out")
    with lock_folder(out, RunError):
        status, _, err = run("quickstart", "--source", text, "--budget", "2 steps", "--out", out)
        assert status == 2
        names(err.splitlines()[-1], out, os.getpid())
        assert [path.name for path in out.iterdir()] == [".lock"]


def test_a_text_too_small_for_the_vocabulary(tmp_path: Path, run: Callable[..., Output]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("A few words.\n\nA few more words, and then the end.\n" * 3)
    line = "quickstart --source {} --vocab-size 8192 --out {}"
    status, _, err = run(*typed(line, text, tmp_path / "out"))
    assert status == 2
    names(err.splitlines()[-1], 8192, 32)
