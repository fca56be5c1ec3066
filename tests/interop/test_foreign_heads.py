"""Folders with more heads than the model has: they open without them, and the encoder's weights are
never left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from interop.test_models import IDS, WEIGHTS, edit_weights, same_weights
from litebert import load
from litebert.base.errors import ModelError
from litebert.change.conversion import convert
from litebert.model.task_model import TaskModel
from toys.refusals import names, refused

STRANGER = {"regressor.weight": torch.ones(3, 8), "regressor.bias": torch.ones(3)}
OTHERS: dict[str, tuple[str, dict[str, torch.Tensor], str]] = {
    "a stranger": ("MaskedLM", STRANGER, "regressor.bias"),
    "a stranger beside a classifier": ("SequenceClassification", STRANGER, "regressor.bias"),
    "a second classifier": (
        "SequenceClassification",
        {"qa_outputs.weight": torch.ones(2, 8), "qa_outputs.bias": torch.ones(2)},
        "qa_outputs.bias",
    ),
    "a part of the head of pretraining": (
        "TokenClassification",
        {"cls.predictions.bias": torch.ones(40)},
        "cls.predictions.bias",
    ),
}


def bert_folder(folder: Path, kind: str, more: dict[str, torch.Tensor]) -> Any:
    shape: dict[str, Any] = {
        "vocab_size": 40,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 16,
    }
    torch.manual_seed(0)
    model = getattr(transformers, f"BertFor{kind}")(transformers.BertConfig(**shape)).eval()
    model.save_pretrained(folder)
    edit_weights(folder, lambda tensors: tensors.update(more))
    return model


@pytest.mark.parametrize("name", OTHERS)
def test_heads_that_nobody_reads_are_left_out_and_named(name: str, tmp_path: Path) -> None:
    kind, more, named = OTHERS[name]
    peer = bert_folder(tmp_path / "m", kind, more)
    loaded = load(tmp_path / "m")
    (note,) = loaded.notes
    names(note, tmp_path / "m" / WEIGHTS, named)
    if isinstance(loaded.model, TaskModel):
        with torch.no_grad():
            gap = (
                loaded.model(IDS, torch.zeros_like(IDS), torch.ones_like(IDS).bool())
                - peer(IDS).logits
            )
        assert gap.abs().max() <= 1e-5
    convert(tmp_path / "m", tmp_path / "own", to="litebert")
    assert same_weights(load(tmp_path / "own").model, loaded.model)


@pytest.mark.parametrize(
    "name",
    [
        "bert.encoder.layer.7.extra.weight",
        "lora.bert.layer.weight",
        "adapter.up.weight",
        "encoder.x.weight",
    ],
)
def test_a_stranger_that_an_encoder_may_need_is_refused(name: str, tmp_path: Path) -> None:
    bert_folder(tmp_path / "m", "MaskedLM", {name: torch.ones(3, 8)})
    with refused(ModelError, tmp_path / "m" / WEIGHTS, name):
        load(tmp_path / "m")
