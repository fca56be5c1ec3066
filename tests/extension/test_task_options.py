"""A task of one's own with an option of its own: the verb shows it, and other tasks refuse it.

The task is a file that the environment names, as a person would write it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import litebert
from litebert.base.errors import ConfigError
from litebert.base.registry import TASKS
from toys.finetuning import recipe_file, write_table
from toys.refusals import names, refused

Output = tuple[int, str, str]

EXTENSION = '''
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from litebert.base.registry import TASKS
from litebert.tasks.table import Table, TableFiles, TableOptions


@dataclass(frozen=True, kw_only=True)
class ShortOptions(TableOptions):
    """The options of short texts."""

    most_words: int = 100
    """Texts with more words than this are left out."""


class ShortFiles(TableFiles):
    """A table whose long texts are left out."""

    @classmethod
    def of(cls, *parts: Any, most_words: int = 100, **options: Any) -> Any:
        files = super().of(*parts, **options)
        files.most_words = most_words
        return files

    def read(self, split: str, notes: Any = None) -> list[Any]:
        examples = super().read(split, notes)
        return [example for example in examples if len(example.text.split()) <= self.most_words]


class ShortTexts(Table):
    """The task of a table of short texts."""

    name, files, options = "short", ShortFiles, ShortOptions


TASKS.add("short", ShortTexts)
'''


@pytest.fixture
def _register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "short.py").write_text(EXTENSION, encoding="utf-8")
    monkeypatch.setenv("LITEBERT_EXTENSIONS", str(tmp_path / "short.py"))
    monkeypatch.setattr(TASKS, "_parts", dict(TASKS._parts))


@pytest.mark.usefixtures("_register")
def test_the_verb_shows_and_takes_the_option_of_a_task(
    tiny_tokenizer: Path,
    tmp_path: Path,
    run: Callable[..., Output],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    status, out, _ = run("finetune", "--task", "short", "--help", "all")
    assert status == 0
    shown = " ".join(out.split())
    assert "--most-words N Texts with more words than this are left out. Default 100." in shown
    assert "--most-words" not in run("finetune", "--task", "table", "--help", "all")[1]

    train = write_table(tmp_path / "train.csv", 80, 0)
    words: tuple[object, ...] = ("finetune", recipe_file(tmp_path), "--tokenizer", tiny_tokenizer)
    words = (
        *words,
        "--data",
        train,
        "--epochs",
        1,
        "--length",
        32,
        "--no-baseline",
        "--out",
        tmp_path / "run",
    )
    status, _, err = run(*words, "--task", "short", "--most-words", 0)
    assert status == 2
    names(err.splitlines()[-1], "train", "no examples")
    status, _, err = run(*words, "--task", "table", "--most-words", 5)
    assert status == 2
    names(err.splitlines()[-1], "most_words", "short", "table")
    assert run(*words, "--task", "short", "--most-words", 1000)[0] == 0


@pytest.mark.usefixtures("_register")
def test_a_program_gives_the_option(tmp_path: Path, run: Callable[..., Output]) -> None:
    assert run("finetune", "--task", "short", "--help")[0] == 0  # which registers the task
    train = write_table(tmp_path / "train.csv", 80, 0)
    files = litebert.open_task("short", train, most_words=0)
    assert files.read("train") == []
    with refused(ConfigError, "most_words", "short", "squad"):
        litebert.open_task("squad", train, most_words=0)


def test_an_option_that_the_verb_has_already_is_refused(
    monkeypatch: pytest.MonkeyPatch, run: Callable[..., Output]
) -> None:
    from dataclasses import make_dataclass

    from litebert.tasks.table import Table, TableOptions

    options = make_dataclass(
        "Clashing", [("device", str, "")], bases=(TableOptions,), frozen=True, kw_only=True
    )
    monkeypatch.setattr(TASKS, "_parts", dict(TASKS._parts))
    TASKS.add("clashing", type("Clashing", (Table,), {"name": "clashing", "options": options}))
    status, _, err = run("finetune", "--task", "clashing", "--help")
    assert status == 2
    names(err, "clashing", "device")
