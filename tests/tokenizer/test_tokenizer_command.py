"""`litebert tokenizer train` and `inspect`: interrupted, written whole or not at all, and refused
in one sentence.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import string
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.base.errors import DataError
from litebert.tokenizer import Tokenizer, training
from toys.refusals import names, refused
from toys.tokenizing import Kind, train

pytestmark = pytest.mark.thorough


Output = tuple[int, str, str]
LITEBERT = [sys.executable, "-m", "litebert"]


@pytest.fixture
def long_text(tmp_path: Path) -> Path:
    """A text whose tokenizer takes much longer than a test waits."""
    draw = random.Random(0)
    path = tmp_path / "long.txt"
    words = (
        "".join(draw.choices(string.ascii_lowercase, k=draw.randint(4, 12))) for _ in range(400_000)
    )
    path.write_text("\n".join(" ".join(next(words) for _ in range(20)) for _ in range(20_000)))
    return path


def processes_of(group: int) -> list[int]:
    """The processes of a group, each as Linux lists it."""
    numbers = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            numbers.append(int(folder.name))
    return numbers


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="lists processes as Linux does")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_training_ends_at_once(number: int, long_text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out" / "tokenizer"
    command = [
        *LITEBERT,
        "tokenizer",
        "train",
        str(long_text),
        "--vocab-size",
        "16000",
        "--out",
        str(out),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while len(processes_of(process.pid)) < 2:  # until the libraries learn
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(number)
    began = time.monotonic()
    _, errors = process.communicate(timeout=20)
    assert time.monotonic() - began < 5
    assert "Traceback" not in errors
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    while processes_of(process.pid):
        assert time.monotonic() - began < 20
        time.sleep(0.05)
    assert not out.exists()


def test_the_same_command_replaces_and_a_failure_leaves_what_was_there(
    run: Callable[..., Output], tiny_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "deep" / "tokenizer"
    command = ["tokenizer", "train", tiny_corpus, "--kind", "bpe", "--out", out, "--vocab-size"]
    assert run(*command, 300)[0] == 0
    first = Tokenizer.load(out).fingerprint
    assert run(*command, 310)[0] == 0
    assert Tokenizer.load(out).vocab_size == 310
    assert [path.name for path in out.parent.iterdir()] == ["tokenizer"]

    def full(self: Tokenizer, folder: Path) -> None:
        folder.mkdir()
        (folder / "tokenizer.json").write_text("{")
        raise OSError(28, "No space left on device", str(folder))

    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "save", full)
        status, _, err = run(*command, 300)
        assert status == 2
        names(err.splitlines()[-1], "No space left on device")
    assert Tokenizer.load(out).vocab_size == 310
    assert [path.name for path in out.parent.iterdir()] == ["tokenizer"]
    assert run(*command, 300)[0] == 0
    assert Tokenizer.load(out).fingerprint == first


def test_a_folder_of_something_else_is_left_alone_before_any_work(
    run: Callable[..., Output], tiny_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(training, "sample_lines")
    (tmp_path / "thesis.txt").write_text("years of work")
    status, _, err = run("tokenizer", "train", tiny_corpus, "--out", tmp_path)
    assert status == 2
    names(err, tmp_path, "thesis.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    status, _, err = run("tokenizer", "train", tiny_corpus, "--out", tmp_path / "thesis.txt")
    assert status == 2
    names(err, tmp_path / "thesis.txt")


@pytest.mark.parametrize(
    "words",
    [
        ("--vocab-size", 0),
        ("--vocab-size", -3),
        ("--vocab-size", 10**9),
        ("--sample-mib", 0),
        ("--sample-mib", -1),
    ],
)
def test_amounts_that_cannot_be(
    words: tuple[str, int], run: Callable[..., Output], tiny_corpus: Path, tmp_path: Path
) -> None:
    status, out, err = run("tokenizer", "train", tiny_corpus, *words, "--out", tmp_path / "out")
    assert (status, out) == (2, "")
    names(err, words[0], words[1])
    assert not (tmp_path / "out").exists()


# --------------------------------------------------------------------- two tokenizers in one folder


@pytest.mark.parametrize("file", ["tokenizer.json", "spiece.model"])
def test_a_file_of_another_tokenizer_of_the_kind_is_noticed(file: str, tmp_path: Path) -> None:
    train("unigram", 600).save(tmp_path / "one")
    train("unigram", 500).save(tmp_path / "two")
    shutil.copy(tmp_path / "two" / file, tmp_path / "one" / file)
    with refused(DataError, tmp_path / "one", "tokenizer.json"):
        Tokenizer.load(tmp_path / "one")


@pytest.mark.parametrize(
    ("kind", "file"), [("wordpiece", "vocab.txt"), ("bpe", "merges.txt"), ("bpe", "vocab.json")]
)
def test_a_vocabulary_of_another_tokenizer_is_noticed(
    kind: Kind, file: str, tmp_path: Path
) -> None:
    train(kind, 600).save(tmp_path / "one")
    train(kind, 500).save(tmp_path / "two")
    shutil.copy(tmp_path / "two" / file, tmp_path / "one" / file)
    with refused(DataError, tmp_path / "one", file):
        Tokenizer.load(tmp_path / "one")


@pytest.mark.parametrize("marked", [True, False])
def test_two_kinds_in_one_folder_are_noticed(
    marked: bool, run: Callable[..., Output], tiny_corpus: Path, tmp_path: Path
) -> None:
    train("unigram").save(tmp_path)
    train("wordpiece").save(tmp_path)
    if not marked:
        (tmp_path / "tokenizer_config.json").unlink()
    status, _, err = run("tokenizer", "inspect", tiny_corpus, "--tokenizer", tmp_path)
    assert status == 2
    names(err, tmp_path, "spiece.model")


def test_a_folder_that_transformers_saved_again_opens(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    for kind in ("unigram", "wordpiece", "bpe"):
        train(kind).save(tmp_path / kind)
        peer = AutoTokenizer.from_pretrained(tmp_path / kind)
        peer.save_pretrained(tmp_path / f"{kind} again")
        peer.save_pretrained(tmp_path / kind)
        for folder in (kind, f"{kind} again"):
            assert Tokenizer.load(tmp_path / folder).encode(["The cat sat."]) == train(kind).encode(
                ["The cat sat."]
            )


# ------------------------------------------------------------------------------------------ inspect


def test_a_tokenizer_that_does_not_suit_the_text_is_warned_of(
    run: Callable[..., Output], tiny_tokenizer: Path, tmp_path: Path
) -> None:
    text = tmp_path / "greek.txt"
    text.write_text("Ελληνικά και πάλι ελληνικά", encoding="utf-8")
    status, out, err = run("tokenizer", "inspect", text, "--tokenizer", tiny_tokenizer, "--json")
    assert status == 0
    assert json.loads(out)["unknown_rate"] > 0.4
    assert f"{json.loads(out)['unknown_rate']:.1%}" in err


def test_letters_that_a_terminal_cannot_show_stop_nothing(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("吾輩は猫である", encoding="utf-8")
    done = subprocess.run(
        [*LITEBERT, "tokenizer", "inspect", str(text), "--tokenizer", str(tiny_tokenizer)],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
    )
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
    assert b"U+732B" in done.stdout


def test_a_closed_standard_input_is_one_sentence(tmp_path: Path) -> None:
    command = f"'{sys.executable}' -m litebert tokenizer train - --out '{tmp_path / 'out'}' <&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert done.returncode == 2
    names(done.stderr, "standard input")
    assert not (tmp_path / "out").exists()


def test_the_summary_is_json_too(run: Callable[..., Output], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("some words that are learned again and again\n" * 40, encoding="utf-8")
    words = ("--kind", "wordpiece", "--vocab-size", 60, "--shrink", "--out", tmp_path / "t")
    status, out, err = run("tokenizer", "train", text, *words, "--json")
    assert status == 0, err
    record = json.loads(out)
    assert (record["path"], record["kind"]) == (str(tmp_path / "t"), "wordpiece")
    assert 5 < record["vocab_size"] <= 60
