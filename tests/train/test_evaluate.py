"""Held-out scores: the same masks whatever a run trained with, and numbers that can be worked out
by hand.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from litebert.base.errors import ConfigError, DataError
from litebert.config import MaskingConfig, SequenceConfig
from litebert.data.batches import Batch
from litebert.data.shards import Shards
from litebert.model.pretrainer import Pretrainer
from litebert.train.evaluate import evaluate_pretrained, evaluate_split
from litebert.train.pretrain import pretrain
from toys.prepare import run as prepare
from toys.pretraining import config
from toys.refusals import refused
from toys.scored import CPU, model_of, original, seen_by


@pytest.fixture(scope="module")
def shards(tiny_data: Path) -> Shards:
    return Shards.open(tiny_data)


# -------------------------------------------------------------------------- the questions are fixed


def test_masks_are_the_same_whatever_the_run_trained_with(shards: Shards) -> None:
    plain = model_of(objectives=("mlm",))
    others = [
        model_of(
            seed=1,
            objectives=("mlm", task),
            encoder={"layers": 3, "norm": "pre"},
            masking=MaskingConfig(rate=0.4, unit="word", span="ngram", copies=7, replace_mask=0.2),
            sequences=SequenceConfig(length=64, short_probability=0.5),
            train={"seed": 99, "batch": "3 sequences", "micro_batch": 2},
        )
        for task in ("sop", "nsp")
    ]
    first = seen_by(plain, shards)[0]["mlm"]
    assert len(first) > 1
    for model in (*others, plain):
        for a, b in zip(first, seen_by(model, shards)[0]["mlm"], strict=True):
            assert torch.equal(a.input_ids, b.input_ids)
            assert torch.equal(a.token_type_ids, b.token_type_ids)
            assert torch.equal(a.masked_positions, b.masked_positions)
            assert torch.equal(a.masked_labels, b.masked_labels)


def test_fifteen_percent_of_the_tokens_are_asked_in_full_sequences(shards: Shards) -> None:
    batches = seen_by(model_of(objectives=("mlm",)), shards, sequences=10_000)[0]["mlm"]
    special = torch.tensor(shards.tokenizer.special_ids)
    predicted = ordinary = 0
    for batch in batches:
        predicted += len(batch.masked_labels)
        ordinary += int((~torch.isin(original(batch), special)).sum())
        assert batch.input_ids.shape[1] == 32
    assert predicted / ordinary == pytest.approx(0.15, abs=0.003)


def test_no_more_sequences_than_asked_and_none_twice(shards: Shards) -> None:
    for sequences in (1, 5, 32, 33, 100_000):
        batches = seen_by(model_of(objectives=("mlm",)), shards, sequences=sequences)[0]["mlm"]
        rows = [tuple(row.tolist()) for batch in batches for row in batch.input_ids]
        assert len(rows) == min(
            sequences, sum(-(-n // 29) for n in shards.heldout.document_tokens.tolist())
        )
        assert len(set(rows)) == len(rows)


# -------------------------------------------------------------------------------------- the answers


def test_scores_are_those_of_one_forward_pass_reckoned_in_float64(shards: Shards) -> None:
    model = model_of(encoder={"init_std": 0.2, "hidden_dropout": 0.3})
    batches, scores = seen_by(model, shards, sequences=50)
    model.eval()
    losses, hits = [], []
    pair_losses, pair_hits, pair_labels = [], [], []
    state = {
        name: tensor.detach().numpy().astype(np.float64)
        for name, tensor in model.state_dict().items()
    }
    head = {
        name.split(".")[-2]: name.rsplit(".", 1)[0]
        for name in state
        if name.startswith("objectives.")
    }
    mlm_bias = next(
        name for name in state if name.startswith("objectives.mlm") and state[name].shape == (400,)
    )
    for batch in batches["mlm"]:
        with torch.no_grad():
            output = model.encoder(batch.input_ids, batch.token_type_ids, batch.attention_mask)
        last = (
            output.last.numpy().reshape(-1, 16)[batch.masked_positions.numpy()].astype(np.float64)
        )
        x = transform_by_hand(last, state, head)
        logits = x @ state["encoder.embedding.word.weight"].T + state[mlm_bias]
        labels = batch.masked_labels.numpy()
        losses += (np.log(np.exp(logits).sum(1)) - logits[np.arange(len(labels)), labels]).tolist()
        hits += (logits.argmax(1) == labels).tolist()
    for batch in batches["sop"]:
        with torch.no_grad():
            output = model.encoder(batch.input_ids, batch.token_type_ids, batch.attention_mask)
        keep = batch.sentence_labels.numpy() >= 0
        pairs = output.pooled.numpy().astype(np.float64) @ state[head["classifier"] + ".weight"].T
        pairs = (pairs + state[head["classifier"] + ".bias"])[keep]
        wanted = batch.sentence_labels.numpy()[keep]
        pair_losses += (
            np.log(np.exp(pairs).sum(1)) - pairs[np.arange(len(wanted)), wanted]
        ).tolist()
        pair_hits += (pairs.argmax(1) == wanted).tolist()
        pair_labels += wanted.tolist()
    accuracy, count = np.mean(pair_hits), len(pair_hits)
    smoothed = (sum(pair_hits) + 1) / (count + 2)
    hit_rate = (sum(hits) + 1) / (len(hits) + 2)
    assert scores == pytest.approx(
        {
            "mlm_loss": np.mean(losses),
            "mlm_perplexity": math.exp(np.mean(losses)),
            "mlm_accuracy": np.mean(hits),
            "mlm_majority": most_frequent(batches["mlm"]),
            "mlm_standard_error": math.sqrt(hit_rate * (1 - hit_rate) / len(hits)),
            "mlm_predictions": len(hits),
            "sop_loss": np.mean(pair_losses),
            "sop_accuracy": accuracy,
            "sop_majority": max(np.mean(pair_labels), 1 - np.mean(pair_labels)),
            "sop_standard_error": math.sqrt(smoothed * (1 - smoothed) / count),
            "sop_pairs": count,
        },
        rel=1e-5,
    )


def transform_by_hand(last: Any, state: dict[str, Any], head: dict[str, str]) -> Any:
    """The dense map of the head of masked tokens, with its activation and its norm."""
    x = last @ state[head["dense"] + ".weight"].T + state[head["dense"] + ".bias"]
    x = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-12)
    return x * state[head["norm"] + ".weight"] + state[head["norm"] + ".bias"]


def most_frequent(batches: list[Batch]) -> float:
    counts = Counter(label for batch in batches for label in batch.masked_labels.tolist())
    return counts.most_common(1)[0][1] / counts.total()


def silence(model: Pretrainer) -> tuple[torch.nn.Parameter, torch.nn.Parameter]:
    """Make every logit its bias: the biases over the vocabulary and over the two sentence
    classes."""
    named = dict(model.named_parameters())
    named["encoder.embedding.word.weight"].data.zero_()
    vocabulary = next(
        p for name, p in named.items() if name.startswith("objectives.mlm") and p.shape == (400,)
    )
    weight = next(p for name, p in named.items() if name.endswith("classifier.weight"))
    weight.data.zero_()
    return vocabulary, next(p for name, p in named.items() if name.endswith("classifier.bias"))


def test_a_model_that_knows_nothing_has_the_loss_of_nothing(shards: Shards) -> None:
    model = model_of()
    silence(model)
    scores = evaluate_split(model, shards.heldout, shards.tokenizer, CPU, length=32)
    assert scores["mlm_loss"] == pytest.approx(math.log(400), rel=1e-6)
    assert scores["mlm_perplexity"] == pytest.approx(400, rel=1e-5)
    assert scores["sop_loss"] == pytest.approx(math.log(2), rel=1e-6)


def test_always_the_same_answer_scores_the_majority(shards: Shards) -> None:
    model = model_of()
    vocabulary, classes = silence(model)
    batches, scores = seen_by(model, shards)
    labels = torch.cat([batch.masked_labels for batch in batches["mlm"]])
    vocabulary.data[int(labels.bincount().argmax())] = 100.0
    by_class = []
    for answer in (0, 1):
        classes.data.zero_()[answer] = 100.0
        scores = evaluate_split(model, shards.heldout, shards.tokenizer, CPU, length=32)
        assert scores["mlm_accuracy"] == scores["mlm_majority"] > 1 / 400
        by_class.append(scores["sop_accuracy"])
    assert sum(by_class) == pytest.approx(1)
    assert max(by_class) == scores["sop_majority"] >= 0.5
    assert scores["mlm_perplexity"] == pytest.approx(math.exp(scores["mlm_loss"]))


def test_a_model_that_knows_everything_scores_one(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of()
    answers: dict[str, Any] = {}
    for name, objective in model.named_objectives.items():
        score = objective.loss

        def knowing(output: Any, batch: Batch, context: Any, score: Any = score) -> Any:
            answers["words"] = torch.nn.functional.one_hot(batch.masked_labels, 400) * 50.0
            answers["pairs"] = torch.nn.functional.one_hot(batch.sentence_labels.clamp(0), 2) * 50.0
            return score(output, batch, context)

        monkeypatch.setattr(objective, "loss", knowing)
        key = "words" if objective.sentence is None else "pairs"
        monkeypatch.setattr(
            model.objectives[name].head, "forward", lambda *_, key=key: answers[key]
        )
    scores = evaluate_split(model, shards.heldout, shards.tokenizer, CPU, length=32)
    assert scores["mlm_accuracy"] == scores["sop_accuracy"] == 1
    assert scores["mlm_loss"] == scores["sop_loss"] == pytest.approx(0, abs=1e-9)
    assert scores["mlm_perplexity"] == pytest.approx(1)
    assert 0 < scores["sop_standard_error"] < 0.05  # a perfect score on few pairs is not certain


def test_a_loss_beyond_numbers_has_a_perplexity_all_the_same(shards: Shards) -> None:
    model = model_of(objectives=("mlm", "sop"))
    vocabulary, _ = silence(model)
    vocabulary.data[0] = 5000.0
    scores = evaluate_split(model, shards.heldout, shards.tokenizer, CPU, length=32)
    assert scores["mlm_loss"] > 4000
    assert math.isfinite(scores["mlm_perplexity"])


def test_evaluation_leaves_the_model_and_the_generator_as_they_were(shards: Shards) -> None:
    model = model_of(encoder={"hidden_dropout": 0.5}).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    first = evaluate_split(model, shards.heldout, shards.tokenizer, CPU, length=32)
    assert evaluate_split(model, shards.heldout, shards.tokenizer, CPU, length=32) == first
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    model.eval()
    evaluate_split(model, shards.heldout, shards.tokenizer, CPU, length=32)
    assert not model.training


# -------------------------------------------------------------------------------- tasks and folders


@pytest.mark.parametrize("trained", ["sop", "nsp"])
def test_a_model_of_one_sentence_task_answers_both(
    trained: str, tiny_data: Path, tmp_path: Path
) -> None:
    point = config(objectives=("mlm", trained), train={"budget": "3 steps"})
    run = pretrain(point, tiny_data, tmp_path)
    assert {f"{trained}_accuracy", "mlm_accuracy"} <= run.outcome.scores.keys()
    assert len([name for name in run.outcome.scores if name.endswith("_accuracy")]) == 2
    scores = evaluate_pretrained(tmp_path, tiny_data, device="cpu")
    for task in ("sop", "nsp"):
        assert 0.5 <= scores[f"{task}_majority"] < 0.7
        assert 0 <= scores[f"{task}_accuracy"] <= 1
    assert scores["sop_pairs"] != scores["nsp_pairs"]
    in_run = evaluate_pretrained(tmp_path, tiny_data, sequences=16, device="cpu")
    assert {name: in_run[name] for name in run.outcome.scores} == pytest.approx(run.outcome.scores)
    shorter = evaluate_pretrained(tmp_path, tiny_data, length=16, device="cpu")
    assert shorter["mlm_loss"] != scores["mlm_loss"]


def test_a_model_without_a_sentence_head_is_scored_on_words_alone(
    tiny_data: Path, tmp_path: Path
) -> None:
    pretrain(config(objectives=("mlm",), train={"budget": "3 steps"}), tiny_data, tmp_path)
    scores = ("loss", "perplexity", "accuracy", "standard_error", "predictions", "majority")
    assert evaluate_pretrained(tmp_path, tiny_data).keys() == {f"mlm_{score}" for score in scores}


def test_one_document_has_no_random_next_sentence(
    tiny_corpus: Path, tiny_tokenizer: Path, tiny_data: Path, tmp_path: Path
) -> None:
    documents = tiny_corpus.read_text().split("\n\n")[:5]
    (tmp_path / "few.txt").write_text("\n\n".join(documents))
    few = tmp_path / "few"
    shards = prepare(tmp_path / "few.txt", few, tiny_tokenizer, heldout=0.2)
    assert shards.heldout.documents == 1
    pretrain(config(train={"budget": "3 steps"}), tiny_data, tmp_path / "run")
    scores = evaluate_pretrained(tmp_path / "run", few)
    assert "sop_accuracy" in scores
    assert "nsp_accuracy" not in scores


def test_data_of_another_tokenizer_is_refused(
    tiny_data: Path, tiny_corpus: Path, tmp_path: Path
) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz."]
    (tmp_path / "vocab.txt").write_text("\n".join([*words, *("##" + word for word in words[5:])]))
    other = tmp_path / "other"
    prepare(tiny_corpus, other, tmp_path / "vocab.txt")
    pretrain(config(train={"budget": "3 steps"}), tiny_data, tmp_path / "run")
    with refused(DataError, other, tmp_path / "run"):
        evaluate_pretrained(tmp_path / "run", other)


def test_sizes_that_cannot_be_are_refused(tiny_data: Path, tmp_path: Path) -> None:
    pretrain(config(train={"budget": "3 steps"}), tiny_data, tmp_path)
    with refused(ConfigError, "length", 4):
        evaluate_pretrained(tmp_path, tiny_data, length=4)
    with refused(ConfigError, "--length 65", 64, tmp_path):
        evaluate_pretrained(tmp_path, tiny_data, length=65)
    with refused(ConfigError, "sequences", 0):
        evaluate_pretrained(tmp_path, tiny_data, sequences=0)
