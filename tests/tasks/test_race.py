"""Multiple choice: RACE folders and JSON Lines in, rows in both orders, accuracy by level,
predictions out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litebert.base.errors import ConfigError, DataError
from litebert.tasks.choices import Choice
from litebert.tasks.values import Item
from litebert.tokenizer import Tokenizer
from toys.refusals import names, refused
from toys.tasks import ChoiceTask, RaceTask

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def passage(name: str = "middle1.txt", **changes: Any) -> dict[str, Any]:
    row = {
        "article": "a fox ran",
        "questions": ["who ran", "the fox _ and _"],
        "options": [["dog", "fox", "cow", "hen"], ["sat", "ate", "ran", "hid"]],
        "answers": ["B", "C"],
        "id": name,
    }
    return {key: value for key, value in {**row, **changes}.items() if value is not ...}


def race_folder(root: Path, part: str = "dev", **files: Any) -> Path:
    """`middle_1=row` writes PART/middle/1.txt; bytes are written as they are."""
    for key, row in files.items():
        level, name = key.split("_")
        path = root / part / level / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(row if isinstance(row, bytes) else json.dumps(row).encode())
    return root


def jsonl(path: Path, *rows: Any) -> dict[str, Path]:
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), "utf-8"
    )
    return {"dev": path}


def words_of(item: Item, tokenizer: Tokenizer, choice: int = 0) -> tuple[list[str], list[int]]:
    row = item.rows[choice]
    return [tokenizer.get_token(int(i)) for i in row.ids], row.types.tolist()


def spelt(item: Item, tokenizer: Tokenizer, choice: int = 0) -> str:
    pieces = words_of(item, tokenizer, choice)[0]
    return "".join(
        piece.removeprefix("##") if piece.startswith("##") else f" {piece}" for piece in pieces
    ).strip()


def oracle(items: list[Item]) -> list[np.ndarray]:
    return [np.eye(len(item.rows), dtype=np.float32)[item.target] for item in items]


class TestReadingRace:
    def test_questions_of_both_levels_in_order(self, tmp_path: Path) -> None:
        folder = race_folder(
            tmp_path, high_10=passage("high10.txt"), high_9=passage("high9.txt"), middle_1=passage()
        )
        task = RaceTask(folder)
        questions = task.read("dev")
        assert [(question.name, question.group, question.label) for question in questions] == [
            ("middle1.txt-0", "middle", 1),
            ("middle1.txt-1", "middle", 2),
            ("high9.txt-0", "high", 1),
            ("high9.txt-1", "high", 2),
            ("high10.txt-0", "high", 1),
            ("high10.txt-1", "high", 2),
        ]
        assert task.dev == ("dev",)
        assert task.notes == []
        assert questions[0].fill_in()[1] == "who ran fox"
        assert questions[1].fill_in()[2] == "the fox ran and ran"

    def test_labeled_files_are_the_folder_its_part_or_a_passage(self, tmp_path: Path) -> None:
        folder = race_folder(tmp_path, middle_1=passage())
        sources = (folder, folder / "dev", folder / "dev" / "middle" / "1.txt")
        opened = [RaceTask().open_labeled(source) for source in sources]
        of_each = [[question.question for question in files.read("dev")] for files in opened]
        assert of_each == [["who ran", "the fox _ and _"]] * 3

    def test_joined_file_gives_the_same(self, tmp_path: Path) -> None:
        rows = [passage("middle1.txt"), passage("middle2.txt", article="x")]
        apart = race_folder(tmp_path / "apart", middle_1=rows[0], middle_2=rows[1])
        lines = "".join(json.dumps(row) + "\r\n" for row in rows).encode()
        joined = race_folder(tmp_path / "joined", middle_all=b"\xef\xbb\xbf" + lines)
        both = race_folder(tmp_path / "both", middle_1=rows[0], middle_2=rows[1], middle_all=lines)
        assert RaceTask(apart).read("dev") == RaceTask(joined).read("dev")
        task = RaceTask(both)
        assert task.read("dev") == RaceTask(apart).read("dev")  # not twice
        names(next(note for note in task.notes if "all.txt" in note), "middle/all.txt", 1)

    def test_a_missing_level_is_said(self, tmp_path: Path) -> None:
        task = RaceTask(race_folder(tmp_path, high_1=passage()))
        task.read("dev")
        (note,) = task.notes
        names(note, "high", 1)

    def test_without_answers_only_the_test_part_is_read(self, tmp_path: Path) -> None:
        for part in ("dev", "test"):
            race_folder(tmp_path, part, middle_1=passage(answers=...), high_1=passage(answers=...))
        task = RaceTask(tmp_path)
        assert {question.label for question in task.read("test")} == {None}
        (note,) = task.notes
        names(note, 4)
        with refused(DataError, tmp_path / "dev"):
            task.read("dev")

    @pytest.mark.parametrize(
        ("content", "places"),
        [
            (b"[1]", []),
            (passage(article=...), ["article"]),
            (passage(article=7), ["article", 7]),
            (passage(questions=None), ["questions"]),
            (passage(options=[["a", "b"]]), ["options"]),
            (passage(options=[["a", "b"], ["a"]]), ["options[1]", "['a']"]),
            (passage(options=[["a", "b"], ["a", 3]]), ["options[1][1]", 3]),
            (passage(answers=["A"]), ["answers"]),
        ],
    )
    def test_malformed(self, tmp_path: Path, content: Any, places: list[Any]) -> None:
        task = RaceTask(race_folder(tmp_path, middle_1=content, high_1=passage()))
        with refused(DataError, f"{tmp_path}/dev/middle/1.txt:1", *places):
            task.read("dev")

    def test_folders_that_are_not_race(self, tmp_path: Path) -> None:
        with refused(DataError, tmp_path, "train", "dev", "RACE"):
            RaceTask(tmp_path)
        (tmp_path / "dev").mkdir()
        with refused(DataError, tmp_path / "dev", "middle", "high"):
            RaceTask(tmp_path).read("dev")
        (tmp_path / "dev" / "high").mkdir()
        with refused(DataError, tmp_path / "dev" / "high", "*.txt"):
            RaceTask(tmp_path).read("dev")
        with refused(DataError, "race", "train", "dev"):
            RaceTask(tmp_path).read("train")


class TestRows:
    """Lengths counted in letters, for the tokenizer spells."""

    def test_short_rows_in_both_orders(self, tmp_path: Path, letters: Tokenizer) -> None:
        folder = race_folder(tmp_path, middle_1=passage(), high_1=passage())
        for order, expected in (
            ("context", "[CLS] a fox ran [SEP] who ran fox [SEP]"),
            ("question", "[CLS] who ran fox [SEP] a fox ran [SEP]"),
        ):
            task = RaceTask(folder, order=order)
            item = task.encode(task.read("dev"), letters, 64)[0]
            assert spelt(item, letters, 1) == expected
            pieces, types = words_of(item, letters, 1)
            assert types.index(1) == pieces.index("[SEP]") + 1
            assert sum(types) == len(types) - types.index(1)
            assert item.target == 1
            assert len(item.rows) == 4
            assert task.notes == []

    def test_long_rows_keep_the_papers_ends(self, tmp_path: Path, letters: Tokenizer) -> None:
        """400 letters of article; 150 of question; 10 of option: the row of 512 holds 128 of the
        last two.
        """
        article = (
            "x" * 90 + " " + " ".join("y" * 90 for _ in range(4)) + " z"
        )  # WordPiece spells words up to 100
        question = "a" * 75 + " " + "b" * 75
        row = {
            "context": article,
            "question": question,
            "choices": ["c" * 10, "d" * 10],
            "label": 0,
        }
        files = jsonl(tmp_path / "dev.jsonl", row)

        task = ChoiceTask(files)
        item = task.encode(task.read("dev"), letters, 512)[0]
        first, second = (
            spelt(item, letters).removeprefix("[CLS]").removesuffix("[SEP]").split("[SEP]")
        )
        assert second.replace(" ", "") == ("a" * 75 + "b" * 75 + "c" * 10)[-128:]  # the last ones
        assert len(item.rows[0].ids) == 512
        assert first.replace(" ", "") == article.replace(" ", "")[: 512 - 3 - 128]
        questions, contexts = sorted(task.notes, key=lambda note: "512" in note)
        names(questions, 128, 2)
        names(contexts, 512, 2)

        task = ChoiceTask(files, order="question")
        item = task.encode(task.read("dev"), letters, 512)[0]
        first, second = (
            spelt(item, letters).removeprefix("[CLS]").removesuffix("[SEP]").split("[SEP]")
        )
        assert (
            first.replace(" ", "") == ("a" * 75 + "b" * 75 + "c" * 10)[:128]
        )  # the first ones: the option is lost
        assert second.replace(" ", "") == article.replace(" ", "")[: 512 - 3 - 128]

    def test_a_short_row_leaves_the_context_half(self, tmp_path: Path, letters: Tokenizer) -> None:
        files = jsonl(
            tmp_path / "dev.jsonl", {"context": "x" * 50, "choices": ["c" * 50, "d"], "label": 0}
        )
        task = ChoiceTask(files)
        item = task.encode(task.read("dev"), letters, 23)[0]
        assert words_of(item, letters)[0].count("##c") == 10
        assert words_of(item, letters)[0].count("##x") == 9
        assert [len(row.ids) for row in item.rows] == [23, 23]

    def test_two_separators_fit_too(self, tmp_path: Path, tiny_corpus: Path) -> None:
        from litebert.tokenizer.training import train_tokenizer

        texts = tiny_corpus.read_text(encoding="utf-8").split("\n\n")
        tokenizer = train_tokenizer(texts, kind="bpe", vocab_size=400)
        files = jsonl(
            tmp_path / "dev.jsonl", {"context": texts[0], "choices": [texts[1], "x"], "label": "B"}
        )
        for order in ("context", "question"):
            task = ChoiceTask(files, order=order)
            rows = task.encode(task.read("dev"), tokenizer, 40)[0].rows
            assert [len(row.ids) for row in rows] == [40, 40]
            assert all((row.ids == tokenizer.sep_id).sum() == 3 for row in rows)

    def test_an_unknown_order(self, tmp_path: Path) -> None:
        with refused(ConfigError, "order", "'questions'", "'question'"):
            ChoiceTask(jsonl(tmp_path / "dev.jsonl"), order="questions")


class TestJsonLines:
    def test_labels_by_place_letter_and_text(self, tmp_path: Path) -> None:
        row = {"context": "a", "choices": ["red", "blue", "green"]}
        labels = (2, "C", "green", 2.0, "2", None)
        task = ChoiceTask(
            jsonl(tmp_path / "d.jsonl", *({**row, "label": label} for label in labels), row)
        )
        questions = task.read("dev")
        assert [question.label for question in questions] == [2, 2, 2, 2, 2, None, None]
        assert [question.name for question in questions] == ["1", "2", "3", "4", "5", "6", "7"]
        assert questions[0].fill_in() == ["red", "blue", "green"]
        for question, filled in (
            ("it is ____.", "it is fox."),
            ("_ ran", "fox ran"),
            ("it was_.", "it wasfox."),
            ("what does get_name say", "what does get_name say fox"),
        ):
            assert Choice("", question, (r"fox", r"\1"), 0, "").fill_in()[0] == filled
        assert Choice("", "_", (r"\1",), 0, "").fill_in() == [r"\1"], "a choice is no pattern"
        assert (
            Choice("", "that_ran__", ("x", "y"), 0, "").fill_in(RaceTask().blank)[1] == "thatyranyy"
        ), "as officially"
        (note,) = task.notes
        names(note, 2)

    @pytest.mark.parametrize(
        ("row", "places"),
        [
            ({"choices": ["a", "b"]}, ["context"]),
            ({"context": "a"}, ["choices"]),
            ({"context": None, "choices": ["x", "y"]}, ["context", None]),
            ({"context": "a", "choices": "xy"}, ["choices", "'xy'"]),
            ({"context": "a", "choices": ["x"]}, ["choices", "['x']"]),
            ({"context": "a", "choices": ["x", None]}, ["choices[1]", None]),
            ({"context": "a", "choices": ["x", "y"], "question": 3}, ["question", 3]),
            ({"context": "a", "choices": ["x", "y"], "label": 2}, ["label", 2, 0]),
            ({"context": "a", "choices": ["x", "y"], "label": -1}, ["label", -1, 2, 0]),
            ({"context": "a", "choices": ["x", "y"], "label": True}, ["label", True]),
            ({"context": "a", "choices": ["x", "y"], "label": 0.5}, ["label", 0.5]),
            ({"context": "a", "choices": ["B", "A"], "label": "A"}, ["label", "'A'"]),
            ({"context": "a", "choices": ["x", "x"], "label": "x"}, ["label", "'x'"]),
        ],
    )
    def test_malformed(self, tmp_path: Path, row: Any, places: list[Any]) -> None:
        good = {"context": "a", "choices": ["x", "y"], "label": 1}
        with refused(DataError, f"{tmp_path}/d.jsonl:3", *places):
            ChoiceTask(jsonl(tmp_path / "d.jsonl", good, "", row, good)).read("dev")

    def test_a_missing_file(self, tmp_path: Path) -> None:
        with refused(DataError, tmp_path / "no.jsonl"):
            ChoiceTask({"dev": tmp_path / "no.jsonl"}).read("dev")

    def test_a_missing_and_an_empty_folder(self, tmp_path: Path) -> None:
        with refused(DataError, tmp_path / "nowhere"):
            ChoiceTask(tmp_path / "nowhere").read("train")
        (tmp_path / "empty").mkdir()
        with refused(DataError, tmp_path / "empty", ".jsonl"):
            ChoiceTask(tmp_path / "empty")


class TestAnswers:
    def test_choices_of_any_number(self, tmp_path: Path, letters: Tokenizer) -> None:
        rows = [
            {"context": "a", "choices": ["x", "y"], "label": 0, "id": "one"},
            {"context": "a", "choices": ["x", "y", "é", "v", "w"], "label": 2},
        ]
        task = ChoiceTask(jsonl(tmp_path / "d.jsonl", *rows))
        examples = task.read("dev")
        items = task.encode(examples, letters, 32)
        assert [len(item.rows) for item in items] == [2, 5]
        logits = [
            np.array([0, np.log(3)], np.float32),
            np.array([0, 1, 9, -500, 900], np.float32) * np.float32(0.1),
        ]
        answers = task.answers(examples, items, logits)
        assert [answer.value for answer in answers] == [1, 4]
        assert answers[0].probabilities == pytest.approx([0.25, 0.75])
        assert task.score(examples, answers) == {"accuracy": 0.0}
        assert task.score(examples, task.answers(examples, items, oracle(items))) == {
            "accuracy": 1.0
        }
        out = tmp_path / "predictions"
        task.write(examples, task.answers(examples, items, oracle(items)), out)
        assert [json.loads(line) for line in out.read_text("utf-8").splitlines()] == [
            {"id": "one", "label": 0, "choice": "x"},
            {"id": "2", "label": 2, "choice": "é"},
        ]

    def test_accuracy_by_level_and_letters_in_the_predictions(
        self, tmp_path: Path, letters: Tokenizer
    ) -> None:
        files: dict[str, Any] = {f"high_{i}": passage(f"high{i}.txt") for i in range(1, 4)}
        task = RaceTask(race_folder(tmp_path, middle_1=passage(), **files))
        examples = task.read("dev")
        items = task.encode(examples, letters, 64)
        logits = oracle(items)
        logits[0] = np.array([1, 0, 0, 0], np.float32)  # one of two in middle
        logits[2] = logits[3] = np.array([0, 0, 0, 1], np.float32)  # two of six in high
        answers = task.answers(examples, items, logits)
        assert task.score(examples, answers) == pytest.approx(
            {"accuracy": 5 / 8, "accuracy_middle": 1 / 2, "accuracy_high": 4 / 6}
        )
        task.write(examples, answers, tmp_path / "predictions")
        written = [
            json.loads(line) for line in (tmp_path / "predictions").read_text("utf-8").splitlines()
        ]
        assert written[0] == {"id": "middle1.txt-0", "label": "A", "choice": "dog"}
        assert written[1] == {"id": "middle1.txt-1", "label": "C", "choice": "ran"}

    def test_unanswered_questions_are_not_scored(self, tmp_path: Path) -> None:
        row = {"context": "a", "choices": ["x", "y"]}
        task = ChoiceTask({"test": jsonl(tmp_path / "d.jsonl", {**row, "label": 1}, row)["dev"]})
        examples = task.read("test")
        answers = task.answers(examples, [], [np.array([0, 1], np.float32)] * 2)
        assert task.score(examples, answers) == {"accuracy": 1.0}
        with refused(DataError, "d.jsonl"):
            task.score(examples[1:], answers[1:])


@pytest.mark.thorough
def test_the_real_data(shared_data: Path) -> None:
    """All passages; 22,364 rows with BERT's vocabulary; who knows the answers scores 1."""
    tokenizer = Tokenizer.load(shared_data / "vocab" / "bert-base-uncased-vocab.txt")
    questions = {"train": 0, "dev": 0}
    for order in ("context", "question"):
        task = RaceTask(shared_data / "race", order=order)
        for part in ("train", "dev") if order == "context" else ("dev",):
            examples = task.read(part)
            questions[part] = len(examples)
            assert {len(example.choices) for example in examples} == {4}
            assert len({example.name for example in examples}) == len(examples)
            assert not task.notes
            items = task.encode(examples, tokenizer, 512)
            rows = [row for item in items for row in item.rows]
            assert max(len(row.ids) for row in rows) == 512
            assert all((row.ids == tokenizer.sep_id).sum() == 2 for row in rows)
            scores = task.score(examples, task.answers(examples, items, oracle(items)))
            assert scores == {"accuracy": 1.0, "accuracy_middle": 1.0, "accuracy_high": 1.0}
    raw = [json.loads(path.read_text("utf-8")) for path in (shared_data / "race").glob("*/*/*.txt")]
    assert sum(questions.values()) == sum(len(row["questions"]) for row in raw)
