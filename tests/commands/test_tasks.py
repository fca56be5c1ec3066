"""`litebert finetune` and `litebert predict`: a table learned and answered by the command line
alone.
"""

from __future__ import annotations

import csv
import io
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.cli import main
from litebert.judge.baselines import read_scores
from litebert.judge.seeds import describe_noise
from toys.finetuning import read_rows, recipe_file

Output = tuple[int, str, str]
Run = Callable[..., Output]

FIELDS = {"--epochs": 5, "--length": 32, "--train.batch": "16 sequences"}
COLUMNS = ("--text-column", "said", "--label-column", "kind")


def write(path: Path, rows: int, seed: int) -> Path:
    """Texts that begin with a sign of their label."""
    draw = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["said", "kind"])
        for _ in range(rows):
            label = draw.choice(("no", "yes"))
            words = ["".join(draw.choices(syllables, k=2)) for _ in range(draw.randint(1, 8))]
            table.writerow([" ".join([{"no": "bado", "yes": "kumi"}[label], *words]), label])
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    recipe_file(folder)
    write(folder / "train.csv", 200, 0)
    write(folder / "dev.csv", 40, 1)
    return folder


def words_for(folder: Path, tokenizer: Path, out: Path, *more: object) -> list[str]:
    """A command that fine-tunes on train.csv and dev.csv of a folder."""
    files = ("--task", "table", "--data", folder / "train.csv", "--dev", folder / "dev.csv")
    fields = [word for pair in FIELDS.items() if pair[0] not in more for word in pair]
    quick = ("--tokenizer", tokenizer, "--out", out, "--fp32", "--lr", 3e-3, *fields)
    words = ("finetune", folder / "small.toml", *files, *COLUMNS, *quick, *more)
    return [str(word) for word in words]


@pytest.fixture(scope="module")
def model(folder: Path, tiny_tokenizer: Path) -> Path:
    assert main(words_for(folder, tiny_tokenizer, folder / "run")) == 0
    return folder / "run"


# ----------------------------------------------------------------------------------------- finetune


def test_what_finetune_says(model: Path, folder: Path, tiny_tokenizer: Path, run: Run) -> None:
    """The run is there already, so the same command reads its scores."""
    status, out, err = run(*words_for(folder, tiny_tokenizer, model))
    assert status == 0
    assert "accuracy" in out
    assert "macro_f1" in out
    assert "200 training examples: no " in err
    status, out, _ = run(*words_for(folder, tiny_tokenizer, model, "--json"))
    assert status == 0
    report = json.loads(out)
    assert (report["run"], report["metric"]) == (str(model), "accuracy")
    assert report["scores"] == [read_scores(model / "scores.json")]
    assert report["scores"][0]["accuracy"] > 0.9


def test_a_table_alone_is_for_fit(folder: Path, run: Run) -> None:
    table = folder / "train.csv"
    one_sentence(run("finetune", str(table)), f"litebert fit {table} makes", f"--data {table}")
    one_sentence(run("finetune", str(table), "--out", "x"), f"litebert fit {table} makes")


def test_the_weights_of_classes_are_checked(
    folder: Path, tiny_tokenizer: Path, run: Run, tmp_path: Path
) -> None:
    words = words_for(folder, tiny_tokenizer, tmp_path / "out")
    for weights, places in (
        (("no", "2", "yes", "1", "no", "3"), ("'no'", "--class-weights")),
        ((), ("class_weights", "balanced")),
        (("no", "1e308"), ("class_weights of no", "1e6")),
        (("maybe", "2"), ("class_weights names 'maybe'",)),
    ):
        status, _, err = run(*words, "--class-weights", *weights)
        assert status == 2
        for place in places:
            assert place in err.splitlines()[-1]


def test_an_unknown_option_is_told_before_a_missing_column(
    folder: Path, tiny_tokenizer: Path, run: Run, tmp_path: Path
) -> None:
    words = words_for(folder, tiny_tokenizer, tmp_path / "out", "--epoch", 2)
    words[words.index("--text-column") + 1] = "absent"
    status, _, err = run(*words)
    assert status == 2
    assert "--epoch" in err
    assert "absent" not in err


def test_an_option_that_is_set_to_its_default_is_set(
    folder: Path, tiny_tokenizer: Path, run: Run, tmp_path: Path
) -> None:
    """It contradicts another one as any other value does."""
    words = words_for(folder, tiny_tokenizer, tmp_path / "out", "--heldout", 0.1)
    status, _, err = run(*words)
    assert status == 2
    assert "leave out heldout or dev" in err
    assert not (tmp_path / "out").exists()


def test_several_seeds(folder: Path, tiny_tokenizer: Path, run: Run, tmp_path: Path) -> None:
    words = words_for(folder, tiny_tokenizer, tmp_path / "out", "--seeds", 2, "--epochs", 1)
    status, out, err = run(*words)
    assert status == 0
    for part in ("median", "deviation", "lowest", "highest"):
        assert part in out
    assert "seed 2 of 2" in err
    status, out, _ = run(*words, "--json")
    assert status == 0
    report = json.loads(out)
    assert len(report["scores"]) == 2
    assert describe_noise("accuracy", [scores["accuracy"] for scores in report["scores"]]) in err
    assert set(report["seeds"]["accuracy"]) == {"median", "mean", "deviation", "lowest", "highest"}
    alone = words_for(folder, tiny_tokenizer, tmp_path / "out", "--epochs", 1)
    one_sentence(run(*alone), "seed-0", "--seeds", "--out")
    fault = "holds several seeds; name one of them, such as"
    one_sentence(run("predict", tmp_path / "out"), fault, "seed-0")
    status, _, err = run("compare", tmp_path / "out")
    assert status == 0
    assert f"litebert predict {tmp_path / 'out' / 'seed-0'} " in err


def test_options_may_come_before_the_model(
    model: Path, folder: Path, tiny_tokenizer: Path, run: Run
) -> None:
    words = words_for(folder, tiny_tokenizer, model)
    status, out, _ = run("finetune", "--json", *words[2:], words[1])
    assert status == 0
    assert json.loads(out)["run"] == str(model)
    place = words.index("--epochs")
    first = (*words[place : place + 2], "--length=32", words[1])
    rest = (*words[2:place], *words[place + 4 :], "--json")
    status, out, _ = run("finetune", *first, *rest)
    assert status == 0
    assert json.loads(out)["run"] == str(model)


def one_sentence(output: Output, *parts: str) -> None:
    status, out, err = output
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1, err
    for part in parts:
        assert part in err


def test_mistakes_are_one_sentence(
    folder: Path, tiny_tokenizer: Path, run: Run, tmp_path: Path
) -> None:
    def run_changed(option: str, value: object) -> Output:
        words = words_for(folder, tiny_tokenizer, tmp_path / "out")
        words[words.index(option) + 1] = str(value)
        return run(*words)

    one_sentence(run_changed("--task", "tabel"), "no task 'tabel'", "did you mean 'table'?")
    one_sentence(run_changed("--data", tmp_path / "gone.csv"), "gone.csv", "does not exist")
    # After what there is to say of the training file.
    status, _, err = run_changed("--dev", tmp_path / "gone.csv")
    assert status == 2
    assert "gone.csv does not exist" in err.splitlines()[-1]
    one_sentence(run_changed("--text-column", "sad"), "no column 'sad'", "did you mean 'said'?")
    one_sentence(run_changed("--tokenizer", tmp_path / "gone"), "gone")
    one_sentence(run_changed("--epochs", -1), "epochs is -1")
    words = words_for(folder, tiny_tokenizer, tmp_path / "out")
    one_sentence(run(*words, "--seeds", 0), "seeds is 0")
    one_sentence(run(*words, "--preset", "smal"), "did you mean 'small'?")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words", [("--epchs", "2"), ("--train.bach", "8 sequences"), ("--target", "clas")]
)
def test_a_typo_in_an_option(
    words: tuple[str, ...], folder: Path, tiny_tokenizer: Path, run: Run
) -> None:
    status, out, err = run(*words_for(folder, tiny_tokenizer, folder / "typo", *words))
    assert (status, out) == (2, "")
    assert words[0] in err
    assert "Traceback" not in err
    assert not (folder / "typo").exists()


# ------------------------------------------------------------------------------------------ predict


def test_predict_to_a_file(model: Path, folder: Path, run: Run, tmp_path: Path) -> None:
    words = ("predict", model, "--input", folder / "dev.csv", "--out")
    status, out, err = run(*words, tmp_path / "out.csv", "--text-column", "said")
    assert (status, out) == (0, "")
    assert "40 answers" in err
    rows = read_rows(tmp_path / "out.csv")
    expected_rows = read_rows(model / "predictions" / "dev.csv")
    assert list(rows[0]) == ["prediction", "p_no", "p_yes"]
    assert [row["prediction"] for row in rows] == [row["prediction"] for row in expected_rows]
    assert run(*words, tmp_path / "out.jsonl")[0] == 0
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["prediction"] for line in lines] == [row["prediction"] for row in rows]


def test_predict_from_standard_input(
    model: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = io.TextIOWrapper(io.BytesIO(b"bado toto\nkumi mimi lala\n"), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", text)
    status, out, err = run("predict", model)
    assert status == 0, err
    assert [row["prediction"] for row in csv.DictReader(io.StringIO(out))] == ["no", "yes"]


def test_mistakes_of_predict(model: Path, folder: Path, run: Run, tmp_path: Path) -> None:
    precious = tmp_path / "kept.csv"
    precious.write_text("precious")
    dev = folder / "dev.csv"
    one_sentence(run("predict", tmp_path / "gone", "--input", dev), "gone")
    for words, *places in (
        ((tmp_path / "gone.csv", "--out", precious), "gone.csv", "not exist"),
        ((dev, "--text-column", "sad", "--out", precious), "no column 'sad'", "you mean 'said'?"),
        ((dev, "--out", tmp_path / "no" / "x.csv"), "x.csv"),
        ((precious, "--out", precious), "kept.csv is the --input itself"),
        ((precious, "--out", tmp_path / "x.TSV"), "give --out", "x.csv"),
        ((precious, "--out", tmp_path / "x.json"), "give --out", "x.jsonl"),
    ):
        one_sentence(run("predict", model, "--input", *words), *places)
    assert precious.read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["kept.csv"]


def test_a_converted_model_keeps_its_labels(model: Path, run: Run, tmp_path: Path) -> None:
    assert run("convert", model, "--out", tmp_path / "hf", "--to", "hf")[0] == 0
    settings = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert settings["architectures"] == ["AlbertForSequenceClassification"]
    assert settings["id2label"] == {"0": "no", "1": "yes"}
    assert settings["label2id"] == {"no": 0, "yes": 1}
