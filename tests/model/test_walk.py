"""A walk through an encoder that goes on with some of its sequences, as early exits do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from litebert.model.encoder import Encoder
from toys.points import PIECES, randomize, shape


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"positions": "rotary", "norm": "pre", "window": 4, "global_every": 2, "sharing": "none"},
        {"position_offset": 3},
        {"positions": "rotary", "window": 4, "global_every": 3},
        {"window": 4, "global_every": 0, "global_tokens": 2},
    ],
)
def test_a_walk_may_go_on_with_some_sequences(changes: dict[str, Any]) -> None:
    """The rest of the walk is as if they alone had come, unpadded where the longest of them allows
    it.
    """
    encoder = Encoder(shape(**changes)).eval()
    randomize(encoder)
    draw = torch.Generator().manual_seed(1)
    lengths = torch.tensor([16, 7, 12, 9, 5])
    mask = torch.arange(16) < lengths[:, None]
    ids = torch.randint(5, PIECES, (5, 16), generator=draw).masked_fill(~mask, 0)
    walk = encoder.states(ids, None, mask)
    states = [
        next(walk),
        next(walk),
        walk.send((torch.tensor([1, 2, 3]), 12)),
        walk.send((torch.tensor([0, 2]), 9)),
    ]
    rest = [*states, *walk]
    assert [tuple(state.shape[:2]) for state in rest] == [(5, 16), (5, 16), (3, 12), (2, 9), (2, 9)]
    for row, place in ((1, 0), (3, 1)):
        alone = list(encoder.states(ids[row : row + 1, : lengths[row]]))
        assert torch.allclose(rest[-1][place, : lengths[row]], alone[-1][0], atol=1e-4)
