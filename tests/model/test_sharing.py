"""What layers share: the maps of blocks, at every depth, and that sharing is equal weights whose
gradients add.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from litebert.config import EncoderConfig
from litebert.cost import model_parameters
from litebert.model.encoder import Encoder
from litebert.model.pretrainer import Pretrainer
from litebert.train.pretrain import pretrain
from toys.points import randomise, shape
from toys.pretraining import config, result

MAPS: list[tuple[dict[str, Any], list[int], list[int]]] = [
    ({"sharing": "none"}, [0, 1, 2, 3], [0, 1, 2, 3]),
    ({"sharing": "all"}, [0, 0, 0, 0], [0, 0, 0, 0]),
    ({"sharing": "attention"}, [0, 0, 0, 0], [0, 1, 2, 3]),
    ({"sharing": "feedforward"}, [0, 1, 2, 3], [0, 0, 0, 0]),
    ({"sharing": "groups", "groups": 2}, [0, 0, 1, 1], [0, 0, 1, 1]),
    ({"sharing": "groups", "groups": 3}, [0, 0, 1, 2], [0, 0, 1, 2]),
    ({"sharing": "groups", "groups": 4}, [0, 1, 2, 3], [0, 1, 2, 3]),
    ({"sharing": "cycle", "groups": 1}, [0, 0, 0, 0], [0, 0, 0, 0]),
    ({"sharing": "cycle", "groups": 3}, [0, 1, 2, 0], [0, 1, 2, 0]),
    ({"sharing": "all", "own_ends": 1}, [0, 2, 2, 1], [0, 2, 2, 1]),
    ({"sharing": "cycle", "groups": 2, "own_ends": 1}, [0, 2, 3, 1], [0, 2, 3, 1]),
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
    randomise(shared)
    apart.load_state_dict(
        {name: shared.state_dict()[source(name, sharing)] for name in apart.state_dict()}
    )
    ids = torch.arange(5, 21).view(2, 8)
    one, two = shared(ids), apart(ids)
    for first, second in zip(shared.states(ids), apart.states(ids), strict=True):
        assert torch.equal(first, second)
    one.last.square().sum().backward()
    two.last.square().sum().backward()
    for name, parameter in shared.named_parameters():
        total = sum(
            copy.grad for other, copy in apart.named_parameters() if source(other, sharing) == name
        )
        assert torch.allclose(parameter.grad, total, rtol=1e-4, atol=1e-4), name


def source(name: str, sharing: str) -> str:
    """The shared parameter that one of unshared layers is a copy of."""
    kind, _, rest = name.partition(".")
    index, _, leaf = rest.partition(".")
    return f"{kind}.0.{leaf}" if index.isdigit() and sharing in ("all", kind) else name


@given(layers=st.integers(1, 60), groups=st.integers(1, 60))
def test_groups_are_adjacent_and_nearly_equal(layers: int, groups: int) -> None:
    groups = min(groups, layers)
    found = EncoderConfig(layers=layers, sharing="groups", groups=groups).attention_of()
    assert list(found) == sorted(found)
    sizes = [found.count(group) for group in range(groups)]
    assert sum(sizes) == layers
    assert max(sizes) - min(sizes) <= 1


def test_groups_stretch_over_another_depth() -> None:
    config = shape(sharing="groups", groups=2)
    assert config.attention_of(2) == (0, 1)
    assert config.attention_of(6) == (0, 0, 0, 1, 1, 1)


@given(
    blocks=st.integers(1, 9), ends=st.integers(0, 4), layers=st.integers(1, 40), cycle=st.booleans()
)
def test_the_blocks_of_both_ends_are_the_same_at_every_depth(
    blocks: int, ends: int, layers: int, cycle: bool
) -> None:
    least = blocks + 2 * ends
    layers = max(layers, least)
    config = EncoderConfig(
        layers=layers, sharing="cycle" if cycle else "groups", groups=blocks, own_ends=ends
    )
    assert config.least_layers == least
    for depth in range(least, layers + 1):
        found = config.attention_of(depth)
        assert len(found) == depth
        assert {*found} == {*range(least)}
        assert found[:ends] + found[depth - ends :] == tuple(range(2 * ends))
        middle = found[ends : depth - ends]
        assert all(middle[i] == middle[i - blocks] for i in range(blocks, len(middle))) or not cycle
        assert list(middle) == sorted(middle) or cycle


# ------------------------------------------------------------- what a layer adds to shared matrices


@pytest.mark.parametrize(
    "changes", [{"sharing": "all", "own_ends": 1}, {"norm": "pre", "feedforward": "gated"}], ids=str
)
@pytest.mark.parametrize("recompute", [False, True])
def test_vectors_of_its_own_make_a_layer_another_and_add_nothing_at_first(
    changes: dict[str, Any], recompute: bool
) -> None:
    ids = torch.arange(5, 21).view(2, 8)
    torch.manual_seed(1)
    plain = Encoder(shape(pooler=False, **changes))
    torch.manual_seed(1)
    own = Encoder(shape(pooler=False, own_vectors=True, **changes))
    own.recompute = recompute
    assert torch.equal(plain(ids).last, own(ids).last)
    assert own.config.layers == len(own.own)
    randomise(own)
    apart = Encoder(shape(pooler=False, **{**changes, "sharing": "none", "own_ends": 0}))
    state = {
        name: one
        for name, one in own.state_dict().items()
        if name.split(".")[0] in ("embedding", "norm")
    }
    maps = {"attention": own.config.attention_of(), "feedforward": own.config.feedforward_of()}
    for kind, (name, blocks) in enumerate(maps.items()):
        for layer, block in enumerate(blocks):
            for leaf, tensor in own.get_submodule(f"{name}.{block}").state_dict().items():
                matrix = leaf.removesuffix(".weight")
                pair = own.own[layer][kind]
                added = torch.outer(pair.u[matrix], pair.v[matrix]) if matrix in pair.u else 0.0
                state[f"{name}.{layer}.{leaf}"] = tensor + added
    apart.load_state_dict(state)
    for one, other in zip(own.states(ids), apart.states(ids), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    own(ids).last.square().sum().backward()
    apart(ids).last.square().sum().backward()
    for kind, (name, blocks) in enumerate(maps.items()):
        for layer in range(len(blocks)):
            pair = own.own[layer][kind]
            for matrix, u in pair.u.items():
                grad = apart.get_submodule(f"{name}.{layer}.{matrix}").weight.grad
                torch.testing.assert_close(u.grad, grad @ pair.v[matrix], rtol=1e-3, atol=1e-3)
    depths = own.depths()
    assert depths[own.own[2][1].u["input"]] == 3


def test_a_run_with_vectors_of_its_own_grows_and_continues_bit_for_bit(
    tiny_data: Path, tmp_path: Path
) -> None:
    point = config(
        encoder={"layers": 3, "own_vectors": True},
        train={"budget": "5 steps", "save_every": "1 steps", "depth_schedule": ((0.4, 1),)},
    )
    whole = pretrain(point, tiny_data, tmp_path / "whole")
    assert sum(p.numel() for p in Pretrainer(whole.config).parameters()) == sum(
        model_parameters(whole.config).values()
    )

    def stop(loop: Any) -> None:
        if loop.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(point, tiny_data, tmp_path / "cut", on_step=stop)
    pretrain(point, tiny_data, tmp_path / "cut")
    assert result(tmp_path / "cut") == result(tmp_path / "whole")
