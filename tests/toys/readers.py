"""Every reader of a task's files, each with a small file of three examples, for the tests of
malformed files.

The second example says "four five", the third "shut" and "the café": there the defects are put.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from litebert.base.errors import DataError
from litebert.tasks.glue import GLUE
from toys.refusals import names
from toys.tasks import ChoiceTask, Glue, RaceTask, Squad, Table, TaggingTask

TEXTS = ("one two", "four five", "shut the café")
TAGS = ("O", "B-loc", "B-per", "I-loc", "I-per")
LENGTH = 32


class Stream:
    """The rows that `litebert predict` reads of a file, offered as a task would."""

    def __init__(self, path: Path, task: Any) -> None:
        self._path, self._task = path, task

    def read(self, part: str) -> list[Any]:
        return [row.example for row in self._task.stream(self._path)]

    @property
    def notes(self) -> list[str]:
        return self._task.notes  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Reader:
    """A file with three examples, and what reads it."""

    file: str
    content: bytes
    task: Callable[[Path], Any]
    empty: str = "FILE holds no rows; give a file with some"
    cut: str = ""
    """Refusal of the content up to the first two letters of "shut"; empty if it is read."""
    part: str = "dev"
    packs: bool = True
    """True if the file may be compressed."""
    longer: bytes = b" bado" * 300
    """Bytes that make the second example long."""
    long: str = f"texts longer than {LENGTH} tokens were cut (1)"

    def read(self, folder: Path, content: bytes) -> tuple[list[Any], list[str], Any]:
        """Examples and notes of a file."""
        path = folder / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        task = self.task(path)
        return task.read(self.part), list(task.notes), task

    def fails(self, folder: Path, content: bytes) -> str:
        """The message about a file that cannot be read."""
        with pytest.raises(DataError) as error:
            self.read(folder, content)
        return one_line(str(error.value), folder / self.file)

    def mends(self, folder: Path, content: bytes, *places: object, text: str = "four five") -> None:
        """All examples are those of the whole file, and one note more names the places, where some
        are given.
        """
        whole = self.content.replace(b"four five", text.encode())
        wanted, usual, _ = self.read(folder, whole)
        assert len(wanted) == 3
        assert content != whole
        examples, notes, _ = self.read(folder, content)
        assert (examples, notes[: len(usual)], len(notes)) == (
            wanted,
            usual,
            len(usual) + bool(places),
        )
        if places:
            names(notes[-1], *places)


def one_line(message: str, path: Path) -> str:
    assert len(message.splitlines()) == 1
    assert message.count(str(path)) == 1
    return message.replace(str(path), "FILE")


# -------------------------------------------------------------------------------------- the readers


def lines(*rows: Any) -> bytes:
    """JSON Lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def squad_json(version: str) -> bytes:
    paragraphs = []
    for i, text in enumerate(TEXTS):
        last = text.split(" ")[-1]
        answers = [{"text": last, "answer_start": text.index(last)}]
        entry: dict[str, Any] = {"id": str(i), "question": "who", "answers": answers}
        if version == "v2.0":
            entry |= {"is_impossible": i == 2, "answers": [] if i == 2 else answers}
        paragraphs.append({"context": text, "qas": [entry]})
    return json.dumps(
        {"version": version, "data": [{"paragraphs": paragraphs}]}, indent=1, ensure_ascii=False
    ).encode()


TABLE: dict[str, tuple[bytes, str]] = {
    "csv": (
        'text,label\none two,no\nfour five,yes\n"shut, the café",no\n'.encode(),
        "FILE:4 is not a well-formed row (unexpected end of data); mend its quotes or line ends",
    ),
    "tsv": (
        "text\tlabel\none two\tno\nfour five\tyes\nshut the café\tno\n".encode(),
        "FILE:4 has 1 columns where the first line has 2; mend the row",
    ),
    "jsonl": (
        lines(*({"text": text, "label": "no"} for text in TEXTS)).replace(b"no", b"yes", 1),
        "FILE:3 is not JSON (Unterminated string starting at character 10); write one "
        "whole object per line",
    ),
}
"""Suffix: a file, and what is said where it is cut short."""

# name: (file, width of its header or 0, its examples; "|" is a tab)
GLUE_FILES: dict[str, tuple[str, int, tuple[str, str, str]]] = {
    "cola": ("CoLA/dev.tsv", 0, ("src|1|*|one two", "src|0|*|four five", "shut|1|*|the café")),
    "sst2": ("SST-2/dev.tsv", 2, ("one two|1", "four five|0", "shut the café|1")),
    "mrpc": ("MRPC/dev.tsv", 5, ("1|7|8|one two|a", "0|7|8|four five|b", "1|7|8|shut|the café")),
    "stsb": (
        "STS-B/dev.tsv",
        10,
        (
            "0|g|f|y|i|s|s|one two|a|3.5",
            "1|g|f|y|i|s|s|four five|b|0",
            "2|g|f|y|i|s|s|shut|the café|5",
        ),
    ),
    "qqp": (
        "QQP/dev.tsv",
        6,
        ("9|1|2|one two|a|1", "8|1|2|four five|b|0", "7|1|2|shut|the café|1"),
    ),
    "mnli": (
        "MNLI/dev_matched.tsv",
        12,
        (
            "0|1|n|g|p|p|p|p|one two|a|l|neutral",
            "1|1|n|g|p|p|p|p|four five|b|l|entailment",
            "2|1|n|g|p|p|p|p|shut|the café|l|contradiction",
        ),
    ),
    "qnli": (
        "QNLI/dev.tsv",
        4,
        ("0|one two|a|entailment", "1|four five|b|entailment", "2|shut|the café|entailment"),
    ),
    "rte": (
        "RTE/dev.tsv",
        4,
        ("0|one two|a|entailment", "1|four five|b|entailment", "2|shut|the café|entailment"),
    ),
    "wnli": ("WNLI/dev.tsv", 4, ("0|one two|a|1", "1|four five|b|0", "2|shut|the café|1")),
    "ax": ("diagnostic/diagnostic.tsv", 3, ("0|one two|a", "1|four five|b", "2|shut|the café")),
}


def glue_reader(name: str) -> Reader:
    file, width, rows = GLUE_FILES[name]
    header = ["|".join(f"column{i}" for i in range(width))] * bool(width)
    content = "".join(f"{row}\n" for row in [*header, *rows]).replace("|", "\t").encode()
    widths = rows[2].partition("shut")[0].count("|") + 1, rows[0].count("|") + 1
    cut = (
        f"FILE:{len(header) + 3} has {widths[0]} columns where the first line has {widths[1]}; "
        "mend the row"
    )
    dev = next(iter(GLUE[name].dev), "test")
    empty = "FILE holds no examples; fetch the file again"
    return Reader(file, content, lambda path: Glue(name, path.parent), empty, cut, dev, packs=False)


def squad_reader(version: str) -> Reader:
    content = squad_json(version)
    line = place_of(content, b"shut")[0]
    cut = (
        f"FILE:{line} is not JSON (Unterminated string starting at character 17); it is cut "
        "short, so fetch it again"
    )
    empty = "FILE is empty; give a file with questions"
    return Reader("dev.json", content, lambda path: Squad(dev=path), empty, cut, long="")


def place_of(content: bytes, word: bytes) -> tuple[int, int]:
    """The line of a word, from 1, and how many bytes of it come before."""
    before = content[: content.index(word)]
    return before.count(b"\n") + 1, len(before) - before.rfind(b"\n") - 1


CUT_JSON = (
    "FILE:3 is not JSON (Unterminated string starting at character {}); write one whole "
    "object per line"
)
CHOICES = lines(
    *({"context": text, "question": "who", "choices": ["a", "b"], "label": "B"} for text in TEXTS)
)
RACE = lines(
    *(
        {"article": text, "questions": ["_"], "options": [["a", "b"]], "answers": ["B"]}
        for text in TEXTS
    )
)
CUT_CONTEXT = f"rows lost the end of their context at {LENGTH} tokens (2)"
CUT_TAGS = "columns where line 1 has 2; write a word, then its tag last, between tabs or spaces"
TAGGED = "one two\tB-per\n\nfour five\tB-loc\nx\tO\n\nthe café\tO\nshut\tB-per\n".encode()

READERS = {
    **{
        f"table.{suffix}": Reader(
            f"dev.{suffix}", content, lambda path: Table(dev=path, labels=("no", "yes")), cut=cut
        )
        for suffix, (content, cut) in TABLE.items()
    },
    **{name: glue_reader(name) for name in GLUE_FILES},
    "squad1": squad_reader("1.1"),
    "squad2": squad_reader("v2.0"),
    "race": Reader(
        "dev/middle/all.txt",
        RACE,
        lambda path: RaceTask(path.parents[2]),
        cut=CUT_JSON.format(13),
        packs=False,
        long=CUT_CONTEXT,
    ),
    "choices": Reader(
        "dev.jsonl",
        CHOICES,
        lambda path: ChoiceTask({"dev": path}),
        cut=CUT_JSON.format(13),
        long=CUT_CONTEXT,
    ),
    "tagging": Reader(
        "dev.conll",
        TAGGED,
        lambda path: TaggingTask({"dev": path}, labels=TAGS),
        "FILE holds no words; write one on each line, its tag after it",
        f"FILE:7 has 1 {CUT_TAGS}",
        longer=b"\tB-loc\nbado" * 300,
        long=f"sentences longer than {LENGTH} tokens were read in windows (1)",
    ),
    **{
        f"predict.{suffix}": Reader(
            f"new.{suffix}", content, lambda path: Stream(path, Table(target="number")), cut=cut
        )
        for suffix, (content, cut) in TABLE.items()
    },
    "predict.txt": Reader(
        "new.txt",
        "".join(f"{text}\n" for text in TEXTS).encode(),
        lambda path: Stream(path, Table(target="number")),
    ),
    "predict.choices": Reader(
        "new.jsonl", CHOICES, lambda path: Stream(path, ChoiceTask({})), cut=CUT_JSON.format(13)
    ),
    "predict.questions": Reader(
        "new.jsonl",
        lines(*({"question": "who", "context": text} for text in TEXTS)),
        lambda path: Stream(path, Squad(version=1)),
        cut=CUT_JSON.format(32),
    ),
}
