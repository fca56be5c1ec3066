"""`--task pairs`: what is read, the losses, runs of each kind, and answers as a user gets them."""

from __future__ import annotations

import csv
import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import litebert
from litebert.base.errors import ConfigError, DataError, RunError
from litebert.config import EncoderConfig, replace
from litebert.config.finetuning import FinetuneConfig
from litebert.finetuning.batches import TaskBatches, collate
from litebert.finetuning.results import Finetuned
from litebert.finetuning.setup import settle_for_output
from litebert.recipes.finetuning import finetune_preset
from litebert.tasks.similarity import Similarity, fit_whitening, scale_to_unit
from litebert.tasks.text_outputs import OneClass
from litebert.tasks.texts import Example
from litebert.tasks.values import Compared, TaskBatch
from litebert.tokenizer import Tokenizer
from toys.finetuning import config, finetune, recipe_file, same_files
from toys.killed import Killed, kill_at
from toys.refusals import names, refused
from toys.tasks import Pairs, task_of

Run = Callable[..., tuple[int, str, str]]
WORDS = [a + b + c + d for a in "bdfg" for b in "aei" for c in "klmn" for d in "aou"]


def write_pairs(path: Path, count: int, seed: int = 0) -> Path:
    """Two texts of some words, and how many of them they share, from 0 to 4."""
    draw = random.Random(seed)
    with open(path, "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["one", "two", "score"])
        for _ in range(count):
            first, shared = draw.sample(WORDS, 4), draw.randint(0, 4)
            second = first[:shared] + draw.sample(WORDS, 4 - shared)
            rows.writerow([" ".join(first), " ".join(draw.sample(second, 4)), shared])
    return path


COLUMNS: dict[str, Any] = {
    "text_column": "one",
    "pair_column": "two",
    "label_column": "score",
}


def learn(
    task: Any, out: Path, tokenizer: Path, settings: FinetuneConfig, **options: Any
) -> Finetuned:
    model = out.parent / "small.toml"
    if not model.exists():
        recipe_file(out.parent)
    return finetune(model, task, out, settings, tokenizer=tokenizer, **options)


def batch_of(task: Pairs, tokenizer: Path) -> TaskBatch:
    words = Tokenizer.load(tokenizer)
    return collate(task.encode(task.read("train"), words, 32), task.output, words.pad_id)


# ------------------------------------------------------------------------------ losses, as formulas


def test_the_contrastive_loss_leaves_out_equal_texts(tiny_tokenizer: Path, tmp_path: Path) -> None:
    rows = [("bado", "kumi"), ("toto", "lala"), ("bado", "mimi"), ("fa", "lala"), ("so", "toto")]
    (tmp_path / "a.csv").write_text("one,two\n" + "".join(f"{a},{b}\n" for a, b in rows))
    task = Pairs(
        tmp_path / "a.csv",
        text_column="one",
        pair_column="two",
        dev=tmp_path / "a.csv",
        temperature=0.1,
    )
    batch = batch_of(task, tiny_tokenizer)
    draw = torch.Generator().manual_seed(0)
    states = torch.randn(*batch.input_ids.shape, 6, generator=draw)
    loss = task.output.loss(states, batch)
    vectors = []
    for row, mask in zip(states, batch.attention_mask, strict=True):
        mean = row[mask].mean(0)
        vectors.append((mean / mean.norm()).tolist())
    expected = 0.0
    for i, (a, b) in enumerate(rows):
        weights = {
            j: np.exp(np.dot(vectors[2 * i], vectors[2 * j + 1]) / 0.1) for j in range(len(rows))
        }
        others = [j for j, (c, d) in enumerate(rows) if j != i and d not in (a, b) and c != a]
        expected -= np.log(weights[i] / (weights[i] + sum(weights[j] for j in others)))
    assert float(loss.total) == pytest.approx(expected, rel=1e-5)
    assert int(loss.count) == 5
    assert task.output.supervision == "positives"
    one_row = torch.tensor([0.0, 0.0, 2.0, 0.0, 0.0])
    alone = task.output.loss(states, dataclasses.replace(batch, weights=one_row))
    assert float(alone.total) < float(loss.total) * 2
    parts = [
        task.output.loss(states, dataclasses.replace(batch, weights=one)) for one in torch.eye(5)
    ]
    assert sum(float(part.total) for part in parts) == pytest.approx(expected, rel=1e-5)
    assert float(alone.total) == pytest.approx(2 * float(parts[2].total), rel=1e-5)


def test_the_loss_of_scores_counts_pairs_in_wrong_order(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    task = Pairs(write_pairs(tmp_path / "a.csv", 6), dev=tmp_path / "a.csv", **COLUMNS)
    batch = batch_of(task, tiny_tokenizer)
    states = torch.randn(*batch.input_ids.shape, 6, generator=torch.Generator().manual_seed(0))
    cosines = task.output.arrange(states, batch).prod(1).sum(-1).tolist()
    truth = batch.targets.tolist()
    wrong = sum(
        np.exp((cosines[i] - cosines[j]) / 0.05)
        for i in range(6)
        for j in range(6)
        if truth[i] < truth[j]
    )
    assert float(task.output.loss(states, batch).total) == pytest.approx(
        6 * np.log(1 + wrong), rel=1e-4
    )
    # A pair of rows weighs the product of their weights.
    weights = [1.0, 0.5, 2.0, 0.25, 1.0, 1.0]
    wrong = sum(
        weights[i] * weights[j] * np.exp((cosines[i] - cosines[j]) / 0.05)
        for i in range(6)
        for j in range(6)
        if truth[i] < truth[j]
    )
    weighed = dataclasses.replace(batch, weights=torch.tensor(weights))
    assert float(task.output.loss(states, weighed).total) == pytest.approx(
        6 * np.log(1 + wrong), rel=1e-4
    )


# --------------------------------------------------------------------------------------------- runs


@pytest.mark.thorough
def test_scores_are_learned_and_a_killed_run_ends_with_the_same_bits(
    tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    train, dev = write_pairs(tmp_path / "train.csv", 160), write_pairs(tmp_path / "dev.csv", 60, 1)
    settings = replace(config(epochs=3), dropout=0.1)
    made = [Pairs(train, dev, **COLUMNS) for _ in range(3)]
    whole = learn(made[0], tmp_path / "whole", tiny_tokenizer, settings)
    assert whole.scores["spearman"] > 0.6

    with pytest.raises(Killed):
        learn(made[1], tmp_path / "cut", tiny_tokenizer, settings, on_step=kill_at(11))
    assert learn(made[2], tmp_path / "cut", tiny_tokenizer, settings).scores == whole.scores
    same_files(tmp_path / "cut", tmp_path / "whole", "metrics.jsonl")

    status, out, err = run(
        "evaluate", tmp_path / "whole", "--data", dev, "--device", "cpu", "--json"
    )
    assert status == 0, err
    # Scored by another path than at the end of training: its float32 sums have another order.
    assert json.loads(out)["scores"] == pytest.approx(whole.scores, abs=1e-5)
    status, _, err = run("predict", tmp_path / "whole", "--input", dev, "--out", tmp_path / "a.csv")
    assert status == 0, err
    with open(tmp_path / "a.csv", encoding="utf-8") as file:
        similarities = [float(row["prediction"]) for row in csv.DictReader(file)]
    model = litebert.load(tmp_path / "whole")
    with open(dev, encoding="utf-8") as file:
        rows = [(row["one"], row["two"]) for row in csv.DictReader(file)]
    firsts, seconds = (model.encode([row[i] for row in rows]) for i in (0, 1))
    np.testing.assert_allclose(np.linalg.norm(firsts, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(similarities, (firsts * seconds).sum(1), atol=1e-5)


def test_pairs_that_belong_together_are_scored_by_finding_them(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    draw = random.Random(0)
    lines = [" ".join(draw.sample(WORDS, 3)) for _ in range(120)]
    data = [json.dumps({"text": line, "pair": " ".join(reversed(line.split()))}) for line in lines]
    (tmp_path / "train.jsonl").write_text("\n".join(data))
    task = task_of("pairs", tmp_path / "train.jsonl", pair_column="pair", heldout=0.3)
    done = learn(task, tmp_path / "run", tiny_tokenizer, config(epochs=2))
    assert done.scores.keys() == {"mrr", "recall_at_1"}
    assert done.scores["mrr"] > 0.5


def test_texts_alone_are_learned_with_dropout(
    tiny_tokenizer: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    draw = random.Random(0)
    (tmp_path / "texts.txt").write_text(
        "\n".join(" ".join(draw.sample(WORDS, 6)) for _ in range(60))
    )
    dev = write_pairs(tmp_path / "dev.csv", 30, 1)
    task = task_of("pairs", tmp_path / "texts.txt", dev=dev, **COLUMNS)
    assert isinstance(task.output, Similarity)
    assert task.output.supervision == "texts"
    done = learn(task, tmp_path / "run", tiny_tokenizer, replace(config(epochs=1), dropout=-1))
    assert json.loads((tmp_path / "run" / "finetune.json").read_text())["config"]["dropout"] == 0.1
    assert done.scores.keys() == {"spearman", "pearson"}
    assert any("0.1" in line and "dropout" in line for line in log_messages)
    with refused(ConfigError, "dropout is 0"):
        learn(task, tmp_path / "none", tiny_tokenizer, replace(config(), dropout=0.0))
    alone = task_of("pairs", tmp_path / "texts.txt", heldout=0.5)
    (first, *_) = alone.read("dev")
    assert (len(first.text.split()), len(first.pair.split())) == (3, 3)
    assert first.label is None


def ranks_of(
    vectors: NDArray[np.float32], seconds: list[str], firsts: list[str] | None = None
) -> dict[str, float]:
    """The scores of vectors (N, 2, H) without labels, by the task."""
    task = Pairs(pair_column="pair")
    answers = [
        Compared(float(first @ second), np.stack((first, second))) for first, second in vectors
    ]
    firsts = firsts or [f"first {i}" for i in range(len(seconds))]
    examples = [Example(*texts) for texts in zip(firsts, seconds, strict=True)]
    scores: dict[str, float] = task.score(examples, answers)
    return scores


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=12), st.integers(0, 99))
def test_vectors_that_are_all_alike_find_nothing(seconds: list[str], seed: int) -> None:
    """A tie is wrong: guessing among the texts that differ is never better than the share of the
    right one.
    """
    draw, different = np.random.default_rng(seed), len(set(seconds))
    vector = scale_to_unit(draw.normal(size=8).astype(np.float32))
    noise = scale_to_unit(vector + draw.normal(size=(len(seconds), 2, 8)).astype(np.float32) * 1e-8)
    for vectors in (
        np.tile(vector, (len(seconds), 2, 1)),
        noise,
        np.full((len(seconds), 2, 8), np.nan, np.float32),
    ):
        scores = ranks_of(vectors, seconds)
        assert scores["recall_at_1"] == 0
        assert scores["mrr"] <= 1 / max(2, different) + 1e-12  # the rounding of a mean


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=2, max_size=20),
    st.integers(0, 99),
)
def test_the_first_right_answer_of_several_is_ranked(
    pairs: list[tuple[int, int]], seed: int
) -> None:
    """As a search of each question among all different answers ranks it, whatever is repeated."""
    draw = np.random.default_rng(seed)
    asked, found = (scale_to_unit(draw.normal(size=(n, 5)).astype(np.float32)) for n in (5, 7))
    if len({second for _, second in pairs}) == 1:
        return
    ranks = []
    for question in {first for first, _ in pairs}:
        right = {second for first, second in pairs if first == question}
        order = sorted(
            {second for _, second in pairs}, key=lambda n: -float(asked[question] @ found[n])
        )
        ranks.append(next(rank for rank, n in enumerate(order, 1) if n in right))
    vectors = np.stack([np.stack((asked[first], found[second])) for first, second in pairs])
    firsts, seconds = zip(*((f"q{first}", f"a{second}") for first, second in pairs), strict=True)
    scores = ranks_of(vectors, [*seconds], [*firsts])
    assert scores["mrr"] == pytest.approx(np.mean([1 / rank for rank in ranks]))
    assert scores["recall_at_1"] == pytest.approx(np.mean([rank == 1 for rank in ranks]))


def test_equal_texts_are_no_collapse_and_one_vector_is(tiny_tokenizer: Path) -> None:
    output = Similarity()
    draw = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    same = [np.stack((row, row)) for row in draw]  # each text is its own second
    assert not output.one_answer([None] * 6, same)
    assert not output.one_answer([None] * 6, [np.stack((draw[0], row)) for row in draw])
    near = draw[:1] + 1e-4 * draw
    assert output.one_answer([None] * 6, [np.stack((near[0], row)) for row in near])


def test_equal_seconds_do_not_hide_each_other_and_a_tie_of_others_does() -> None:
    far = np.eye(3, dtype=np.float32)
    vectors = np.stack([far, far], axis=1)
    assert ranks_of(vectors, ["a", "b", "c"]) == {"mrr": 1.0, "recall_at_1": 1.0}
    doubled = np.concatenate((vectors, vectors))
    assert ranks_of(doubled, ["a", "b", "c"] * 2) == {"mrr": 1.0, "recall_at_1": 1.0}
    assert ranks_of(doubled, list("abcdef")) == {"mrr": 0.5, "recall_at_1": 0.0}
    assert ranks_of(vectors[:1], ["a"]) == {"mrr": 0.0, "recall_at_1": 0.0}, (
        "there is nothing to look for among"
    )


def test_vectors_of_texts_alone_are_whitened(
    tiny_tokenizer: Path, tmp_path: Path, run: Run, log_messages: list[str]
) -> None:
    """The map is in every form of the model, and so in the scores."""
    draw = random.Random(0)
    lines = [" ".join(draw.sample(WORDS, 6)) for _ in range(100)]
    (tmp_path / "texts.txt").write_text("\n".join(lines))
    dev = write_pairs(tmp_path / "dev.csv", 30, 1)
    settings = replace(config(epochs=1), deletion=0.4)
    plain = Pairs(tmp_path / "texts.txt", dev, **COLUMNS, whiten=False)
    task = task_of("pairs", tmp_path / "texts.txt", dev=dev, **COLUMNS)
    done = learn(task, tmp_path / "run", tiny_tokenizer, settings)
    assert any("whitened" in line and "100" in line for line in log_messages)
    before = learn(plain, tmp_path / "plain", tiny_tokenizer, settings)
    assert before.scores != done.scores
    model = litebert.load(tmp_path / "run")
    states = litebert.load(tmp_path / "plain").vectors_by("mean", False).encode(lines)
    np.testing.assert_allclose(model.vectors_by("mean", False).encode(lines), states, atol=1e-5)
    spread = np.linalg.eigvalsh(
        np.cov(model.vectors_by(None, False).encode(lines), rowvar=False, bias=True)
    )
    eigenvalues = np.linalg.eigvalsh(np.cov(states, rowvar=False, bias=True))
    np.testing.assert_allclose(
        spread, np.sort(eigenvalues / (eigenvalues + 0.01 * eigenvalues.mean())), atol=1e-3
    )

    status, out, err = run("evaluate", tmp_path / "run", "--data", dev, "--device", "cpu", "--json")
    assert status == 0, err
    assert json.loads(out)["scores"] == pytest.approx(done.scores, abs=1e-5)
    wanted = model.encode(lines)
    np.testing.assert_allclose(np.linalg.norm(wanted, axis=1), 1, atol=1e-5)
    for name, *words in (
        ("own", "convert", "--to", "litebert"),
        ("hf", "convert", "--to", "hf"),
        ("onnx", "export", "--format", "onnx"),
    ):
        status, _, err = run(words[0], tmp_path / "run", "--out", tmp_path / name, *words[1:])
        assert status == 0, err
        np.testing.assert_allclose(litebert.load(tmp_path / name).encode(lines), wanted, atol=1e-5)
    kinds = [
        module["type"].rpartition(".")[2]
        for module in json.loads((tmp_path / "hf/modules.json").read_text())
    ]
    assert kinds == ["Transformer", "Pooling", "Dense", "Normalize"]


@pytest.mark.parametrize("whiten", [False, True])
def test_a_run_goes_on_as_it_was_whitened(
    whiten: bool, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(WORDS))
    dev, settings = (
        write_pairs(tmp_path / "dev.csv", 30, 1),
        replace(config(epochs=1), deletion=0.4),
    )

    def task(whiten: bool) -> Pairs:
        return Pairs(tmp_path / "texts.txt", dev, **COLUMNS, whiten=whiten)

    learn(task(whiten), tmp_path / "run", tiny_tokenizer, settings)
    with refused(RunError, tmp_path / "run", "whiten"):
        learn(task(not whiten), tmp_path / "run", tiny_tokenizer, settings)
    learn(task(whiten), tmp_path / "run", tiny_tokenizer, settings)


@pytest.mark.parametrize(
    "vectors", [None, {"pooling": "mean", "map": None}, {"pooling": "mean", "map": ".."}]
)
def test_a_damaged_record_of_vectors_is_no_traceback(
    vectors: Any, tiny_tokenizer: Path, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(WORDS))
    task = Pairs(
        tmp_path / "texts.txt", write_pairs(tmp_path / "dev.csv", 30, 1), **COLUMNS, whiten=False
    )
    learn(task, tmp_path / "run", tiny_tokenizer, replace(config(epochs=1), deletion=0.4))
    file = tmp_path / "run" / "model" / "task.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "vectors": vectors}))
    status, _, err = run("convert", tmp_path / "run", "--out", tmp_path / "own", "--to", "litebert")
    assert status == (2 if vectors and vectors["map"] else 0), err
    assert "Traceback" not in err


def test_few_texts_do_not_say_how_vectors_vary(
    tiny_tokenizer: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(WORDS[:9]))
    dev = write_pairs(tmp_path / "dev.csv", 30, 1)
    task = task_of("pairs", tmp_path / "texts.txt", dev=dev, **COLUMNS)
    learn(task, tmp_path / "run", tiny_tokenizer, replace(config(epochs=1), deletion=0.4))
    assert any("not whitened" in line and "9" in line for line in log_messages)
    assert not (tmp_path / "run" / "model" / "2_Dense").exists()


@given(st.integers(1, 12), st.integers(0, 2**31))
def test_whitened_vectors_have_no_direction(size: int, seed: int) -> None:
    """Whatever the vectors were: with a common part, with directions that never vary, or all
    alike."""
    draw = np.random.default_rng(seed)
    scales = draw.choice([0.0, 1e-3, 1.0, 30.0], size)
    vectors = (draw.normal(size=(200, size)) * scales @ draw.normal(size=(size, size)) + 5).astype(
        np.float32
    )
    whitened = fit_whitening(vectors).of(vectors)
    assert np.isfinite(whitened).all()
    np.testing.assert_allclose(whitened.mean(0), 0, atol=2e-2)
    assert (
        np.linalg.eigvalsh(np.cov(whitened, rowvar=False, bias=True).reshape(size, size)).max()
        < 1.02
    )


def test_texts_alone_are_read_with_other_tokens_left_out(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    draw = random.Random(0)
    (tmp_path / "texts.txt").write_text(
        "\n".join(" ".join(draw.sample(WORDS, 30)) for _ in range(40))
    )
    task = task_of(
        "pairs", tmp_path / "texts.txt", dev=write_pairs(tmp_path / "dev.csv", 4), **COLUMNS
    )
    words = Tokenizer.load(tiny_tokenizer)
    items = task.encode(task.read("train"), words, 64)
    made = [TaskBatches(items, task.output, words.pad_id, 8, 10, 0, deletion=0.3) for _ in range(2)]
    first, again, parts = (
        made[0](7),
        made[1](7),
        [made[1](7, slice(start, start + 4)) for start in (0, 4)],
    )
    assert torch.equal(first.input_ids, again.input_ids)
    whole = {key: row.rows[0].ids for row in items for key in [int(row.target[0])]}
    shares = []
    rows = [row[row != words.pad_id] for batch in parts for row in batch.input_ids]
    for place, row in enumerate(first.input_ids):
        ids = row[first.attention_mask[place]]
        assert torch.equal(ids, rows[place])
        text = whole[int(first.targets[place // 2, 0])]
        assert (int(ids[0]), int(ids[-1])) == (words.cls_id, words.sep_id)
        rest = iter(text.tolist())
        assert all(token in rest for token in ids.tolist())  # in the order of the text
        shares.append((len(ids) - 2) / (len(text) - 2))
    assert np.mean(shares) == pytest.approx(0.7, abs=0.05)
    assert not all(torch.equal(rows[place], rows[place + 1]) for place in range(0, len(rows), 2))
    other = made[0](2).input_ids
    assert other.shape != first.input_ids.shape or not torch.equal(other, first.input_ids)


def test_deletion_leaves_a_token_and_needs_no_dropout(tiny_tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(WORDS[:40]))
    task = task_of(
        "pairs", tmp_path / "texts.txt", dev=write_pairs(tmp_path / "dev.csv", 30, 1), **COLUMNS
    )
    words = Tokenizer.load(tiny_tokenizer)
    items = task.encode(task.read("train"), words, 32)
    batch = TaskBatches(items, task.output, words.pad_id, 8, 5, seed=0, deletion=0.99)(0)
    assert batch.attention_mask.sum(1).min() >= 3
    small = finetune_preset("small", task.point)
    assert small.deletion > 0
    assert settle_for_output(task.output, small, EncoderConfig()).dropout == -1
    assert all(finetune_preset(name, task.point).dropout == -1 for name in ("albert", "bert"))
    done = learn(
        task, tmp_path / "run", tiny_tokenizer, replace(config(epochs=1), deletion=0.4, dropout=0.0)
    )
    assert done.scores.keys() == {"spearman", "pearson"}
    pairs = Pairs(tmp_path / "dev.csv", tmp_path / "dev.csv", **COLUMNS)
    assert finetune_preset("small", pairs.point).deletion == 0
    for output in (pairs.output, OneClass(("a", "b"))):
        with refused(ConfigError, "deletion", f"{small.deletion}"):
            settle_for_output(output, small, EncoderConfig())


def test_dropout_of_the_model_stays_and_one_pair_is_no_batch() -> None:
    output, shape = Similarity(supervision="texts"), EncoderConfig(hidden_dropout=0.2)
    assert settle_for_output(output, FinetuneConfig(), shape).dropout == -1
    alone = replace(config(), train=replace(config().train, batch="1 sequences"))
    with refused(ConfigError, "train.batch", "'1 sequences'"):
        settle_for_output(output, alone, shape)


def test_sts_b_as_vectors(shared_data: Path) -> None:
    task = task_of("stsb-vectors", shared_data / "glue" / "STS-B")
    assert (task.dev, task.output.supervision) == (("dev",), "scores")
    (example, *_) = task.read("dev")
    assert (example.label, example.pair is None) == (5.0, False)


# ----------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("table", "words", "places"),
    [
        (
            "one,two,score\na,b,1\nc,d,2\n",
            ("--text-column", "one", "--pair-column", "zwei"),
            ("in.csv", "'zwei'", "two"),
        ),
        (
            "one,two,score\na,b,1\nc,d,high\n",
            ("--text-column", "one", "--pair-column", "two", "--label-column", "score"),
            ("in.csv:3", "'score'", "'high'"),
        ),
        (
            "one,two,score\na,b,1\nc,d,nan\n",
            ("--text-column", "one", "--pair-column", "two", "--label-column", "score"),
            ("in.csv:3", "'nan'"),
        ),
        (
            "one,two,score\na,b,1\nc,d,1\n",
            ("--text-column", "one", "--pair-column", "two", "--label-column", "score"),
            ("in.csv", "1"),
        ),
        (
            "one,two,score\na,b,1\n",
            ("--text-column", "one", "--pair-column", "two"),
            ("in.csv", "one row"),
        ),
        (
            "one,two,score\na,b,1\nc,d,1\n",
            ("--text-column", "one", "--label-column", "score"),
            ("'score'", "second column"),
        ),
        (
            "one,two,score\na,b,1\nc,d,1\n",
            ("--text-column", "one", "--temperature", "0"),
            ("temperature", "0"),
        ),
    ],
)
def test_refusals(
    table: str,
    words: tuple[str, ...],
    places: tuple[str, ...],
    tiny_tokenizer: Path,
    tmp_path: Path,
    run: Run,
) -> None:
    (tmp_path / "in.csv").write_text(table)
    status, out, err = run(
        "finetune",
        recipe_file(tmp_path),
        "--task",
        "pairs",
        "--data",
        tmp_path / "in.csv",
        "--tokenizer",
        tiny_tokenizer,
        "--out",
        tmp_path / "run",
        "--device",
        "cpu",
        "--length",
        64,
        *words,
    )
    assert (status, out) == (2, "")
    names(err, *places)
    assert not (tmp_path / "run").exists()


def test_a_training_file_of_several_kinds_is_refused(tmp_path: Path) -> None:
    rows = [{"text": "a", "pair": "b", "score": 1}, {"text": "c", "pair": "d"}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    write_pairs(tmp_path / "dev.csv", 4)
    task = Pairs(
        tmp_path / "in.jsonl",
        tmp_path / "in.jsonl",
        text_column="text",
        pair_column="pair",
        label_column="score",
    )
    with refused(DataError, "in.jsonl:2", "'score'"):
        task.read("train")
    with refused(ConfigError, "'max'", "mean"):
        Pairs(tmp_path / "in.jsonl", pooling="max")
