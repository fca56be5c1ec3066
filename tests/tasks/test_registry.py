"""A task by its name: what each takes, what is refused, and the hyper-parameters it is given."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from litebert.base.errors import ConfigError, DataError, ModelError
from litebert.base.registry import TASKS
from litebert.recipes import RECIPES
from litebert.recipes.finetuning import choose_preset_name, finetune_preset
from litebert.tasks.registry import open_task, restore_task
from litebert.tasks.text_outputs import Number, OneClass, SeveralLabels
from litebert.tasks.token_outputs import OneSpan
from toys.refusals import names, refused
from toys.tasks import ChoiceTask, Glue, RaceTask, Squad, Table, TaggingTask, task_of

Output = tuple[int, str, str]

OPTIONS: dict[str, Any] = {
    "dev": "dev.csv",
    "test": "test.csv",
    "text": "text",
    "pair": "b",
    "label": "label",
    "target": "auto",
    "separator": ";",
    "metric": "accuracy",
    "order": "context",
    "threshold": "half",
    "stride": 128,
    "answer_tokens": 30,
    "question_tokens": 64,
    "answer_unit": "words",
    "heldout": 0.1,
    "header": True,
    "encoding": "utf-8",
    "input_format": "csv",
    "pooling": "mean",
    "temperature": 0.05,
}
"""Those that are the default are refused as well: they were given."""
REFUSED = [
    (name, option)
    for name in TASKS
    for option in OPTIONS
    if option not in TASKS[name].options.list_names()
]

NONE = Path()
"""The folder of models without files beside their settings."""


def squad(path: Path, version: str = "v2.0") -> Path:
    data = [
        {"paragraphs": [{"context": "a b", "qas": [{"id": "0", "question": "who", "answers": []}]}]}
    ]
    path.write_text(json.dumps({"version": version, "data": data}), encoding="utf-8")
    return path


@pytest.mark.parametrize(("name", "option"), REFUSED)
def test_an_option_of_another_task_is_refused(name: str, option: str, tmp_path: Path) -> None:
    with refused(ConfigError, option, name):
        task_of(name, tmp_path, **{option: OPTIONS[option]})


def test_a_refusal_names_those_that_take_it(tmp_path: Path) -> None:
    with refused(ConfigError, "order", "race", "choices", "cola"):
        task_of("CoLA", tmp_path, order="question")
    with refused(ConfigError, "race", "test"):
        task_of("race", tmp_path, test="x.csv")
    with refused(ConfigError, "'tabel'", "'table'"):
        task_of("tabel", tmp_path)


def test_options_reach_the_task(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b,c\nx,y,1;2\nx,y,\n", encoding="utf-8")
    task = task_of(
        "table",
        path,
        dev=path,
        test=path,
        text_column="a",
        pair_column="b",
        label_column="c",
        target="labels",
        separator=";",
        metric="macro_f1",
    )
    assert isinstance(task, Table)
    assert (task.output, task.metric, task.tests) == (
        SeveralLabels(("1", "2")),
        "macro_f1",
        ("test",),
    )
    assert task.read("dev")[0].pair == "y"
    path.write_text("text,label\nx,1\ny,2\n", encoding="utf-8")
    assert task_of("table", path).read("train")[0].text in "xy"
    file = tmp_path / "c.jsonl"
    file.touch()
    for order in ("context", "question"):
        choice = task_of("choices", file, dev=file, order=order)
        assert isinstance(choice, ChoiceTask)
        assert choice.order == order
    questions = task_of("squad", squad(tmp_path / "q.json"), threshold=-2.75, stride=64)
    assert isinstance(questions, Squad)
    assert (questions.threshold, questions.stride) == (-2.75, 64)
    plain = task_of("squad", tmp_path / "q.json")
    assert isinstance(plain, Squad)
    assert (plain.threshold, plain.stride) == ("half", 128)


@pytest.mark.parametrize(
    ("task", "files"),
    [
        ("table", ("train.csv", "dev.csv", "test.csv")),
        ("table", ("a-Train-v2.csv", "a_valid.1.csv", "a.test.en.csv")),
        ("table", ("training.csv", "devel.csv", "testset.csv")),
        ("table", ("traindata.csv", "validation.csv", "testing-0.csv")),
        ("choices", ("my-train.jsonl", "my-valid.jsonl", "my-test.jsonl")),
        ("tagging", ("wnut17train.conll", "eng.testa", "eng.testb")),
    ],
)
def test_the_words_of_a_name_tell_its_split(
    task: str, files: tuple[str, ...], tmp_path: Path
) -> None:
    """`device` holds dev, `trains` train and `latest` test, but not as words."""
    content = "a O\n\nb B-x\n" if task == "tagging" else "text,label\nx,a\ny,b\n"
    suffix = Path(files[0]).suffix
    for name in (*files, *(f"{word}{suffix}" for word in ("device", "trains", "latest", "README"))):
        (tmp_path / name).write_text(content, encoding="utf-8")
    found = open_task(task, tmp_path).file_names
    assert [found[split] for split in ("train", "dev", "test")] == [[name] for name in files]
    other = tmp_path / f"other-dev{suffix}"
    other.write_text(content, encoding="utf-8")
    with refused(DataError, other.name, files[1]):
        open_task(task, tmp_path)


def test_a_folder_of_questions_with_another_test_file(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for part in ("train", "dev", "test"):
        squad(data / f"{part}.json")
    task = task_of("squad", data, test=squad(tmp_path / "other.json"))
    assert isinstance(task, Squad)
    assert (task.dev, task.file_names["dev"], task.file_names["test"]) == (
        ("dev",),
        ["dev.json"],
        ["other.json"],
    )


def test_the_first_squad_has_no_threshold(tmp_path: Path) -> None:
    path = squad(tmp_path / "q.json", "1.1")
    with refused(ConfigError, "threshold", "2.0", path, "1.1"):
        task_of("squad", path, threshold=0.0)
    assert task_of("squad", path, stride=32).name == "squad"


def test_what_has_only_a_test_part(tmp_path: Path) -> None:
    with refused(ConfigError, "ax", "mnli", "diagnostic"):
        task_of("AX", tmp_path)


@pytest.mark.parametrize(
    ("task", "words", "places"),
    [
        ("cola", ("--metric", "nonsense"), ("metric", "table")),
        ("cola", ("--text-column", "text"), ("text_column", "table")),
        ("table", ("--order", "question"), ("order", "race", "choices")),
        ("race", ("--threshold", "-2.75"), ("threshold", "squad")),
        ("tagging", ("--stride", "64"), ("stride", "squad")),
        ("mnli", ("--dev", "dev.tsv"), ("dev",)),
    ],
)
def test_the_command_line_refuses_them_too(
    task: str,
    words: tuple[str, ...],
    places: tuple[str, ...],
    run: Callable[..., Output],
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    status, printed, err = run(
        "finetune", tmp_path, "--task", task, "--data", tmp_path, "--out", out, *words
    )
    assert (status, printed, len(err.splitlines())) == (2, "", 1)
    names(err.removesuffix("\n"), task, *places)
    assert not out.exists()


# ------------------------------------------------------------------------------------- saved models


def test_a_task_restores_itself_from_its_settings() -> None:
    squad = Squad(version=2, threshold=1.5, stride=64, answer_tokens=7)
    again = restore_task(
        {"task": "squad", "kind": "span", "problem": "span", **squad.settings(), "classes": 2}, NONE
    )
    assert (again.settings(), again.output, again.full_name) == (
        squad.settings(),
        OneSpan(longest=7),
        "squad2",
    )
    before = restore_task(
        {"task": "squad", "kind": "span", "version": 1, "stride": 128, "classes": 2}, NONE
    )
    usual = {"answer_tokens": 30, "question_tokens": 64, "answer_unit": "words"}
    assert before.settings() == {"version": 1, "stride": 128, **usual}
    for settings in ({"pair": True}, {"pair": False}, {}):
        head = {"kind": "sequence", "problem": "labels", "classes": 2, "labels": ["a", "b"]}
        table = restore_task({"task": "table", **head, **settings}, NONE)
        assert table.output == SeveralLabels(("a", "b"))
        assert table.settings().get("pair") == settings.get("pair")


def make_changed_tasks(folder: Path) -> dict[str, Any]:
    """A task of each kind, with other settings than the usual ones."""
    (folder / "words.csv").write_text("A,B,y\na,b,x;z\n", encoding="utf-8")
    (folder / "pos.conll").write_text("a NN\nb VB\n", encoding="utf-8")
    (folder / "entities.conll").write_text("a B-x\nb O\n", encoding="utf-8")
    words = folder / "words.csv"
    bare = task_of(
        "table",
        words,
        text_column="0",
        pair_column="1",
        label_column="2",
        header=False,
        target="number",
        metric="pearson",
    )
    return {
        "labels": task_of(
            "table",
            words,
            text_column="A",
            pair_column="B",
            label_column="y",
            separator=";",
            metric="exact",
        ),
        "number": bare,
        "sst2": Glue("mrpc"),
        "stsb": Glue("stsb"),
        "choices": ChoiceTask(order="question"),
        "race": RaceTask(order="question"),
        "squad": Squad(
            version=1, stride=7, answer_tokens=5, question_tokens=9, answer_unit="characters"
        ),
        "squad2": Squad(version=2, threshold=-1.5),
        "words": TaggingTask({"train": folder / "pos.conll"}),
        "entities": TaggingTask({"train": folder / "entities.conll"}),
    }


@pytest.mark.parametrize(
    "kind",
    ["labels", "number", "sst2", "stsb", "choices", "race", "squad", "squad2", "words", "entities"],
)
def test_every_setting_goes_with_the_model(kind: str, tmp_path: Path) -> None:
    task = make_changed_tasks(tmp_path)[kind]
    head = {
        "kind": task.output.head,
        "classes": task.output.width,
        "labels": list(task.output.labels),
    }
    again = restore_task(
        json.loads(
            json.dumps({"task": task.name, "problem": task.output.name, **head, **task.settings()})
        ),
        NONE,
    )
    assert type(again) is type(task.task)
    assert (again.settings(), again.output, again.metric) == (
        task.settings(),
        task.output,
        task.metric,
    )
    assert (again.name, again.full_name, again.pair) == (task.name, task.full_name, task.pair)


def test_a_model_without_a_known_task_has_the_usual_one_of_its_output() -> None:
    restored = restore_task(
        {"task": "mine", "kind": "choice", "order": "question", "classes": 1}, NONE
    )
    assert (restored.name, restored.settings(), type(restored)) == (
        "choices",
        {"order": "question"},
        ChoiceTask().task.__class__,
    )
    outputs = [
        restore_task({"kind": "sequence", "classes": classes}, NONE).output for classes in (2, 1)
    ]
    assert outputs == [OneClass(("LABEL_0", "LABEL_1")), Number()]
    with refused(ModelError, "'mine'"):
        restore_task({"kind": "tokens", "problem": "mine", "classes": 2}, NONE)
    with refused(ModelError, "'span'", 2, 3):
        restore_task({"kind": "span", "classes": 3}, NONE)


# --------------------------------------------------------------------------------- hyper-parameters


def test_the_points_of_electra() -> None:
    for size, rate, decay in (("electra", 1e-4, 0.8), ("electra-large", 5e-5, 0.9)):
        for task, epochs, length in (
            ("rte", 10, 128),
            ("squad2", 2, 512),
            ("cola", 3, 128),
            ("race", 3, 512),
        ):
            point = finetune_preset(size, task)
            assert (point.train.optimizer.learning_rate, point.layer_decay) == (rate, decay)
            assert (point.epochs, point.length, point.train.batch) == (
                epochs,
                length,
                "32 sequences",
            )


@pytest.mark.parametrize(
    ("name", "dense", "expected"),
    [
        ("albert-mini", None, "small"),
        ("albert-base", None, "albert"),
        ("bert-base", None, "bert"),
        ("roberta-base", "tanh", "roberta"),
        ("electra-base", "gelu", "electra"),
        ("electra-small", "gelu", "electra"),
        ("electra-large", "gelu", "electra-large"),
        ("spanbert-large", None, "bert"),
    ],
)
def test_the_recipe_where_none_is_asked_for(name: str, dense: str | None, expected: str) -> None:
    assert choose_preset_name(RECIPES[name]().encoder, dense) == expected
