"""Layers are compiled once for all layers and depths, and never silently run uncompiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from litebert.config import Config, replace
from litebert.model.pretrainer import Pretrainer, compile_parts
from litebert.train.measure import make_batch
from toys.pretraining import config

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own code

AROUND = 3
"""Graphs around the layers: the embedding, the head for masked tokens and its cross-entropy."""


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Graphs that have been compiled; nothing is generated, which would take minutes."""
    made: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Callable[..., Any]:
        made.append(graph)
        run: Callable[..., Any] = graph.forward
        return run

    limit = torch._dynamo.config.cache_size_limit
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield made
    assert not torch._dynamo.utils.counters["unimplemented"]
    torch._dynamo.reset()
    torch._dynamo.config.cache_size_limit = limit


def losses(
    model: Pretrainer, point: Config, sequences: int, padded: bool = False, depth: int | None = None
) -> Tensor:
    batch = make_batch(point, sequences)
    if padded:
        mask = torch.ones_like(batch.input_ids, dtype=torch.bool)
        mask[:, -3:] = False
        batch = replace(batch, attention_mask=mask)
    return torch.stack([loss.total for loss in model(batch, depth).values()])


@pytest.mark.parametrize("sharing", ["all", "none"])
def test_a_layer_is_compiled_once_for_all_of_them_and_depths(
    sharing: Any, graphs: list[Any]
) -> None:
    point = config(encoder={"layers": 12, "sharing": sharing})
    model = Pretrainer(point)
    expected = losses(model, point, 4)
    compile_parts(model)
    actual = losses(model, point, 4)
    torch.testing.assert_close(actual, expected)
    actual.sum().backward()  # type: ignore[no-untyped-call]
    assert len(graphs) == 1 + AROUND
    for depth in (1, 3, 11, 12):
        losses(model, point, 4, depth=depth)
    assert len(graphs) == 1 + AROUND


def test_windows_and_a_first_layer_without_norm_are_kinds_of_their_own(graphs: list[Any]) -> None:
    modern = {
        "norm": "pre",
        "first_norm": False,
        "window": 4,
        "global_every": 3,
        "positions": "rotary",
    }
    point = config(encoder={"layers": 9, "sharing": "all", **modern})
    model = Pretrainer(point)
    expected = losses(model, point, 4)
    compile_parts(model)
    torch.testing.assert_close(losses(model, point, 4), expected)
    assert len(graphs) == 3 + AROUND


@pytest.mark.thorough
def test_batches_of_many_kinds_stay_compiled(graphs: list[Any]) -> None:
    point = config(objectives=("mlm", "rtd"), encoder={"layers": 1, "heads": 4})
    model = Pretrainer(point)
    compile_parts(model)
    for padded in (False, True):
        for sequences in (4, 3):
            losses(model, point, sequences, padded)
    many = len(graphs)
    assert many > 8
    losses(model, point, 9, padded=True)
    assert len(graphs) == many
