"""A pass without padding gives what the padded pass gives, for every encoder that it computes."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from features import FEATURES, Feature
from litebert.config import replace
from litebert.model import unpadded
from litebert.model.encoder import Encoder
from litebert.model.task_model import TaskModel
from litebert.model.unpadded import can_unpad, is_faster_unpadded
from toys.families import inputs, randomize

CPU = torch.device("cpu")
TOLERANCE = 1e-5
ABLE = [feature for feature in FEATURES if can_unpad(feature.encoder)]


def make_tagger(feature: Feature) -> TaskModel:
    shape = replace(feature.encoder, hidden_dropout=0.0, attention_dropout=0.0)
    model = TaskModel(shape, reads_cls=False, classes=3)
    randomize(model)
    return model.eval()


def make_batch(feature: Feature) -> dict[str, torch.Tensor]:
    shape = feature.encoder
    batch: Any = inputs(pad_id=max(0, shape.position_offset - 1), types=max(1, shape.segment_types))
    assert not batch["attention_mask"].all()
    return dict(batch)


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with every attention over packed sequences."""
    calls: list[int] = []
    attend = unpadded._attend_each

    def count(*words: Any) -> torch.Tensor:
        calls.append(1)
        return attend(*words)

    monkeypatch.setattr(unpadded, "_attend_each", count)
    return calls


def compute(model: TaskModel, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """The logits of the real tokens, and the gradient of each parameter."""
    model.zero_grad()
    logits = model(**batch)
    assert isinstance(logits, torch.Tensor)
    real = logits[batch["attention_mask"].bool()]
    torch.autograd.backward(real.pow(2).sum())
    return [real.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def test_most_features_are_computed_without_padding() -> None:
    """Those that are not have global tokens, or heads of a size that the kernel does not take."""
    assert len(ABLE) > len(FEATURES) / 2


@pytest.mark.parametrize("feature", ABLE, ids=lambda feature: feature.name)
@pytest.mark.parametrize("recompute", [False, True])
def test_logits_and_gradients_are_those_of_the_padded_pass(
    feature: Feature, recompute: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = make_tagger(feature), make_batch(feature)
    model.encoder.recompute = recompute
    padded = compute(model, batch)
    calls = count_calls(monkeypatch)
    model.encoder.unpadded = True
    packed = compute(model, batch)
    assert len(calls) >= model.encoder.config.layers
    for expected, actual in zip(padded, packed, strict=True):
        scale = max(1.0, float(expected.abs().max()))
        assert float((expected - actual).abs().max()) <= TOLERANCE * scale


def test_dropout_of_attention_takes_the_padded_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """In training alone, for the kernel has no dropout."""
    shape = replace(ABLE[0].encoder, attention_dropout=0.1)
    model, batch = TaskModel(shape, reads_cls=False, classes=3), make_batch(ABLE[0])
    model.encoder.unpadded = True
    calls = count_calls(monkeypatch)
    model.train()(**batch)
    assert not calls
    model.eval()(**batch)
    assert len(calls) == shape.layers


def test_it_is_for_a_gpu_in_16_bits() -> None:
    encoder = Encoder(ABLE[0].encoder)
    for device, dtype in ((CPU, torch.bfloat16), (torch.device("cuda"), None)):
        encoder.unpadded = is_faster_unpadded(encoder.config, device, dtype)
        assert not encoder.unpadded


def test_a_wrong_kernel_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    check = unpadded._is_kernel_right.__wrapped__
    assert check(CPU, torch.bfloat16)
    attend, calls = unpadded.attend_unpadded, []

    def attend_wrongly(*words: Any) -> torch.Tensor:
        calls.append(1)
        return attend(*words) + (0.1 if len(calls) == 1 else 0)

    monkeypatch.setattr(unpadded, "attend_unpadded", attend_wrongly)
    with caplog.at_level(logging.INFO, "litebert"):
        assert not check(CPU, torch.bfloat16)
    assert "padding is computed" in caplog.text
    assert "differs from the reference by 0.1" in caplog.text

    def fail(*words: Any) -> torch.Tensor:
        raise RuntimeError("no kernel image is available")

    monkeypatch.setattr(unpadded, "attend_unpadded", fail)
    with caplog.at_level(logging.INFO, "litebert"):
        assert not check(CPU, torch.bfloat16)
    assert "no kernel image is available" in caplog.text
