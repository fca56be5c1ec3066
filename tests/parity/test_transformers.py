"""The same weights give the same hidden states and logits as `transformers`, both ways, with padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from litebert.config import Config, EncoderConfig, SequenceConfig
from litebert.interop import convert, load, save_hf, save_litebert
from litebert.model.heads import TaskModel
from litebert.model.pretrainer import Pretrainer
from parity.families import (
    ALBERT,
    BERT,
    HEADS,
    VOCABULARY,
    assert_equal_outputs,
    inputs,
    our_outputs,
    reopen,
    their_outputs,
    theirs,
)

CASES: list[tuple[str, str, dict[str, Any]]] = [
    *((family, head, {}) for family in ("Albert", "Bert") for head in HEADS),
    ("Albert", "pretraining", {"num_hidden_groups": 2}),
    ("Albert", "pretraining", {"num_hidden_groups": 4}),
    ("Albert", "sequence", {"num_hidden_groups": 2, "num_hidden_layers": 3}),
    ("Albert", "pretraining", {"embedding_size": 32}),
    ("Albert", "mlm", {"embedding_size": 32, "num_hidden_groups": 4, "hidden_act": "gelu"}),
    ("Albert", "mlm", {"hidden_act": "relu"}),
    ("Albert", "pretraining", {"layer_norm_eps": 1e-2, "type_vocab_size": 3}),
    ("Bert", "pretraining", {"hidden_act": "gelu_new"}),
    ("Bert", "mlm", {"hidden_act": "relu"}),
    ("Bert", "mlm", {"hidden_act": "silu"}),
    ("Bert", "mlm", {"hidden_act": "gelu_pytorch_tanh"}),
    ("Bert", "pretraining", {"layer_norm_eps": 1e-2, "num_attention_heads": 2}),
]


def label(value: object) -> str:
    return "-".join(f"{key}={item}" for key, item in value.items()) if isinstance(value, dict) else str(value)


@pytest.mark.parametrize(("family", "head", "changes"), CASES, ids=label)
def test_their_model_read_and_written_back(family: str, head: str, changes: dict[str, Any], tmp_path: Path) -> None:
    model = theirs(family, head, **changes)
    model.save_pretrained(tmp_path / "theirs")
    loaded = load(tmp_path / "theirs")
    batch = inputs()
    expected = their_outputs(model, batch)
    # A bare backbone comes with an untrained head, which is said.
    assert loaded.untrained == (("mlm",) if head == "backbone" else ())
    assert_equal_outputs(expected, our_outputs(loaded.model, batch), ignore=("mlm",) if head == "backbone" else ())

    convert(tmp_path / "theirs", tmp_path / "ours", to="litebert")
    convert(tmp_path / "ours", tmp_path / "back", to="hf")
    again = reopen(tmp_path / "back")
    assert type(again) is type(model)
    before, after = model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    settings = ALBERT if family == "Albert" else BERT
    for name, value in {**settings, **changes}.items():
        if (name, value) != ("hidden_act", "gelu_pytorch_tanh"):  # another spelling of gelu_new
            assert getattr(again.config, name) == value, name


@pytest.mark.parametrize("family", ["Albert", "Bert"])
def test_one_sequence_without_padding_or_types(family: str, tmp_path: Path) -> None:
    model = theirs(family, "backbone")
    model.save_pretrained(tmp_path)
    ids = torch.arange(5, 15)[None]
    with torch.no_grad():
        expected = model(ids)
        output = load(tmp_path).model.encoder(ids)
    assert (expected.last_hidden_state - output.last).abs().max() <= 1e-5
    assert (expected.pooler_output - output.pooled).abs().max() <= 1e-5


def point(**changes: Any) -> EncoderConfig:
    base = {
        "vocab_size": VOCABULARY,
        "embedding_size": 16,
        "hidden_size": 32,
        "layers": 4,
        "heads": 4,
        "intermediate_size": 48,
        "max_positions": 20,
    }
    return EncoderConfig(**{**base, **changes})


def randomise(model: torch.nn.Module) -> None:
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if name.endswith("norm.weight") else 0.0
            parameter.copy_(centre + 0.15 * torch.randn(parameter.shape, generator=generator))


SAME_WIDTH = {"embedding_size": 32}
POINTS: list[tuple[dict[str, Any], str, str]] = [
    # what changes, the class that must come out, a word of the note
    ({"sharing": "all"}, "Albert", ""),
    ({"sharing": "groups", "groups": 2}, "Albert", ""),
    ({"sharing": "groups", "groups": 3}, "Albert", ""),
    ({"sharing": "groups", "groups": 14, "layers": 18}, "Albert", "copied"),
    ({"sharing": "none"}, "Albert", ""),
    ({"sharing": "attention"}, "Albert", "attention block is written 4 times"),
    ({"sharing": "feedforward"}, "Albert", "feedforward block is written 4 times"),
    ({"sharing": "all", **SAME_WIDTH}, "Albert", "identity"),
    ({"sharing": "attention", **SAME_WIDTH}, "Albert", "identity"),
    ({"sharing": "none", **SAME_WIDTH}, "Bert", ""),
    ({"sharing": "none", **SAME_WIDTH, "activation": "relu", "norm_eps": 1e-3}, "Bert", ""),
    ({"sharing": "none", **SAME_WIDTH, "always_project": True}, "Albert", ""),
    ({"sharing": "all", "activation": "silu", "segment_types": 4}, "Albert", ""),
]


@pytest.mark.parametrize(("changes", "family", "note"), POINTS, ids=label)
def test_our_pretrained_model_opens_there(changes: dict[str, Any], family: str, note: str, tmp_path: Path) -> None:
    objectives = ("mlm", "sop") if family == "Albert" else ("mlm", "nsp")
    config = Config(name="x", encoder=point(**changes), sequences=SequenceConfig(length=16), objectives=objectives)
    model = Pretrainer(config).eval()
    randomise(model)
    notes = save_hf(model, None, tmp_path / "hf")
    assert bool(notes) == bool(note)
    assert any(note in line for line in notes) or not note
    opened = reopen(tmp_path / "hf")
    assert type(opened).__name__ == f"{family}ForPreTraining"
    batch = inputs()
    assert_equal_outputs(our_outputs(model, batch), their_outputs(opened, batch))
    # And back: the same function, whatever had to be copied.
    assert_equal_outputs(our_outputs(model, batch), our_outputs(load(tmp_path / "hf").model, batch))


@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("kind", ["sequence", "tokens", "span", "choice"])
def test_our_task_model_opens_there(kind: str, width: int, tmp_path: Path) -> None:
    classes = {"sequence": 3, "tokens": 5, "span": 2, "choice": 1}[kind]
    sharing = "all" if width == 16 else "none"
    model = TaskModel(point(sharing=sharing, embedding_size=width), kind, classes).eval()
    randomise(model)
    names = {"sequence": ("no", "maybe", "yes"), "tokens": tuple("ABCDE")}.get(kind, ())
    save_litebert(model, None, tmp_path / "own", labels=names)
    loaded = load(tmp_path / "own")
    assert loaded.labels == names
    notes = convert(tmp_path / "own", tmp_path / "hf", to="hf").notes
    pooled = kind in ("sequence", "choice")
    assert any("pooler is left out" in note for note in notes) is not pooled
    opened = reopen(tmp_path / "hf")
    batch = inputs()
    expected = our_outputs(model, batch)
    assert_equal_outputs(expected, their_outputs(opened, batch), ignore=() if pooled else ("pooled",))
    back = load(tmp_path / "hf")
    assert isinstance(back.model, TaskModel)
    assert (back.model.kind, back.model.classes, back.labels) == (kind, classes, names)
    assert_equal_outputs(expected, our_outputs(back.model, batch), ignore=() if pooled else ("pooled",))
    if names:
        assert tuple(opened.config.id2label.values()) == names


@pytest.mark.parametrize(
    ("objectives", "head", "expected"),
    [
        (("mlm",), None, "AlbertForMaskedLM"),
        (("sop",), None, "AlbertModel"),
        (("mlm", "sop"), "mlm", "AlbertForMaskedLM"),
        (("mlm", "sop"), "backbone", "AlbertModel"),
        (("mlm", "nsp"), None, "AlbertForPreTraining"),
    ],
)
def test_what_a_class_cannot_hold_is_left_out_and_said(
    objectives: Any, head: Any, expected: str, tmp_path: Path
) -> None:
    config = Config(name="x", encoder=point(), sequences=SequenceConfig(length=16), objectives=objectives)
    model = Pretrainer(config).eval()
    randomise(model)
    notes = save_hf(model, None, tmp_path / "hf", head=head)
    assert notes
    opened = reopen(tmp_path / "hf")
    assert type(opened).__name__ == expected
    batch = inputs()
    ours, found = our_outputs(model, batch), their_outputs(opened, batch)
    assert_equal_outputs({name: ours[name] for name in found}, found)
    for name, words in {"pooled": "pooler", "mlm": "mlm head", "sentence": "sentence head"}.items():
        said = any(f"the {words} is left out" in note for note in notes)
        assert said is (name in ours and name not in found)
    if "nsp" in objectives:
        assert "nsp head is written as" in " ".join(notes)


def test_backbone_without_pooler(tmp_path: Path) -> None:
    config = Config(name="x", encoder=point(pooler=False), sequences=SequenceConfig(length=16), objectives=("mlm",))
    model = Pretrainer(config)
    notes = save_hf(model, None, tmp_path, head="backbone")
    assert any("add_pooling_layer=False" in note for note in notes)
    _, report = transformers.AlbertModel.from_pretrained(tmp_path, add_pooling_layer=False, output_loading_info=True)
    assert not any(report.values())
    assert load(tmp_path).model.encoder.pooler is None
