"""What one asks of a classifier: weights of rare classes, as a person types it."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toys.finetuning import recipe_file

Run = Callable[..., tuple[int, str, str]]
FIELDS = (
    ("--epochs", 5),
    ("--length", 16),
    ("--train.batch", "16 sequences"),
    ("--train.precision", "float32"),
    ("--train.optimizer.learning-rate", 3e-3),
)


def write_rare(path: Path, rows: int, seed: int) -> Path:
    """A tenth of the rows is `yes` and has a sign; a quarter of the others has it too."""
    draw = random.Random(seed)
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["text", "label"])
        for number in range(rows):
            is_rare = number % 10 == 0
            sign = "bado" if is_rare or draw.random() < 0.25 else "kumi"
            filler = draw.choices(["lala", "mimi", "toto", "fafa"], k=3)
            table.writerow([" ".join([sign, *filler]), "yes" if is_rare else "no"])
    return path


def words_for(folder: Path, tokenizer: Path, out: Path, *more: object) -> list[str]:
    """A command that fine-tunes on train.csv and dev.csv of a folder."""
    options: list[tuple[object, object]] = [
        ("--task", "table"),
        ("--data", folder / "train.csv"),
        ("--dev", folder / "dev.csv"),
        ("--tokenizer", tokenizer),
        ("--out", out),
        *FIELDS,
    ]
    words = ["finetune", recipe_file(folder)]
    return [str(word) for word in (*words, *(part for pair in options for part in pair), *more)]


@pytest.mark.thorough
def test_balanced_weights_answer_with_a_rare_class(
    tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    write_rare(tmp_path / "train.csv", 300, 0)
    write_rare(tmp_path / "dev.csv", 100, 1)

    def recall(name: str, *more: object) -> Any:
        out = tmp_path / name
        words = words_for(tmp_path, tiny_tokenizer, out, "--metric", "macro_f1", *more)
        assert run(*words, "--no-restart", "--no-baseline")[0] == 0
        _, scores, _ = run("score", str(out), "--data", str(tmp_path / "dev.csv"), "--json")
        return json.loads(scores)["classes"]["yes"]["recall"]

    assert recall("equal") < 0.5
    assert recall("balanced", "--class-weights", "balanced") >= 0.8


def test_weights_are_for_classes(tiny_tokenizer: Path, tmp_path: Path, run: Run) -> None:
    for name in ("train.csv", "dev.csv"):
        (tmp_path / name).write_text("text,label\nbado,1.5\nkumi,2.5\n", encoding="utf-8")
    more = ("--target", "number", "--focal-gamma", 2)
    status, out, err = run(*words_for(tmp_path, tiny_tokenizer, tmp_path / "run", *more))
    assert (status, out) == (2, "")
    assert "class_weights and focal_gamma are for classes" in err
    assert "leave them out" in err
    words = words_for(tmp_path, tiny_tokenizer, tmp_path / "run", "--focal-gamma", -1)
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert "focal_gamma is -1" in err
