"""Causal language modeling: what its batches hold, its formula by hand, and the run that begins
with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from litebert import cost
from litebert.config import CausalConfig, replace
from litebert.data.batches import Batch
from litebert.data.shards import Shards
from litebert.errors import ConfigError
from litebert.model.pretrainer import Pretrainer
from litebert.train import metrics
from litebert.train.pretrain import pretrain
from litebert.train.supply import PretrainingBatches
from toys import points
from toys.pretraining import config, result
from toys.refusals import refused

OBJECTIVES = ("mlm", "clm", "sop")


def batch(ids: torch.Tensor, real: torch.Tensor | None, causal: bool = True) -> Batch:
    none = torch.empty(0, dtype=torch.int64)
    labels = torch.full(ids.shape[:1], -100)
    return Batch(
        ids,
        torch.zeros_like(ids),
        real,
        none,
        none,
        labels,
        torch.empty(0, 2, dtype=torch.int64),
        None,
        causal,
    )


@torch.no_grad()
@pytest.mark.parametrize(
    "changes", [{}, {"positions": "rotary", "norm": "pre"}], ids=["ALBERT's", "pre-norm, rotary"]
)
def test_it_is_the_cross_entropy_of_the_next_token_and_knows_nothing_later(
    changes: dict[str, Any],
) -> None:
    model = Pretrainer(points.config(OBJECTIVES, **changes)).eval()
    points.randomise(model)
    ids = torch.randint(5, 30, (3, 10), generator=torch.Generator().manual_seed(0))
    real = torch.arange(10) < torch.tensor([[10], [7], [2]])
    losses = model(batch(ids, real))

    states = model.encoder(ids, None, real, causal=True).last
    logits = model.objectives["mlm"].head(
        states, model.encoder.embedding.word.weight, model.encoder.embedding.map
    )
    pairs = [(row, place) for row in range(3) for place in range(9) if real[row, place + 1]]
    each = [F.cross_entropy(logits[row, place], ids[row, place + 1]) for row, place in pairs]
    assert losses["clm"].total.item() == pytest.approx(sum(map(float, each)), rel=1e-5)
    assert int(losses["clm"].count) == len(pairs) == 9 + 6 + 1
    assert {name: int(loss.count) for name, loss in losses.items()} == {
        "clm": 16,
        "mlm": 0,
        "sop": 0,
    }

    later = ids.clone()
    later[:, 6:] = 3
    torch.testing.assert_close(
        model.encoder(later, None, real, causal=True).last[:, :6], states[:, :6]
    )
    both_ways = model.encoder(ids, None, real).last
    assert not torch.allclose(model.encoder(later, None, real).last[:, :6], both_ways[:, :6])


def test_a_batch_that_is_not_causal_holds_nothing_for_it() -> None:
    model = Pretrainer(points.config(OBJECTIVES))
    losses = model(batch(torch.arange(5, 15)[None], None, causal=False))
    assert int(losses["clm"].count) == 0
    assert losses["clm"].total.item() == 0


@settings(max_examples=20, deadline=None)
@given(share=st.floats(0.01, 0.99), steps=st.integers(1, 12))
def test_the_first_share_of_the_steps_is_causal(tiny_data: Path, share: float, steps: int) -> None:
    point = replace(config(objectives=OBJECTIVES), clm=CausalConfig(share=share))
    supply = PretrainingBatches(point, Shards.open(tiny_data), steps=steps)
    made = [supply(step, slice(0, 4)) for step in range(steps + 2)]
    assert [one.causal for one in made] == [
        step < round(share * steps) for step in range(steps + 2)
    ]
    for one in made:
        objectives = point.named_objectives()
        predicted = {name: objectives[name].count(one) for name in OBJECTIVES}
        if one.causal:
            assert predicted["clm"] == one.tokens - 4, "every token but the first of each sequence"
            assert predicted["mlm"] == predicted["sop"] == 0
        else:
            assert predicted["clm"] == 0 < predicted["mlm"]


class Killed(Exception):
    """Stands for the instant a run is killed."""


def test_a_run_begins_with_it_and_continues_bit_for_bit(tiny_data: Path, tmp_path: Path) -> None:
    point = config(train={"save_every": "1 steps", "budget": "6 steps"}, objectives=OBJECTIVES)
    point = replace(point, clm=CausalConfig(share=0.5))
    whole = pretrain(point, tiny_data, tmp_path / "whole")
    rows = [
        row for row in metrics.read(tmp_path / "whole" / "metrics.jsonl") if row["kind"] == "train"
    ]
    learned = [{name for name in OBJECTIVES if f"{name}_loss" in row} for row in rows]
    assert learned == [{"clm"}] * 3 + [{"mlm", "sop"}] * 3
    assert "mlm_loss" in whole.outcome.scores
    assert not any(name.startswith("clm") for name in whole.outcome.scores)

    def killed(loop: Any) -> None:
        if loop.step in (2, 4):
            raise Killed

    for _ in range(2):
        with pytest.raises(Killed):
            pretrain(point, tiny_data, tmp_path / "killed", on_step=killed)
    pretrain(point, tiny_data, tmp_path / "killed")
    assert result(tmp_path / "killed") == result(tmp_path / "whole")


def test_its_cost_lies_between_the_masks_and_all_tokens() -> None:
    masked, mixed = points.config(("mlm",)), points.config(("mlm", "clm"))
    assert cost.model_parameters(mixed) == cost.model_parameters(masked)
    head = masked.named_objectives()["mlm"].flops(16) / masked.masking.rate
    share = mixed.clm.share + (1 - mixed.clm.share) * masked.masking.rate
    assert cost.forward_flops(mixed) - cost.forward_flops(masked) == pytest.approx(
        (share - masked.masking.rate) * head
    )
    assert mixed.predicted_share == pytest.approx(share)


def test_what_cannot_be_is_refused() -> None:
    with refused(ConfigError, "clm", "mlm"):
        points.config(("clm",))
    with refused(ConfigError, "clm", "rtd"):
        points.config(("mlm", "clm", "rtd"))
    with refused(ConfigError, "clm", "encoder.window"):
        points.config(("mlm", "clm"), window=4, global_every=2)
    with refused(ConfigError, "clm.share"):
        CausalConfig(share=1.0)
