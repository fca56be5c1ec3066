"""Every small recipe and every albert-next, made narrow, opens in `transformers` and computes the
same there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from litebert.config import EncoderConfig, replace
from litebert.config.serialization import from_dict
from litebert.model.pretrainer import Pretrainer
from litebert.recipes import RECIPES
from litebert.recipes.files import recipe
from toys.families import (
    VOCABULARY,
    assert_equal_outputs,
    inputs,
    our_outputs,
    randomize,
    reopen,
    their_outputs,
)
from toys.folders import save_hf

SMALL = [
    name for name in RECIPES if name.endswith(("-tiny", "-mini")) or name.startswith("albert-next")
]


@pytest.mark.parametrize("name", SMALL)
def test_every_small_recipe_leaves(name: str, tmp_path: Path) -> None:
    config = recipe(name)
    encoder = config.encoder
    narrow = 16 if encoder.embedding_size < encoder.hidden_size else 32
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "embedding_size": narrow,
        "hidden_size": 32,
        "heads": 4,
        "intermediate_size": 48,
    }
    encoder = replace(
        encoder, layers=min(encoder.layers, 12)
    )  # rounding adds up over 24 layers of random weights
    config = replace(config, train=replace(config.train, depth_schedule=()))
    model = Pretrainer(replace(config, encoder=replace(encoder, **sizes))).eval()
    randomize(model)
    save_hf(model, None, tmp_path / "hf")
    opened = reopen(tmp_path / "hf")
    assert type(opened).__name__.startswith("ModernBert")
    batch = inputs(types=0)
    written_outputs, opened_outputs = our_outputs(model, batch), their_outputs(opened, batch)
    shown = {key: tensor for key, tensor in written_outputs.items() if key in opened_outputs}
    assert {"hidden 0", f"hidden {encoder.layers}"} < shown.keys()
    assert ("mlm" in shown) == ("rtd" not in config.objectives)
    assert_equal_outputs(shown, opened_outputs)


def test_an_encoder_of_before_is_read_as_it_was() -> None:
    """Recipes of runs that began when the small block was another name none of the fields that came
    with this one.
    """
    before = {
        "vocab_size": VOCABULARY,
        "embedding_size": 8,
        "hidden_size": 16,
        "layers": 6,
        "heads": 2,
        "sharing": "all",
        "intermediate_size": 32,
        "segment_types": 2,
        "positions": "rotary",
        "norm": "pre",
        "feedforward": "gated",
        "bias": False,
    }
    encoder = from_dict(EncoderConfig, before)
    assert (encoder.embedding_norm, encoder.first_norm, encoder.prediction, encoder.window) == (
        "before",
        True,
        "embedding",
        0,
    )
    weights = Pretrainer(replace(recipe("albert-tiny"), encoder=encoder)).state_dict()
    assert weights["encoder.embedding.norm.weight"].shape == (8,)
    assert weights["encoder.embedding.token_type.weight"].shape == (2, 8)
    assert weights["objectives.mlm.head.dense.weight"].shape == (8, 16)
