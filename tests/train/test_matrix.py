"""Every cell of sharing x groups x (E = H, E < H) x objectives: it builds, counts, steps and resumes.

A cell that did any of these in a way of its own would be a branch per system; there is none to find.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

from litebert import registry
from litebert.config import Config, MaskingConfig, ReplacedTokenConfig, Sharing
from litebert.cost import model_parameters
from litebert.data.batches import Batch
from litebert.model.pretrainer import Pretrainer
from litebert.train.loop import Loop
from litebert.train.pretrain import pretrain
from toys.pretraining import config, result

SHARING: list[dict[str, Any]] = [
    {"sharing": "none"},
    {"sharing": "all"},
    {"sharing": "attention"},
    {"sharing": "feedforward"},
    *({"sharing": "groups", "groups": groups} for groups in (1, 2, 3)),
]
EMBEDDING = {"E < H": 8, "E = H": 16}
OBJECTIVES: list[tuple[str, ...]] = [
    ("mlm",), ("mlm", "sop"), ("mlm", "nsp"), ("mlm", "rtd"), ("mlm", "rtd", "sop"), ("mlm", "sbo"),
    ("mlm", "sbo", "nsp"),
]  # fmt: skip
MASKS = {
    "sbo": MaskingConfig(unit="word", span="geometric", max_span=10, replace_per="span"),
    "rtd": MaskingConfig(unit="token", span="single", replace_mask=0.85, replace_random=0.0),
}
DISTINCT = {"none": (3, 3), "all": (1, 1), "attention": (1, 3), "feedforward": (3, 1)}
"""Attention and feed-forward blocks that three layers have of their own."""


def cell(sharing: dict[str, Any], embedding: int, objectives: tuple[str, ...]) -> Config:
    """Three layers of H 16, with dropout, so that a step has every kind of randomness."""
    masking = next((MASKS[name] for name in objectives if name in MASKS), MaskingConfig())
    return config(
        encoder={**sharing, "layers": 3, "embedding_size": embedding, "hidden_dropout": 0.1, "attention_dropout": 0.1},
        train={"budget": "3 steps", "batch": "6 sequences", "micro_batch": 4, "save_every": "1 steps"},
        objectives=objectives,
        masking=masking,
        rtd=ReplacedTokenConfig(generator_width=0.5),
    )


class _Stop(Exception):
    """Stands for the instant a run is killed."""


@pytest.mark.parametrize("objectives", OBJECTIVES, ids=" + ".join)
@pytest.mark.parametrize("embedding", EMBEDDING.values(), ids=EMBEDDING)
@pytest.mark.parametrize("sharing", SHARING, ids=lambda sharing: " ".join(map(str, sharing.values())))
def test_a_cell(
    sharing: dict[str, Any], embedding: int, objectives: tuple[str, ...], tiny_data: Path, tmp_path: Path
) -> None:
    point = cell(sharing, embedding, objectives)
    whole = pretrain(point, tiny_data, tmp_path / "whole")
    assert whole.outcome.finished

    model = Pretrainer(whole.config)
    groups = sharing.get("groups", 1)
    attention, feedforward = DISTINCT.get(sharing["sharing"], (groups, groups))
    assert (len(model.encoder.attention), len(model.encoder.feedforward)) == (attention, feedforward)
    assert sum(p.numel() for p in model.parameters()) == sum(model_parameters(whole.config).values())

    def stop(loop: Loop[Batch]) -> None:
        if loop.step == 2:
            raise _Stop

    with pytest.raises(_Stop):
        pretrain(point, tiny_data, tmp_path / "cut", on_step=stop)
    assert [path.name for path in (tmp_path / "cut" / "checkpoints").glob("step-*")] == ["step-00000001"]
    assert pretrain(point, tiny_data, tmp_path / "cut").outcome.finished
    assert result(tmp_path / "cut") == result(tmp_path / "whole")

    scores = whole.outcome.scores
    asked = {name for name in objectives if name not in ("sop", "nsp")}  # few sentence pairs carry a label here
    assert {f"{name}_loss" for name in asked} <= scores.keys()


def test_the_list_holds_every_value() -> None:
    assert {sharing["sharing"] for sharing in SHARING} == set(get_args(Sharing))
    assert {name for objectives in OBJECTIVES for name in objectives} == set(registry.OBJECTIVES)
    assert len(list(product(SHARING, EMBEDDING, OBJECTIVES))) == 98
