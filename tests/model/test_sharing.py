"""The blocks that layers share: the maps of blocks, at every depth, and that sharing is equal
weights whose gradients add.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from litebert.config import EncoderConfig
from litebert.model.encoder import Encoder
from toys.points import randomize, shape

MAPS: list[tuple[dict[str, Any], list[int], list[int]]] = [
    ({"sharing": "none"}, [0, 1, 2, 3], [0, 1, 2, 3]),
    ({"sharing": "all"}, [0, 0, 0, 0], [0, 0, 0, 0]),
    ({"sharing": "attention"}, [0, 0, 0, 0], [0, 1, 2, 3]),
    ({"sharing": "feedforward"}, [0, 1, 2, 3], [0, 0, 0, 0]),
    ({"sharing": "groups", "groups": 2}, [0, 0, 1, 1], [0, 0, 1, 1]),
    ({"sharing": "groups", "groups": 3}, [0, 0, 1, 2], [0, 0, 1, 2]),
    ({"sharing": "groups", "groups": 4}, [0, 1, 2, 3], [0, 1, 2, 3]),
]


@pytest.mark.parametrize(("changes", "attention", "feedforward"), MAPS)
def test_layers_apply_the_blocks_of_their_map_in_order(
    changes: dict[str, Any], attention: list[int], feedforward: list[int]
) -> None:
    encoder = Encoder(shape(**changes))
    assert len(encoder.attention) == max(attention) + 1
    assert len(encoder.feedforward) == max(feedforward) + 1
    called: list[tuple[str, int]] = []
    for kind, blocks in (("a", encoder.attention), ("f", encoder.feedforward)):
        for index, block in enumerate(blocks):
            block.register_forward_hook(lambda *_, key=(kind, index): called.append(key))
    encoder(torch.ones(1, 8, dtype=torch.long))
    assert called == [
        key for a, f in zip(attention, feedforward, strict=True) for key in (("a", a), ("f", f))
    ]


@pytest.mark.parametrize("sharing", ["all", "attention", "feedforward"])
def test_sharing_is_unshared_layers_with_equal_weights_whose_gradients_add(sharing: Any) -> None:
    shared = Encoder(shape(sharing=sharing, pooler=False))
    apart = Encoder(shape(sharing="none", pooler=False))
    randomize(shared)
    apart.load_state_dict(
        {name: shared.state_dict()[source(name, sharing)] for name in apart.state_dict()}
    )
    ids = torch.arange(5, 21).view(2, 8)
    shared_output, two = shared(ids), apart(ids)
    for first, second in zip(shared.states(ids), apart.states(ids), strict=True):
        assert torch.equal(first, second)
    shared_output.last.square().sum().backward()
    two.last.square().sum().backward()
    for name, parameter in shared.named_parameters():
        copies: list[Any] = [
            copy.grad for other, copy in apart.named_parameters() if source(other, sharing) == name
        ]
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, sum(copies), rtol=1e-4, atol=1e-4), name


def source(name: str, sharing: str) -> str:
    """The shared parameter that one of unshared layers is a copy of."""
    kind, _, rest = name.partition(".")
    index, _, leaf = rest.partition(".")
    return f"{kind}.0.{leaf}" if index.isdigit() and sharing in ("all", kind) else name


@given(layers=st.integers(1, 60), groups=st.integers(1, 60))
def test_groups_are_adjacent_and_nearly_equal(layers: int, groups: int) -> None:
    groups = min(groups, layers)
    blocks = EncoderConfig(layers=layers, sharing="groups", groups=groups).attention_of()
    assert list(blocks) == sorted(blocks)
    sizes = [blocks.count(group) for group in range(groups)]
    assert sum(sizes) == layers
    assert max(sizes) - min(sizes) <= 1


def test_groups_stretch_over_another_depth() -> None:
    config = shape(sharing="groups", groups=2)
    assert config.attention_of(2) == (0, 1)
    assert config.attention_of(6) == (0, 0, 0, 1, 1, 1)
