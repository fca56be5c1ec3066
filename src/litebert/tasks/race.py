"""RACE: English examinations of Chinese schools, middle and high, four options to a question.

The official layout is RACE/{train,dev,test}/{middle,high}/*.txt with one JSON object a passage; the
passages of a level may also be joined as lines of one `all.txt`, as the official ALBERT code
expects. Both levels are learned together, and scored both together and separately.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from litebert.errors import ConfigError, DataError
from litebert.tasks.choices import Choice, ChoiceTask, Order, choices_of, letter_of
from litebert.tasks.parts import Source
from litebert.text.records import Notes, format_value, read_records, require_text

PARTS = ("train", "dev", "test")
LEVELS = ("middle", "high")
JOINED = "all.txt"


class RaceTask(ChoiceTask):
    """RACE from its folder; `order` is the layout of a row."""

    name, takes = "race", ("order", "heldout")
    blank = re.compile("_")  # every one, as in the official code
    contexts = "passages"
    predicted_files = ("PASSAGES.txt", "ANSWERS.jsonl")

    def __init__(
        self, folder: str | Path | None = None, *, order: Order = "context", heldout: float = 0.1
    ) -> None:
        super().__init__(
            {} if folder is None else _folders(Path(folder)), order=order, heldout=heldout
        )

    @classmethod
    def from_data(cls, name: str, data: Source, **options: Any) -> RaceTask:
        """Of its folder."""
        if not isinstance(data, (str, Path)):
            if len(data) != 1:
                raise ConfigError(
                    f"race is read from one folder, and {len(data)} are given; name the folder RACE"
                )
            data = data[0]
        return cls(data, **options)

    @classmethod
    def inside(cls, folder: Path) -> list[Path]:
        """The folder of a part: of the whole benchmark, dev."""
        return [folder / "dev" if (folder / "dev").is_dir() else folder]

    def _examples(self, path: Path) -> Iterator[Choice]:
        if path.is_file():
            yield from self._questions(path, path.parent.name)
            return
        levels = [level for level in LEVELS if (path / level).is_dir()]
        if not levels:
            raise DataError(
                f"{path} holds none of the folders {', '.join(LEVELS)}; give the folder "
                "RACE or one of its parts"
            )
        if len(levels) < len(LEVELS):
            self._found[f"{levels[0]} is the only level"] += 1
        for level in levels:
            for file in self._passages(path / level):
                yield from self._questions(file, level)

    def official(self, source: Any) -> Iterator[tuple[str, Choice]]:
        """The questions of a file of passages; an id is the passage's with the number of the
        question.
        """
        self._found = Notes()
        return (
            (question.name, question)
            for question in self._questions(source, Path(source).parent.name)
        )

    def _passages(self, folder: Path) -> list[Path]:
        files = sorted(
            folder.glob("*.txt"), key=lambda path: (len(path.name), path.name)
        )  # 9 before 10
        alone = [path for path in files if path.name != JOINED]
        if not files:
            raise DataError(f"{folder} holds no *.txt; unpack RACE again")
        if alone and len(alone) < len(files):
            joined = f"{folder.name}/{JOINED}"
            self._found[
                f"{joined} was passed over, as its passages stand beside it in files of their own"
            ] += 1
        return alone or files

    def _questions(self, file: Path, level: str) -> Iterator[Choice]:
        wanted = ("article", "questions", "options")
        for line, row in read_records(
            file, wanted, self._found, optional=("answers", "id"), form="jsonl"
        ):
            where = f"{file}:{line}"
            article, questions, options, answers, name = row
            article = require_text(article, "article", where)
            lists = {"questions": questions, "options": options} | (
                {} if answers is None else {"answers": answers}
            )
            for field, value in lists.items():
                if not isinstance(value, list) or len(value) != len(questions):
                    raise DataError(
                        f"{where}: {field} is not a list with one entry for each question; fix it"
                    )
            name = f"{level}{file.name}" if name is None else str(name)
            for i, (question, texts) in enumerate(zip(questions, options, strict=True)):
                question = require_text(question, f"questions[{i}]", where)
                choices = choices_of(texts, f"options[{i}]", where)
                right = (
                    None
                    if answers is None
                    else _place(answers[i], len(choices), f"{where}: answers[{i}]")
                )
                yield Choice(article, question, choices, right, f"{name}-{i}", level)

    def _written(self, choice: int) -> int | str:
        return letter_of(choice)


def _folders(folder: Path) -> dict[str, Path]:
    """Those of the parts."""
    found = {part: folder / part for part in PARTS if (folder / part).is_dir()}
    if not found:
        raise DataError(
            f"{folder} holds none of the folders {', '.join(PARTS)}; give the folder RACE"
        )
    return found


def _place(answer: object, choices: int, what: str) -> int:
    letters = [letter_of(i) for i in range(choices)]
    if answer not in letters:
        raise DataError(f"{what} is {format_value(answer)}; write one of {', '.join(letters)}")
    return letters.index(str(answer))
