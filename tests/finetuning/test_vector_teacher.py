"""Learning sentence vectors from a teacher: what a run keeps, resumes and refuses."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import litebert
from litebert.change.conversion import convert
from litebert.config import replace
from litebert.finetuning import teachers
from litebert.finetuning.batches import collate
from litebert.finetuning.teachers import KEPT, PENALTY, fit_token_vectors
from litebert.interop.files import read_tensors
from litebert.tasks.pairs import PairFiles
from litebert.tasks.rows import build_single_rows
from litebert.tasks.similarity import LIKENESS, STRENGTHS, Similarity, fit_map, scale_to_unit
from litebert.tasks.values import Item, TaskBatch
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.training import train_tokenizer
from litebert.train.loop import Loop
from toys.finetuning import RECIPE, config, finetune, recipe_file, same_files
from toys.killed import Killed
from toys.refusals import names

Run = Callable[..., tuple[int, str, str]]
WORDS = [a + b + c + d for a in "bdfg" for b in "aei" for c in "klmn" for d in "aou"]


def write_texts(path: Path, count: int, seed: int) -> Path:
    """Texts of two to six made-up words, one a line."""
    draw = random.Random(seed)
    lines = (" ".join(draw.sample(WORDS, draw.randint(2, 6))) for _ in range(count))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def place(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts, scored pairs, an untrained student, and a teacher of another width with another
    tokenizer, in the form of sentence-transformers.
    """
    folder = tmp_path_factory.mktemp("vectors")
    write_texts(folder / "texts.txt", 140, 0)
    write_texts(folder / "more.txt", 30, 1)
    write_pairs(folder / "pairs.csv", 40, 2)
    write_pairs(folder / "dev.csv", 30, 3)
    recipe_file(folder)
    (folder / "wide.toml").write_text(RECIPE.replace("hidden_size = 32", "hidden_size = 48"))
    words = folder / "words"
    train_tokenizer(WORDS, kind="wordpiece", vocab_size=60).save(words)
    files = PairFiles.of(
        {"train": folder / "pairs.csv", "dev": folder / "dev.csv"},
        text_column="one",
        pair_column="two",
        label_column="score",
    )
    settings = config(epochs=1, restart=False)
    finetune(folder / "wide.toml", files, folder / "tuned", settings, tokenizer=words)
    convert(folder / "tuned", folder / "teacher", to="hf")
    return folder


def write_pairs(path: Path, count: int, seed: int) -> Path:
    """Two texts of four words, and how many of them they share."""
    draw = random.Random(seed)
    lines = ["one,two,score"]
    for _ in range(count):
        first, shared = draw.sample(WORDS, 4), draw.randint(0, 4)
        second = first[:shared] + draw.sample(WORDS, 4 - shared)
        lines.append(f"{' '.join(first)},{' '.join(second)},{shared}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def teach(run: Run, place: Path, tiny_tokenizer: Path) -> Run:
    """`litebert finetune` of the student on texts, with further words."""

    def call(*words: object, data: str = "texts.txt") -> tuple[int, str, str]:
        model = ("finetune", place / "small.toml", "--tokenizer", tiny_tokenizer)
        columns = ("--text-column", "one", "--pair-column", "two", "--label-column", "score")
        task = ("--task", "pairs", "--data", place / data, "--dev", place / "dev.csv", *columns)
        return run(*model, *task, "--device", "cpu", "--epochs", "2", *words)

    return call


@pytest.mark.thorough
def test_a_student_learns_the_vectors_of_texts(
    teach: Run, run: Run, place: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ("--teacher", place / "teacher", "--unlabeled", place / "more.txt", "--out", out)
    status, _, err = teach(*words)
    assert status == 0, err
    assert "scores spearman" in err  # the teacher
    assert "characters weighted by inverse document frequency" in err  # the baseline
    assert "the token table starts from the teacher's vectors of 170 texts" in err
    identity = json.loads((out / "finetune.json").read_text())
    assert identity["teacher"] == str((place / "teacher").resolve())
    lines = (place / "texts.txt").read_text().splitlines()
    lines += (place / "more.txt").read_text().splitlines()
    taught = read_tensors(out / KEPT)["logits"]
    assert taught.dtype == torch.float16
    wanted = litebert.load(place / "teacher").encode(lines)
    np.testing.assert_allclose(taught.view(-1, 48).float().numpy(), wanted, atol=2e-3)
    assert not (out / teachers.FOLDER).exists()

    model = litebert.load(out)
    vectors = model.encode(lines)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    for name, *more in (("hf", "convert", "--to", "hf"), ("onnx", "export", "--format", "onnx")):
        status, _, err = run(more[0], out, "--out", tmp_path / name, *more[1:])
        assert status == 0, err
        other = litebert.load(tmp_path / name).encode(lines)
        np.testing.assert_allclose(other, vectors, atol=1e-5)
    scores = json.loads((out / "scores.json").read_text())
    status, printed, err = run(
        "evaluate", out, "--data", place / "dev.csv", "--device", "cpu", "--json"
    )
    assert status == 0, err
    measured = json.loads(printed)["scores"]["pearson"]
    assert measured == pytest.approx(scores["pearson"], abs=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("data", ["texts.txt", "pairs.csv"])
def test_a_killed_run_ends_with_the_same_bits_and_asks_for_no_text_twice(
    data: str, teach: Run, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teachers, "BLOCK", 32)
    words = ("--teacher", place / "teacher", "--unlabeled", place / "more.txt", "--no-baseline")
    status, _, err = teach(*words, "--out", tmp_path / "whole", data=data)
    assert status == 0, err
    embed = teachers.VectorTeacher._embed
    questions: list[str] = []

    def stop(teacher: teachers.VectorTeacher, runtime: object, texts: list[str]) -> object:
        if len(questions) == 64:
            raise Killed
        questions.extend(texts)
        return embed(teacher, runtime, texts)

    monkeypatch.setattr(teachers.VectorTeacher, "_embed", stop)
    with pytest.raises(Killed):
        teach(*words, "--out", tmp_path / "cut", data=data)
    first = set(questions)

    def resume(teacher: teachers.VectorTeacher, runtime: object, texts: list[str]) -> object:
        questions.extend(texts)
        return embed(teacher, runtime, texts)

    monkeypatch.setattr(teachers.VectorTeacher, "_embed", resume)
    status, _, err = teach(*words, "--out", tmp_path / "cut", data=data)
    assert status == 0, err
    assert len(first) == 64
    assert len(questions) == len(set(questions))
    same_files(tmp_path / "cut", tmp_path / "whole", KEPT)
    # The same command again asks nothing and answers the same.
    count = len(questions)
    status, _, err = teach(*words, "--out", tmp_path / "cut", data=data)
    assert status == 0, err
    assert len(questions) == count
    status, _, err = teach("--out", tmp_path / "cut", data=data)
    assert status == 2
    names(err.splitlines()[-1], "--teacher", tmp_path / "cut")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "reasons"),
    [
        (("--teacher", "nowhere"), ("nowhere",)),
        (("--teacher", "baseline"), ("baseline", "pairs")),
        (("--teacher", "teacher", "tuned"), ("one teacher",)),
        (("--teacher", "teacher", "--distill.states", "1"), ("distill.states",)),
        (("--teacher", "teacher", "--unlabeled", "nothing.txt"), ()),
        (("--unlabeled", "more.txt"), ("--teacher",)),
    ],
)
def test_what_cannot_be_is_one_sentence(
    words: tuple[str, ...], reasons: tuple[str, ...], teach: Run, place: Path, tmp_path: Path
) -> None:
    (place / "nothing.txt").write_text("")
    options = [place / word if (place / word).exists() else word for word in words]
    status, _, err = teach(*options, "--out", tmp_path / "run")
    assert status == 2
    assert "Traceback" not in err
    names(err.splitlines()[-1], *reasons or options[-1:])
    assert not (tmp_path / "run").exists()


def test_the_loss_is_the_distance_of_vectors_and_of_their_cosines(tiny_tokenizer: Path) -> None:
    words, output = Tokenizer.load(tiny_tokenizer), Similarity(supervision="texts", taught=True)
    rows, _ = build_single_rows(words, ["bado kumi", "toto", "lala bado fa so"], 32)
    draw = np.random.default_rng(0)
    taught = scale_to_unit(draw.normal(size=(3, 5)).astype(np.float32))
    items = [
        Item(i, (row,), None, teacher_logits=taught[i : i + 1].astype(np.float16))
        for i, row in enumerate(rows)
    ]
    batch = collate(items, output, words.pad_id)
    torch.manual_seed(0)
    states, map_ = torch.randn(*batch.input_ids.shape, 6), torch.nn.Linear(6, 5)
    loss = output.distill_loss(states, batch, 2.0, map_)
    vectors = []
    for row, mask in zip(states, batch.attention_mask, strict=True):
        vectors.append(F.normalize(map_(row[mask].mean(0)), dim=-1).tolist())
    goals = scale_to_unit(taught.astype(np.float16).astype(np.float32)).tolist()
    single = sum(1 - np.dot(a, b) for a, b in zip(vectors, goals, strict=True)) / 3
    likeness = sum(
        (np.dot(vectors[i], vectors[j]) - np.dot(goals[i], goals[j])) ** 2
        for i in range(3)
        for j in range(3)
    )
    expected = 3 * (single + LIKENESS * likeness / 9)
    assert loss.total.item() == pytest.approx(expected, rel=1e-4)
    assert int(loss.count) == 3


@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_the_fitted_map_is_that_of_scikit_learn(noise: float) -> None:
    from sklearn.linear_model import Ridge

    draw = np.random.default_rng(0)
    states = draw.normal(size=(200, 12)) * np.geomspace(0.1, 3, 12) + 2
    taught = states @ draw.normal(size=(12, 7)) + 1 + noise * draw.normal(size=(200, 7))
    map_ = fit_map(states.astype(np.float32), taught.astype(np.float32))
    variance = states.var(0).mean()
    closest = min(
        np.abs(Ridge(alpha=strength * variance * 200).fit(states, taught).coef_ - map_.weight).max()
        for strength in STRENGTHS
    )
    assert closest < 1e-4
    residual = (map_.of(states.astype(np.float32)) - taught).mean(0)
    np.testing.assert_allclose(residual, 0, atol=1e-3)


def test_the_vectors_of_tokens_are_those_of_a_ridge_regression() -> None:
    from sklearn.linear_model import Ridge

    draw = np.random.default_rng(0)
    rows = [draw.integers(3, 20, draw.integers(1, 9)).astype(np.int32) for _ in range(300)]
    counts = np.zeros((300, 24))
    for place, ids in enumerate(rows):
        for token in ids:
            counts[place, token] += 1 / np.sqrt(len(ids))
    taught = counts @ draw.normal(size=(24, 6)) + draw.normal(size=(300, 6))
    vectors = fit_token_vectors(rows, taught, 24, 6)
    goals = taught - taught.mean(0)
    _, directions = np.linalg.eigh(goals.T @ goals)
    expected = Ridge(alpha=PENALTY, fit_intercept=False).fit(counts, goals @ directions[:, ::-1])
    np.testing.assert_allclose(np.abs(vectors), np.abs(expected.coef_.T), atol=1e-3)
    assert not vectors[[0, 1, 2, 20, 23]].any()  # which no row has
    assert fit_token_vectors(rows, taught, 24, 4).shape == (24, 4)
    assert fit_token_vectors(rows, taught, 24, 9).shape == (24, 6)


@pytest.mark.thorough
def test_a_run_killed_while_it_trains_ends_with_the_same_bits(
    place: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    """The token table of a run that goes on is that of its checkpoint, not a new start."""
    columns: dict[str, Any] = {"text_column": "one", "pair_column": "two", "label_column": "score"}
    settings = replace(config(epochs=2), restart=False)

    def learn(out: Path, stop: int | None) -> None:
        def on_step(loop: Loop[TaskBatch]) -> None:
            if loop.step == stop:
                raise Killed

        files = PairFiles.of({"train": place / "texts.txt", "dev": place / "dev.csv"}, **columns)
        student, teacher = place / "small.toml", place / "teacher"
        options: dict[str, Any] = {
            "tokenizer": tiny_tokenizer,
            "on_step": on_step,
            "baseline": False,
        }
        finetune(student, files, out, settings, teacher=teacher, device="cpu", **options)

    learn(tmp_path / "whole", None)
    with pytest.raises(Killed):
        learn(tmp_path / "cut", 8)
    learn(tmp_path / "cut", None)
    same_files(tmp_path / "cut", tmp_path / "whole", "metrics.jsonl")
