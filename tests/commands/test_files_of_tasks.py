"""Files that `litebert finetune` and `litebert evaluate` read, and their words on them, as a person
types them.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from litebert.answer.model import load
from litebert.judge.baselines import read_scores
from toys.finetuning import read_rows, recipe_file
from toys.refusals import names

pytestmark = pytest.mark.thorough


Output = tuple[int, str, str]
Run = Callable[..., Output]
SIGNS = {"no": "bado", "yes": "kumi"}
NOISE = [a + b for a in "dfglmnprst" for b in "aeiou"]


def texts(count: int, seed: int) -> list[tuple[str, str]]:
    """Texts that begin with a sign of their label."""
    draw = random.Random(seed)
    labels = [draw.choice(("no", "yes")) for _ in range(count)]
    return [(" ".join([SIGNS[label], *draw.choices(NOISE, k=4)]), label) for label in labels]


def table(
    path: Path, rows: Sequence[tuple[str, ...]], *header: str, encoding: str = "utf-8"
) -> Path:
    with open(path, "w", newline="", encoding=encoding) as file:
        csv.writer(file).writerows([header, *rows] if header else rows)
    return path


@pytest.fixture
def finetune(tiny_tokenizer: Path, tmp_path: Path, run: Run) -> Callable[..., Output]:
    """Fine-tune a small network into `tmp_path`/run."""

    def call(*words: object, steps: int = 6) -> Output:
        files = ("--tokenizer", tiny_tokenizer, "--out", tmp_path / "run")
        quick = ("--steps", steps, "--length", 32, "--fp32", "--lr", 3e-3)
        batch = ("--train.batch", "16 sequences")
        return run("finetune", recipe_file(tmp_path), *words, *files, *quick, *batch)

    return call


def well(output: Output) -> Output:
    assert output[0] == 0, output[2]
    return output


def refuses(output: Output, *places: object) -> None:
    status, out, err = output
    assert (status, out) == (2, ""), err
    names(err.splitlines()[-1], *places)


def examples(err: str) -> int:
    """How many training examples the command reports."""
    return next(
        int(line.split()[0].replace(",", ""))
        for line in err.splitlines()
        if "training examples:" in line
    )


# ----------------------------------------------------------------- several files, folders, patterns


def test_a_part_may_be_several_files_a_folder_or_a_pattern(
    finetune: Callable[..., Output], tmp_path: Path, run: Run
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    first, two = (
        table(data / f"{name}.csv", texts(count, seed), "text", "label")
        for seed, (name, count) in enumerate((("a", 40), ("b", 60)))
    )
    words = ("--task", "table", "--dev", two)
    assert examples(well(finetune(*words, "--data", first, two))[2]) == 100
    assert json.loads((tmp_path / "run" / "finetune.json").read_text())["files"] == {
        "train": ["a.csv", "b.csv"],
        "dev": ["b.csv"],
    }
    for data_words in ((data,), (f"{data}/*.csv",)):  # the same files are the same run
        assert examples(well(finetune(*words, "--data", *data_words))[2]) == 100
    refuses(finetune(*words, "--data", f"{data}/*.tsv"), f"{data}/*.tsv")
    empty = tmp_path / "empty"
    empty.mkdir()
    refuses(finetune(*words, "--data", empty), empty, ".csv")


def test_held_out_rows_of_several_files_name_their_file(
    finetune: Callable[..., Output], tmp_path: Path
) -> None:
    files = [
        table(tmp_path / f"{name}.csv", texts(40, seed), "text", "label")
        for seed, name in enumerate("ab")
    ]
    well(finetune("--task", "table", "--data", *files))
    rows = read_rows(tmp_path / "run" / "predictions" / "dev.csv")
    assert len(rows) == 8
    assert {row["file"] for row in rows} <= set(map(str, files))
    for row in rows:
        line = Path(row["file"]).read_text().splitlines()[int(row["line"]) - 1]
        assert line.split(" ")[0] in SIGNS.values()


def test_a_folder_for_each_class(finetune: Callable[..., Output], tmp_path: Path, run: Run) -> None:
    for part, count, seed in (("train", 80, 0), ("test", 20, 1)):
        for number, (text, label) in enumerate(texts(count, seed)):
            folder = tmp_path / "reviews" / part / label
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.txt").write_text(f"{text}\nmore\n")
    _, _, err = well(finetune("--task", "table", "--data", tmp_path / "reviews"))
    assert examples(err) == 72
    scores = read_scores(tmp_path / "run" / "scores.json")
    words = ("evaluate", tmp_path / "run", "--data", tmp_path / "reviews" / "test")
    _, out, _ = well(run(*words, "--json"))
    assert well(run(*words, "--json", "--engine", "torch"))[1] == out
    assert json.loads(out)["scores"]["accuracy"] == scores["test_accuracy"]
    refuses(run(*words, "--engine", "torsch"), "torsch", "torch")
    refuses(run(*words, "--pair-column", "b"), "--pair-column")


def test_columns_by_number_without_a_header(
    finetune: Callable[..., Output], tmp_path: Path, run: Run
) -> None:
    rows = [(label, "x", text) for text, label in texts(60, 0)]
    bare = table(tmp_path / "bare.csv", rows)
    words = ("--task", "table", "--text-column", 2, "--label-column", 0)
    assert examples(well(finetune(*words, "--data", bare, "--no-header"))[2]) == 54
    about = json.loads((tmp_path / "run" / "model" / "task.json").read_text())
    assert (about["columns"], about["header"]) == ({"text": "2", "pair": None, "label": "0"}, False)
    learned = ("evaluate", tmp_path / "run", "--data")
    assert json.loads(well(run(*learned, bare, "--json"))[1])["examples"] == 60
    refuses(finetune("--task", "table", "--data", bare, "--no-header"), bare, "'label'", 2)
    named = table(tmp_path / "named.csv", rows, "kind", "x", "said")
    columns = ("--text-column", "said", "--label-column", "kind")
    assert "accuracy" in well(run(*learned, named, *columns))[1]
    refuses(finetune("--task", "squad", "--data", bare, "--no-header"), "header", "squad", "table")


def test_other_encodings_and_suffixes(finetune: Callable[..., Output], tmp_path: Path) -> None:
    rows = [("é" + text, label) for text, label in texts(40, 0)]
    path = table(tmp_path / "data.txt", rows, "text", "label", encoding="latin-1")
    words = ("--task", "table", "--data", path, "--input-format", "csv")
    refuses(finetune(*words), f"{path}:2", "UTF-8")
    refuses(finetune(*words, "--encoding", "latn"), "encoding", "'latn'")
    assert examples(well(finetune(*words, "--encoding", "latin-1"))[2]) == 36


def test_notes_name_the_part_and_its_file(finetune: Callable[..., Output], tmp_path: Path) -> None:
    long = " ".join(["bado"] * 40)
    files = {
        part: table(
            tmp_path / f"{part}.csv", [*texts(20, 0), (long, "no")] * count, "text", "label"
        )
        for part, count in (("train", 1), ("dev", 2), ("test", 3))
    }
    options = {"train": "--data", "dev": "--dev", "test": "--test"}
    words = [word for part, path in files.items() for word in (options[part], path)]
    _, _, err = well(finetune("--task", "table", *words))
    cut = [line for line in err.splitlines() if "were cut" in line]
    for (part, path), line, count in zip(files.items(), cut, (1, 2, 3), strict=True):
        names(line, part, path.name, count)


# ------------------------------------------------------------------------------------------- labels


def test_labels_of_a_test_file_are_scored(finetune: Callable[..., Output], tmp_path: Path) -> None:
    train = table(tmp_path / "train.csv", texts(60, 0), "text", "label")
    others = [(text, "yes") for text, _ in texts(20, 1)]
    test = table(tmp_path / "test.csv", others, "text", "label")
    well(finetune("--task", "table", "--data", train, "--dev", train, "--test", test))
    scores = read_scores(tmp_path / "run" / "scores.json")
    rows = read_rows(tmp_path / "run" / "predictions" / "test.csv")
    answers = [row["prediction"] for row in rows]
    assert scores["test_accuracy"] == pytest.approx(answers.count("yes") / 20)


def squad(
    path: Path, count: int, version: str = "v2.0", answer: str | None = None, **more: Any
) -> Path:
    """Questions without answers, or with the one given."""
    context = " ".join(["bado", answer or "fegi", "dudu"])
    golds = [{"text": answer, "answer_start": 5}] if answer else []
    qas = [
        {"id": f"{path.stem}-{i}", "question": "bado", "answers": golds, **more}
        for i in range(count)
    ]
    articles = [
        {"title": str(i), "paragraphs": [{"context": context, "qas": [qa]}]}
        for i, qa in enumerate(qas)
    ]
    path.write_text(json.dumps({"version": version, "data": articles}), encoding="utf-8")
    return path


def test_a_file_of_questions_without_any_answer_is_unlabeled(
    finetune: Callable[..., Output], tmp_path: Path, run: Run
) -> None:
    train = squad(tmp_path / "train.json", 12, answer="toto", is_impossible=False)
    bare = squad(tmp_path / "bare.json", 5)
    refuses(finetune("--task", "squad", "--data", train, "--dev", bare), bare)
    well(finetune("--task", "squad", "--data", train, "--test", bare))
    scores = read_scores(tmp_path / "run" / "scores.json")
    assert not [name for name in scores if name.startswith("test_")]
    assert len(json.loads((tmp_path / "run" / "predictions" / "test.json").read_text())) == 5
    refuses(run("evaluate", tmp_path / "run", "--data", bare), bare)
    unanswerable = squad(tmp_path / "said.json", 5, is_impossible=True)
    _, out, _ = well(run("evaluate", tmp_path / "run", "--data", unanswerable, "--json"))
    assert json.loads(out)["scores"]["NoAns_total"] == 5


def test_answers_in_characters(finetune: Callable[..., Output], tmp_path: Path, run: Run) -> None:
    train = squad(tmp_path / "train.json", 12, "1.1", answer="東京都")
    _, _, err = well(finetune("--task", "squad", "--data", train))
    assert "--answer-unit characters" in err
    about = json.loads((tmp_path / "run" / "model" / "task.json").read_text())
    assert about["answer_unit"] == "words"
    unit = ("--answer-unit", "characters", "--answer-tokens", 5, "--question-tokens", 9)
    refuses(finetune("--task", "squad", "--data", train, *unit), tmp_path / "run", "answer_unit")
    (tmp_path / "run").rename(tmp_path / "words")
    well(finetune("--task", "squad", "--data", train, *unit))
    about = json.loads((tmp_path / "run" / "model" / "task.json").read_text())
    settings = [about[name] for name in ("answer_unit", "answer_tokens", "question_tokens")]
    assert settings == ["characters", 5, 9]


# --------------------------------------------------------------------------------- tags and choices


def conll(path: Path, sentences: int, seed: int, tags: dict[str, str]) -> Path:
    draw = random.Random(seed)
    words = list(tags)
    lines = [[draw.choice(words) for _ in range(6)] for _ in range(sentences)]
    path.write_text("\n".join("".join(f"{word} {tags[word]}\n" for word in line) for line in lines))
    return path


def test_parts_of_speech(finetune: Callable[..., Output], tmp_path: Path, run: Run) -> None:
    tags = {"bado": "NOUN", "kumi": "VERB", "fegi": "NOUN", "toto": "ADP"}
    train = conll(tmp_path / "train.conll", 60, 0, tags)
    _, _, err = well(finetune("--task", "tagging", "--data", train, steps=60))
    assert any("accuracy" in line and "B-" in line for line in err.splitlines())
    scores = read_scores(tmp_path / "run" / "scores.json")
    assert scores["accuracy"] > 0.65  # 0.53 are nouns
    assert json.loads((tmp_path / "run" / "finetune.json").read_text())["metric"] == "accuracy"
    model = load(tmp_path / "run")
    assert set(model.labels) == {"NOUN", "VERB", "ADP"}
    assert set(model.predict([["bado", "kumi"]])[0]["prediction"]) <= set(model.labels)
    _, out, _ = well(run("evaluate", tmp_path / "run", "--data", train, "--json"))
    report = json.loads(out)
    assert set(report["classes"]) == {"NOUN", "VERB", "ADP"}
    assert sum(row["count"] for row in report["classes"].values()) == 360


def test_predict_gives_the_tags_that_the_run_writes(
    finetune: Callable[..., Output], tmp_path: Path, run: Run
) -> None:
    """Untrained, so that I- after O is likely."""
    tags = {"bado": "I-PER", "kumi": "O", "fegi": "B-LOC", "toto": "I-LOC", "dudu": "B-PER"}
    train = conll(tmp_path / "train.conll", 30, 0, tags)
    well(finetune("--task", "tagging", "--data", train, "--dev", train, steps=1))
    written = (tmp_path / "run" / "predictions" / "dev.conll").read_text().split("\n\n")
    cells = [[line.split() for line in block.splitlines()] for block in written if block.strip()]
    answers = load(tmp_path / "run").predict([[line[0] for line in block] for block in cells])
    expected = [[line[-1] for line in block] for block in cells]
    assert [answer["prediction"] for answer in answers] == expected
    _, out, _ = well(run("evaluate", tmp_path / "run", "--data", train))
    assert "PER" in out


def race(folder: Path, passages: int) -> Path:
    for part, count in (("train", passages), ("test", 2)):
        for level in ("middle", "high"):
            (folder / part / level).mkdir(parents=True)
            for i in range(count):
                passage = {
                    "article": f"bado {NOISE[i]}",
                    "questions": ["_", "kumi"],
                    "options": [list("abcd")] * 2,
                    "answers": ["D", "A"],
                    "id": f"{level}{i}",
                }
                (folder / part / level / f"{i}.txt").write_text(json.dumps(passage))
    return folder


def test_race_holds_out_passages_and_answers_in_letters(
    finetune: Callable[..., Output], tmp_path: Path, run: Run
) -> None:
    data, predictions = race(tmp_path / "RACE", 10), tmp_path / "run" / "predictions"
    well(finetune("--task", "race", "--data", data))
    rows, test = (
        [json.loads(line) for line in (predictions / f"{part}.jsonl").read_text().splitlines()]
        for part in ("dev", "test")
    )
    assert len(rows) == 2 * 2  # a tenth of the twenty passages, each with its two questions
    assert {row["id"][:-2] for row in rows} == {row["id"][:-2] for row in rows[::2]}
    inputs = [
        (f"bado {NOISE[i]}", question, list("abcd"))
        for _ in range(2)
        for i in range(2)
        for question in ("_", "kumi")
    ]
    answers = [answer["prediction"] for answer in load(tmp_path / "run").predict(inputs)]
    assert answers == [row["label"] for row in test]
    assert set(answers) <= set("ABCD")
    _, out, _ = well(run("evaluate", tmp_path / "run", "--data", data / "test", "--json"))
    scores = read_scores(tmp_path / "run" / "scores.json")
    assert json.loads(out)["scores"]["accuracy"] == scores["test_accuracy"]


# ------------------------------------------------------------------------ scores, remarks, refusals


def test_score_says_what_the_run_said(
    finetune: Callable[..., Output], tmp_path: Path, run: Run
) -> None:
    train = table(tmp_path / "train.csv", texts(60, 0), "said", "kind")
    dev = table(tmp_path / "dev.csv", texts(30, 1), "said", "kind")
    columns = ("--text-column", "said", "--label-column", "kind")
    well(finetune("--task", "table", "--data", train, "--dev", dev, *columns, steps=20))
    scores = read_scores(tmp_path / "run" / "scores.json")
    words = ("evaluate", tmp_path / "run", "--data")
    report = json.loads(well(run(*words, dev, "--json"))[1])
    assert report["scores"] == scores
    assert {name: row["count"] for name, row in report["classes"].items()} == {
        name: sum(label == name for _, label in texts(30, 1)) for name in SIGNS
    }
    _, out, _ = well(run(*words, dev))
    for word in ("accuracy", "precision", "recall", "no", "yes"):
        assert word in out
    refuses(run(*words, tmp_path / "gone.csv"), tmp_path / "gone.csv")
    refuses(run(*words, dev, "--label-column", "kid"), dev, "'kid'", "'kind'")
    unlabeled = table(tmp_path / "bare.csv", [("bado",)], "said")
    refuses(run(*words, unlabeled), unlabeled, "'kind'")


def test_few_steps_are_remarked_upon(tiny_tokenizer: Path, tmp_path: Path, run: Run) -> None:
    train = table(tmp_path / "train.csv", texts(40, 0), "text", "label")
    words = ("--task", "table", "--data", train, "--tokenizer", tiny_tokenizer)
    few = ("--out", tmp_path / "few", "--length", 32, "--epochs", 1)
    _, _, err = well(run("finetune", recipe_file(tmp_path), *words, *few))
    (line,) = [line for line in err.splitlines() if "--batch-size" in line]
    names(line, "--epochs", "--lr", 3, 36)


def test_a_folder_that_is_taken(finetune: Callable[..., Output], tmp_path: Path) -> None:
    train = table(tmp_path / "train.csv", texts(40, 0), "text", "label")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.json").write_text("{}")
    refuses(finetune("--task", "table", "--data", train), tmp_path / "run", "pretraining", "--out")


def test_no_row_is_padded_beyond_the_positions(
    tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    """The model has 30 learned positions, which are no multiple of eight, and no others."""
    recipe = recipe_file(tmp_path)
    recipe.write_text(
        recipe.read_text()
        .replace("max_positions = 64", 'max_positions = 30\npositions = "learned"')
        .replace("length = 64", "length = 30")
    )
    rows = [(" ".join([text] * 9), label) for text, label in texts(40, 0)]
    train = table(tmp_path / "train.csv", rows, "text", "label")
    words = ("--task", "table", "--data", train, "--tokenizer", tiny_tokenizer)
    well(run("finetune", recipe, *words, "--out", tmp_path / "run", "--length", 30, "--steps", 2))
    well(run("predict", tmp_path / "run", "--input", train, "--out", tmp_path / "answers.csv"))
