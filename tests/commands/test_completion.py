"""`litebert completion`: what bash offers after the printed script was read."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.cli import VERBS
from litebert.commands.completion import verbs

Output = tuple[int, str, str]

ASK = """
set -u
eval "$(cat "$1")"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMPREPLY=()
$(complete -p litebert | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def offer_words(run: Callable[..., Output], tmp_path: Path) -> Callable[..., set[str]]:
    """The words that bash offers for the last one."""
    if shutil.which("bash") is None:
        pytest.skip("this machine has no bash")
    status, script, _ = run("completion", "bash")
    assert status == 0
    (tmp_path / "script").write_text(script)
    (tmp_path / "empty").mkdir()

    def ask(*words: str) -> set[str]:
        command = ["bash", "-c", ASK, "bash", str(tmp_path / "script"), *words]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path / "empty", check=True
        )
        return {word.strip() for word in done.stdout.splitlines()} - {""}

    return ask


@pytest.mark.thorough
def test_verbs_and_options_in_bash(offer_words: Callable[..., set[str]]) -> None:
    assert offer_words("litebert", "pre") == {"predict", "prepare", "pretrain"}
    assert set(VERBS) <= offer_words("litebert", "")
    assert offer_words("litebert", "pretrain", "--bud") == {"--budget"}
    assert offer_words("litebert", "tokenizer", "t") == {"train"}
    assert offer_words("litebert", "finetune", "model", "--answer-u") == {
        "--answer-unit"
    }  # its help has two lines
    assert offer_words("litebert", "tokenizer", "train", "--kind", "word") == {"wordpiece"}


def test_every_verb_is_completed() -> None:
    assert {verb.partition(" ")[0] for verb, _ in verbs()} == set(VERBS)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells(shell: str, run: Callable[..., Output]) -> None:
    status, script, _ = run("completion", shell)
    assert status == 0
    assert all(word in script for word in ("pretrain", "vocab-size", "litebert"))
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script, text=True, check=True)


def test_an_unknown_shell(run: Callable[..., Output]) -> None:
    status, out, err = run("completion", "cmd")
    assert (status, out) == (2, "")
    assert "bash" in err
