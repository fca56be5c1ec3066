"""Held-out scores of objectives that are asked in the run's own masks and format, some of them by
sampling.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from litebert.base.errors import ModelError
from litebert.config import MaskingConfig, SequenceConfig
from litebert.data.batches import Batch
from litebert.data.shards import Shards
from litebert.model.pretrainer import Pretrainer
from litebert.train.evaluate import evaluate_pretrained
from litebert.train.pretrain import pretrain
from toys.folders import save_litebert
from toys.pretraining import config, result
from toys.refusals import refused
from toys.scored import assert_same_questions, model_of, original, seen_by

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def shards(tiny_data: Path) -> Shards:
    return Shards.open(tiny_data)


def replacing(seed: int = 0, **fields: Any) -> Pretrainer:
    """A model of replaced token detection whose generator guesses anything with equal chance."""
    model = model_of(seed, **{"objectives": ("mlm", "rtd"), **fields})
    model.encoder.embedding.word.weight.data.zero_()  # and with it every logit
    return model


OWN: dict[str, Any] = {
    "masking": MaskingConfig(
        rate=0.3, unit="word", span="ngram", copies=0, replace_mask=1.0, replace_random=0.0
    ),
    "sequences": SequenceConfig(format="doc-sentences", length=64, short_probability=0.5),
}


def test_an_objective_with_its_own_masks_is_asked_in_the_masks_and_format_of_the_run(
    shards: Shards,
) -> None:
    fixed = seen_by(model_of(objectives=("mlm",)), shards)[0]["mlm"]
    batches, scores = seen_by(replacing(**OWN), shards)
    questions = seen_by(replacing(seed=1, train={"seed": 5}, **OWN), shards)[0]["rtd"]
    assert_same_questions(fixed, batches["mlm"])  # the generator is asked what every model is
    assert_same_questions(questions, batches["rtd"])
    assert all(batch.token_type_ids.sum() == 0 for batch in questions), "one segment"
    assert {batch.input_ids.shape[1] for batch in questions} == {32}, "of full length"
    shares = [len(batch.masked_labels) / batch.tokens for batch in questions]
    assert 0.25 < sum(shares) / len(shares) < 0.3, "30% of the tokens, special ones aside"
    assert scores["rtd_replaced"] == pytest.approx(
        sum(shares) / len(shares) * (1 - 1 / 400), abs=0.005
    )


def test_replaced_tokens_are_scored_as_counted_by_hand(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = replacing(encoder={"init_std": 0.5})
    embedding: Any = model.encoder.embedding
    torch.nn.init.normal_(embedding.position.weight)  # positions are called, right or wrong
    read: list[Any] = []
    objective: Any = model.objectives["rtd"]
    head = objective.head.forward

    def note_and_call(last: Any) -> Any:
        read.append(head(last))
        return read[-1]

    monkeypatch.setattr(objective.head, "forward", note_and_call)
    batches, scores = seen_by(model, shards)
    assert len(batches["rtd"]) < len(read), "the fixed masks were read too"
    logits, labels, pieces = [], [], []
    for batch, logits_BS in zip(batches["rtd"], read[-len(batches["rtd"]) :], strict=True):
        real = slice(None) if batch.attention_mask is None else batch.attention_mask.numpy().ravel()
        logits.append(logits_BS.numpy().ravel()[real])
        pieces.append(batch.input_ids.numpy().ravel()[real])
        labels.append((original(batch) != batch.input_ids.flatten()).numpy()[real])
    x, y = np.concatenate(logits), np.concatenate(labels)
    called = x > 0
    assert 0 < called.sum() < len(called)
    # The probability that AUC is.
    above = (x[y][:, None] > x[~y]).mean() + 0.5 * (x[y][:, None] == x[~y]).mean()
    rates = np.zeros(len(y))
    for i, piece in enumerate(z := np.concatenate(pieces)):
        same = np.flatnonzero(z[1 - i % 2 :: 2] == piece) * 2 + 1 - i % 2  # of the other half
        rates[i] = (y[same].sum() + y.mean()) / (len(same) + 1)
    alone = (rates[y][:, None] > rates[~y]).mean() + 0.5 * (rates[y][:, None] == rates[~y]).mean()
    smoothed = ((called == y).sum() + 1) / (len(y) + 2)
    assert {
        name: score for name, score in scores.items() if name.startswith("rtd_")
    } == pytest.approx(
        {
            "rtd_loss": np.where(y, np.log1p(np.exp(-x)), np.log1p(np.exp(x))).mean(),
            "rtd_accuracy": (called == y).mean(),
            "rtd_standard_error": np.sqrt(smoothed * (1 - smoothed) / len(y)),
            "rtd_predictions": len(y),
            "rtd_base_rate": 1 - y.mean(),
            "rtd_replaced": y.mean(),
            "rtd_precision": y[called].mean(),
            "rtd_recall": called[y].mean(),
            "rtd_auc": above,
            "rtd_piece_auc": scores["rtd_piece_auc"],
        },
        rel=1e-5,
    )
    # Ties may differ in the last bits.
    assert scores["rtd_piece_auc"] == pytest.approx(alone, abs=2e-3)


def test_samples_are_the_same_each_time_and_torchs_generator_is_left_alone(shards: Shards) -> None:
    model = replacing()
    torch.manual_seed(1)
    state = torch.get_rng_state()
    batches, first = seen_by(model, shards)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    again, second = seen_by(model, shards)
    assert first == second
    for a, b in zip(batches["rtd"], again["rtd"], strict=True):
        assert torch.equal(a.input_ids, b.input_ids)
    first_rows = [
        batch.input_ids.flatten()[batch.masked_positions][:20].tolist() for batch in batches["rtd"]
    ]
    assert first_rows[0] != first_rows[1], "every batch draws its own"


def test_evaluating_changes_nothing_of_a_run_that_samples(tiny_data: Path, tmp_path: Path) -> None:
    for name, every in (("plain", "100%"), ("busy", "1 steps")):
        pretrain(
            config(objectives=("mlm", "rtd"), train={"evaluate_every": every}),
            tiny_data,
            tmp_path / name,
        )
    for file in ("model.safetensors", "optimizer.safetensors"):
        assert result(tmp_path / "busy")[file] == result(tmp_path / "plain")[file]


def test_spans_are_asked_in_their_own_masks(shards: Shards) -> None:
    spans = MaskingConfig(unit="word", span="geometric", max_span=10, replace_per="span")
    model = model_of(objectives=("mlm", "sbo"), masking=spans, sequences=OWN["sequences"])
    batches, scores = seen_by(model, shards)
    fixed = seen_by(model_of(objectives=("mlm",)), shards)[0]["mlm"]
    assert_same_questions(fixed, batches["mlm"])

    def adjacent(parts: list[Batch]) -> float:
        steps = torch.cat([part.masked_positions.diff() for part in parts])
        return float((steps == 1).float().mean())

    assert adjacent(batches["sbo"]) > 0.6 > 0.3 > adjacent(batches["mlm"])
    assert {"sbo_loss", "sbo_accuracy", "sbo_majority"} <= scores.keys()
    assert 0 < scores["sbo_majority"] < 0.5
    assert scores["sbo_loss"] == pytest.approx(math.log(400), rel=0.1)


@pytest.mark.parametrize("types", [0, 1])
@pytest.mark.parametrize("objectives", [("mlm",), ("mlm", "sop"), ("mlm", "rtd")])
def test_models_of_fewer_token_types_are_asked_the_same(
    types: int, objectives: tuple[str, ...], shards: Shards
) -> None:
    model = model_of(objectives=objectives, encoder={"segment_types": types})
    batches, scores = seen_by(model, shards)
    fixed = seen_by(model_of(objectives=("mlm",)), shards)[0]["mlm"]
    assert_same_questions(fixed, batches["mlm"])
    assert all(math.isfinite(score) for score in scores.values())
    assert {name.split("_")[0] for name in scores} == set(objectives)


@pytest.mark.parametrize(
    ("untrained", "expected"),
    [(("rtd",), {"mlm", "sop", "nsp"}), (("mlm",), {"sop", "nsp"}), (("sop",), {"mlm", "rtd"})],
)
def test_no_score_of_what_was_never_trained(
    untrained: tuple[str, ...], expected: set[str], tiny_data: Path, tmp_path: Path
) -> None:
    tokenizer = Shards.open(tiny_data).tokenizer
    save_litebert(
        model_of(objectives=("mlm", "sop", "rtd")),
        tokenizer,
        tmp_path / "model",
        untrained=untrained,
    )
    scores = evaluate_pretrained(tmp_path / "model", tiny_data, sequences=8, device="cpu")
    assert {name.split("_")[0] for name in scores} == expected


def test_a_detector_without_its_generator_has_nothing_to_be_asked(
    tiny_data: Path, tmp_path: Path
) -> None:
    tokenizer = Shards.open(tiny_data).tokenizer
    save_litebert(replacing(), tokenizer, tmp_path / "model", untrained=("mlm",))
    with refused(ModelError, tmp_path / "model", "generator"):
        evaluate_pretrained(tmp_path / "model", tiny_data)
