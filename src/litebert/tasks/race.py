"""RACE: English examinations of Chinese schools, middle and high, four options to a question.

The official layout is RACE/{train,dev,test}/{middle,high}/*.txt with one JSON object a passage. The
passages of a level may also be lines of one `all.txt`, as the official ALBERT code expects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.base.errors import DataError
from litebert.tasks.choices import (
    Choice,
    ChoiceFiles,
    ChoiceTask,
    OrderOptions,
    format_letter,
    require_choices,
)
from litebert.tasks.splits import Source, require_one
from litebert.tasks.task import Row, Task
from litebert.tasks.text_outputs import OneChoice
from litebert.text.records import Layout, Notes, RowSource, format_value, read_records, require_text

SPLITS = ("train", "dev", "test")
LEVELS = ("middle", "high")
JOINED = "all.txt"


class RaceFiles(ChoiceFiles):
    contexts = "passages"

    @classmethod
    def open(
        cls, task_class: type[Task[Choice]], name: str, data: Source, **options: Any
    ) -> RaceFiles:
        folder, given = require_one(data, name), OrderOptions(**options)
        folders = {s: Path(folder, s) for s in SPLITS if Path(folder, s).is_dir()}
        if not folders:
            raise DataError(
                f"{folder} holds none of the folders {', '.join(SPLITS)}; give the folder RACE"
            )
        task = RaceTask(OneChoice(), order=given.order)
        return cls(task, folders, heldout=given.heldout)

    @classmethod
    def list_folder(cls, folder: Path, task: str) -> list[Path]:
        """Return the folder of a split: dev if the folder is the whole benchmark."""
        return [folder / "dev" if (folder / "dev").is_dir() else folder]

    def _read_examples(self, path: Path, notes: Notes) -> Iterator[Choice]:
        if path.is_file():
            yield from _read_questions(path, path.parent.name, notes)
            return
        levels = [level for level in LEVELS if (path / level).is_dir()]
        if not levels:
            raise DataError(
                f"{path} holds none of the folders {', '.join(LEVELS)}; give the folder "
                "RACE or one of its splits"
            )
        if len(levels) < len(LEVELS):
            notes[f"{levels[0]} is the only level"] += 1
        for level in levels:
            # The shorter name first, so that 9.txt comes before 10.txt.
            files = sorted((path / level).glob("*.txt"), key=lambda p: (len(p.name), p.name))
            if not files:
                raise DataError(f"{path / level} holds no *.txt; unpack RACE again")
            single = [file for file in files if file.name != JOINED]
            if single and len(single) < len(files):
                joined = f"{level}/{JOINED}"
                notes[f"{joined} was skipped, because separate files hold its passages too"] += 1
            for file in single or files:
                yield from _read_questions(file, level, notes)

    @classmethod
    def stream_official(cls, source: RowSource, notes: Notes) -> Iterator[Row[Choice]]:
        """Yield the questions of a file with their ids: passage and question number."""
        level = Path(str(source)).parent.name
        for question in _read_questions(source, level, notes):
            yield Row(question, {"id": question.name}, str(source))


@dataclass(frozen=True)
class RaceTask(ChoiceTask):
    name, files, options = "race", RaceFiles, OrderOptions
    predicted_files = ("PASSAGES.txt", "ANSWERS.jsonl")
    blank = re.compile("_")  # every one, as in the official code

    def _format_choice(self, choice: int) -> int | str:
        return format_letter(choice)


def _read_questions(file: RowSource, level: str, notes: Notes) -> Iterator[Choice]:
    wanted, optional = ("article", "questions", "options"), ("answers", "id")
    records = read_records(file, wanted, notes, optional=optional, layout=Layout("jsonl"))
    for line, cells, _ in records:
        location = f"{file}:{line}"
        article, questions, options, answers, name = cells
        article = require_text(article, "article", location)
        lists = {"questions": questions, "options": options}
        if answers is not None:
            lists["answers"] = answers
        for field, value in lists.items():
            if not isinstance(value, list) or len(value) != len(questions):
                raise DataError(
                    f"{location}: {field} is not a list with one entry for each question; fix it"
                )
        name = f"{level}{Path(str(file)).name}" if name is None else str(name)
        for i, (question, texts) in enumerate(zip(questions, options, strict=True)):
            question = require_text(question, f"questions[{i}]", location)
            choices = require_choices(texts, f"options[{i}]", location)
            label = None
            if answers is not None:
                letters = [format_letter(i) for i in range(len(choices))]
                if answers[i] not in letters:
                    raise DataError(
                        f"{location}: answers[{i}] is {format_value(answers[i])}; write one of "
                        f"{', '.join(letters)}"
                    )
                label = letters.index(answers[i])
            yield Choice(article, question, choices, label, f"{name}-{i}", level)
