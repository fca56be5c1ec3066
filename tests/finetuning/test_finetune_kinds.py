"""Every kind of task from its files to a run folder and back: tags, choices, questions, GLUE."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from litebert.answer.model import load
from litebert.base.errors import ConfigError
from litebert.config import replace
from litebert.finetuning.results import Finetuned
from litebert.finetuning.run import finetune
from litebert.judge.baselines import read_scores
from litebert.text.records import Notes, read_lines
from toys.finetuning import config, recipe_file
from toys.refusals import refused
from toys.tasks import task_of

SYLLABLES = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
NAMES = ("bado", "fegi", "kumo")
"""Words that mean something; all others are noise, which shares their pieces."""


def words(draw: random.Random, low: int, high: int) -> list[str]:
    """Noise."""
    made = ("".join(draw.choices(SYLLABLES, k=2)) for _ in range(draw.randint(low, high)))
    return [word if word not in NAMES else "toto" for word in made]


def run(
    name: str, data: Path, folder: Path, tokenizer: Path, epochs: float, **options: Any
) -> Finetuned:
    settings = replace(config(epochs=epochs), length=48)
    task = task_of(name, data, **options)
    done = finetune(recipe_file(folder.parent), task, folder, settings, tokenizer=tokenizer)
    assert done.outcome.finished
    assert read_scores(folder / "scores.json") == done.scores
    return done


# ------------------------------------------------------------------------------------------ tagging


def conll(path: Path, count: int, seed: int) -> None:
    """Sentences in which every name is a person."""
    draw = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            for word in words(draw, 3, 20):
                name = draw.random() < 0.3
                file.write(f"{draw.choice(NAMES)} B-PER\n" if name else f"{word} O\n")
            file.write("\n")


@pytest.mark.thorough
def test_tags(tiny_tokenizer: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    conll(data / "train.conll", 150, 0)
    conll(data / "dev.conll", 30, 1)
    conll(data / "test.conll", 30, 2)
    done = run("tagging", data, tmp_path / "run", tiny_tokenizer, epochs=8)
    assert done.scores["f1"] > 0.7  # without learning 0
    assert done.scores["test_f1"] > 0.7  # of a test part whose tags are known
    written_rows = [
        line.split(" ")
        for _, line in read_lines(tmp_path / "run" / "predictions" / "dev.conll", Notes())
        if line
    ]
    dev_rows = [line.split(" ") for _, line in read_lines(data / "dev.conll", Notes()) if line]
    assert [row[:2] for row in written_rows] == dev_rows
    assert sum(row[1] == row[2] for row in written_rows) > 0.8 * len(written_rows)
    # No sentence of the file, but words and their number are kept.
    inputs = [[row[0] for row in dev_rows[:20]]]
    answer = load(tmp_path / "run").predict(inputs)[0]
    assert answer["words"] == inputs[0]
    assert len(answer["prediction"]) == len(answer["probabilities"]) == 20


# ------------------------------------------------------------------------------------------ choices


def choices(path: Path, count: int, seed: int) -> None:
    """The right choice is the one with a name."""
    draw = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            texts = [" ".join(words(draw, 1, 3)) for _ in range(draw.choice((3, 4)))]
            right = draw.randrange(len(texts))
            texts[right] = draw.choice(NAMES)
            row = {
                "context": " ".join(words(draw, 2, 4)),
                "question": "",
                "choices": texts,
                "label": right,
            }
            file.write(json.dumps(row) + "\n")


@pytest.mark.thorough
def test_choices(tiny_tokenizer: Path, tmp_path: Path) -> None:
    choices(tmp_path / "train.jsonl", 200, 0)
    choices(tmp_path / "dev.jsonl", 40, 1)
    done = run(
        "choices",
        tmp_path / "train.jsonl",
        tmp_path / "run",
        tiny_tokenizer,
        6,
        dev=tmp_path / "dev.jsonl",
    )
    assert done.scores["accuracy"] > 0.8
    rows = [
        json.loads(line)
        for _, line in read_lines(tmp_path / "run" / "predictions" / "dev.jsonl", Notes())
    ]
    truth = [json.loads(line) for _, line in read_lines(tmp_path / "dev.jsonl", Notes())]
    right = sum(a["label"] == b["label"] for a, b in zip(rows, truth, strict=True))
    assert right / len(truth) == pytest.approx(done.scores["accuracy"])
    assert (
        load(tmp_path / "run").predict([("rati", "", ["toto", "bado", "mimi"])])[0]["prediction"]
        == 1
    )


def test_the_order_of_choices_goes_with_the_model(tiny_tokenizer: Path, tmp_path: Path) -> None:
    for part, count in (("train", 32), ("dev", 40)):
        choices(tmp_path / f"{part}.jsonl", count, count)
    run(
        "choices",
        tmp_path / "train.jsonl",
        tmp_path / "run",
        tiny_tokenizer,
        1,
        dev=tmp_path / "dev.jsonl",
        order="question",
    )
    model = load(tmp_path / "run")
    assert model.task["order"] == "question"
    dev_rows = [json.loads(line) for _, line in read_lines(tmp_path / "dev.jsonl", Notes())]
    labels = [
        json.loads(line)["label"]
        for _, line in read_lines(tmp_path / "run" / "predictions" / "dev.jsonl", Notes())
    ]
    answers = model.predict([(row["context"], row["question"], row["choices"]) for row in dev_rows])
    assert [answer["prediction"] for answer in answers] == labels


# ---------------------------------------------------------------------------------------- questions


def squad(path: Path, count: int, seed: int, version: int) -> None:
    """The answer is the name in the text; in version 2 every third text has none."""
    draw = random.Random(seed)
    paragraphs = []
    for i in range(count):
        text = words(draw, 4, 24)  # some longer than a row
        entry: dict[str, Any] = {"id": f"q{seed}-{i}", "question": "dada rere", "answers": []}
        if version == 2:
            entry["is_impossible"] = i % 3 == 0
        if not entry.get("is_impossible"):
            name = draw.choice(NAMES)
            place = draw.randrange(len(text))
            start = len(" ".join([*text[:place], ""]))
            text.insert(place, name)
            entry["answers"] = [{"text": name, "answer_start": start}]
        paragraphs.append({"context": " ".join(text), "qas": [entry]})
    whole = {
        "version": ("1.1", "v2.0")[version - 1],
        "data": [{"title": "t", "paragraphs": paragraphs}],
    }
    path.write_text(json.dumps(whole), encoding="utf-8")


@pytest.mark.thorough
@pytest.mark.parametrize(("version", "least"), [(1, 70), (2, 60)])
def test_questions(version: int, least: float, tiny_tokenizer: Path, tmp_path: Path) -> None:
    squad(tmp_path / "train.json", 200, 0, version)
    squad(tmp_path / "dev.json", 40, 1, version)
    squad(tmp_path / "test.json", 20, 2, version)
    files = {part: tmp_path / f"{part}.json" for part in ("dev", "test")}
    done = run("squad", tmp_path / "train.json", tmp_path / "run", tiny_tokenizer, 8, **files)
    assert done.scores["f1"] > least
    written = json.loads((tmp_path / "run" / "predictions" / "dev.json").read_text())
    assert list(written) == [f"q1-{i}" for i in range(40)]
    model = load(tmp_path / "run")
    assert (model.task["task"], model.task["version"]) == ("squad", version)
    dev = json.loads((tmp_path / "dev.json").read_text())["data"][0]["paragraphs"]
    answers = model.predict(
        [(paragraph["qas"][0]["question"], paragraph["context"]) for paragraph in dev]
    )
    # With the threshold of version 2, which was tuned. (Other batches, so a tie may fall the other
    # way.)
    alike = [
        answer["prediction"] == text for answer, text in zip(answers, written.values(), strict=True)
    ]
    assert sum(alike) >= len(alike) - 1
    assert model.task.get("threshold") == done.scores.get("threshold")
    assert (model.task["stride"], model.task["answer_tokens"]) == (128, 30)
    if version == 2:  # the threshold of dev cuts the test part too
        test, odds = (
            json.loads((tmp_path / "run" / "predictions" / name).read_text())
            for name in ("test.json", "null_odds_test.json")
        )
        assert [text == "" for text in test.values()] == [
            odd > done.scores["threshold"] for odd in odds.values()
        ]
    assert (
        "null_odds_dev.json" in {path.name for path in (tmp_path / "run" / "predictions").iterdir()}
    ) == (version == 2)


# --------------------------------------------------------------------------------------------- GLUE


def tsv(path: Path, header: list[str], rows: list[list[str]]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in [header, *rows]), encoding="utf-8")


def text(draw: random.Random, good: bool) -> str:
    """A text that begins with a name, or with none."""
    return " ".join([draw.choice(NAMES) if good else "lulu", *words(draw, 1, 8)])


def test_files_beside_a_folder(tmp_path: Path) -> None:
    """A dev file that is named takes the place of the folder's; where a benchmark names its own, it
    is refused.
    """
    data = tmp_path / "data"
    data.mkdir()
    for path, count in (
        (data / "train.conll", 5),
        (data / "dev.conll", 6),
        (tmp_path / "other.conll", 7),
    ):
        conll(path, count, 0)
    assert len(task_of("tagging", data).read("dev")) == 6
    assert len(task_of("tagging", data, dev=tmp_path / "other.conll").read("dev")) == 7
    for name in ("sst2", "race"):
        with refused(ConfigError, name, "dev"):
            task_of(name, data, dev=tmp_path / "other.conll")


@pytest.mark.thorough
def test_glue_with_classes(tiny_tokenizer: Path, tmp_path: Path) -> None:
    draw = random.Random(0)
    for part, count in (("train", 200), ("dev", 40)):
        rows = [[text(draw, i % 2 == 1), str(i % 2)] for i in range(count)]
        tsv(tmp_path / "glue" / f"{part}.tsv", ["sentence", "label"], rows)
    tsv(
        tmp_path / "glue" / "test.tsv",
        ["index", "sentence"],
        [[str(i), text(draw, i % 2 == 1)] for i in range(10)],
    )
    done = run("SST-2", tmp_path / "glue", tmp_path / "run", tiny_tokenizer, epochs=8)
    assert done.scores["accuracy"] > 0.8
    rows = [
        line.split("\t")
        for _, line in read_lines(tmp_path / "run" / "predictions" / "SST-2.tsv", Notes())
    ]
    assert rows[0] == ["index", "prediction"]
    assert [row[0] for row in rows[1:]] == [str(i) for i in range(10)]
    assert sum(row[1] == str(i % 2) for i, row in enumerate(rows[1:])) >= 8


def test_glue_with_numbers(tiny_tokenizer: Path, tmp_path: Path) -> None:
    draw = random.Random(0)
    header = [f"c{i}" for i in range(10)]
    for part, count in (("train", 200), ("dev", 40), ("test", 12)):
        rows = []
        for i in range(count):
            good = draw.random() < 0.5
            score = [f"{draw.gauss(4.2 if good else 0.8, 0.2):.3f}"] if part != "test" else []
            rows.append([str(i), *"gfyiss", text(draw, good), text(draw, good), *score])
        tsv(tmp_path / "STS-B" / f"{part}.tsv", header[: len(rows[0])], rows)
    done = run("stsb", tmp_path, tmp_path / "run", tiny_tokenizer, epochs=5)
    assert set(done.scores) == {"pearson", "spearman"}
    assert done.scores["pearson"] > 0.8
    rows = [
        line.split("\t")
        for _, line in read_lines(tmp_path / "run" / "predictions" / "STS-B.tsv", Notes())
    ]
    assert len(rows) == 13
    assert all(0 <= float(row[1]) <= 5 for row in rows[1:])
    model = load(tmp_path / "run")
    answer = model.predict([("bado toto", "fegi mimi"), ("lulu toto", "lulu mimi")])
    assert answer[0]["prediction"] > 2.5 > answer[1]["prediction"]
    assert model.labels == ()
