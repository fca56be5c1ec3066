"""Measures from layer to layer, against `transformers` and where they are known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.analysis.layers import analyze, compute_similarity
from litebert.base.errors import ConfigError, DataError
from litebert.interop import read_folder
from litebert.train.pretrain import pretrain
from toys.families import FAMILIES, LENGTH, VOCABULARY, build_peer
from toys.pretraining import config
from toys.refusals import names, refused


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_and_states_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    model = build_peer(family, "backbone")
    model.config._attn_implementation = "eager"
    model.save_pretrained(tmp_path)
    encoder = read_folder(tmp_path).model.encoder
    ids = torch.randint(5, VOCABULARY, (3, LENGTH), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 9:] = 0
    with torch.no_grad():
        output = model(ids, attention_mask=mask, output_attentions=True, output_hidden_states=True)
        states = list(encoder.states(ids, None, mask))
        for layer, weights in enumerate(output.attentions):
            our_weights = encoder.attention_weights(layer, states[layer], mask)
            real = mask.bool()
            torch.testing.assert_close(
                our_weights.transpose(1, 2)[real], weights.transpose(1, 2)[real], atol=1e-5, rtol=0
            )


@given(st.integers(0, 10_000), st.integers(2, 6), st.floats(0.1, 10))
@settings(max_examples=20)
def test_similarity_sees_through_rotations_and_factors(
    seed: int, width: int, factor: float
) -> None:
    draw = torch.Generator().manual_seed(seed)
    states = torch.randn(40, width, generator=draw, dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(width, width, generator=draw, dtype=torch.float64))[0]
    other = torch.randn(40, width, generator=draw, dtype=torch.float64)
    similarity = np.array(compute_similarity([states, factor * states @ turn + 3, other]))
    assert similarity[0, 1] == pytest.approx(1)
    assert np.allclose(similarity, similarity.T)
    assert similarity[0, 2] < 0.999
    assert similarity[1, 2] == pytest.approx(similarity[0, 2])


@pytest.fixture(scope="module")
def trained_run(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shared layers, trained for twelve steps."""
    folder = tmp_path_factory.mktemp("analyzed") / "a-run"
    pretrain(config(), tiny_data, folder)
    return folder


def test_a_model_beside_its_untrained_self(trained_run: Path, tiny_data: Path) -> None:
    model, control = analyze([trained_run], tiny_data, sequences=40)
    assert (model.name, control.name) == ("a-run", "a-run, from scratch")
    assert model.tokens == control.tokens > 1000
    assert model.layers[0].mlm_loss is not None
    assert control.layers[0].mlm_loss is None
    for layer in (*model.layers, *control.layers):
        assert 0 < layer.angle < 180
        assert layer.distance > 0
        assert all(0 <= nats <= np.log(32) + 1e-6 for nats in layer.entropy)
        assert all(0 <= distance < 32 for distance in layer.reach)
    # An untrained network attends nearly evenly, so every head reads at about a third of the
    # length; some sequences are shorter than 32 tokens.
    assert control.layers[0].entropy == pytest.approx([np.log(32)] * 2, abs=0.2)
    assert control.layers[0].reach == pytest.approx([32 / 3] * 2, abs=1.5)


def test_the_verb_writes_a_page_and_numbers(
    trained_run: Path, tiny_data: Path, tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    page = tmp_path / "page.html"
    status, out, err = run(
        "analyze", trained_run, "--shards", tiny_data, "--sequences", 8, "--out", page, "--json"
    )
    assert status == 0, err
    assert [len(result["layers"]) for result in json.loads(out)] == [2, 2]
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") >= 5
    assert "a-run, from scratch" in text
    status, _, err = run(
        "analyze", trained_run, "--shards", tiny_data, "--out", tmp_path / "gone" / "page.html"
    )
    assert status == 2
    names(err, tmp_path / "gone" / "page.html")


def test_what_cannot_be_analyzed_is_refused(
    trained_run: Path, tiny_data: Path, tmp_path: Path
) -> None:
    with refused(ConfigError, "0"):
        analyze([trained_run], tiny_data, sequences=0)
    with refused(ConfigError, "100", "64"):
        analyze([trained_run], tiny_data, length=100)
    build_peer("Bert", "backbone").save_pretrained(tmp_path / "other")
    with refused(DataError, tmp_path / "other", tiny_data, "no tokenizer"):
        analyze([tmp_path / "other"], tiny_data)
