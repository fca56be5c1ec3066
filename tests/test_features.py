"""Each cell of the table of features: `yes` gives PyTorch's outputs, `refused` says a sentence."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch
from torch import Tensor

from features import FEATURES, REFUSED, YES, Feature
from litebert.answer.engines.compiled import CompiledRuntime
from litebert.base.errors import ModelError
from litebert.base.registry import POSITIONS
from litebert.config import Config, EncoderConfig, SequenceConfig
from litebert.interop.onnx.folder import differences
from litebert.interop.onnx.graph import onnx_model
from litebert.kernels import loader
from litebert.kernels.network import find_refusal
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from toys.families import (
    assert_equal_outputs,
    inputs,
    our_outputs,
    randomize,
    reopen,
    their_outputs,
)
from toys.folders import load_module, save_hf
from toys.refusals import refused
from toys.rows import take_rows

SIZES = {
    *("vocab_size", "embedding_size", "hidden_size", "layers", "heads", "intermediate_size"),
    *("max_positions", "norm_eps", "hidden_dropout", "attention_dropout", "init", "init_std"),
}
"""Fields of an encoder that are sizes, probabilities and starting values, and no features."""
TOLERANCE = 1e-4

every_feature = pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)


def tagger(feature: Feature) -> TaskModel:
    """A random network with a feature that answers for every token."""
    model = TaskModel(feature.encoder, reads_cls=False, classes=3).eval()
    randomize(model)
    return model


def batch_of(feature: Feature) -> dict[str, Tensor]:
    shape = feature.encoder
    return inputs(pad_id=max(0, shape.position_offset - 1), types=max(1, shape.segment_types))


def field_of(feature: Feature) -> str:
    """The field that a refusal names."""
    return f"encoder.{next(iter(feature.fields))}"


@every_feature
def test_pytorch(feature: Feature) -> None:
    """The same in float64, where no compiled function takes part."""
    assert feature.torch == YES
    model, batch = tagger(feature), batch_of(feature)
    logits = model(**batch)
    logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.encoder.attention.parameters())
    expected = model.double()(**batch)
    assert (logits - expected).abs().max() <= TOLERANCE * max(1.0, expected.abs().max())


@every_feature
@pytest.mark.skipif(loader.library("answers") is None, reason=loader.describe("answers"))
def test_compiled(feature: Feature) -> None:
    model, batch = tagger(feature), batch_of(feature)
    reason = find_refusal(feature.encoder)
    if feature.compiled == REFUSED:
        assert field_of(feature) in reason
        return
    assert not reason
    mask = batch["attention_mask"].bool()
    types = batch["token_type_ids"] if feature.encoder.segment_types > 1 else 0 * mask.long()
    runtime = CompiledRuntime(load_module(model, task={"kind": "tokens"}), "cpu")
    rows = take_rows(batch["input_ids"].numpy(), types.numpy(), mask.numpy())
    actual = runtime.logits(rows)
    with torch.no_grad():
        expected = model(**batch).numpy()
    gap = np.abs(actual - expected)[mask.numpy()].max()
    assert gap <= TOLERANCE * max(1.0, np.abs(expected).max())


@every_feature
def test_onnx(feature: Feature, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    assert feature.onnx == YES
    opened, file = load_module(tagger(feature), task={"kind": "tokens"}), tmp_path / "model.onnx"
    file.write_bytes(onnx_model(opened, "tokens").SerializeToString())
    difference, scale = differences(opened, file, "tokens")
    assert difference <= TOLERANCE * max(1.0, scale)


@pytest.mark.thorough
@every_feature
def test_transformers(feature: Feature, tmp_path: Path) -> None:
    config = Config(
        name="x",
        encoder=feature.encoder,
        sequences=SequenceConfig(length=12),
        objectives=("mlm",),
    )
    model = Pretrainer(config).eval()
    randomize(model)
    if feature.transformers == REFUSED:
        with refused(ModelError, f"{field_of(feature)}="):
            save_hf(model, None, tmp_path / "hf")
        return
    save_hf(model, None, tmp_path / "hf")
    batch = batch_of(feature)
    expected = our_outputs(model, batch)
    if feature.encoder.norm == "pre":
        batch.pop("token_type_ids")
    actual = their_outputs(reopen(tmp_path / "hf"), batch)
    assert_equal_outputs({"mlm": expected["mlm"]}, {"mlm": actual["mlm"]})


def choices_of(name: str, hint: Any, default: Any) -> set[Any]:
    """The values of a field of which each needs a row."""
    if name == "positions":
        return {name for name in POSITIONS if POSITIONS[name].__module__.startswith("litebert.")}
    if get_origin(hint) is Literal:
        return set(get_args(hint))
    return {True, False} if hint is bool else {default, "another"}


def test_every_field_has_a_row() -> None:
    hints, missing = get_type_hints(EncoderConfig), []
    for field in fields(EncoderConfig):
        if field.name in SIZES:
            continue
        values = {getattr(feature.encoder, field.name) for feature in FEATURES}
        needed = choices_of(field.name, hints[field.name], field.default)
        if needed == {field.default, "another"}:
            missing += [field.name] if len(values) < 2 else []
        else:
            missing += [f"{field.name}={value}" for value in needed - values]
    assert not missing
