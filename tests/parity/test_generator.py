"""A model and the generator it learned from: two folders of `transformers`, each computing what it
did together.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from litebert import load
from litebert.base.errors import ModelError
from litebert.change.conversion import convert
from litebert.config import ReplacedTokenConfig, replace
from litebert.model.pretrainer import Pretrainer
from toys.families import (
    NO_POOLER,
    assert_equal_outputs,
    build_litebert,
    build_peer,
    generator_outputs,
    inputs,
    our_outputs,
    reopen,
    their_outputs,
)
from toys.folders import save_hf, save_litebert
from toys.refusals import refused


def joint(
    width: float = 0.25, embeddings: Any = "all", objectives: Any = ("mlm", "rtd"), **changes: Any
) -> Pretrainer:
    rtd = ReplacedTokenConfig(generator_width=width, generator_embeddings=embeddings)
    return build_litebert(objectives, rtd=rtd, **{**NO_POOLER, "layers": 3, **changes})


CASES: list[tuple[float, dict[str, Any]]] = [
    (0.25, {}),  # as the small one: both map from E
    (0.25, {"embedding_size": 32}),  # as base and large: only the generator does, from a larger E
    (0.5, {}),  # only the model does
    (1.0, {}),  # as the small one that was released
    (1.0, {"embedding_size": 32}),
    (0.25, {"segment_types": 0}),
    (0.25, {"sharing": "all"}),
    (0.25, {"sharing": "groups", "groups": 2, "layers": 4}),
]
COUNTED = {
    "position_offset": 2,
    "segment_types": 1,
    "embedding_size": 8,
    "hidden_size": 8,
    "heads": 2,
}


@pytest.mark.thorough
@pytest.mark.parametrize("embeddings", ["all", "tables"])
@pytest.mark.parametrize(("width", "changes"), CASES, ids=str)
def test_both_open_there_and_come_back(
    embeddings: str, width: float, changes: dict[str, Any], tmp_path: Path
) -> None:
    model = joint(width, embeddings, **changes)
    batch = inputs(types=max(1, model.encoder.config.segment_types))
    assert any("head=mlm" in note for note in save_hf(model, None, tmp_path / "model"))
    assert any(
        "without head=mlm" in note
        for note in save_hf(model, None, tmp_path / "generator", head="mlm")
    )

    discriminator = reopen(tmp_path / "model")
    assert type(discriminator).__name__ == "ElectraForPreTraining"
    expected = our_outputs(model, batch)
    assert "rtd" in expected
    assert_equal_outputs(expected, their_outputs(discriminator, batch))
    loaded = load(tmp_path / "model")
    assert isinstance(loaded.model, Pretrainer)
    assert (loaded.config.objectives, loaded.untrained) == (("mlm", "rtd"), ("mlm",))
    assert loaded.notes[-1] == f"{tmp_path / 'model'} has no generator; that objective is untrained"
    shared = any("encoder.sharing" in note for note in loaded.notes)
    assert (shared, len(loaded.notes)) == ("sharing" in changes, 1 + shared)
    assert_equal_outputs(expected, our_outputs(loaded.model, batch))

    opened = reopen(tmp_path / "generator")
    assert type(opened).__name__ == "ElectraForMaskedLM"
    shape = model.config.generator
    assert shape is not None
    assert (
        opened.config.hidden_size,
        opened.config.num_attention_heads,
        opened.config.intermediate_size,
    ) == (
        shape.hidden_size,
        shape.heads,
        shape.intermediate_size,
    )
    expected = generator_outputs(model, batch)
    assert_equal_outputs(expected, their_outputs(opened, batch))
    loaded = load(tmp_path / "generator")
    assert isinstance(loaded.model, Pretrainer)
    assert (loaded.config.objectives, loaded.untrained, len(loaded.notes)) == (
        ("mlm",),
        (),
        int(shared),
    )
    assert_equal_outputs(expected, our_outputs(loaded.model, batch))


def test_an_untrained_generator_is_not_written(tmp_path: Path) -> None:
    model = build_peer("Electra", "discriminator")
    model.save_pretrained(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "own", to="litebert")
    assert not any("mlm" in name for name in load_file(tmp_path / "own" / "model.safetensors"))
    with refused(ModelError, "mlm", "backbone", "discriminator"):
        convert(tmp_path / "own", tmp_path / "x", to="hf", head="mlm")


@pytest.mark.parametrize("heads", [1, 2, 6, 12])
def test_a_discriminator_of_any_number_of_heads_is_read(heads: int, tmp_path: Path) -> None:
    model = build_peer("Electra", "discriminator", num_attention_heads=heads, hidden_size=36)
    model.save_pretrained(tmp_path)
    loaded = load(tmp_path).model
    assert_equal_outputs(their_outputs(model, inputs()), our_outputs(loaded, inputs()))


def test_the_bare_backbone_stays_of_its_family(tmp_path: Path) -> None:
    model = joint(embedding_size=32)
    save_hf(model, None, tmp_path, head="backbone")
    opened = reopen(tmp_path)
    assert type(opened).__name__ == "ElectraModel"
    assert_equal_outputs(
        our_outputs(model, inputs()), their_outputs(opened, inputs()), ignore=("rtd",)
    )


def test_with_counted_positions_there_is_no_discriminator(tmp_path: Path) -> None:
    model = joint(1.0, **COUNTED)
    batch = inputs(pad_id=1, types=1)
    notes = save_hf(model, None, tmp_path / "model")
    assert any("the rtd head is left out: RobertaModel has none" in note for note in notes)
    save_hf(model, None, tmp_path / "generator", head="mlm")
    opened = reopen(tmp_path / "generator")
    assert type(opened).__name__ == "RobertaForMaskedLM"
    assert_equal_outputs(generator_outputs(model, batch), their_outputs(opened, batch))
    with refused(ModelError, "encoder.position_offset=2", "encoder.embedding_size 8", 4):
        save_hf(joint(0.5, **COUNTED), None, tmp_path / "x", head="mlm")


@pytest.mark.parametrize("family", ["Roberta", "Electra"])
def test_a_head_that_computes_gelu_whatever_the_encoder_does(family: str, tmp_path: Path) -> None:
    model = build_peer(family, "mlm", hidden_act="relu")
    model.save_pretrained(tmp_path / "hf")
    with refused(ModelError, tmp_path / "hf", "hidden_act='relu'", f"{family}ForMaskedLM", "gelu"):
        load(tmp_path / "hf")
    if family == "Electra":
        with refused(ModelError, "ElectraForMaskedLM", "encoder.activation", "relu"):
            save_hf(joint(activation="relu"), None, tmp_path / "x", head="mlm")
        save_hf(joint(activation="relu"), None, tmp_path / "y")
    else:
        same = {"position_offset": 1, "segment_types": 1, "embedding_size": 32}
        with refused(ModelError, "RobertaForMaskedLM", "encoder.activation", "relu"):
            save_hf(joint(objectives=("mlm",), activation="relu", **same), None, tmp_path / "x")
        save_hf(
            joint(objectives=("mlm",), activation="relu", **same),
            None,
            tmp_path / "y",
            head="backbone",
        )
    assert not (tmp_path / "x").exists()


def test_heads_beside_the_discriminators_are_left_out_and_said(tmp_path: Path) -> None:
    model = joint(objectives=("mlm", "rtd", "sop"), pooler=True)
    notes = save_hf(model, None, tmp_path)
    for words in (
        "the pooler is left out",
        "the sentence head is left out",
        "the generator is left out",
    ):
        assert any(words in note for note in notes)
    opened = reopen(tmp_path)
    ignored = ("pooled", "sentence")
    assert_equal_outputs(
        our_outputs(model, inputs()), their_outputs(opened, inputs()), ignore=ignored
    )


def test_a_run_of_ours_keeps_both(tmp_path: Path) -> None:
    model = joint()
    save_litebert(model, None, tmp_path / "own")
    loaded = load(tmp_path / "own")
    assert isinstance(loaded.model, Pretrainer)
    assert loaded.config == replace(model.config)
    assert all(
        torch.equal(tensor, loaded.model.state_dict()[name])
        for name, tensor in model.state_dict().items()
    )
    convert(tmp_path / "own", tmp_path / "hf", to="hf", head="mlm")
    assert type(reopen(tmp_path / "hf")).__name__ == "ElectraForMaskedLM"
