"""A verb of one's own: a function in a file that the environment names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FILE = """
from litebert.base.errors import DataError
from litebert.base.registry import OWN_VERBS


def tally(words: list[str]) -> int:
    if not words:
        raise DataError("there is no file to count; name one")
    print(sum(len(open(word).read().split()) for word in words))
    return 0


OWN_VERBS.add("tally", tally)
"""


def litebert(*words: object, extension: Path | None) -> tuple[int, str, str]:
    environment = {**os.environ, "LITEBERT_EXTENSIONS": str(extension or "")}
    done = subprocess.run(
        [sys.executable, "-m", "litebert", *map(str, words)],
        env=environment,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def extension(tmp_path: Path) -> Path:
    file = tmp_path / "tally.py"
    file.write_text(FILE, encoding="utf-8")
    return file


def test_it_runs(extension: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one two three", encoding="utf-8")
    assert litebert("tally", text, extension=extension) == (0, "3\n", "")


def test_the_help_runs_no_extension(extension: Path) -> None:
    extension.write_text("raise SystemExit(3)", encoding="utf-8")
    for words in ("--help", "--version"):
        status, _, error = litebert(words, extension=extension)
        assert (status, error) == (0, "")


def test_its_refusals_are_one_sentence(extension: Path) -> None:
    expected = (2, "", "litebert tally: there is no file to count; name one\n")
    assert litebert("tally", extension=extension) == expected


def test_without_the_file_there_is_no_such_verb(extension: Path) -> None:
    status, _, error = litebert("tally", extension=None)
    assert (status, "no verb 'tally'" in error) == (2, True)
    status, _, error = litebert("tely", extension=extension)
    assert (status, "'tally'" in error) == (2, True)
    status, _, error = litebert("tally", extension=extension.with_name("missing.py"))
    assert (status, "missing.py" in error) == (2, True)
