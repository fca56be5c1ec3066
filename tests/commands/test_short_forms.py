"""Short forms of a recipe's fields, as a person types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from toys.finetuning import recipe_file, write_table
from toys.refusals import names
from toys.typed import typed

Run = Callable[..., tuple[int, str, str]]
SHORT = ("--lr", "0.002", "--batch-size", 2, "--max-length", 32, "--fp32", "--seed", 7)


def test_a_run_of_pretraining_records_the_fields(run: Run, tiny_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("--shards", tiny_data, "--out", out, "--budget", "2 steps")
    status, _, err = run(
        "pretrain", "--fp32", recipe_file(tmp_path), *words, *SHORT[:-3], *SHORT[-2:]
    )
    assert status == 0, err
    recipe = json.loads((out / "recipe.json").read_text())
    train = recipe["train"]
    assert train["optimizer"]["learning_rate"] == 0.002
    assert (train["batch"], train["precision"], train["seed"]) == ("2 sequences", "float32", 7)
    assert recipe["sequences"]["length"] == 32


def test_a_run_of_fine_tuning_records_the_fields(
    run: Run, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    train = write_table(tmp_path / "train.csv", 40, 0)
    words = typed(
        "--task table --data {} --tokenizer {} --out {} --steps 2 --no-baseline",
        train,
        tiny_tokenizer,
        out,
    )
    status, _, err = run("finetune", recipe_file(tmp_path), *words, *SHORT)
    assert status == 0, err
    config = json.loads((out / "finetune.json").read_text())["config"]
    train = config["train"]
    assert train["optimizer"]["learning_rate"] == 0.002
    assert (train["batch"], train["precision"], train["seed"]) == ("2 sequences", "float32", 7)
    assert config["length"] == 32


@pytest.mark.parametrize(
    "words",
    [
        ("--lr", "0.1", "--train.optimizer.learning-rate", "0.2"),
        ("--batch-size", "4", "--train.batch", "4 sequences"),
        ("--max-length", "32", "--sequences.length=64"),
        ("--seed", "1", "--train.seed", "2"),
        ("--bf16", "--fp32"),
    ],
)
def test_two_forms_of_one_field_are_refused(run: Run, words: tuple[str, ...]) -> None:
    status, out, err = run("plan", "albert-tiny", *words)
    assert (status, out) == (2, "")
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    names(err, *options)
