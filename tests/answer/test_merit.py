"""Models without merit, through `litebert evaluate`: answers that are all alike, ties, and numbers
that are none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from litebert.answer.engines.runtime import Engine, Runtime
from litebert.base.errors import NonFiniteError
from litebert.base.registry import ENGINES
from litebert.interop import LoadedModel
from litebert.tasks.rows import PaddedRows
from litebert.tasks.scoring import score_parts
from litebert.tasks.values import EncodedPart, EncodedRow, Item
from toys.answers import made, texts
from toys.refusals import names, refused
from toys.tasks import Table

Run = Callable[..., tuple[int, str, str]]
LINES = texts(12, most=6)
VECTORS = {
    "task": "pairs",
    "kind": "backbone",
    "problem": "similarity",
    "pair": True,
    "vectors": {"pooling": "mean", "normalized": True},
}


def squad(impossible: bool) -> str:
    """Each answer is the last word of its context."""
    rows = []
    for number, line in enumerate(LINES):
        gold = {"text": line.split()[-1], "answer_start": line.rindex(line.split()[-1])}
        answers = {"is_impossible": False, "answers": [gold]} if impossible else {"answers": [gold]}
        rows.append(
            {"context": f"{line}", "qas": [{"id": str(number), "question": "who", **answers}]}
        )
    return json.dumps(
        {"version": "v2.0" if impossible else "1.1", "data": [{"title": "a", "paragraphs": rows}]}
    )


def jsonl(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def table(labels: list[Any]) -> str:
    return jsonl(
        [{"text": line, "label": label} for line, label in zip(LINES, labels, strict=True)]
    )


CHOICES = [{"context": line, "choices": [line, "bado", "toto"], "label": 0} for line in LINES]
PAIRS = [{"text": line, "pair": f"{line} bado"} for line in LINES]
COLUMNS = {"columns": {"text": "text", "pair": None, "label": "label"}}
PAIRED = {"columns": {"text": "text", "pair": "pair", "label": None}}
LIKENED = {"columns": {"text": "text", "pair": "pair", "label": "label"}}
ASKED: dict[str, tuple[str, int, tuple[str, ...], dict[str, Any], str, str]] = {
    # head, classes, labels, task, the name of the file, its content
    "classes": (
        "sequence",
        2,
        ("no", "yes"),
        {"task": "table", "problem": "classes", **COLUMNS},
        "d.jsonl",
        table(["yes", "yes", "no"] * 4),
    ),
    "labels": (
        "sequence",
        2,
        ("a", "b"),
        {"task": "table", "problem": "labels", "separator": ";", **COLUMNS},
        "d.jsonl",
        table([["a"], ["b"], ["a", "b"]] * 4),
    ),
    "number": (
        "sequence",
        1,
        (),
        {"task": "table", "problem": "number", **COLUMNS},
        "d.jsonl",
        table([1.0, 2.5, 3.0] * 4),
    ),
    "tokens": (
        "tokens",
        3,
        ("O", "B-X", "I-X"),
        {"task": "tagging"},
        "d.conll",
        "\n\n".join("\n".join(f"{word} B-X" for word in line.split()) for line in LINES) + "\n",
    ),
    "choice": ("choice", 1, (), {"task": "choices"}, "d.jsonl", jsonl(CHOICES)),
    "span": ("span", 2, (), {"task": "squad", "version": 1}, "d.json", squad(False)),
    "pairs": ("backbone", 0, (), {**VECTORS, **PAIRED}, "d.jsonl", jsonl(PAIRS)),
    "likened": (
        "backbone",
        0,
        (),
        {**VECTORS, **LIKENED},
        "d.jsonl",
        jsonl([{**row, "label": place} for place, row in enumerate(PAIRS)]),
    ),
}
"""A model and a labeled file for each kind of answer; in some, the first of equals would always be
right.
"""
MOST: dict[str, dict[str, float]] = {
    "classes": {"accuracy": 1 / 3, "matthews": 0},
    "labels": {"micro_f1": 0, "macro_f1": 0, "exact": 0},
    "number": {"pearson": 0, "spearman": 0, "r2": 0},
    "tokens": {"f1": 0},
    "choice": {"accuracy": 0},
    "span": {"f1": 34},
    "pairs": {"mrr": 1 / 12, "recall_at_1": 0},
    "likened": {"spearman": 0, "pearson": 0},
}
"""The scores of a model that answers everything alike, at most."""


def score_constant(
    name: str, value: float, tokenizer: Path, folder: Path, run: Run, patch: Any
) -> tuple[int, str, str]:
    """`litebert evaluate` of a model all of whose logits have a value."""
    kind, classes, labels, task, file, content = ASKED[name]
    model = made(folder / "model", tokenizer, kind, classes, labels, **task)
    (folder / file).write_text(content)

    engine: Engine = ENGINES["torch"]

    class Alike(Runtime):
        def __init__(self, loaded: LoadedModel, device: str) -> None:
            self._exact = engine(loaded, device)

        def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
            return np.full_like(self._exact.logits(rows), value)

    patch.setitem(ENGINES._parts, "alike", Alike)
    return run("evaluate", model, "--data", folder / file, "--engine", "alike", "--json")


@pytest.mark.parametrize("name", ASKED)
def test_answering_everything_alike_scores_no_more_than_guessing(
    name: str, tiny_tokenizer: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, err = score_constant(name, -0.25, tiny_tokenizer, tmp_path, run, monkeypatch)
    assert status == 0, err
    scores = json.loads(out)["scores"]
    for score, most in MOST[name].items():
        assert scores[score] <= most + 1e-6, score


@pytest.mark.thorough
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ASKED)
def test_numbers_that_are_none_have_no_score(
    name: str,
    value: float,
    tiny_tokenizer: Path,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    status, out, err = score_constant(name, value, tiny_tokenizer, tmp_path, run, monkeypatch)
    assert (status, out) == (2, "")
    names(err.splitlines()[-1], tmp_path / "model")


def test_a_run_stops_at_logits_that_are_not_finite(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("text,label\na,no\nb,yes\n")
    task = Table(tmp_path / "d.csv", tmp_path / "d.csv")
    row = EncodedRow(np.array([2, 3], np.int32), np.zeros(2, np.int32))
    part = EncodedPart("dev", task.read("dev"), [Item(i, (row,), i) for i in range(2)])
    with refused(NonFiniteError, "dev"):
        score_parts(
            task, [part], {"dev": [np.array([0, 1], np.float32), np.array([np.nan, 1], np.float32)]}
        )
