"""The span boundary objective: its formula by hand, its edges, and the sum with MLM."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.config import Config, SpanBoundaryConfig, replace
from litebert.data.batches import Batch
from litebert.model.pretrainer import Pretrainer
from toys.points import config, randomize

CLS, SEP, MASK = 2, 3, 4


def point(positions: int = 15, **changes: Any) -> Config:
    return replace(
        config(("mlm", "sbo"), **changes),
        sbo=SpanBoundaryConfig(positions=positions, position_size=6),
    )


def made(positions: int = 15, **changes: Any) -> Pretrainer:
    model = Pretrainer(point(positions, **changes)).eval()
    randomize(model)
    return model


def sentence(spans: list[tuple[int, int]], length: int = 12) -> Batch:
    """[CLS] x1 ... xn [SEP] with spans (first, last) masked, positions counted as in the paper."""
    words = torch.arange(10, 10 + length)
    ids = torch.cat((torch.tensor([CLS]), words, torch.tensor([SEP])))
    positions = [i for first, last in spans for i in range(first, last + 1)]
    boundaries = [
        (first - 1 if first > 1 else -1, last + 1 if last < length else -1)
        for first, last in spans
        for _ in range(first, last + 1)
    ]
    masked = ids.clone()
    masked[positions] = MASK
    return Batch(
        input_ids=masked[None],
        token_type_ids=torch.zeros_like(ids)[None],
        attention_mask=None,
        masked_positions=torch.tensor(positions),
        masked_labels=ids[positions],
        sentence_labels=torch.tensor([-100]),
        masked_boundaries=torch.tensor(boundaries),
    )


def layer(x: Tensor, dense: Any, norm: Any) -> Tensor:
    """norm(act(Wx + b)), spelt out."""
    x = F.gelu(dense.weight @ x + dense.bias, approximate="tanh")
    x = (x - x.mean()) / torch.sqrt(x.var(unbiased=False) + norm.eps)
    normed: Tensor = x * norm.weight + norm.bias
    return normed


@pytest.mark.parametrize(
    "changes", [{}, {"sharing": "none", "embedding_size": 16}], ids=["E < H", "E = H"]
)
def test_the_worked_example_of_the_paper(changes: dict[str, Any]) -> None:
    """A span of four, x5 to x8 (SpanBERT figure 1): the loss of each token is -log P_mlm(x_i | x_i)
    minus log P_sbo(x_i | x4, x9, p_(i-4)), and the loss of the example is the mean of these sums.
    """
    model, data = made(**changes), sentence([(5, 8)])
    states = model.encoder(data.input_ids, data.token_type_ids).last[0]
    table = model.encoder.embedding.word.weight
    mlm: Any
    sbo: Any
    mlm, sbo = model.objectives["mlm"].head, model.objectives["sbo"].head
    total = torch.zeros(())
    for i, word in zip(range(5, 9), data.masked_labels.tolist(), strict=True):
        mlm_logits = table @ layer(states[i], mlm.dense, mlm.norm) + mlm.bias
        h0 = torch.cat((states[4], states[9], sbo.position.weight[i - 5]))
        y = layer(layer(h0, sbo.first, sbo.first_norm), sbo.second, sbo.second_norm)
        sbo_logits = table @ y + sbo.bias
        total = total - mlm_logits.log_softmax(0)[word] - sbo_logits.log_softmax(0)[word]
    losses = model(data)
    assert losses["mlm"].total.item() + losses["sbo"].total.item() == pytest.approx(
        total.item(), rel=1e-5
    )
    means = [losses[name].total.item() / int(losses[name].count) for name in ("mlm", "sbo")]
    weights = [objective.weight for objective in model.named_objectives.values()]
    assert weights == [1.0, 1.0]
    assert sum(means) == pytest.approx(total.item() / 4, rel=1e-5)


def test_spans_at_the_edge_have_mlm_alone() -> None:
    model = made()
    data = sentence([(1, 2), (5, 6), (12, 12)])
    losses = model(data)
    assert (int(losses["mlm"].count), int(losses["sbo"].count)) == (5, 2)
    alone = model(sentence([(5, 6)]))["sbo"]
    assert int(alone.count) == 2
    assert model.named_objectives["sbo"].count(data) == 2


def test_tokens_beyond_the_table_have_mlm_alone() -> None:
    model = made(positions=3)
    losses = model(sentence([(4, 9)]))
    assert (int(losses["mlm"].count), int(losses["sbo"].count)) == (6, 3)


def test_only_edges_are_a_loss_of_zero() -> None:
    model = made()
    loss = model(sentence([(1, 3)]))["sbo"]
    assert (loss.total.item(), int(loss.count), int(loss.correct)) == (0.0, 0, 0)
    loss.total.backward()
    assert all(
        p.grad is None or p.grad.abs().max() == 0 for p in model.objectives["sbo"].parameters()
    )


def test_the_tokens_inside_do_not_enter() -> None:
    """The content of the span's positions must not reach the boundary head, but through
    attention.
    """
    model, data = made(), sentence([(5, 8)])
    objective, context = model.named_objectives["sbo"], model.context("sbo")
    output = model.encoder(data.input_ids, data.token_type_ids)
    before = objective.loss(output, data, context).total.item()
    changed = output.last.clone()
    changed[0, 5:9] += 1.0
    assert objective.loss(replace(output, last=changed), data, context).total.item() == before
    changed = output.last.clone()
    changed[0, 9] += 1.0
    assert objective.loss(replace(output, last=changed), data, context).total.item() != before


def test_the_place_in_the_span_matters_and_not_the_place_in_the_text() -> None:
    model, data = made(), sentence([(5, 8)])
    objective, context = model.named_objectives["sbo"], model.context("sbo")
    output = model.encoder(data.input_ids, data.token_type_ids)
    same = torch.ones_like(output.last)
    logits = []
    for spans in ([(5, 8)], [(3, 6)]):
        batch = replace(sentence(spans), masked_labels=data.masked_labels)
        logits.append(objective.loss(replace(output, last=same), batch, context).total.item())
    assert logits[0] == pytest.approx(logits[1])
    with torch.no_grad():
        head: Any = model.objectives["sbo"].head
        head.position.weight[1] += 1.0
    moved = objective.loss(replace(output, last=same), sentence([(5, 8)]), context).total.item()
    assert moved != pytest.approx(logits[0])
