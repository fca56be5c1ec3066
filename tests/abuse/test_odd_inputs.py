"""Odd but right inputs: strange names, line ends, sizes and links; every text of them is read, none
in silence lost.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from abuse.broken import WIDE
from abuse.conftest import patience
from litebert.cli import main

pytestmark = pytest.mark.thorough


Prepared = Callable[..., dict[str, int]]


@pytest.fixture
def read(good: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Prepared:
    """Prepare a source; the documents, empty ones, duplicates and cuts that were counted."""

    def prepare(*source: str, patient: int = 30) -> dict[str, int]:
        words = [
            "prepare",
            "--tokenizer",
            str(good / "tokenizer"),
            "--out",
            str(tmp_path / "out"),
            "--heldout",
            "0",
        ]
        with patience(patient):
            status = main([*words, "--processes", "1", "--json", *source])
        captured = capfd.readouterr()
        assert status == 0, captured.err
        record = json.loads(captured.out)
        return {**record["read"], **record["summary"], "sentences": record["train"]["sentences"]}

    return prepare


NAMES = (
    "📚 café.txt",
    "كتاب.txt",
    "-dash.txt",
    "--out.txt",
    "[x].txt",
    "*.txt",
    "a b\tc.txt",
    "a\nb.txt",
    "%s{0}.txt",
    "hf:books.txt",
    "CON.txt",
    ".hidden.txt",
    "x" * 240 + ".txt",
    "tab=latin-1.txt",
    "UPPER.TXT",
)


@pytest.mark.parametrize("name", NAMES)
def test_any_name_will_do(
    read: Prepared, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("One text.\n\nAnother text.\n", encoding="utf-8")
    assert read(f"./{name}")["kept"] == 2


ROW = '{"text": "One text.", "id": 1, "id": 2}\n'
CONTENTS: dict[str, tuple[bytes, int]] = {
    "windows.txt": (b"One text.\r\n\r\nAnother text.\r\n", 2),
    "mac.txt": (b"One text.\r\rAnother text.\r", 2),
    "no-end.txt": (b"One text.\n\nAnother text.", 2),
    "marked.txt": ("\ufeffOne text.\n\nAnother text.\n".encode(), 2),
    "utf16.txt": ("One text.\n\nAnother text.\n".encode("utf-16"), 2),
    "utf32.txt": ("One text.\n\nAnother text.\n".encode("utf-32"), 2),
    "emoji.txt": ("👩‍👩‍👧‍👦 texts.\n\nשלום texts.\n".encode(), 2),
    "separators.txt": ("One\u2028text.\n\nAnother\x0btext\x0c.\n".encode(), 2),
    "windows.csv": (b'text,label\r\n"One, ""text""\r\nof two lines.",1\r\nAnother text.,0\r\n', 2),
    "marked.csv": ("\ufefftext,label\nOne text.,1\n".encode(), 1),
    "empty-rows.csv": (b"text,label\nOne text.,1\n,0\n\n  ,1\n", 1),
    "duplicates.csv": (b"text\nOne text.\nOne text.\n", 1),
    "twice-elsewhere.jsonl": (ROW.encode(), 1),
    "large.jsonl": (
        b'{"text": "One text.", "id": 1' + b"0" * 400 + b', "x": 1e999, "y": NaN}\n',
        1,
    ),
    "null.jsonl": (b'{"text": "One text."}\n\n{"text": null}\n', 1),
    "half.jsonl": (b'{"text": "One \\ud800 text."}\n', 1),
    "no-end.jsonl": (b'{"text": "One text."}', 1),
    "wide.csv": (f"text{WIDE}\nOne text.{WIDE}\n".encode(), 1),
    "tabs.tsv": (b'text\tlabel\n"One" text.\t1\n', 1),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_any_content_is_read_whole(read: Prepared, tmp_path: Path, name: str) -> None:
    content, documents = CONTENTS[name]
    (tmp_path / name).write_bytes(content)
    assert read(str(tmp_path / name))["kept"] == documents


def test_a_folder_that_links_to_itself_is_read_once(read: Prepared, tmp_path: Path) -> None:
    place = tmp_path / "books"
    place.mkdir()
    (place / "one.txt").write_text("One text.\n", encoding="utf-8")
    (place / "again").symlink_to(place)
    (place / "link.txt").symlink_to(place / "one.txt")
    summary = read(str(place))
    assert (summary["kept"], summary["duplicates"]) == (1, 1)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_with_a_name_is_read(read: Prepared, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.txt"
    os.mkfifo(pipe)
    writer = threading.Thread(
        target=pipe.write_text, args=("One text.\n\nAnother text.\n",), daemon=True
    )
    writer.start()
    assert read(str(pipe))["kept"] == 2
    writer.join()


def test_a_line_of_many_documents_is_cut_and_counted(read: Prepared, tmp_path: Path) -> None:
    (tmp_path / "line.txt").write_text("A few words of it. " * 200_000, encoding="utf-8")  # 3.8 MB
    summary = read(str(tmp_path / "line.txt"))
    assert summary["kept"] + summary["duplicates"] == 4
    assert summary["cuts"] == 3


@pytest.mark.slow
def test_fifty_megabytes_in_one_line(read: Prepared, tmp_path: Path) -> None:
    words = " ".join(f"word{number} goes on." for number in range(2_500_000))
    (tmp_path / "line.txt").write_text(words, encoding="utf-8")
    summary = read(str(tmp_path / "line.txt"), patient=600)
    assert summary["sentences"] > 2_000_000
    assert summary["cuts"] + 1 == summary["kept"]


@pytest.mark.slow
def test_a_hundred_thousand_columns(
    good: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = ",".join(f"c{number}" for number in range(100_000))
    rows = "".join(f"some words,{label}{',x' * 100_000}\n" for label in (0, 1) * 10)
    (tmp_path / "wide.csv").write_text(f"text,label,{names}\n{rows}", encoding="utf-8")
    answers = str(tmp_path / "answers.csv")
    for words in (
        [
            "finetune",
            str(good / "run"),
            "--task",
            "table",
            "--data",
            str(tmp_path / "wide.csv"),
            "--steps",
            "2",
            "--out",
            str(tmp_path / "tuned"),
        ],
        [
            "predict",
            str(tmp_path / "tuned"),
            "--input",
            str(tmp_path / "wide.csv"),
            "--out",
            answers,
        ],
    ):
        assert main(words) == 0, capfd.readouterr().err
    assert len(Path(answers).read_text(encoding="utf-8").splitlines()) == 21
