"""`litebert distill`: its steps are commands, a kill changes nothing, wrong words are refused."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import litebert
from litebert.base.errors import ConfigError, ModelError
from litebert.cli import main
from litebert.distill.results import advise
from litebert.distill.steps import (
    DistillInputs,
    DistillRecord,
    _write_texts,
    choose_budget,
    choose_student,
    parse_size,
)
from litebert.tasks.registry import open_task
from toys.beir import make_collection
from toys.finetuning import finetune_on_other_labels, write_table
from toys.refusals import names, refused

pytestmark = pytest.mark.thorough


Run = Callable[..., tuple[int, str, str]]
FILES = (
    "pretrained/model.safetensors",
    "student/model/model.safetensors",
    "int8/model.safetensors",
    "text.txt",
    "phrases.txt",
    "tokenizer/tokenizer.json",
)
"""The files of a distillation that must not depend on a kill."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labeled texts, and texts without labels."""
    folder = tmp_path_factory.mktemp("distilling")
    write_table(folder / "train.csv", 60)
    write_table(folder / "dev.csv", 30, seed=1)
    lines = write_table(folder / "labeled.csv", 60, seed=2).read_text().splitlines()
    texts = [line.rpartition(",")[0] for line in lines[1:]]
    (folder / "more.txt").write_text("\n".join(texts) + "\n")
    return folder


def list_words(place: Path, out: Path, *more: object, teacher: object = "baseline") -> list[str]:
    """The words of a quick distillation."""
    data = ("--data", place / "train.csv", "--dev", place / "dev.csv")
    small = ("--size", "120k", "--vocab-size", 200, "--budget", "6 steps")
    quick = ("--unlabeled", place / "more.txt", "--phrases", 40, "--epochs", 1, "--no-restart")
    words = ("distill", teacher, *data, *small, *quick, "--max-drop", 100, "--out", out, *more)
    return [str(word) for word in words]


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    """A distillation that nothing stopped."""
    assert main(list_words(place, place / "whole")) == 0
    return place / "whole"


def find_weights(folder: Path) -> Iterator[bytes]:
    """The contents of the files that a kill must not change."""
    for name in FILES:
        path = folder / name
        if not path.exists():
            path = max((folder / "pretrained" / "checkpoints").glob("step-*")) / path.name
        yield path.read_bytes()


# ------------------------------------------------------------------------------------ the whole way


def test_the_table_compares_four_models(run: Run, place: Path, whole: Path) -> None:
    before = (whole / "distill.json").read_bytes()
    status, out, err = run(*list_words(place, whole, "--json"))
    assert status == 0
    results = json.loads(out)
    assert [row["name"] for row in results["rows"]] == ["baseline", "student", "student, 8 bits"]
    assert all(row["megabytes"] > 0 and row["texts_per_second"] > 0 for row in results["rows"])
    assert results["examples"] == 30
    student = json.loads((whole / "student" / "scores.json").read_text())
    assert results["rows"][1]["score"] == pytest.approx(student["accuracy"], abs=0.04)
    assert results["rows"][0]["score"] == student["baseline"]["scores"]["accuracy"]
    assert "baseline" in results["advice"][0]
    assert err.count("is whole") == 7  # nothing is made twice
    assert (whole / "distill.json").read_bytes() == before
    card = (whole / "README.md").read_text()
    assert "| student, 8 bits |" in card
    assert "litebert finetune" in card


def test_every_step_can_be_run_by_hand(run: Run, place: Path, whole: Path, tmp_path: Path) -> None:
    status, _, err = run(*list_words(place, tmp_path / "by-hand", "--dry-run"))
    assert status == 0
    assert not (tmp_path / "by-hand").exists()
    commands = [line.split("litebert ")[-1] for line in err.splitlines() if "     " in line]
    verbs = [command.split()[0] for command in commands]
    assert verbs == ["tokenizer", "prepare", "pretrain", "finetune", "export"]
    assert "120,000" not in err
    assert "parameters" in err


def test_a_student_that_is_pretrained_needs_fewer_steps(
    run: Run, place: Path, tmp_path: Path
) -> None:
    words = list_words(place, tmp_path / "run", "--student", "sentiment", "--json")
    for option in ("--budget", "--vocab-size"):
        assert option in run(*words)[2]
        start = words.index(option)
        words = [*words[:start], *words[start + 2 :]]
    status, out, err = run(*words)
    assert status == 0, err
    assert not (tmp_path / "run" / "pretrained").exists()
    assert [row["name"] for row in json.loads(out)["rows"]][1:] == ["student", "student, 8 bits"]
    shapes = [litebert.load(one).config.encoder for one in (tmp_path / "run/student", "sentiment")]
    assert shapes[0].hidden_size == shapes[1].hidden_size
    other = run(*[word if word != "sentiment" else "vectors" for word in words])
    assert other[0] == 2
    assert "--student sentiment" in other[2]


def test_the_teacher_answers_phrases_of_the_texts(
    run: Run, place: Path, whole: Path, tmp_path: Path
) -> None:
    phrases = (whole / "phrases.txt").read_text().splitlines()
    assert len(phrases) == 40
    texts = (whole / "text.txt").read_text().splitlines()
    assert not set(phrases) & set(texts)
    record = json.loads((whole / "student" / "finetune.json").read_text())
    rows = 60 + len((place / "more.txt").read_text().splitlines()) + 40
    assert any(f"for {rows} training rows" in sentence for sentence in record["chosen"])
    words = list_words(place, tmp_path / "run", "--dry-run")
    place_of_count = words.index("--phrases")
    without = [*words[:place_of_count], "--phrases", "0", *words[place_of_count + 2 :]]
    assert "phrases.txt" not in run(*without)[2]
    default = [*words[:place_of_count], *words[place_of_count + 2 :]]
    assert f"up to {20 * len(texts):,} random phrases" in run(*default)[2]


def test_the_student_answers(whole: Path) -> None:
    for name in ("student", "int8"):
        (answer,) = litebert.load(whole / name).predict(["bado toto mimi"])
        assert answer["prediction"] in ("no", "yes")


def test_a_kill_changes_nothing(
    run: Run, place: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = list_words(place, tmp_path / "run")
    with monkeypatch.context() as patch:
        _stop_at(patch, "litebert.train.pretrain.Loop", 3)
        status, _, err = run(*words)
    assert status == 128 + signal.SIGTERM
    assert "the same command continues" in err
    with monkeypatch.context() as patch:
        _stop_at(patch, "litebert.finetuning.trainable.Loop", 2)
        assert run(*words)[0] == 128 + signal.SIGTERM
    mark = DistillRecord.mark

    def stop_before_noting(record: DistillRecord, name: str) -> None:
        if name == "int8":
            raise KeyboardInterrupt
        mark(record, name)

    with monkeypatch.context() as patch:
        patch.setattr(DistillRecord, "mark", stop_before_noting)
        assert run(*words)[0] == 130
    assert run(*words)[0] == 0
    assert list(find_weights(tmp_path / "run")) == list(find_weights(whole))


def _stop_at(patch: pytest.MonkeyPatch, target: str, step: int) -> None:
    """Let a training be asked to end at a step."""
    module, _, name = target.rpartition(".")
    original = getattr(__import__(module, fromlist=[name]), name)

    def leave(loop: Any) -> None:
        if loop.step == step:
            signal.raise_signal(signal.SIGTERM)

    patch.setattr(target, lambda *words, **options: original(*words, on_step=leave, **options))


@pytest.mark.slow
def test_an_exported_model_teaches(run: Run, place: Path, whole: Path, tmp_path: Path) -> None:
    status, out, err = run(*list_words(place, tmp_path / "run", "--json", teacher=whole / "int8"))
    assert status == 0, err
    rows = {row["name"]: row for row in json.loads(out)["rows"]}
    assert rows["teacher"]["megabytes"] == pytest.approx(
        (whole / "int8" / "model.safetensors").stat().st_size / 1e6
    )
    assert not (tmp_path / "run" / "teacher").exists()


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["new", "teacher"])
def test_an_encoder_is_fine_tuned_before_it_teaches(
    run: Run, place: Path, whole: Path, tmp_path: Path, tokenizer: str
) -> None:
    words = list_words(
        place, tmp_path / "run", "--tokenizer", tokenizer, teacher=whole / "pretrained"
    )
    status, _, err = run(*words, "--json")
    assert status == 0, err
    results = json.loads((tmp_path / "run" / "distill.json").read_text())["results"]
    assert [row["name"] for row in results["rows"]][1] == "teacher"
    record = json.loads((tmp_path / "run" / "student" / "finetune.json").read_text())
    assert record["teacher"] == str((tmp_path / "run" / "teacher").resolve())
    pretrained = json.loads((tmp_path / "run" / "pretrained" / "run.json").read_text())
    assert pretrained["table_from"] == record["teacher"]
    assert (tmp_path / "run" / "tokenizer").exists() == (tokenizer == "new")


# ----------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("more", "places"),
    [
        (("--size", "4M"), ("--size 120k", "--size 4M", "--out")),
        (("--metric", "macro_f1"), ("--metric macro_f1", "--dev")),
        (("--vocab-size", "300"), ("--vocab-size 200", "--vocab-size 300")),
        (("--train.seed", "3"), ("--train.seed 3",)),
        (("--phrases", "0"), ("--phrases 40", "not with --phrases 0")),
    ],
)
def test_another_command_on_the_folder_is_refused(
    run: Run, place: Path, whole: Path, more: tuple[str, ...], places: tuple[str, ...]
) -> None:
    words = list_words(place, whole)
    for option in more[::2]:
        if option in words:
            del words[words.index(option) : words.index(option) + 2]
    before = (whole / "distill.json").read_bytes()
    status, _, err = run(*words, *more)
    assert status == 2
    names(err, *places)
    assert (whole / "distill.json").read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        ({"--data": "nowhere.csv"}, ("nowhere.csv",)),
        ({"--unlabeled": "nowhere.txt"}, ("nowhere.txt",)),
        ({"--size": "big"}, ("--size", "big", "2M")),
        ({"--size": "0.5"}, ("--size", "0.5", "2M")),
        ({"--size": "1k"}, ("--size", "1,000")),
        ({"--budget": "soon"}, ("--budget", "soon")),
        ({"--phrases": "-1"}, ("--phrases", "-1", "10,000,000")),
        (
            {"--pair-column": "pair", "--data": "pairs.csv", "--unlabeled": "pairs.csv"},
            ("--phrases 40",),
        ),
        ({"--data": "words.csv", "--unlabeled": "words.csv"}, ("--phrases 40", "one word")),
        ({"--vocab-size": "0"}, ("0",)),
        ({"--language": "xx"}, ("xx",)),
        ({"--task": "tagging", "--data": "tags.conll", "--dev": "tags.conll"}, ("tagging",)),
        ({"teacher": "nowhere"}, ("nowhere",)),
        ({"--tokenizer": "teacher"}, ("--tokenizer", "baseline")),
        ({"--epochs": "-1"}, ("epochs",)),
        ({"--max-drop": "-1"}, ("--max-drop", "-1.0")),
        ({"--max-drop": "nan"}, ("--max-drop", "nan")),
        (
            {
                "--pair-column": "pair",
                "--data": "pairs.csv",
                "--unlabeled": "pairs.csv",
                "--phrases": "0",
                "--deletion": "1e-1",
            },
            ("deletion",),
        ),
        ({"--device": "tpu"}, ("'tpu'", "cpu")),
        ({"--size": "99999999999M"}, ("--size", "99999999999M", "1000M")),
        ({"--class-weights": "zzz 3"}, ("class_weights", "'zzz'")),
        ({"--class-weights": "no 2 no 3"}, ("--class-weights", "'no'")),
        ({"--early-exits-max-drop": "-1"}, ("early_exits_max_drop",)),
    ],
)
def test_wrong_words_are_refused_before_any_work(
    run: Run, place: Path, tmp_path: Path, changes: dict[str, str], places: tuple[str, ...]
) -> None:
    (tmp_path / "tags.conll").write_text("bado B-PER\ntoto O\n\n" * 12)
    (tmp_path / "words.csv").write_text("text,label\nbado,yes\ntoto,no\n" * 12)
    (tmp_path / "pairs.csv").write_text("text,pair,label\nbado,mimi,yes\ntoto,mimi,no\n" * 12)
    words = list_words(place, tmp_path / "run")
    for option, value in changes.items():
        path = tmp_path / value
        value = str(path) if "." in value else value
        if option == "teacher":
            words[1] = value
        elif option in words:
            words[words.index(option) + 1] = value
        else:
            words += [option, *value.split(" ")]
    status, _, err = run(*words)
    assert status == 2
    names(err.splitlines()[-1], *places)
    assert not (tmp_path / "run" / "distill.json").exists()


@pytest.mark.parametrize("name", ["train.csv", "dev.csv", "more.txt"])
def test_changed_data_of_the_same_name_is_refused(
    run: Run, place: Path, whole: Path, tmp_path: Path, name: str
) -> None:
    """Whether the distillation has ended or was killed: other rows would meet earlier steps."""
    for end in ("ended", "killed"):
        shutil.copytree(place, tmp_path / end)
        folder, file = tmp_path / end / "whole", tmp_path / end / name
        record = json.loads(
            (folder / "distill.json").read_text().replace(str(place), str(file.parent))
        )
        if end == "killed":
            record |= {"done": ["text"], "results": {}}
        (folder / "distill.json").write_text(json.dumps(record))
        text = file.read_text()
        flipped = text.replace("yes", "N").replace("no", "yes").replace("N", "no")
        flipped = text[::-1] if name == "more.txt" else flipped
        assert flipped != text
        file.write_text(flipped)
        status, _, err = run(*list_words(file.parent, folder))
        assert status == 2
        names(err, "--unlabeled" if name == "more.txt" else "--data", "changed", folder)
        file.write_text(text)
    status, _, err = run(*list_words(tmp_path / "ended", tmp_path / "ended" / "whole"))
    assert status == 0, err


def test_a_limit_of_the_last_step_repeats_only_that(
    run: Run, place: Path, whole: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    words = list_words(place, folder)
    words[words.index("--max-drop") + 1] = "99"
    status, _, err = run(*words)
    assert status == 0, err
    assert err.count("is whole") == 6
    assert "--max-drop 99" in err
    shutil.rmtree(folder / "student")
    (folder / "student").write_text("a file in its place")
    status, _, err = run(*words)
    assert status == 2, "it is not whole"


def test_a_task_without_labeled_rows_is_refused(run: Run, place: Path, tmp_path: Path) -> None:
    folder = make_collection(tmp_path / "data", 30, {"train": 10})
    words = ("distill", list_words(place, tmp_path)[1], "--task", "rerank", "--data", folder)
    status, _, err = run(*words, "--out", tmp_path / "run")
    assert status == 2
    names(err.splitlines()[-1], "rerank", "without labeled rows", "finetune --teacher")


def test_refused_weights_of_8_bits_are_not_made_again(
    run: Run, place: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, calls = tmp_path / "copy", list[list[str]]()
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("int8", "README.md"))
    record = json.loads((folder / "distill.json").read_text())
    record["done"].remove("int8")
    record["results"] = {}
    (folder / "distill.json").write_text(json.dumps(record))

    def export(words: list[str]) -> int:
        calls.append(words)
        raise ModelError("the score falls by 3 points")

    monkeypatch.setattr("litebert.commands.tasks.export", export)
    for _ in range(2):
        status, out, err = run(*list_words(place, folder, "--json"))
        assert status == 0
        assert "the score falls by 3 points" in err
        assert [row["name"] for row in json.loads(out)["rows"]] == ["baseline", "student"]
        written = (folder / "README.md").stat().st_mtime_ns
    assert len(calls) == 1
    assert (folder / "README.md").stat().st_mtime_ns == written


def test_a_folder_of_something_else_is_refused(run: Run, place: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    status, _, err = run(*list_words(place, tmp_path))
    assert status == 2
    names(err, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) in (
        ["notes.txt"],
        [".lock", "notes.txt"],
    )


def test_a_teacher_of_other_labels_is_refused_before_any_work(
    run: Run, place: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    other = finetune_on_other_labels(place, tmp_path, tiny_tokenizer)
    status, _, err = run(*list_words(place, tmp_path / "run", teacher=other))
    assert status == 2
    names(err, other, "si", "yes")
    assert not (tmp_path / "run").exists()


# ------------------------------------------------------------------------------------- its choices


def test_texts_of_one_word_have_no_step_of_phrases(run: Run, place: Path, tmp_path: Path) -> None:
    table = tmp_path / "words.csv"
    table.write_text("text,label\nbado,yes\ntoto,no\n" * 12)
    words = ("distill", "baseline", "--data", table, "--size", "120k", "--vocab-size", 200)
    status, _, err = run(*words, "--out", tmp_path / "run", "--dry-run")
    assert status == 0, err
    assert "phrases" not in err


def test_sizes_are_numbers_of_parameters() -> None:
    assert [parse_size(size) for size in ("500k", "2M", "1.5m", "70000")] == [
        500_000,
        2_000_000,
        1_500_000,
        70_000,
    ]
    for size in ("", "2G", "M", "0", "-1"):
        with refused(ConfigError, "--size"):
            parse_size(size)


@pytest.mark.parametrize("size", ["500k", "2M", "4M", "10M"])
def test_the_student_is_the_nearest_below_its_size(size: str) -> None:
    from litebert.config import cost

    encoder = choose_student(parse_size(size), 8192).encoder
    parameters = sum(cost.encoder_parameters(encoder).values())
    assert 0.7 * parse_size(size) < parameters <= parse_size(size)
    with refused(ConfigError, "8,192", "--vocab-size"):
        choose_student(100_000, 8192)


def test_the_budget_follows_from_the_text() -> None:
    assert choose_budget(["x" * 1000]) == "0.5M tokens"
    assert choose_budget(["x" * 1_000_000] * 2) == "2.5M tokens"
    assert choose_budget(["x" * 1_000_000] * 50) == "5M tokens"


def test_the_advice_names_what_is_worse_than_the_baseline() -> None:
    good, bad = {"student": 0.8, "student, 8 bits": 0.8}, {"student": 0.6}
    (better,) = advise({"baseline": 0.7, **good}, "accuracy", 50)
    names(better, "better", "0.8", "0.7", 50)
    worse, teacher, bits = advise({"baseline": 0.7, "teacher": 0.65, **bad}, "accuracy", 50)
    names(worse, "level with", "--unlabeled", "--budget")
    names(teacher, "teacher", "0.65")
    names(bits, "--max-drop")
    assert len(advise({"baseline": 0.7, "teacher": 0.9, **bad}, "accuracy", 50)) == 2


def test_rows_of_several_labels_and_numbers_are_written_as_they_are_read(tmp_path: Path) -> None:
    for name, labels in (("labels", [["a"], ["a", "b"], []]), ("number", [1.5, 2.0, 0.25])):
        rows = [{"text": f"bado {i % 3}", "label": labels[i % 3]} for i in range(12)]
        file = tmp_path / f"{name}.jsonl"
        file.write_text("\n".join(map(json.dumps, rows)))
        files = open_task("table", str(file), dev=str(file))
        inputs = DistillInputs(files, [], True, False, 100)
        _write_texts(inputs, tmp_path)
        written = (tmp_path / "dev.jsonl").read_text().splitlines()
        assert list(map(json.loads, written)) == rows
