"""Replaced token detection: the generator, what it samples, and the discriminator's loss and
scores.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sklearn import metrics
from torch import Tensor
from torch.nn import functional as F

from litebert.config import Config, ReplacedTokenConfig, replace
from litebert.config.cost import model_parameters
from litebert.data.batches import Batch
from litebert.model.encoder import Encoder
from litebert.model.objectives import Loss
from litebert.model.objectives.mlm import LOGITS
from litebert.model.objectives.rtd import REPLACED, _sample_tokens
from litebert.model.pretrainer import Pretrainer
from toys.points import PIECES, batch, config, randomize


def point(embeddings: Any = "all", **changes: Any) -> Config:
    rtd = ReplacedTokenConfig(generator_width=0.5, generator_embeddings=embeddings)
    return replace(config(("mlm", "rtd"), **changes), rtd=rtd)


def made(embeddings: Any = "all", **changes: Any) -> Pretrainer:
    model = Pretrainer(point(embeddings, **changes)).eval()
    randomize(model)
    return model


def parts(model: Pretrainer) -> tuple[Any, Any, Encoder]:
    """Both objectives and the generator."""
    generator = model.objectives["mlm"].generator
    assert isinstance(generator, Encoder)
    return model.named_objectives["mlm"], model.named_objectives["rtd"], generator


def certain(ids_K: Tensor) -> Tensor:
    """Logits of a generator that is sure of these ids."""
    return 1e4 * F.one_hot(ids_K, PIECES).float()


def original(data: Batch) -> Tensor:
    ids = data.input_ids.flatten().clone()
    ids[data.masked_positions] = data.masked_labels
    return ids.view_as(data.input_ids)


def corrupt_batch(model: Pretrainer, data: Batch, logits: Tensor) -> tuple[Batch, Tensor]:
    """The batch that the encoder reads where a generator guesses with these logits, and which
    tokens were replaced.
    """
    rtd = model.named_objectives["rtd"]
    read = rtd.corrupt(replace(data, added={LOGITS: logits}), model.context("rtd"))
    return read, read.added[REPLACED]


def test_a_generator_that_is_always_right_replaces_nothing() -> None:
    model, data = made(), batch()
    read, replaced = corrupt_batch(model, data, certain(data.masked_labels))
    assert not replaced.any()
    assert torch.equal(read.input_ids, original(data))


def test_a_wrong_guess_is_replaced_there_and_nowhere_else() -> None:
    model, data = made(), batch()
    wrong = (data.masked_labels + 1) % PIECES
    read, replaced = corrupt_batch(model, data, certain(wrong))
    assert replaced.flatten().nonzero()[:, 0].tolist() == data.masked_positions.tolist()
    assert torch.equal(read.input_ids.flatten()[data.masked_positions], wrong)
    elsewhere = ~replaced
    assert torch.equal(read.input_ids[elsewhere], data.input_ids[elsewhere])


def test_a_token_left_in_sight_is_sampled_too() -> None:
    """The 15% that the mask law leaves as they were are predicted, and so replaced like the
    others.
    """
    model, data = made(), batch()
    seen = replace(data, input_ids=original(data))
    _, replaced = corrupt_batch(model, seen, certain((data.masked_labels + 1) % PIECES))
    assert int(replaced.sum()) == len(data.masked_labels)


def test_samples_follow_the_softmax_of_the_generator() -> None:
    model, data = made(), batch()
    torch.manual_seed(5)
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    logits = torch.full((len(data.masked_labels), PIECES), -torch.inf)
    logits[:, 10:14] = probabilities.log()
    drawn = torch.cat(
        [
            corrupt_batch(model, data, logits)[0].input_ids.flatten()[data.masked_positions]
            for _ in range(2000)
        ]
    )
    counts = torch.bincount(drawn, minlength=PIECES)[10:14]
    assert int(counts.sum()) == len(drawn)
    expected = probabilities * len(drawn)
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 21.1  # 3 degrees of freedom, p = 1e-4


def test_what_is_impossible_is_never_sampled_not_even_by_the_outermost_draws() -> None:
    logits = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0]).log().repeat(4, 1)
    assert _sample_tokens(logits, torch.tensor([0.0, 0.4999, 0.5, 1 - 2**-24])).tolist() == [
        1,
        1,
        3,
        3,
    ]
    assert _sample_tokens(logits[:1], torch.tensor([1.0])).item() < 5


@pytest.mark.parametrize("padded", [True, False])
def test_the_loss_is_over_all_real_positions(padded: bool) -> None:
    model, data = made(), batch(padded=padded)
    _, rtd, _ = parts(model)
    read, replaced = corrupt_batch(model, data, certain((data.masked_labels + 1) % PIECES))
    output = model.encoder(read.input_ids, read.token_type_ids, read.attention_mask)
    loss = rtd.loss(output, read, model.context("rtd"))

    mask = (
        torch.ones_like(data.input_ids).bool()
        if data.attention_mask is None
        else data.attention_mask
    )
    head: Any = model.objectives["rtd"].head
    hidden = F.gelu(output.last @ head.dense.weight.T + head.dense.bias, approximate="tanh")
    # Of being replaced.
    p_BS = torch.sigmoid(hidden @ head.classifier.weight[0] + head.classifier.bias)
    by_hand = -torch.where(replaced, p_BS.log(), (1 - p_BS).log())[mask].sum()
    assert loss.total.item() == pytest.approx(by_hand.item(), rel=1e-5)
    assert int(loss.count) == rtd.count(data) == int(mask.sum())
    assert int(loss.correct) == int(((p_BS > 0.5) == replaced)[mask].sum())
    assert int(loss.extras["replaced"]) == len(data.masked_labels)


def test_the_mlm_loss_is_the_generators_and_the_encoder_reads_its_samples() -> None:
    model, data = made(), batch()
    _, _, generator = parts(model)
    seen: list[Tensor] = []
    model.encoder.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    torch.manual_seed(0)
    losses = model(data)
    assert list(losses) == ["mlm", "rtd"]
    read = generator(
        data.input_ids, data.token_type_ids, data.attention_mask, lender=model.encoder.embedding
    )
    head: Any = model.objectives["mlm"].head
    logits = head(read.last, model.encoder.embedding.word.weight)
    logits = logits.flatten(0, 1)[data.masked_positions]
    expected = F.cross_entropy(logits, data.masked_labels, reduction="sum")
    assert losses["mlm"].total.item() == pytest.approx(expected.item(), rel=1e-5)
    assert len(seen) == 1
    changed = (seen[0] != original(data)).flatten().nonzero()[:, 0].tolist()
    assert set(changed) <= set(data.masked_positions.tolist())
    assert int(losses["rtd"].extras["replaced"]) == len(changed)


def test_the_same_seed_gives_the_same_samples() -> None:
    model, data = made(), batch()
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(model(data)["rtd"].total.item())
    assert runs[0] == runs[1] != runs[2]


def test_no_gradient_passes_through_sampling() -> None:
    model, data = made(), batch()

    def list_reached(objective: str) -> set[str]:
        model.zero_grad()
        model(data)[objective].total.backward()
        named = model.named_parameters()
        return {name for name, p in named if p.grad is not None and p.grad.abs().max() > 0}

    reached = list_reached("rtd")
    assert not any(name.startswith("objectives.mlm.") for name in reached)
    assert any(name.startswith("objectives.rtd.") for name in reached)
    generator_only = {
        "encoder.embedding.word.weight",
        "encoder.embedding.position.weight",
        "encoder.embedding.token_type.weight",
        "encoder.embedding.norm.weight",
        "encoder.embedding.norm.bias",
    }
    reached = list_reached("mlm")
    assert {name for name in reached if not name.startswith("objectives.mlm.")} == generator_only


@pytest.mark.parametrize("embeddings", ["tables", "all"])
@pytest.mark.parametrize(
    "changes", [{}, {"sharing": "none", "embedding_size": 16}, {"segment_types": 0}], ids=str
)
def test_the_generator_is_an_encoder_over_borrowed_tables(
    embeddings: str, changes: dict[str, Any]
) -> None:
    model, data = made(embeddings, **changes), batch()
    _, _, generator = parts(model)
    shape = model.config.generator
    assert shape is not None
    assert (shape.hidden_size, shape.heads, shape.intermediate_size, shape.pooler) == (
        8,
        2,
        12,
        False,
    )
    alone = Encoder(shape).eval()
    generator_names = {f"embedding.{name}" for name in ("word.weight", "position.weight")}
    if embeddings == "all":
        generator_names |= {
            f"embedding.{name}" for name in ("token_type.weight", "norm.weight", "norm.bias")
        }
    whole = model.encoder.state_dict()
    state = {
        name: whole[name] if name in generator_names else generator.state_dict()[name]
        for name in alone.state_dict()
    }
    alone.load_state_dict(state)
    expected = alone(data.input_ids, data.token_type_ids, data.attention_mask)
    got = generator(
        data.input_ids, data.token_type_ids, data.attention_mask, lender=model.encoder.embedding
    )
    assert torch.equal(got.last, expected.last)
    assert got.last.shape[-1] == 8


@pytest.mark.parametrize("embeddings", ["tables", "all"])
def test_borrowed_tables_are_held_once(embeddings: str) -> None:
    model = made(embeddings, embedding_size=4)
    held = sum(p.numel() for p in model.parameters())
    assert (
        held
        == sum(model_parameters(model.config).values())
        == sum(t.numel() for t in model.state_dict().values())
    )
    names = [
        name
        for name in model.state_dict()
        if name.startswith("objectives.mlm.generator.embedding.")
    ]
    rest = ["token_type.weight", "norm.weight", "norm.bias"] if embeddings == "tables" else []
    assert [name.rpartition("embedding.")[2] for name in names] == [
        *rest,
        "project.weight",
        "project.bias",
    ]


def test_the_weight_is_fifty() -> None:
    assert [objective.weight for objective in made().named_objectives.values()] == [1.0, 50.0]


def error_of(right: int, count: int) -> float:
    """The standard error of an accuracy, with one right and one wrong prediction more."""
    share = (right + 1) / (count + 2)
    return float((share * (1 - share) / count) ** 0.5)


def test_scores_are_those_of_scikit_learn() -> None:
    _, rtd, _ = parts(made())
    generator = torch.Generator().manual_seed(3)
    losses, logits, labels = [], [], []
    for size in (40, 7):
        scores = torch.randn(size, generator=generator).round(decimals=1)  # with ties
        truth = torch.rand(size, generator=generator) < 0.3
        total = F.binary_cross_entropy_with_logits(scores, truth.float(), reduction="sum")
        tensors = {"logits": scores, "labels": truth, "pieces": torch.arange(size) % 3}
        losses.append(Loss(total, torch.tensor(size), ((scores > 0) == truth).sum(), {}, tensors))
        logits += scores.tolist()
        labels += truth.tolist()
    calls = [value > 0 for value in logits]
    got = rtd.scores(losses)
    assert 0 <= got.pop("piece_auc") <= 1
    assert got == pytest.approx(
        {
            "loss": metrics.log_loss(labels, torch.sigmoid(torch.tensor(logits)).numpy()),
            "accuracy": metrics.accuracy_score(labels, calls),
            "standard_error": error_of(
                sum(call == label for call, label in zip(calls, labels, strict=True)), 47
            ),
            "predictions": 47,
            "base_rate": 1 - sum(labels) / len(labels),
            "replaced": sum(labels) / len(labels),
            "precision": metrics.precision_score(labels, calls),
            "recall": metrics.recall_score(labels, calls),
            "auc": metrics.roc_auc_score(labels, logits),
        },
        rel=1e-5,
    )


def test_scores_without_both_labels_have_no_curve() -> None:
    _, rtd, _ = parts(made())
    tensors = {"logits": torch.tensor([-1.0, -2.0]), "labels": torch.tensor([False, False])}
    got = rtd.scores([Loss(torch.tensor(2.0), torch.tensor(2), torch.tensor(2), {}, tensors)])
    assert got.pop("standard_error") == pytest.approx(error_of(2, 2))
    assert got == {
        "loss": 1.0,
        "accuracy": 1.0,
        "predictions": 2,
        "base_rate": 1.0,
        "replaced": 0.0,
    }


def test_pieces_alone_are_judged_by_the_other_half() -> None:
    """Piece 1 is always replaced and piece 0 never: the piece tells it all. Piece 2 is met in one
    half only.
    """
    _, rtd, _ = parts(made())
    labels = torch.tensor([True, True, False, False, False, False])
    tensors = {
        "logits": torch.zeros(6),
        "labels": labels,
        "pieces": torch.tensor([1, 1, 0, 0, 2, 0]),
    }
    got = rtd.scores([Loss(torch.tensor(1.0), torch.tensor(6), torch.tensor(4), {}, tensors)])
    assert (got["auc"], got["piece_auc"]) == (0.5, 1.0)


def test_a_shallower_pass_has_a_shallower_generator() -> None:
    model, data = made(), batch()
    mlm, _, generator = parts(model)
    shallow = model(data, layers=1)["mlm"].total
    read = generator(
        data.input_ids, data.token_type_ids, data.attention_mask, 1, lender=model.encoder.embedding
    )
    logits = mlm.guesses(read.last, data.masked_positions, model.context("mlm"))
    assert shallow.item() == pytest.approx(
        F.cross_entropy(logits, data.masked_labels, reduction="sum").item()
    )
