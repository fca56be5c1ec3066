"""Your own table: what a label is taken for, splits, label maps, wrong rows, predictions, and
constant memory.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import tracemalloc
from collections import Counter
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.base.errors import ConfigError, DataError
from litebert.tasks.predictions import write_records
from litebert.tasks.registry import open_task
from litebert.tasks.splits import join_groups
from litebert.tasks.text_outputs import Number, OneClass, SeveralLabels
from litebert.tasks.texts import Example
from litebert.tasks.values import Answer
from litebert.text.records import Notes
from toys.refusals import names, refused
from toys.tasks import Table


def jsonl(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_labeled(path: Path, *labels: Any) -> Path:
    """A file by its suffix with the texts t0, t1, ... and these labels."""
    texts = [f"t{i}" for i in range(len(labels))]
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": texts, "label": list(labels)}), path)
    elif path.suffix == ".jsonl":
        jsonl(
            path,
            *({"text": text, "label": label} for text, label in zip(texts, labels, strict=True)),
        )
    else:
        with open(path, "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["text", "label"], *zip(texts, labels, strict=True)])
    return path


def targets(task: Table, part: str = "train") -> list[Any]:
    return [example.label for example in task.read(part)]


# ---------------------------------------------------------------------------------- what a label is


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize(
    ("cells", "problem", "labels", "wanted"),
    [
        (["dog", "cat", "dog"], "classes", ("cat", "dog"), [1, 0, 1]),
        ([10, 9, 2], "classes", ("2", "9", "10"), [2, 1, 0]),
        ([1.5, -2.0, 1e3], "number", (), [1.5, -2.0, 1000.0]),
    ],
)
def test_auto_in_every_form(
    tmp_path: Path,
    suffix: str,
    cells: list[Any],
    problem: str,
    labels: tuple[str, ...],
    wanted: list[Any],
) -> None:
    path = write_labeled(tmp_path / f"a{suffix}", *cells)
    task = Table(path, path, path)
    assert (task.output.name, task.output.labels) == (problem, labels)
    assert [targets(task, part) for part in ("train", "dev")] == [wanted] * 2
    assert targets(task, "test") == wanted


@pytest.mark.parametrize(
    ("cells", "options", "problem", "labels"),
    [
        (["1", "2", "x"], {}, "classes", ("1", "2", "x")),
        (["1", "2", "nan"], {}, "classes", ("1", "2", "nan")),
        (["0.5", "2", "x"], {}, "classes", ("0.5", "2", "x")),
        (["1", "2", "3"], {"target": "number"}, "number", ()),
        (["0.5", "1.5", "0.5"], {"target": "class"}, "classes", ("0.5", "1.5")),
        ([" a", "b ", "a"], {}, "classes", ("a", "b")),
        (["b;a", "", "c; a", " "], {"separator": ";"}, "labels", ("a", "b", "c")),
        (["b;a", "c", "c"], {}, "classes", ("b;a", "c")),
    ],
)
def test_auto_on_text(
    tmp_path: Path, cells: list[str], options: dict[str, Any], problem: str, labels: tuple[str, ...]
) -> None:
    path = write_labeled(tmp_path / "a.csv", *cells)
    task = Table(path, path, **options)
    assert (task.output.name, task.output.labels) == (problem, labels)


def test_typed_labels(tmp_path: Path) -> None:
    bools = write_labeled(tmp_path / "a.jsonl", True, False)
    assert Table(bools, bools).output.labels == ("false", "true")
    floats = write_labeled(
        tmp_path / "a.parquet", 1.0, 2.0, 3.0
    )  # what pandas makes of whole numbers
    assert Table(floats, floats).output.labels == ("1", "2", "3")


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_lists_are_several_labels(tmp_path: Path, suffix: str) -> None:
    path = write_labeled(tmp_path / f"a{suffix}", ["b", "a"], [], ["c", "c"])
    task = Table(path, path)
    assert (task.output, task.metric) == (SeveralLabels(("a", "b", "c")), "micro_f1")
    examples = task.read("train")
    assert [example.label for example in examples] == [(1, 1, 0), (0, 0, 0), (0, 0, 1)]
    assert task.output.counts([example.label for example in examples]).tolist() == [1, 1, 1]


def test_blanks_in_a_list_are_no_label(tmp_path: Path) -> None:
    path = write_labeled(tmp_path / "a.jsonl", ["b", " "], ["", None, "a"], ["\u00a0"])
    task = Table(path, path)
    assert task.output.labels == ("a", "b")
    assert targets(task) == [(0, 1), (1, 0), (0, 0)]
    _, blanks = task.notes
    names(blanks, 4)


def test_what_auto_decided_is_said(tmp_path: Path) -> None:
    path = write_labeled(tmp_path / "a.csv", *range(30))
    task = Table(path, path)
    task.read("train")
    labels, whole = task.notes
    names(labels, "target=class", 30)
    assert str(path) not in labels  # whoever logs it names the file
    names(whole, "target=number", 30)
    task.read("dev")
    assert task.notes == []


def test_a_word_among_amounts_is_said(tmp_path: Path) -> None:
    path = write_labeled(tmp_path / "a.csv", 1.5, "NA", 2.5)
    task = Table(path, path)
    task.read("train")
    names(task.notes[1], f"{path}:3", 1)


# --------------------------------------------------------------------------------------- label maps


def test_saved_labels_come_back_without_a_training_file(tmp_path: Path) -> None:
    dev = write_labeled(tmp_path / "there.csv", "dog", "dog", "cat")
    task = Table(dev=dev, test=dev, labels=["dog", "cat"])
    assert (task.output, task.dev, task.tests) == (OneClass(("dog", "cat")), ("dev",), ("test",))
    assert targets(task, "dev") == [0, 0, 1]
    assert Table(labels=["a", "b"], target="labels").output == SeveralLabels(("a", "b"))
    assert Table(labels=["a", "b"], separator=",").output == SeveralLabels(("a", "b"))
    assert Table(target="number").output == Number()
    train = write_labeled(tmp_path / "train.csv", "cat", "dog")
    assert targets(Table(train, train, labels=["dog", "cat"])) == [1, 0]
    assert Table(train, train, labels=["dog", "cat", "cow"]).output.labels == ("dog", "cat", "cow")


@pytest.mark.parametrize("content", ["text\na\n", "text,label\na,\n", "text,label\na,cow\n"])
def test_a_test_file_may_have_no_labels_that_the_model_knows(content: str, tmp_path: Path) -> None:
    train, test = write_labeled(tmp_path / "a.csv", "dog", "cat"), tmp_path / "b.csv"
    test.write_text(content)
    task = Table(train, test=test)
    assert task.read("test") == [Example("a")]
    assert len(task.notes) == ("cow" in content)


def test_a_test_label_that_the_model_does_not_know_counts_as_missed(tmp_path: Path) -> None:
    task = Table(
        write_labeled(tmp_path / "a.csv", "dog", "cat"),
        test=write_labeled(tmp_path / "b.csv", "dog", "cow", ""),
    )
    examples = task.read("test")
    answers = [Answer("dog", np.ones(2))] * 3
    assert task.score(examples, answers)["accuracy"] == 0.5
    assert task.by_class(examples, answers)["dog"] == {
        "precision": 0.5,
        "recall": 1.0,
        "f1": pytest.approx(2 / 3),
        "count": 1,
    }
    (note,) = task.notes
    names(note, "labels", 1)


# ------------------------------------------------------------------------------------------- splits


def test_a_share_of_rows_with_several_labels_is_held_out(tmp_path: Path) -> None:
    """They have no class that could give its share, whether all have two labels or not."""
    for cells in (["a;b", "b;c"] * 20, ["a", "b;c", "a;b;c", ""] * 10):
        path = write_labeled(tmp_path / "several.csv", *cells)
        task = Table(path, heldout=0.1, separator=";")
        assert (len(task.read("train")), len(task.read("dev"))) == (36, 4)


def test_a_share_of_one_file_is_held_out(tmp_path: Path) -> None:
    path = write_labeled(tmp_path / "a.csv", *["dog", "cat"] * 100)
    task = Table(path, heldout=0.15)
    train = task.read("train")
    names(task.notes[-1], path, "dev", 30)
    dev = task.read("dev")
    assert task.notes == [], "said of the file already"
    assert len(dev) == 30
    assert [int(example.name) for example in dev] == [
        int(example.text[1:]) + 2 for example in dev
    ], "their lines"
    texts = [example.text for example in train], [example.text for example in dev]
    assert sorted([*texts[0], *texts[1]]) == sorted(f"t{i}" for i in range(200))
    assert texts[0] == sorted(texts[0], key=lambda text: int(text[1:])), "in the order of the file"
    assert Table(path, heldout=0.15).read("dev") == dev
    assert Table(path, heldout=0.15, seed=1).read("dev") != dev
    places = [int(text[1:]) for text in texts[1]]
    assert 60 < np.mean(places) < 140
    assert sum(place % 2 for place in places) == 15, "half of the rows of each class"


@pytest.mark.parametrize(
    ("sizes", "held_out"),
    [
        ({"a": 70, "b": 20, "c": 10}, {"a": 7, "b": 2, "c": 1}),
        # A tenth of all rows, of which each rare class has one and the common class the others.
        ({"a": 83, "b": 9, "c": 5, "d": 2, "e": 1}, {"a": 8, "b": 1, "c": 1, "d": 0, "e": 0}),
        ({"a": 89, "b": 8, "c": 2, "d": 1}, {"a": 8, "b": 1, "c": 1, "d": 0}),
        ({"a": 195, "b": 2, "c": 2, "d": 1}, {"a": 19, "b": 1, "c": 0, "d": 0}),
        # No class has another row to give, so one gives its only row.
        ({"a": 1, "b": 1}, {"a": 1, "b": 0}),
    ],
)
def test_each_class_gives_its_share(
    tmp_path: Path, sizes: dict[str, int], held_out: dict[str, int]
) -> None:
    cells = [name for name, size in sizes.items() for _ in range(size)]
    order = np.random.default_rng(0).permutation(len(cells))
    path = write_labeled(tmp_path / "a.csv", *[cells[i] for i in order])
    for seed in range(3):
        task = Table(path, seed=seed)
        learned = Counter(task.output.labels[label] for label in targets(task))
        notes = [note for note in task.notes if "no development row" in note]
        chosen = {name: sizes[name] - learned[name] for name in sizes}
        assert sorted(chosen.values()) == sorted(held_out.values())
        if max(sizes.values()) > 1:
            assert chosen["a"] == held_out["a"]
            assert all(learned.values()), "every class is learned"
        missing = sum(not count for count in held_out.values())
        assert len(notes) == (missing > 0)
        for note in notes:
            names(note, missing)


def test_held_out_shares_of_tiny_files(tmp_path: Path) -> None:
    two = Table(write_labeled(tmp_path / "a.csv", "dog", "cat"), heldout=0.01)
    (unlearnt,), (learnt,) = targets(two, "dev"), targets(two)
    assert learnt != unlearnt
    assert any(f"'{two.output.labels[unlearnt]}'" in note for note in two.notes)
    single_row = Table(write_labeled(tmp_path / "b.csv", "0.5"))
    with refused(DataError, f"{tmp_path}/b.csv", "dev file"):
        single_row.read("train")


# -------------------------------------------------------------------------------------------- texts


def test_pairs_and_column_names(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "a.jsonl",
        {"q": "A", "a": "B\0", "y": "x", "more": 1},
        {"q": "C", "a": None, "y": "z"},
        {"q": " ", "a": "D", "y": "z"},
    )
    task = Table(path, path, text_column="q", pair_column="a", label_column="y")
    assert task.read("train") == [Example("A", "B ", 0), Example("C", "", 1), Example(" ", "D", 1)]
    _, nul, empty = task.notes
    names(nul, "NUL", 1)
    names(empty, 2)


@pytest.mark.parametrize(
    ("row", "places"),
    [
        ({"text": 7, "label": "a"}, ["'text'", "int"]),
        ({"label": "a"}, ["'text'"]),
        ({"text": "x"}, ["'label'"]),
        ({"text": "x", "label": None}, ["'label'"]),
        ({"text": "x", "label": ""}, ["'label'"]),
        ({"text": "x", "label": " \t"}, ["'label'"]),
        ({"text": "x", "label": math.nan}, ["'label'"]),
        ({"text": "x", "label": {"a": "y"}}, ["'a'", "'y'"]),
    ],
)
def test_wrong_rows_name_their_line(tmp_path: Path, row: dict[str, Any], places: list[str]) -> None:
    good = [{"text": "x", "label": label} for label in ("a", "b")]
    path = jsonl(tmp_path / "a.jsonl", *good, row)
    with refused(DataError, f"{path}:3", *places):
        Table(path, path).read("train")
    other = jsonl(tmp_path / "b.jsonl", *good)
    with refused(DataError, f"{path}:3", *places):
        Table(other, path).read("dev")


@pytest.mark.parametrize(
    ("cell", "remedy"),
    [("x", ()), ("1,5", ()), ("inf", ()), (True, ()), (-1e300, ("unit",))],
)
def test_numbers_that_are_none_or_too_large_to_learn(
    tmp_path: Path, cell: Any, remedy: tuple[str, ...]
) -> None:
    path = write_labeled(tmp_path / "a.jsonl", 1.5, cell)
    with refused(DataError, f"{path}:2", "'label'", repr(cell), *remedy):
        Table(path, path, target="number").read("train")


def test_several_labels_that_are_no_list(tmp_path: Path) -> None:
    path = write_labeled(tmp_path / "a.jsonl", ["a"], "a")
    with refused(DataError, f"{path}:2", "'label'", "'a'"):
        Table(path, path).read("train")
    lists = write_labeled(tmp_path / "b.jsonl", ["a", "b"], ["b"])
    with refused(DataError, f"{lists}:1", "'label'", "list"):
        Table(lists, lists, target="class").read("train")
    single = write_labeled(tmp_path / "c.jsonl", ["b"], ["a"])
    task = Table(single, single, target="class")
    assert (task.output.labels, targets(task)) == (("a", "b"), [1, 0])


@pytest.mark.parametrize("labels", [([], []), ([" "], []), (None, ""), (" ", "\t")])
@pytest.mark.parametrize("target", ["auto", "class", "labels"])
def test_a_file_without_any_label(labels: tuple[Any, Any], target: Any, tmp_path: Path) -> None:
    none = write_labeled(tmp_path / "a.jsonl", *labels)
    with refused(DataError, none, "'label'"):
        Table(none, target=target)


def test_files_that_teach_nothing(tmp_path: Path) -> None:
    same = write_labeled(tmp_path / "a.csv", "dog", "dog")
    with refused(DataError, same, "'dog'"):
        Table(same)
    empty = write_labeled(tmp_path / "b.csv")
    with refused(DataError, empty):
        Table(empty)
    with refused(DataError, tmp_path / "none.csv"):
        Table(tmp_path / "none.csv")
    task = Table(labels=["a", "b"])
    with refused(DataError, "'train'"):
        task.read("train")


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ({"target": "classes"}, ["target", "'classes'", "'class'"]),
        ({"target": "class", "separator": ";"}, ["separator", "target=labels"]),
        ({"separator": ""}, ["separator", "target=labels"]),
        ({"heldout": 0.0}, ["heldout", 0.0, 1]),
        ({"labels": ["a", "a"]}, ["labels"]),
        ({}, ["target=auto"]),
        ({"target": "number", "metric": "rmse"}, ["metric", "'rmse'", "pearson"]),
        ({"labels": ["a", "b"], "metric": "macro-f1"}, ["metric", "'macro-f1'", "'macro_f1'"]),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, Any], places: list[Any]) -> None:
    with refused(ConfigError, *places):
        Table(**options)


def test_the_deciding_score() -> None:
    assert [Table(target=x, labels=["a", "b"]).metric for x in ("class", "labels", "number")] == [
        "accuracy",
        "micro_f1",
        "r2",
    ]
    task = Table(labels=["a", "b"], metric="macro_f1")
    examples = [Example("", label=label) for label in (0, 0, 0, 1)]
    assert task.metric == "macro_f1"
    assert task.score(examples, [Answer("a", np.array([1.0, 0.0]))] * 4) == {
        "accuracy": 0.75,
        "macro_f1": pytest.approx(3 / 7),
        "matthews": 0.0,
    }


# -------------------------------------------------------------------------------------- predictions

ODDS = [np.array([0.25, 0.75]), np.array([1.0, 1e-9])]


@pytest.mark.parametrize(
    ("values", "labels", "as_json"),
    [
        (
            ["b, c", "a"],
            ("a", "b, c"),
            [("b, c", {"a": 0.25, "b, c": 0.75}), ("a", {"a": 1.0, "b, c": 0.0})],
        ),
        (
            [("a", "b"), ()],
            ("a", "b"),
            [(["a", "b"], {"a": 0.25, "b": 0.75}), ([], {"a": 1.0, "b": 0.0})],
        ),
    ],
)
def test_predictions_with_their_odds(
    tmp_path: Path, values: list[Any], labels: tuple[str, ...], as_json: list[Any]
) -> None:
    target = "labels" if isinstance(values[0], tuple) else "class"
    task = Table(labels=labels, target=target)
    answers = [Answer(value, odd) for value, odd in zip(values, ODDS, strict=True)]
    examples = [Example("x"), Example("y")]
    task.write(examples, answers, tmp_path / "a.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert rows == [{"prediction": value, "probabilities": odd} for value, odd in as_json]
    task.write(examples, answers, tmp_path / task.file_name("dev"))
    with open(tmp_path / "dev.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [row.pop("prediction") for row in table] == [
        ";".join(value) if isinstance(value, list) else value for value, _ in as_json
    ]
    assert [{key: float(value) for key, value in row.items()} for row in table] == [
        {f"p_{name}": value for name, value in odd.items()} for _, odd in as_json
    ]


def test_predicted_numbers(tmp_path: Path) -> None:
    task = Table(target="number")
    answers = task.answers([], [], [np.array([x], np.float32) for x in (3.2, -1e-8)])
    task.write([Example("x")] * 2, answers, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "prediction\n3.2\n-1e-08\n"
    task.write([Example("x", name="7"), Example("x", name="9")], answers, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "line,prediction\n7,3.2\n9,-1e-08\n"
    task.write([Example("x", name="7"), Example("x", name="9")], answers, tmp_path / "a.jsonl")
    assert (tmp_path / "a.jsonl").read_text() == (
        '{"line": 7, "prediction": 3.2}\n{"line": 9, "prediction": -1e-08}\n'
    )


# --------------------------------------------------------------- labels that are not what they seem


@pytest.mark.parametrize(
    ("name", "cells", "places"),
    [
        ("a.jsonl", [[0, 1, 0], [1, 0, 0]], ["0", "1"]),
        ("a.jsonl", [[0.0, 1.0], [True, False]], ["0", "1"]),
        ("a.csv", ["[0, 1, 0]", "[1, 0, 0]"], ["0", "1"]),
        ("a.csv", ["0,1,0", "1,0,0"], ["0", "1"]),
        ("a.csv", ["[0 1 0]", "[1 0 0]"], ["'[0 1 0]'"]),
        ("a.csv", ["['a' 'b']", "['b']"], ["['a' 'b']"]),
        ("a.csv", ["1,54", "2"], ["'1,54'"]),
        ("a.csv", ["3", "1,234.5"], ["'1,234.5'"]),
        ("a.csv", ["51%", "3%"], ["'51%'"]),
        ("a.csv", ["€1", "$2"], ["'€1'"]),
        ("a.jsonl", [[[0, 3, "PER"]], []], ["'label'", "tagging"]),
        ("a.jsonl", [{"a": 0.7}, {"a": 0.3}], ["'a'", "0.7"]),
    ],
)
def test_labels_that_are_refused(
    name: str, cells: list[Any], places: list[str], tmp_path: Path
) -> None:
    path = write_labeled(tmp_path / name, *cells)
    with refused(DataError, *places):
        Table(path, path)


@pytest.mark.parametrize(
    ("name", "cells", "wanted"),
    [
        ("a.csv", ["['b', 'a']", "['b']", "[]"], [(1, 1), (0, 1), (0, 0)]),
        ("a.csv", ['["b", "a"]', "{'b'}", "('a', 'b')"], [(1, 1), (0, 1), (1, 1)]),
        ("a.csv", ['{"choices": ["b", "a"]}', '{"choices": ["b"]}'], [(1, 1), (0, 1)]),
        ("a.jsonl", [{"a": 1, "b": 0}, {"a": 0.0, "b": True}], [(1, 0), (0, 1)]),
        ("a.jsonl", [{"a ": 1, "b": 0}, {"a ": 0, "b": 1}], [(1, 0), (0, 1)]),
    ],
)
def test_lists_as_they_are_exported(
    name: str, cells: list[Any], wanted: list[Any], tmp_path: Path
) -> None:
    path = write_labeled(tmp_path / name, *cells)
    task = Table(path, path)
    assert task.output.labels == ("a", "b")
    assert targets(task) == wanted


def test_labels_that_only_look_like_something_else(tmp_path: Path) -> None:
    for cells in (["[URGENT]", "[later]"], ["1.2.3", "1.2"], ["(a)", "{b}"], ["2024-01-01", "x"]):
        path = write_labeled(tmp_path / "a.csv", *cells)
        assert Table(path, path).output.labels == tuple(sorted(cells))
    path = write_labeled(tmp_path / "a.csv", "1,54", "2,10")
    assert Table(path, path, target="class").output.labels == ("1,54", "2,10")


@pytest.mark.parametrize(
    ("cells", "places"),
    [
        (["1,54", "unknown", "b"], ["'1,54'"]),
        (['"a"', '"b"'], ['"a"']),
        (["Billing", "billing", "b"], ["'Billing' and 'billing'"]),
        (["a b", "a\u00a0b"], [r"'a b' and 'a\xa0b'"]),
        (["Zugänge", "Zuga\u0308nge"], [r"'Zuga\u0308nge' and 'Zug\xe4nge'"]),
        (["hard", "hard\u200b"], [r"'hard' and 'hard\u200b'"]),
        (["1", "1.0", "b"], ["'1' and '1.0'"]),
        ([["a"], ["b"]], ["target=class"]),
        ([{"a": 1, "b": 0}, {"a": 0, "b": 1}], ["target=class"]),
    ],
)
def test_labels_that_are_said(cells: list[Any], places: list[str], tmp_path: Path) -> None:
    path = write_labeled(tmp_path / "a.jsonl", *cells)
    task = Table(path, path)
    task.read("train")
    names(" ".join(task.notes[1:]), *places)


def test_whole_numbers_agree_with_and_without_a_fraction(tmp_path: Path) -> None:
    floats = write_labeled(tmp_path / "f.csv", "0.0", "10.0", "2.0")
    whole = write_labeled(tmp_path / "i.csv", "2", "0", "10")
    task = Table(floats, whole, whole)
    assert task.output.labels == ("0", "2", "10")
    assert [targets(task, part) for part in ("dev", "test")] == [[1, 0, 2]] * 2
    assert targets(Table(whole, floats), "dev") == [0, 2, 1]
    assert targets(Table(dev=floats, labels=["0.0", "2.0", "10.0"], target="class"), "dev")
    other = write_labeled(tmp_path / "o.csv", "A")
    with refused(DataError, f"{other}:2", "'A' and 'a'"):
        Table(write_labeled(tmp_path / "a.csv", "a", "b"), other).read("dev")


def test_a_column_for_each_label(tmp_path: Path) -> None:
    path, test = tmp_path / "a.csv", tmp_path / "test.csv"
    path.write_text("text,toxic,insult,threat\na,1,0,0\nb,0,0.0,false\nc,1,TRUE,0\n")
    test.write_text("text,toxic,insult,threat\na,-1,-1,-1\nb,0,1,0\n")
    columns = ("toxic", "insult", "threat")
    task = Table(path, path, test, label_column=columns)
    assert task.output.labels == ("insult", "threat", "toxic")
    assert targets(task) == [(0, 0, 1), (0, 0, 0), (1, 0, 1)]
    assert targets(task, "test") == [None, (1, 0, 0)], "Kaggle's -1 is counted, and not scored"
    names(task.notes[0], 1)
    test.write_text("text\na\n")
    assert targets(task, "test") == [None]
    test.write_text("text,toxic,threat\na,1,0\n")
    with refused(DataError, f"{test}:2", "'insult'"):
        task.read("test")
    assert task.task.settings()["columns"]["label"] == columns
    path.write_text("text,toxic,insult\na,1,x\n")
    with refused(DataError, f"{path}:2", "'insult'", "'x'"):
        Table(path, label_column=columns[:2])
    with refused(ConfigError, "'class'"):
        Table(path, label_column=columns[:2], target="class")


@pytest.mark.parametrize("options", [{"separator": ";"}, {"label_column": ("x", "y")}])
def test_target_class_is_proposed_only_where_it_works(
    options: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("text,label,x,y\nt0,1,1,0\nt1,2,0,1\n", encoding="utf-8")
    files = open_task("table", tmp_path / "a.csv", dev=tmp_path / "a.csv", **options)
    notes = Notes()
    assert [example.label for example in files.read("train", notes)] == [(1, 0), (0, 1)]
    assert len(notes.notes()) == 1, notes.notes()


@pytest.mark.parametrize("task", ["table", "pairs"])
def test_rejected_rows_are_left_out_and_counted(task: str, tmp_path: Path) -> None:
    marks = ("reject", "accept", "ignore", "accept")
    rows = [
        {"text": f"t{i}", "label": f"l{i}", "n": i, "answer": mark} for i, mark in enumerate(marks)
    ]
    path, notes = jsonl(tmp_path / "a.jsonl", *rows), Notes()
    files = open_task(task, path, dev=path, weight_column="n", group_column="n")
    assert [example.text for example in files.read("train", notes)] == ["t1", "t3"]
    names(notes.notes()[-1], "answer", 2)
    assert files.task.output.labels == (("l1", "l3") if task == "table" else ())
    files = open_task(task, path, dev=path, text_column="answer")
    assert len(files.read("train")) == 4
    none = jsonl(tmp_path / "b.jsonl", rows[0], rows[2])
    with refused(DataError, none, "answer"):
        open_task(task, path, dev=none).read("dev")


def test_typed_cells_of_parquet(tmp_path: Path) -> None:
    amounts = write_labeled(tmp_path / "a.parquet", Decimal("1.50"), Decimal("2.00"))
    assert targets(Table(amounts, amounts)) == [1.5, 2.0]
    days = write_labeled(tmp_path / "b.parquet", date(2024, 1, 2), date(2024, 1, 1))
    assert Table(days, days).output.labels == ("2024-01-01", "2024-01-02")


def test_a_missing_text_is_an_empty_one(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "a.jsonl", *({"text": t, "label": i} for i, t in enumerate((math.nan, "x")))
    )
    assert [example.text for example in Table(path, path).read("train")] == ["", "x"]


def test_labeled_rows_have_their_line(tmp_path: Path) -> None:
    path = write_labeled(tmp_path / "a.csv", "a", "b")
    opened = Table(path, path).open_labeled(path)
    assert [example.name for example in opened.read("dev")] == ["2", "3"]


# ---------------------------------------------------------------------------------------- streaming


def test_streaming_gives_the_texts_in_order(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"text": "one", "b": "x"}, {"text": None, "b": "y"})
    task = Table(target="number")
    rows = list(task.stream(path, pair="b"))
    assert [row.example for row in rows] == [Example("one", "x"), Example("", "y")]
    assert [row.location for row in rows] == [f"{path}:1", f"{path}:2"]
    (note,) = task.notes
    names(note, 1)
    (tmp_path / "a.txt").write_bytes(b"one\r\n\r\ntwo")
    assert [row.example.text for row in task.stream(tmp_path / "a.txt")] == ["one", "", "two"]


def test_streaming_reads_no_further_than_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\nnot json\n')
    rows = Table(target="number").stream(path)
    assert next(rows).example == Example("one")
    with refused(DataError, f"{path}:2", "JSON"):
        next(rows)


@pytest.mark.thorough
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_streaming_and_writing_take_constant_memory(tmp_path: Path, suffix: str) -> None:
    path = write_labeled(tmp_path / f"a{suffix}", *["x" * 500] * 10_000)  # five megabytes
    task = Table(labels=["a", "b"])
    answer = Answer("a", np.array([0.5, 0.5]))

    def peak(rows: int) -> int:
        stream = itertools.islice(task.stream(path, text="label"), rows)
        examples = (row.example for row in stream)
        tracemalloc.start()
        with open(tmp_path / "out.csv", "w") as file:
            count = write_records(
                (task.record(example, answer) for example in examples), file, "csv"
            )
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count == rows
        return top

    peak(1)  # what is loaded once
    assert peak(10_000) < 1.2 * peak(3_000) + (1 << 18)


# ------------------------------------------------------------------------ rows that belong together


def find_overlap(files: Any, of: Any) -> set[Any]:
    """What train and the held-out dev share."""
    train, dev = ({of(example) for example in files.read(part)} for part in ("train", "dev"))
    assert train
    assert dev
    return train & dev


@pytest.mark.parametrize("task", ["table", "pairs", "choices"])
def test_a_group_is_never_divided(tmp_path: Path, task: str) -> None:
    """Whatever the kind of its name, and the order of the rows; a blank is no group."""
    rows: list[dict[str, Any]] = []
    for i in range(90):
        customer: Any = (i * 7) % 9 if i < 81 else "  "
        row: dict[str, Any] = {
            "text": f"t{i} by {customer}",
            "other": f"o{i}",
            "label": "ab"[i % 2],
        }
        if task == "choices":
            row |= {"context": row["text"], "choices": ["x", "y"], "label": i % 2}
        rows.append(row | {"customer": customer})
    path = jsonl(tmp_path / "a.jsonl", *rows)
    more = {"pair_column": "other"} if task == "pairs" else {}
    notes = Notes()
    files = open_task(task, path, group_column="customer", heldout=0.2, **more)

    def get_customer(example: Any) -> str:
        text = example.context if task == "choices" else example.text
        return str(text.split("by")[1]).strip() or text

    assert not find_overlap(files, get_customer)
    dev = files.read("dev")
    assert 10 <= len(dev) <= 18  # a fifth of the rows, as far as whole groups allow
    files.read("train", notes)
    assert any("'customer'" in note for note in notes.notes())
    with refused(DataError, path, "'shop'"):
        open_task(task, path, group_column="shop", **more).read("train")


def test_equal_texts_are_on_one_side(tmp_path: Path) -> None:
    rows = [{"text": f"t{i % 20}", "label": "ab"[i % 2]} for i in range(100)]
    rows += [{"text": f" T{i}  ", "label": "b"} for i in range(20)]
    path = jsonl(tmp_path / "a.jsonl", *rows)
    for seed in range(5):
        files = Table(path, seed=seed)
        assert not find_overlap(files, lambda example: example.text.strip().lower())
        assert {example.label for example in files.read("dev")} == {0, 1}
    # Of pairs that belong together, a question keeps its answers.
    pairs = [{"text": f"q{i // 3}", "a": f"a{i}", "label": i % 2} for i in range(60)]
    paired = open_task("pairs", jsonl(tmp_path / "p.jsonl", *pairs), pair_column="a")
    assert not find_overlap(paired, lambda example: example.text)
    # One text that most rows have never becomes the development part.
    often = [{"text": "same" if i < 80 else f"t{i}", "label": "ab"[i % 2]} for i in range(100)]
    files = Table(jsonl(tmp_path / "o.jsonl", *often))
    assert {example.text for example in files.read("dev")}.isdisjoint({"same"})
    assert 8 <= len(files.read("dev")) <= 10
    with refused(DataError, "o2.jsonl", "dev file"):
        Table(jsonl(tmp_path / "o2.jsonl", *often[:20])).read("train")


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30))
def test_rows_are_joined_by_chains(rows: list[tuple[int, int]]) -> None:
    """As a graph of scipy joins them."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links = [
        (i, j)
        for i, one in enumerate(rows)
        for j, other in enumerate(rows)
        if one[0] == other[0] or one[1] == other[1]
    ]
    graph = coo_array(
        (np.ones(len(links)), tuple(zip(*links, strict=True))), shape=(len(rows),) * 2
    )
    wanted = connected_components(graph)[1]
    joined = np.array(join_groups(*zip(*rows, strict=True)))
    assert ((joined[:, None] == joined) == (wanted[:, None] == wanted)).all()


def test_plain_text_has_no_further_columns(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\nb\n", encoding="utf-8")
    for option in ("group_column", "weight_column"):
        with refused(ConfigError, tmp_path / "a.txt", "'c'"):
            open_task("pairs", tmp_path / "a.txt", **{option: "c"}).read("train")


@pytest.mark.parametrize(
    ("cell", "places"),
    [(cell, ["'w'"]) for cell in ("", "x", "-1", "nan", "inf", "1e31")]
    + [("0,5", ["'0,5'", "decimal point"])],
)
def test_a_weight_that_is_none_is_refused(tmp_path: Path, cell: str, places: list[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f'text,label,w\na,x,1\nb,y,"{cell}"\n', encoding="utf-8")
    with refused(DataError, f"{path}:3", *places):
        open_task("table", path, dev=path, weight_column="w").read("train")


def test_weights_have_a_mean_of_one(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label,w\na,x,1\nb,y,0\nc,x,3\n", encoding="utf-8")
    files = open_task("table", path, dev=path, weight_column="w")
    assert [(example.text, example.weight) for example in files.read("train")] == [
        ("a", 0.5),
        ("c", 1.5),
    ]
    assert len(files.read("dev")) == 3
    path.write_text("text,label,w\na,x,0\nb,y,0\n", encoding="utf-8")
    with refused(DataError, "'w'"):
        open_task("table", path, dev=path, weight_column="w").read("train")
