"""The baseline as a teacher, and several teachers: what a student learns of them, and what is
refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import litebert
from litebert.finetuning import trainable
from litebert.finetuning.batches import TaskBatches
from litebert.finetuning.teachers import KEPT, TaskTeacher, average_answers
from litebert.interop.files import read_tensors
from litebert.judge.baselines import fit_baseline
from litebert.tasks.outputs import softmax
from litebert.tasks.text_outputs import Number, OneClass, SeveralLabels
from litebert.tasks.values import Item
from toys.finetuning import config, finetune_on_other_labels, recipe_file, write_table
from toys.refusals import names
from toys.tasks import Table
from toys.typed import typed

pytestmark = pytest.mark.thorough


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def place(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables, an untrained student, and two teachers fine-tuned on the tables."""
    folder = tmp_path_factory.mktemp("teachers")
    write_table(folder / "train.csv", 60)
    write_table(folder / "dev.csv", 20, seed=1)
    lines = write_table(folder / "labeled.csv", 40, seed=2).read_text().splitlines()
    texts = [line.rpartition(",")[0] for line in lines[1:]]
    (folder / "more.txt").write_text("\n".join(texts) + "\n")
    for seed in (0, 1):
        litebert.finetune(
            recipe_file(folder),
            Table(folder / "train.csv", folder / "dev.csv"),
            folder / f"teacher-{seed}",
            config(epochs=2, seed=seed, restart=False),
            tokenizer=tiny_tokenizer,
        )
    return folder


@pytest.fixture
def finetune(run: Run, place: Path, tiny_tokenizer: Path) -> Run:
    """Fine-tune the student on the tables for one pass by the command line."""

    def call(*words: object) -> tuple[int, str, str]:
        line = (
            "finetune {} --tokenizer {} --task table --data {} --dev {} --preset small --length 32 "
            "--epochs 1 --no-restart --train.precision float32"
        )
        files = (place / "train.csv", place / "dev.csv")
        return run(*typed(line, place / "small.toml", tiny_tokenizer, *files), *words)

    return call


def read_logits(folder: Path) -> torch.Tensor:
    return read_tensors(folder / KEPT)["logits"].float().view(-1, 2)


def compute_yes(folder: Path, texts: list[str]) -> list[float]:
    """The probability of yes that a model gives each text."""
    return [answer["probabilities"]["yes"] for answer in litebert.load(folder).predict(texts)]


def list_texts(place: Path) -> list[str]:
    """The training texts, then the unlabeled ones."""
    files = Table(place / "train.csv", place / "dev.csv")
    more = (place / "more.txt").read_text().splitlines()
    return [example.text for example in files.read("train")] + more


def test_the_baseline_teaches_its_probabilities(finetune: Run, place: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("--teacher", "baseline", "--unlabeled", place / "more.txt", "--out", out)
    status, _, err = finetune(*words)
    assert status == 0, err
    assert "the teacher baseline scores accuracy" in err
    files = Table(place / "train.csv", place / "dev.csv")
    fitted = fit_baseline(files.task, files.read("train"))
    examples = [files.task.example(text, "") for text in list_texts(place)]
    records = map(files.task.record, examples, fitted.answers(examples))
    expected = [record["probabilities"]["yes"] for record in records]
    likely = F.softmax(read_logits(out), -1)[:, 1].tolist()
    assert likely == pytest.approx(expected, abs=2e-3)
    identity = json.loads((out / "finetune.json").read_text())
    assert identity["teacher"] == "baseline"
    assert len(identity["teacher_fingerprint"]) == 64
    before = (out / "scores.json").read_bytes()
    assert finetune(*words)[0] == 0
    assert (out / "scores.json").read_bytes() == before
    status, _, err = finetune(*words[2:])
    assert status == 2
    names(err.splitlines()[-1], "--unlabeled", "--teacher")
    status, _, err = finetune("--teacher", place / "teacher-0", *words[2:])
    assert status == 2
    names(err.splitlines()[-1], "--teacher baseline", place / "teacher-0", "--out")


def test_several_teachers_teach_the_mean_of_their_probabilities(
    finetune: Run, place: Path, tmp_path: Path
) -> None:
    teachers, out = [place / "teacher-0", place / "teacher-1"], tmp_path / "run"
    more = ("--unlabeled", place / "more.txt", "--out", out)
    status, _, err = finetune("--teacher", *teachers, *more)
    assert status == 0, err
    assert "the mean of 2 teachers scores accuracy" in err
    texts = list_texts(place)
    expected = np.mean([compute_yes(teacher, texts) for teacher in teachers], axis=0)
    likely = F.softmax(read_logits(out), -1)[:, 1].tolist()
    assert likely == pytest.approx(expected.tolist(), abs=2e-3)
    identity = json.loads((out / "finetune.json").read_text())
    assert identity["teacher"] == [str(teacher.resolve()) for teacher in teachers]
    assert len(set(identity["teacher_fingerprint"])) == 2
    before = (out / "scores.json").read_bytes()
    assert finetune("--teacher", *teachers, *more)[0] == 0
    assert (out / "scores.json").read_bytes() == before
    status, _, err = finetune("--teacher", teachers[0], *more)
    assert status == 2
    names(err.splitlines()[-1], *teachers, "--out")


def test_a_network_and_the_baseline_teach_together(
    finetune: Run, place: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert finetune("--teacher", place / "teacher-0", "baseline", "--out", out)[0] == 0
    identity = json.loads((out / "finetune.json").read_text())
    assert identity["teacher"] == [str((place / "teacher-0").resolve()), "baseline"]


@pytest.mark.parametrize(
    ("teachers", "reason"),
    [
        (("baseline", "--distill.states", "1"), "no layers"),
        (("teacher-0", "teacher-1", "--distill.relations", "1"), "2"),
        (("teacher-0", "teacher-0"), "twice"),
        (("baseline", "baseline"), "twice"),
        (("teacher-0", "nowhere"), "nowhere"),
    ],
)
def test_teachers_that_cannot_be_are_refused(
    finetune: Run, place: Path, tmp_path: Path, teachers: tuple[str, ...], reason: str
) -> None:
    words = [place / word if (place / word).exists() else word for word in teachers]
    status, _, err = finetune("--teacher", *words, "--out", tmp_path / "run")
    assert status == 2
    names(err.splitlines()[-1], reason)
    assert not (tmp_path / "run" / "finetune.json").exists()


def test_other_labels_are_refused_among_several(
    finetune: Run, place: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    other = finetune_on_other_labels(place, tmp_path, tiny_tokenizer)
    teachers = (place / "teacher-0", other)
    status, _, err = finetune("--teacher", *teachers, "--out", tmp_path / "run")
    assert status == 2
    names(err.splitlines()[-1], other, "si", "yes")


@pytest.mark.parametrize("teachers", [("baseline",), ("one", "two")])
def test_tags_are_refused(
    run: Run, tiny_tokenizer: Path, tmp_path: Path, teachers: tuple[str, ...]
) -> None:
    for part in ("train", "dev"):
        (tmp_path / f"{part}.conll").write_text("bado B-PER\ntoto O\n\n" * 12)
    files = ("--data", tmp_path / "train.conll", "--dev", tmp_path / "dev.conll")
    model = ("finetune", recipe_file(tmp_path), "--tokenizer", tiny_tokenizer, "--task", "tagging")
    status, _, err = run(*model, *files, "--teacher", *teachers, "--out", tmp_path / "run")
    assert status == 2
    names(err.splitlines()[-1], "tokens", "class")


def test_means_by_kind_of_output() -> None:
    draw = np.random.default_rng(0)
    logits: list[Any] = list(5 * draw.standard_normal((3, 4)))
    classes = average_answers(OneClass(tuple("abcd")), logits)
    assert softmax(classes) == pytest.approx(np.mean([softmax(row) for row in logits], axis=0))
    odds = average_answers(SeveralLabels(tuple("abcd")), logits)
    expected = np.mean([1 / (1 + np.exp(-row)) for row in logits], axis=0)
    assert 1 / (1 + np.exp(-odds)) == pytest.approx(expected)
    numbers: list[Any] = [np.array([value], np.float32) for value in (1.0, 2.0, 6.0)]
    assert average_answers(Number(), numbers).tolist() == [3.0]


def test_rates_are_tried_on_the_answers_of_the_teacher(
    run: Run,
    place: Path,
    tiny_tokenizer: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The short runs read the unlabeled texts, a kill among them loses nothing, and the teacher is
    asked once.
    """
    out = tmp_path / "run"
    line = (
        "finetune {} --tokenizer {} --task table --data {} --dev {} --teacher {} --unlabeled {} "
        "--no-restart --length 32 --epochs 8 --batch-size 8 --fp32 --out {}"
    )
    files = [place / name for name in ("train.csv", "dev.csv", "teacher-0", "more.txt")]
    words = typed(line, place / "small.toml", tiny_tokenizer, *files, out)
    batches, read = TaskBatches, list[list[Item]]()

    def watch(items: list[Item], *more: Any, **options: Any) -> Any:
        read.append(items)
        if len(read) == 2:
            raise KeyboardInterrupt
        return batches(items, *more, **options)

    with monkeypatch.context() as patch:
        patch.setattr(trainable, "TaskBatches", watch)
        assert run(*words)[0] == 130
    assert all(item.teacher_logits is not None for item in read[0])
    unlabeled = [item for item in read[0] if item.target is None]
    assert len(unlabeled) == len((place / "more.txt").read_text().splitlines())
    assert len(read[0]) > len(unlabeled)
    assert (out / KEPT).exists()
    with monkeypatch.context() as patch:
        patch.setattr(TaskTeacher, "answer", None)  # the answers are in the folder
        status, _, err = run(*words)
    assert status == 0, err
    assert "learning rate" in err
    whole = tmp_path / "whole"
    assert run(*words[:-1], whole)[0] == 0
    assert (whole / "scores.json").read_bytes() == (out / "scores.json").read_bytes()
