"""Cells of sharing x groups x (E = H, E < H) x objectives: each builds, counts, steps and resumes.

A cell that did any of these in a way of its own would be a branch per system; there is none to
find. The default run takes a cover in which every two values of different axes meet, `slow` the
rest.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

from litebert.base import registry
from litebert.config import Config, MaskingConfig, ReplacedTokenConfig, Sharing
from litebert.config.cost import model_parameters
from litebert.model.pretrainer import Pretrainer
from toys.killed import Killed, kill_at
from toys.pretraining import config, pretrain, result

pytestmark = pytest.mark.thorough


SHARING: list[dict[str, Any]] = [
    {"sharing": "none"},
    {"sharing": "all"},
    {"sharing": "attention"},
    {"sharing": "feedforward"},
    *({"sharing": "groups", "groups": groups} for groups in (1, 2, 3)),
]
EMBEDDING = {"E < H": 8, "E = H": 16}
OBJECTIVES: list[tuple[str, ...]] = [
    ("mlm",),
    ("mlm", "sop"),
    ("mlm", "nsp"),
    ("mlm", "rtd"),
    ("mlm", "rtd", "sop"),
    ("mlm", "sbo"),
    ("mlm", "sbo", "nsp"),
]
MASKS = {
    "sbo": MaskingConfig(unit="word", span="geometric", max_span=10, replace_per="span"),
    "rtd": MaskingConfig(unit="token", span="single", replace_mask=0.85, replace_random=0.0),
}
DISTINCT = {"none": (3, 3), "all": (1, 1), "attention": (1, 3), "feedforward": (3, 1)}
"""Attention and feed-forward blocks that three layers have of their own."""


Cell = tuple[dict[str, Any], int, tuple[str, ...]]
PRODUCT: list[Cell] = list(product(SHARING, EMBEDDING.values(), OBJECTIVES))


def covers(cell: Cell) -> bool:
    """True if the cell is in the cover: each sharing meets each objective with one of the two
    widths, by turns.
    """
    sharing, embedding, objectives = cell
    place = (
        SHARING.index(sharing)
        + list(EMBEDDING.values()).index(embedding)
        + OBJECTIVES.index(objectives)
    )
    return place % 2 == 0


def name_of(cell: Cell) -> str:
    sharing, embedding, objectives = cell
    width = next(name for name, value in EMBEDDING.items() if value == embedding)
    return f"{' '.join(map(str, sharing.values()))}, {width}, {' + '.join(objectives)}"


def point_of(sharing: dict[str, Any], embedding: int, objectives: tuple[str, ...]) -> Config:
    """Three layers of H 16, with dropout, so that a step has every kind of randomness."""
    masking = next((MASKS[name] for name in objectives if name in MASKS), MaskingConfig())
    return config(
        encoder={
            **sharing,
            "layers": 3,
            "embedding_size": embedding,
            "hidden_dropout": 0.1,
            "attention_dropout": 0.1,
        },
        train={
            "budget": "3 steps",
            "batch": "6 sequences",
            "micro_batch": 4,
            "save_every": "1 steps",
        },
        objectives=objectives,
        masking=masking,
        rtd=ReplacedTokenConfig(generator_width=0.5),
    )


@pytest.mark.parametrize(
    ("sharing", "embedding", "objectives"),
    [
        pytest.param(*cell, id=name_of(cell), marks=[] if covers(cell) else pytest.mark.slow)
        for cell in PRODUCT
    ],
)
def test_a_cell(
    sharing: dict[str, Any],
    embedding: int,
    objectives: tuple[str, ...],
    tiny_data: Path,
    tmp_path: Path,
) -> None:
    point = point_of(sharing, embedding, objectives)
    whole = pretrain(point, tiny_data, tmp_path / "whole")
    assert whole.outcome.finished

    model = Pretrainer(whole.config)
    groups = sharing.get("groups", 1)
    attention, feedforward = DISTINCT.get(sharing["sharing"], (groups, groups))
    assert (len(model.encoder.attention), len(model.encoder.feedforward)) == (
        attention,
        feedforward,
    )
    assert sum(p.numel() for p in model.parameters()) == sum(
        model_parameters(whole.config).values()
    )

    with pytest.raises(Killed):
        pretrain(point, tiny_data, tmp_path / "cut", on_step=kill_at(2))
    assert [path.name for path in (tmp_path / "cut" / "checkpoints").glob("step-*")] == [
        "step-00000001"
    ]
    assert pretrain(point, tiny_data, tmp_path / "cut").outcome.finished
    assert result(tmp_path / "cut") == result(tmp_path / "whole")

    scores = whole.outcome.scores
    scored = {name for name in objectives if name not in ("sop", "nsp")}  # few labeled pairs
    assert {f"{name}_loss" for name in scored} <= scores.keys()


def test_the_list_holds_every_value() -> None:
    assert {sharing["sharing"] for sharing in SHARING} == set(get_args(Sharing))
    # Others need a teacher.
    alone = {name for name, objective in registry.OBJECTIVES.items() if not objective.taught}
    assert {name for objectives in OBJECTIVES for name in objectives} == alone


@pytest.mark.parametrize(("first", "second"), [(0, 1), (0, 2), (1, 2)])
def test_every_two_values_of_different_axes_meet_in_the_cover(first: int, second: int) -> None:
    def met(cells: list[Cell]) -> set[str]:
        return {repr((cell[first], cell[second])) for cell in cells}

    cover = [cell for cell in PRODUCT if covers(cell)]
    assert met(cover) == met(PRODUCT)
    assert 2 * len(cover) == len(PRODUCT)
