"""Objectives and the pretrainer: losses against plain formulas, sums that add up, and gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.config import replace
from litebert.data.batches import Batch
from litebert.model import heads
from litebert.model.objectives import Context, Loss, Objective, Score
from litebert.model.objectives.mlm import MaskedLanguageModeling
from litebert.model.objectives.objective import Classification
from litebert.model.pretrainer import Pretrainer
from toys.points import batch, config, randomize


def made(objectives: tuple[str, ...] = ("mlm", "sop"), **changes: Any) -> Pretrainer:
    model = Pretrainer(config(objectives, **changes)).eval()
    randomize(model)
    return model


def test_losses_are_cross_entropies_in_nats() -> None:
    model, data = made(), batch()
    losses = model(data)
    assert list(losses) == ["mlm", "sop"]
    output = model.encoder(data.input_ids, data.token_type_ids, data.attention_mask)
    mlm, sop = model.named_objectives["mlm"], model.named_objectives["sop"]

    heads: Any = {name: part.head for name, part in model.objectives.items()}
    everywhere = heads["mlm"](output.last, model.encoder.embedding.word.weight)
    log = everywhere.log_softmax(-1).flatten(0, 1)[data.masked_positions, data.masked_labels]
    assert losses["mlm"].total.item() == pytest.approx(-log.sum().item(), rel=1e-5)
    assert int(losses["mlm"].count) == len(data.masked_labels) == mlm.count(data)
    best = everywhere.flatten(0, 1)[data.masked_positions].argmax(-1)
    assert int(losses["mlm"].correct) == int((best == data.masked_labels).sum())

    pairs = heads["sop"](output.pooled).log_softmax(-1)
    assert losses["sop"].total.item() == pytest.approx(
        -(pairs[0, 0] + pairs[1, 1]).item(), rel=1e-5
    )
    assert int(losses["sop"].count) == 2 == sop.count(data)  # the third has no label
    assert int(losses["sop"].correct) == int(pairs[0, 0] > pairs[0, 1]) + int(
        pairs[1, 1] > pairs[1, 0]
    )


def test_the_projection_runs_on_masked_positions_and_gives_what_the_full_one_gives() -> None:
    model, data = made(), batch()
    mlm = model.named_objectives["mlm"]
    head: Any = model.objectives["mlm"].head
    assert isinstance(mlm, MaskedLanguageModeling)
    last = model.encoder(data.input_ids, data.token_type_ids, data.attention_mask).last
    full = head(last, model.encoder.embedding.word.weight)
    few = mlm.guesses(last, data.masked_positions, model.context("mlm"))
    assert few.shape == (len(data.masked_positions), 50)
    assert torch.allclose(few, full.flatten(0, 1)[data.masked_positions], atol=1e-6)
    seen: list[int] = []
    head.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    model(data)
    assert seen == [len(data.masked_positions)]


def test_rows_add_up_to_their_batch() -> None:
    model, data = made(), batch()
    whole = model(data)
    assert data.masked_boundaries is not None
    sums = {name: [0.0, 0, 0] for name in whole}
    for row in range(len(data.input_ids)):
        in_row = (data.masked_positions // 16) == row
        part = Batch(
            data.input_ids[row : row + 1],
            data.token_type_ids[row : row + 1],
            None if data.attention_mask is None else data.attention_mask[row : row + 1],
            data.masked_positions[in_row] - 16 * row,
            data.masked_labels[in_row],
            data.sentence_labels[row : row + 1],
            torch.where(data.masked_boundaries < 0, -1, data.masked_boundaries - 16 * row)[in_row],
        )
        for name, loss in model(part).items():
            for index, value in enumerate((loss.total, loss.count, loss.correct)):
                sums[name][index] += value.item()
    for name, loss in whole.items():
        assert [loss.total.item(), loss.count.item(), loss.correct.item()] == pytest.approx(
            sums[name], rel=1e-5
        )


def test_nothing_labeled_is_zero_and_not_a_nan() -> None:
    model, data = made(), batch(rows=1)  # its only sentence label is missing
    loss = model(data)["sop"]
    assert (loss.total.item(), loss.count.item(), loss.correct.item()) == (0.0, 0, 0)
    loss.total.backward()
    head: Any = model.objectives["sop"].head
    gradient = head.classifier.weight.grad
    assert gradient is not None
    assert gradient.abs().max() == 0


def test_losses_are_summed_in_float32_whatever_the_precision() -> None:
    model, data = made(), batch()
    with torch.autocast("cpu", torch.bfloat16):
        losses = model(data)
    assert {loss.total.dtype for loss in losses.values()} == {torch.float32}
    assert {loss.total.dtype for loss in model.bfloat16()(data).values()} == {torch.float32}


@pytest.mark.parametrize("objectives", [("mlm", "sop"), ("mlm", "sbo"), ("mlm", "rtd")])
def test_rows_that_fill_up_a_cpus_kernels_change_nothing(
    objectives: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under autocast a vocabulary is projected for 64 tokens or 128, and learnt from for those that
    were masked.
    """
    model, data = made(objectives), batch()
    rows: list[int] = []
    for name, layer in (("mlm", "dense"), ("sbo", "first")):
        if name in objectives:
            getattr(model.objectives[name].head, layer).register_forward_hook(
                lambda _, x, y: rows.append(len(y))
            )

    def run() -> tuple[dict[str, Loss], dict[str, Tensor]]:
        model.zero_grad()
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16):
            losses = model(data)
        sum(loss.total for loss in losses.values()).backward()
        return losses, {
            name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None
        }

    losses, gradients = run()
    assert set(rows) == {64}
    monkeypatch.setattr(heads, "pad_rows", lambda rows: rows)
    plain, wanted = run()
    assert max(rows) == 64 > rows[-1], "rows are those of the tokens again"
    for name, loss in plain.items():
        assert losses[name].total.item() == pytest.approx(loss.total.item(), rel=1e-3)
        assert (losses[name].count, losses[name].correct) == (loss.count, loss.correct)
    assert gradients.keys() == wanted.keys()
    for name, gradient in gradients.items():
        assert torch.allclose(
            gradient, wanted[name], atol=0.02 * float(wanted[name].abs().max()) + 1e-6
        ), name


@pytest.mark.parametrize(
    "objectives", [("mlm",), ("mlm", "sop"), ("mlm", "nsp"), ("sop",), ("mlm", "rtd")]
)
def test_each_objective_reaches_its_head_and_the_encoder(objectives: tuple[str, ...]) -> None:
    model, data = made(objectives), batch()
    sum(loss.total for loss in model(data).values()).backward()
    silent = {
        name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0
    }
    pooled = {"sop", "nsp"} & set(objectives)
    untouched = set() if pooled else {"encoder.pooler.weight", "encoder.pooler.bias"}
    assert silent == untouched


def test_sentence_objectives_say_which_second_segment_they_need() -> None:
    sentences = {
        name: objective.sentence
        for names in (("mlm", "sop"), ("nsp",))
        for name, objective in config(names).build_objectives().items()
    }
    assert sentences == {"mlm": None, "sop": "sop", "nsp": "nsp"}


def test_depth_reaches_the_encoder() -> None:
    model, data = made(), batch()
    shallow = model(data, layers=1)["mlm"].total
    last = model.encoder(data.input_ids, data.token_type_ids, data.attention_mask, layers=1).last
    mlm = model.named_objectives["mlm"]
    assert isinstance(mlm, MaskedLanguageModeling)
    logits = mlm.guesses(last, data.masked_positions, model.context("mlm"))
    expected = F.cross_entropy(logits, data.masked_labels, reduction="sum").item()
    assert shallow.item() == pytest.approx(expected, rel=1e-5)
    assert shallow.item() != model(data)["mlm"].total.item()


def test_corrupt_comes_before_the_encoder() -> None:
    model, data = made(("mlm",)), batch()

    class Blank(Objective):
        def corrupt(self, batch: Batch, context: Context) -> Batch:
            added: dict[str, Any] = {"layers": context.layers}
            return replace(batch, input_ids=torch.full_like(batch.input_ids, 4), added=added)

        def loss(self, output: Any, batch: Batch, context: Context) -> Any:
            return batch

        def count(self, batch: Batch) -> int:
            return batch.tokens

    blank = model.named_objectives["blank"] = Blank("blank", model.config)
    model.objectives["blank"] = blank.build()
    read = model(data, layers=2)["blank"]
    assert set(read.input_ids.flatten().tolist()) == {4}
    assert read.added == {"layers": 2}, "what an objective adds reaches the losses"
    assert data.added == {}


@pytest.mark.parametrize("base", [Objective, Classification])
def test_an_objective_without_a_loss_cannot_be_made(base: Any) -> None:
    with pytest.raises(TypeError, match="abstract"):
        type("Half", (base,), {})("half", made().config)


def test_the_output_table_is_the_input_table() -> None:
    model, data = made(), batch()
    before = model(data)["mlm"].total
    with torch.no_grad():
        model.encoder.embedding.word.weight[3] += 100.0  # an id that the batch does not hold
    assert 3 not in data.input_ids
    assert model(data)["mlm"].total.item() != before.item()


def test_scores_of_mlm_are_its_sums_beside_the_commonest_label() -> None:
    model, data = made(("mlm",)), batch()
    with torch.no_grad():
        losses = [model(data)["mlm"], model(batch(seed=5))["mlm"]]
    labels = torch.cat([data.masked_labels, batch(seed=5).masked_labels])
    scores = model.named_objectives["mlm"].scores(losses)
    mean = sum(loss.total.item() for loss in losses) / len(labels)
    right = sum(int(loss.correct) for loss in losses)
    smoothed = (right + 1) / (len(labels) + 2)
    assert scores == pytest.approx(
        {
            "loss": mean,
            "accuracy": right / len(labels),
            "standard_error": math.sqrt(smoothed * (1 - smoothed) / len(labels)),
            "predictions": len(labels),
            "majority": int(labels.bincount().max()) / len(labels),
            "perplexity": math.exp(mean),
        }
    )
    assert model.train()(data)["mlm"].eval_tensors == {}


@pytest.mark.parametrize(
    ("baseline", "remark", "shown"),
    [
        ("", "", "50.0%"),
        ("", "of all", "50.0% (of all)"),
        ("guess", "majority", "50.0% (majority: 12.0%)"),
        ("guess", "", "50.0% (guessing: 12.0%)"),
        ("absent", "majority", "50.0%"),
    ],
)
def test_a_score_stands_beside_its_baseline(baseline: str, remark: str, shown: str) -> None:
    score = Score("accuracy", "accuracy", baseline=baseline, remark=remark)
    score_shown = score.show({"mlm_accuracy": 0.5, "mlm_guess": 0.12}, "mlm")
    assert score_shown is not None
    assert score_shown.text == shown
    assert score.show({"mlm_loss": 0.5}, "mlm") is None
