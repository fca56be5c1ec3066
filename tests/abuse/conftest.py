"""A folder with one of each thing that litebert reads and writes, good ones and broken ones, for
wrong commands.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from abuse.broken import write_broken
from litebert.cli import main
from toys.finetuning import RECIPE, write_table


def made(command: str) -> None:
    """Run a right command."""
    assert main(command.split()) == 0, command


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory, tiny_corpus: Path) -> Path:
    """text.txt, tokenizer, other-tokenizer, small.toml, data, other-data, run, table.csv,
    classifier, own, squad.json, tags.txt, rows.jsonl, pairs.jsonl; and in bad/ the broken ones of
    `write_broken`."""
    place = tmp_path_factory.mktemp("abuse")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        shutil.copy(tiny_corpus, "text.txt")
        (place / "small.toml").write_text(RECIPE, encoding="utf-8")
        write_table(place / "table.csv", 60)
        (place / "squad.json").write_text(json.dumps(questions()), encoding="utf-8")
        (place / "tags.txt").write_text(tags(), encoding="utf-8")
        (place / "rows.jsonl").write_text(
            '{"text": "dodo la", "label": "yes"}\n' * 9, encoding="utf-8"
        )
        pair = {"sentence_good": "dodo la", "sentence_bad": "la dodo"}
        (place / "pairs.jsonl").write_text(f"{json.dumps(pair)}\n" * 9, encoding="utf-8")
        made("tokenizer train text.txt --vocab-size 400 --out tokenizer")
        made("tokenizer train text.txt --kind bpe --vocab-size 300 --out other-tokenizer")
        made("prepare text.txt --tokenizer tokenizer --out data --heldout 0.1 --processes 1")
        made(
            "prepare text.txt --tokenizer other-tokenizer --out other-data --heldout 0.1 "
            "--processes 1"
        )
        quick = [
            "--train.batch",
            "4 sequences",
            "--train.save-every",
            "2 steps",
            "--train.precision",
            "float32",
        ]
        words = ["--shards", "data", "--out", "run", "--budget", "4 steps", *quick]
        assert main(["pretrain", "small.toml", *words]) == 0
        tuned = [
            "--task",
            "table",
            "--data",
            "table.csv",
            "--out",
            "classifier",
            "--steps",
            "2",
            "--length",
            "32",
        ]
        assert main(["finetune", "run", *tuned]) == 0
        made("convert classifier --out own --to litebert")
        write_broken(place)
    return place


def questions() -> dict[str, object]:
    """A file in SQuAD's form, twenty questions long."""
    draw, entries = random.Random(0), []
    for number in range(20):
        words = [draw.choice(("la", "be", "cu", "do")) * draw.randint(1, 3) for _ in range(12)]
        answer = {"text": words[3], "answer_start": len(" ".join(words[:3])) + 1}
        question = {"id": str(number), "question": "which?", "answers": [answer]}
        entries.append(
            {"title": f"t{number}", "paragraphs": [{"context": " ".join(words), "qas": [question]}]}
        )
    return {"version": "1.1", "data": entries}


def tags() -> str:
    """Twenty sentences in CoNLL columns."""
    return "\n".join("Ada B-PER\nwent O\nto O\nRome B-LOC\n" for _ in range(20))


@pytest.fixture(scope="session")
def before(good: Path) -> dict[str, tuple[int, int]]:
    """Files of the good folder before any wrong command."""
    return inventory(good)


@pytest.fixture
def wrong(
    good: Path,
    before: dict[str, tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Callable[..., str]:
    """Give a wrong command in the good folder, from which nothing may be lost; what a person then
    reads.
    """
    monkeypatch.chdir(good)

    def call(words: list[str], status: int = 2) -> str:
        capfd.readouterr()
        shutil.rmtree(good / "out", ignore_errors=True)
        with patience(30):
            actual_status = main(words)
        captured = capfd.readouterr()
        assert "Traceback" not in captured.out + captured.err, captured.err
        assert actual_status == status, (
            f"exit status {actual_status}: {captured.out[-500:]}{captured.err[-2000:]}"
        )
        left = inventory(good)
        assert {name: left.get(name) for name in before} == before, "a file of the user was changed"
        for name in left.keys() - before.keys():
            assert ".tmp-" not in name, f"{name} was left behind"
        shutil.rmtree(good / "out", ignore_errors=True)
        return captured.err

    return call


@contextmanager
def patience(seconds: int) -> Iterator[None]:
    """The block ends in time, where the system has alarms."""

    def late(number: int, frame: object) -> None:
        raise AssertionError(f"no end within {seconds} seconds")

    if not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def inventory(place: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file but locks."""
    entries: dict[str, tuple[int, int]] = {}
    folders = [str(place)]
    while folders:
        for entry in os.scandir(folders.pop()):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif entry.name != ".lock":
                about = entry.stat(follow_symlinks=False)
                entries[entry.path] = (about.st_size, about.st_mtime_ns)
    return entries
