"""Every kind of positions: a table, a rotation, a bias of the scores."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from litebert.base.errors import ConfigError, DataError
from litebert.base.registry import POSITIONS
from litebert.config import EncoderConfig
from litebert.config.cost import model_parameters
from litebert.model.attention_positions import AttentionPositions, Rotary
from litebert.model.encoder import Encoder
from litebert.model.positions import Positions
from litebert.model.pretrainer import Pretrainer
from toys.points import batch, config, randomize, shape
from toys.refusals import refused

LONGEST = 24


class DistanceTable(AttentionPositions):
    """A learned number for every head and distance (Shaw et al. 2018, as T5 has it)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(2 * LONGEST - 1, config.heads)

    def bias(self, length: int) -> Tensor:
        place_S = torch.arange(length)
        bias_SSA: Tensor = self.table(place_S - place_S[:, None] + LONGEST - 1)
        return bias_SSA.permute(2, 0, 1)


class Distances(Positions):
    def check(self) -> None:
        super().check()
        if self.config.max_positions != LONGEST:
            raise ConfigError(
                f"encoder.max_positions is {self.config.max_positions} and must be {LONGEST}"
            )

    def attention_parameters(self) -> int:
        return (2 * LONGEST - 1) * self.config.heads

    def attention(self) -> AttentionPositions:
        return DistanceTable(self.config)


POSITIONS.add("distances", Distances)


@given(distance=st.integers(0, 15), place=st.integers(0, 7), seed=st.integers(0, 100))
def test_rotated_products_depend_on_the_distance_alone(
    distance: int, place: int, seed: int
) -> None:
    rotary = Rotary(shape(positions="rotary"))
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, 4, generator=generator)
    turned_q, turned_k = (rotary.rotate(x.expand(1, 1, LONGEST, 4))[0, 0] for x in (q, k))
    assert torch.allclose(
        turned_q[place] @ turned_k[place + distance],
        turned_q[0] @ turned_k[distance],
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("positions", POSITIONS)
def test_order_matters_with_positions_of_every_kind(positions: str) -> None:
    ids = torch.arange(5, 13)[None]
    encoder = Encoder(shape(positions=positions)).eval()
    randomize(encoder)
    turned = encoder(ids.flip(1)).last.flip(1)
    assert (turned - encoder(ids).last).abs().max() > 1e-2


@pytest.mark.parametrize("positions", POSITIONS)
def test_parameters_are_counted_for_encoder_and_generator(positions: str) -> None:
    point = config(("mlm", "rtd"), positions=positions)
    assert sum(p.numel() for p in Pretrainer(point).parameters()) == sum(
        model_parameters(point).values()
    )


def test_positions_end_with_the_table() -> None:
    encoder = Encoder(shape())
    encoder(torch.ones(1, LONGEST, dtype=torch.long))
    with refused(DataError, 25, "encoder.max_positions", LONGEST):
        encoder(torch.ones(1, LONGEST + 1, dtype=torch.long))


def test_a_kind_refuses_what_it_cannot_do_and_an_unknown_one_is_refused() -> None:
    with refused(ConfigError, "encoder.max_positions", 16):
        shape(positions="distances", max_positions=16)
    with refused(ConfigError, "encoder.position_offset", 2):
        shape(positions="distances", position_offset=2)
    with refused(ConfigError, "encoder.positions", "rotatory", "rotary"):
        shape(positions="rotatory")


@pytest.mark.parametrize("training", [True, False])
def test_padding_changes_nothing_beside_a_bias(training: bool) -> None:
    """This holds with autocast and gradients, as a CPU trains in bfloat16, and in float32."""
    encoder = Encoder(shape(positions="distances")).eval()
    randomize(encoder)
    made = batch()
    assert made.attention_mask is not None
    tolerance = 0.06 if training else 1e-5
    with torch.set_grad_enabled(training), torch.autocast("cpu", torch.bfloat16, enabled=training):
        output = encoder(made.input_ids, made.token_type_ids, made.attention_mask)
        for row, length in enumerate(made.attention_mask.sum(1).tolist()):
            alone = encoder(
                made.input_ids[row : row + 1, :length], made.token_type_ids[row : row + 1, :length]
            )
            assert torch.allclose(
                output.last[row, :length].float(), alone.last[0].float(), atol=tolerance
            )


def test_a_bias_is_added_to_the_scores_of_every_layer() -> None:
    """A bias that rules out all keys but the token itself leaves each token its own value."""
    encoder = Encoder(shape(positions="distances", layers=1)).eval()
    randomize(encoder)
    with torch.no_grad():
        encoder.positions.table.weight.fill_(-1e4)[LONGEST - 1] = 0.0
    ids = torch.arange(5, 15)[None]
    x, last = encoder.states(ids)
    block: Any = encoder.attention[0]
    alone = block.norm(x + block.output(block.qkv(x)[..., -16:]))
    assert torch.allclose(last, encoder.feedforward[0](alone), atol=1e-6)
