"""What one asks of a classifier: weights of rare classes, as a person types it."""

from __future__ import annotations

import csv
import json
import math
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from litebert.answer.model import load
from litebert.base.errors import ConfigError
from litebert.cli import main
from litebert.config.finetuning import FinetuneConfig
from litebert.demo import unpack
from litebert.interop.files import read_tensors
from litebert.serve.served import Served
from toys.finetuning import read_rows, recipe_file
from toys.refusals import refused
from toys.serving import SOURCE, serving

pytestmark = pytest.mark.thorough
Run = Callable[..., tuple[int, str, str]]


def write_csv(path: Path, *header: str, rows: Iterable[Sequence[str]]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def write_rare(path: Path, rows: int, seed: int) -> Path:
    """A tenth of the rows is `yes` and has a sign; a quarter of the others has it too."""
    draw, table = random.Random(seed), []
    for number in range(rows):
        is_rare = number % 10 == 0
        sign = "bado" if is_rare or draw.random() < 0.25 else "kumi"
        filler = draw.choices(["lala", "mimi", "toto", "fafa"], k=3)
        table.append((" ".join([sign, *filler]), "yes" if is_rare else "no"))
    return write_csv(path, "text", "label", rows=table)


def words_for(folder: Path, tokenizer: Path, out: Path, *more: object) -> list[str]:
    """A command that fine-tunes on train.csv and dev.csv of a folder."""
    files = ("--task", "table", "--data", folder / "train.csv", "--dev", folder / "dev.csv")
    places = ("--tokenizer", tokenizer, "--out", out)
    quick = ("--epochs", 5, "--length", 16, "--train.batch", "16 sequences", "--fp32", "--lr", 3e-3)
    words = ("finetune", recipe_file(folder), *files, *places, *quick, *more)
    return [str(word) for word in words]


def test_balanced_weights_answer_with_a_rare_class(
    tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    write_rare(tmp_path / "train.csv", 300, 0)
    write_rare(tmp_path / "dev.csv", 100, 1)

    def recall(name: str, *more: object) -> Any:
        out = tmp_path / name
        words = words_for(tmp_path, tiny_tokenizer, out, "--metric", "macro_f1", *more)
        assert run(*words, "--no-restart", "--no-baseline")[0] == 0
        _, scores, _ = run("evaluate", out, "--data", tmp_path / "dev.csv", "--json")
        return json.loads(scores)["classes"]["yes"]["recall"]

    assert recall("equal") < 0.5
    assert recall("balanced", "--class-weights", "balanced") >= 0.8


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (("--target", "number", "--focal-gamma", 2), "and focal_gamma are for classes"),
        (("--focal-gamma", -1), "focal_gamma is -1"),
        (("--target", "number", "--mislabeled", 5), "mislabeled ranks rows by classes or labels"),
    ],
)
def test_what_is_for_classes_is_refused_of_numbers(
    more: tuple[object, ...], fault: str, tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    for name in ("train.csv", "dev.csv"):
        (tmp_path / name).write_text("text,label\nbado,1.5\nkumi,2.5\n", encoding="utf-8")
    status, out, err = run(*words_for(tmp_path, tiny_tokenizer, tmp_path / "run", *more))
    assert (status, out) == (2, "")
    assert fault in err


def write_noisy(path: Path, rows: int, seed: int) -> Path:
    """Half of the texts have a sign of their label, and the others say nothing of it."""
    draw, table = random.Random(seed), []
    for number in range(rows):
        label, is_clear = draw.choice(("no", "yes")), number % 2 == 0
        sign = {"no": "bado", "yes": "kumi"}[label] if is_clear else "rere"
        words = draw.choices(["lala", "mimi", "toto", "fafa", "gugu"], k=draw.randint(1, 3))
        table.append((" ".join([sign, *words]), label, "clear" if is_clear else "vague"))
    return write_csv(path, "text", "label", "source", rows=table)


@pytest.fixture(scope="module")
def noisy(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tables and the run of a model that cannot be right about half of the rows."""
    folder = tmp_path_factory.mktemp("noisy")
    write_noisy(folder / "train.csv", 240, 0)
    write_noisy(folder / "dev.csv", 200, 1)
    words = words_for(folder, tiny_tokenizer, folder / "run", "--no-baseline")
    words[words.index("--epochs") + 1] = "10"
    assert main(words) == 0
    return folder


def test_probabilities_are_calibrated_for_every_program(noisy: Path, run: Run) -> None:
    record = json.loads((noisy / "run" / "reliability.json").read_text())
    calibration = record["calibration"]
    assert record["calibrated"] is True
    assert calibration["rows"] == 200
    assert calibration["temperature"] != 1
    assert calibration["error_after"] < calibration["error_before"]
    page = (noisy / "run" / "report.html").read_text()
    assert "Reliability" in page
    assert "expected calibration error" in page

    # The temperature is in the weights, so the saved answers are those that any reader computes.
    best = read_tensors(noisy / "run" / "best.safetensors")
    saved = load(noisy / "run").model.state_dict()
    name = "head.classifier.weight"
    assert saved[name].numpy() * calibration["temperature"] == pytest.approx(
        best[name].numpy(), rel=1e-5
    )
    written = [float(row["p_yes"]) for row in read_rows(noisy / "run" / "predictions" / "dev.csv")]
    answers = noisy / "answers.jsonl"
    assert run("predict", noisy / "run", "--input", noisy / "dev.csv", "--out", answers)[0] == 0
    lines = answers.read_text(encoding="utf-8").splitlines()
    predicted = [json.loads(line)["probabilities"]["yes"] for line in lines]
    assert predicted == pytest.approx(written, abs=1e-5)


def test_few_development_rows_give_no_threshold(
    tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    write_noisy(tmp_path / "train.csv", 40, 0)
    data, out = write_noisy(tmp_path / "dev.csv", 12, 1), tmp_path / "run"
    assert run(*words_for(tmp_path, tiny_tokenizer, out, "--no-baseline", "--no-restart"))[0] == 0
    words = ("predict", out, "--input", data, "--out", tmp_path / "out.csv")
    status, _, err = run(*words, "--min-precision", "0.9")
    assert status == 2
    assert "fewer than 20 held-out rows have answers; label more rows" in err


def test_answers_below_a_precision_are_left_empty(noisy: Path, run: Run) -> None:
    answers, data = noisy / "sure.csv", noisy / "dev.csv"
    words = ["predict", noisy / "run", "--input", data, "--keep", "label,text", "--out", answers]
    status, _, err = run(*words, "--min-precision", "0.9")
    assert status == 0
    assert "answers below the probability" in err
    assert re.search(r"\(\d+ answers; the 95% interval begins at [78]\d\.\d%\)", err)
    rows = read_rows(answers)
    assert ("so few answers prove little" in err) == (
        int(re.findall(r"\((\d+) answers", err)[0]) < 100
    )
    for row in rows:
        likeliest = max("yes", "no", key=lambda label: float(row[f"p_{label}"]))
        assert row["guess"] == likeliest
        assert row["prediction"] in ("", likeliest)
    sure = [row for row in rows if row["prediction"]]
    right = sum(row["prediction"] == row["label"] for row in sure) / len(sure)
    assert right >= 0.9
    assert 20 <= len(sure) < 200
    assert f"{200 - len(sure)} of 200 answers stay empty ({1 - len(sure) / 200:.1%})" in err
    _, out, _ = run("evaluate", noisy / "run", "--data", data, "--min-precision", "0.9")
    error = math.sqrt(right * (1 - right) / len(sure))
    shown = re.search(r"accuracy +[\d.]+ ± ([\d.]+)", out)
    assert shown is not None
    assert float(shown[1]) == pytest.approx(error, rel=0.2)
    _, out, _ = run("evaluate", noisy / "run", "--data", data, "--min-precision", "0.9", "--json")
    scored = json.loads(out)
    assert scored["scores"]["accuracy"] == pytest.approx(right)
    assert scored["coverage"] == pytest.approx(len(sure) / 200)

    # A service answers null for the same rows.
    texts = [row["text"] for row in rows]
    opening = {"device": "cpu", "exit_confidence": "auto", "threads": 1, "tokens": 4096}
    served = Served(noisy / "run", {**opening, "min_precision": 0.9})
    assert served.info()["min_precision"] == 0.9
    replies = [json.loads(row.payload)["prediction"] for row in served.predict(texts)]
    assert replies == [row["prediction"] or None for row in rows]

    status, out, err = run(*words, "--min-precision", "1.5")
    assert (status, out) == (2, "")
    assert "min_precision is 1.5" in err


def test_a_service_answers_null_where_it_is_unsure(noisy: Path, tmp_path: Path) -> None:
    texts = [row["text"] for row in read_rows(noisy / "dev.csv")][:40]
    expected = load(noisy / "run", min_precision=0.9).predict(texts)
    assert None in [answer["prediction"] for answer in expected]
    words = (f"noisy={noisy / 'run'}", "--min-precision", 0.9)
    with serving(tmp_path, *words) as service, service.client() as client:
        (model,) = client.get("/info").json()["models"]
        replies = client.post("/predict", json={"inputs": texts}).json()["predictions"]
    assert model["min_precision"] == 0.9
    for reply, answer in zip(replies, expected, strict=True):
        assert reply["prediction"] == answer["prediction"]
        assert reply["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-4)


def test_a_precision_that_no_served_model_has_is_refused(noisy: Path, tmp_path: Path) -> None:
    pretrained = unpack(tmp_path / "models")["words"]
    for model, precision, reason in (
        (noisy / "run", "1.5", "min_precision is 1.5"),
        (pretrained, "0.9", "--min-precision is of a model for classes or labels"),
    ):
        words = ["serve", str(model), "--min-precision", precision, "--port", "0"]
        done = subprocess.run(
            [sys.executable, "-m", "litebert", *words],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 2
        assert reason in done.stderr


def test_mistakes_are_counted_and_shown(noisy: Path, run: Run) -> None:
    words = ["evaluate", noisy / "run", "--data", noisy / "dev.csv", "--mistakes", "5"]
    status, out, _ = run(*words, "--slice-columns", "source", "--json")
    assert status == 0
    scored = json.loads(out)
    table = read_rows(noisy / "dev.csv")
    answers = read_rows(noisy / "run" / "predictions" / "dev.csv")
    labels = ["no", "yes"]
    pairs = [
        (row["label"], answer["prediction"]) for row, answer in zip(table, answers, strict=True)
    ]
    expected = [[pairs.count((right, answer)) for answer in labels] for right in labels]
    assert scored["confusion"] == expected

    wrong = [place for place, (right, answer) in enumerate(pairs) if right != answer]
    likely = {
        place: max(float(answers[place]["p_no"]), float(answers[place]["p_yes"])) for place in wrong
    }
    assert [row["probability"] for row in scored["mistakes"]] == pytest.approx(
        sorted(likely.values(), reverse=True)[:5], abs=1e-5
    )
    for row in scored["mistakes"]:
        place = [cells["text"] for cells in table].index(row["inputs"]["text"])
        assert row["label"] != row["prediction"]
        assert row["label"] in ("no", "yes")
        assert place >= 0

    clear, vague = scored["slices"]["source"]["clear"], scored["slices"]["source"]["vague"]
    assert clear["count"] == vague["count"] == 100
    assert clear["accuracy"] > 0.95 > 0.7 > vague["accuracy"]
    both = clear["accuracy"] + vague["accuracy"]
    assert both / 2 == pytest.approx(scored["scores"]["accuracy"])

    _, out, _ = run(*words, "--slice-columns", "source")
    for text in ("answered as", "vague", "probability"):
        assert text in out
    page = (noisy / "run" / "report.html").read_text()
    assert "Confusions on dev" in page
    assert "The surest mistakes on dev" in page


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--slice-columns", "sorce"), ("no column 'sorce'", "did you mean 'source'?")),
        (("--slice-columns", "text"), ("values, and slices have at most 50",)),
        (("--mistakes", "-1"), ("mistakes is -1",)),
    ],
)
def test_wrong_slices_are_one_sentence(
    noisy: Path, run: Run, words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    status, out, err = run("evaluate", noisy / "run", "--data", noisy / "dev.csv", *words)
    assert (status, out) == (2, "")
    assert all(part in err for part in parts), err


def plant_noise(path: Path, rows: int, share: float, seed: int) -> list[int]:
    """Write a table of clear labels of which a share is wrong, and return the wrong lines."""
    draw, table = random.Random(seed), []
    wrong = sorted(draw.sample(range(rows), int(share * rows)))
    for number in range(rows):
        right = draw.choice(("no", "yes"))
        sign = {"no": ("bado", "dedo"), "yes": ("kumi", "lumi")}[right]
        words = draw.choices(["lala", "mimi", "toto", "fafa", "gugu"], k=draw.randint(1, 6))
        label = {"no": "yes", "yes": "no"}[right] if number in wrong else right
        table.append((" ".join([draw.choice(sign), *words]), label))
    write_csv(path, "text", "label", rows=table)
    return [number + 2 for number in wrong]


def test_planted_wrong_labels_come_first(tiny_tokenizer: Path, tmp_path: Path, run: Run) -> None:
    wrong = plant_noise(tmp_path / "train.csv", 400, 0.05, 0)
    words = words_for(tmp_path, tiny_tokenizer, tmp_path / "run", "--mislabeled", 20)
    dev = words.index("--dev")
    words = [*words[:dev], *words[dev + 2 :], "--steps", "2", "--no-baseline"]
    del words[words.index("--epochs") : words.index("--epochs") + 2]
    status, _, err = run(*words)
    assert status == 0, err
    assert "disagrees with" in err
    rows = read_rows(tmp_path / "run" / "mislabeled.csv")
    held_out = read_rows(tmp_path / "run" / "predictions" / "dev.csv")
    learned = set(wrong) - {int(row["line"]) for row in held_out}
    top = [int(row["location"]) for row in rows[: len(learned)]]
    assert len(learned) > 10
    assert sum(line in learned for line in top) / len(top) >= 0.9
    assert all(row["label"] != row["likely_label"] for row in rows)
    margins = [float(row["margin"]) for row in rows]
    assert margins == sorted(margins)
    assert "Training labels that are likely wrong" in (tmp_path / "run/report.html").read_text()

    # A finished run lists as many as the command asks for now.
    for count in (3, 12):
        words[words.index("--mislabeled") + 1] = str(count)
        status, _, err = run(*words)
        assert status == 0, err
        assert read_rows(tmp_path / "run" / "mislabeled.csv") == rows[:count]
    words[words.index("--mislabeled") + 1] = "-1"
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert "mislabeled is -1" in err
    with refused(ConfigError, "mislabeled", -1):
        FinetuneConfig(mislabeled=-1)


@pytest.mark.parametrize("text", ["", "w{}"])
def test_texts_that_cannot_be_counted_get_a_sentence(
    tiny_tokenizer: Path, tmp_path: Path, run: Run, text: str
) -> None:
    """Without words, and with words of which none stands twice."""
    rows = "".join(f"{text.format(i)},c{i % 2}\n" for i in range(120))
    for name in ("train.csv", "dev.csv"):
        (tmp_path / name).write_text(f"text,label\n{rows}", encoding="utf-8")
    words = words_for(tmp_path, tiny_tokenizer, tmp_path / "run", "--mislabeled", 5, "--steps", 1)
    del words[words.index("--epochs") : words.index("--epochs") + 2]
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert "Traceback" not in err
    assert "give texts with words" in err.splitlines()[-1]
