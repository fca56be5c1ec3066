"""A family of one's own: a table of names for another `model_type`, read and written like the
others.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from litebert import convert, load
from litebert.base.errors import ModelError
from litebert.base.registry import FAMILIES
from litebert.config import EncoderConfig
from litebert.interop.hf.families import ABSENT, CLASSIC, Family, Names
from toys.families import (
    VOCABULARY,
    assert_equal_outputs,
    build_litebert,
    inputs,
    our_outputs,
    reopen,
)
from toys.folders import save_hf
from toys.refusals import refused

_LAYER = "distilbert.transformer.layer.{slot}"
_ATTENTION, _FEEDFORWARD = "encoder.attention.{attention}", "encoder.feedforward.{feedforward}"


def fits(config: EncoderConfig, has: Collection[str], dense: str | None) -> bool:
    return not (config.segment_types or config.pooler or config.projects or config.position_offset)


DISTILLED = Family(
    model_type="distilbert",
    classes="DistilBert",
    fits=fits,
    parts={
        "backbone": (
            Names(
                "encoder.embedding.word", ("distilbert.embeddings.word_embeddings",), ("weight",)
            ),
            Names(
                "encoder.embedding.position",
                ("distilbert.embeddings.position_embeddings",),
                ("weight",),
            ),
            Names("encoder.embedding.norm", ("distilbert.embeddings.LayerNorm",)),
            Names(f"{_ATTENTION}.qkv", tuple(f"{_LAYER}.attention.{name}_lin" for name in "qkv")),
            Names(f"{_ATTENTION}.output", (f"{_LAYER}.attention.out_lin",)),
            Names(f"{_ATTENTION}.norm", (f"{_LAYER}.sa_layer_norm",)),
            Names(f"{_FEEDFORWARD}.input", (f"{_LAYER}.ffn.lin1",)),
            Names(f"{_FEEDFORWARD}.output", (f"{_LAYER}.ffn.lin2",)),
            Names(f"{_FEEDFORWARD}.norm", (f"{_LAYER}.output_layer_norm",)),
        ),
        "mlm": (
            Names("objectives.mlm.head.dense", ("vocab_transform",)),
            Names("objectives.mlm.head.norm", ("vocab_layer_norm",)),
            Names("objectives.mlm.head", ("vocab_projector",), ("bias",)),
        ),
    },
    heads={"backbone": (), "mlm": ("mlm",)},
    tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    keys={
        "vocab_size": "vocab_size",
        "hidden_size": "dim",
        "layers": "n_layers",
        "heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "max_positions": "max_position_embeddings",
        "hidden_dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "norm_eps": "layer_norm_eps",
        "init_std": "initializer_range",
        "activation": "activation",
    },
    absent=ABSENT,
    computes={**CLASSIC, "segment_types": 0},
    fixed={"sinusoidal_pos_embds": False},
    token_ids={"pad_token_id": ("pad_id", 0)},
    classifier_dropout="seq_classif_dropout",
)


@pytest.fixture(autouse=True, scope="module")
def _register() -> None:
    FAMILIES.add("distilbert", DISTILLED)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = transformers.DistilBertConfig(
        vocab_size=VOCABULARY,
        dim=32,
        n_layers=3,
        n_heads=4,
        hidden_dim=48,
        max_position_embeddings=20,
    )
    model: Any = transformers.DistilBertForMaskedLM(config)
    model.eval().save_pretrained(tmp_path / "foreign")
    return tmp_path / "foreign"


def test_it_is_read_and_written_back(folder: Path, tmp_path: Path) -> None:
    batch = inputs(types=0)
    before, opened = reopen(folder), load(folder)
    with torch.no_grad():
        expected = before(**batch).logits
    real = batch["attention_mask"][..., None]
    assert_equal_outputs({"mlm": expected * real}, {"mlm": our_outputs(opened.model, batch)["mlm"]})
    convert(folder, tmp_path / "own", to="litebert")
    convert(tmp_path / "own", tmp_path / "back", to="hf")
    again = reopen(tmp_path / "back")
    assert type(again) is type(before)
    tensors = again.state_dict()
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in before.state_dict().items())


def test_an_unknown_family_is_refused(folder: Path) -> None:
    text = (folder / "config.json").read_text("utf-8")
    (folder / "config.json").write_text(text.replace("distilbert", "distilbart"), "utf-8")
    with refused(ModelError, "distilbart", "distilbert"):
        load(folder)


def test_other_models_keep_their_family(tmp_path: Path) -> None:
    save_hf(build_litebert(("mlm",), sharing="none", embedding_size=32), None, tmp_path / "hf")
    assert type(reopen(tmp_path / "hf")).__name__ == "BertForMaskedLM"
