"""The same weights give the same hidden states and logits as `transformers`, both ways, with
padding.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from litebert import load
from litebert.change.conversion import convert
from litebert.config import HeadActivation
from litebert.model.task_model import TaskModel
from toys.families import (
    FAMILIES,
    HEADS,
    NO_POOLER,
    UNPOOLED,
    assert_equal_outputs,
    build_litebert,
    build_peer,
    inputs,
    inputs_of,
    our_outputs,
    point,
    randomize,
    reopen,
    their_outputs,
)
from toys.folders import save_hf, save_litebert

CASES: list[tuple[str, str, dict[str, Any]]] = [
    *((family, head, {}) for family, heads in HEADS.items() for head in heads),
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
    ("Roberta", "backbone", {"hidden_act": "relu", "type_vocab_size": 2}),
    ("Roberta", "mlm", {"pad_token_id": 0, "max_position_embeddings": 17}),
    ("Electra", "mlm", {"embedding_size": 48}),
    ("Electra", "discriminator", {"embedding_size": 32, "hidden_act": "gelu_new"}),
    ("Electra", "sequence", {"embedding_size": 32}),
    ("Electra", "backbone", {"hidden_act": "relu", "type_vocab_size": 3}),
]


def label(value: object) -> str:
    if isinstance(value, dict):
        return "-".join(f"{key}={item}" for key, item in value.items()) or "plain"
    return "+".join(value) if isinstance(value, tuple) else str(value)


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "head", "changes"), CASES, ids=label)
def test_their_model_read_and_written_back(
    family: str, head: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    model = build_peer(family, head, **changes)
    model.save_pretrained(tmp_path / "theirs")
    loaded = load(tmp_path / "theirs")
    batch = inputs(
        pad_id=model.config.pad_token_id, types=getattr(model.config, "type_vocab_size", 0)
    )
    expected = their_outputs(model, batch)
    # A bare backbone comes with an untrained head and a discriminator with an untrained generator,
    # which is said.
    assert loaded.untrained == (("mlm",) if head in ("backbone", "discriminator") else ())
    assert bool(loaded.notes) == bool(loaded.untrained)
    assert_equal_outputs(
        expected, our_outputs(loaded.model, batch), ignore=("mlm",) if head == "backbone" else ()
    )

    convert(tmp_path / "theirs", tmp_path / "ours", to="litebert")
    convert(tmp_path / "ours", tmp_path / "back", to="hf")
    again = reopen(tmp_path / "back")
    assert type(again) is type(model)
    before, after = model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    for name, value in {**FAMILIES[family], **changes}.items():
        if (name, value) != ("hidden_act", "gelu_pytorch_tanh"):  # another spelling of gelu_new
            assert getattr(again.config, name) == value, name


@pytest.mark.parametrize("family", FAMILIES)
def test_one_sequence_without_padding_or_types(family: str, tmp_path: Path) -> None:
    model = build_peer(family, "backbone")
    model.save_pretrained(tmp_path)
    ids = torch.arange(5, 15)[None]
    with torch.no_grad():
        expected = model(ids)
        output = load(tmp_path).model.encoder(ids)
    assert (expected.last_hidden_state - output.last).abs().max() <= 1e-5
    assert (output.pooled is None) == (family in UNPOOLED)
    if output.pooled is not None:
        assert (expected.pooler_output - output.pooled).abs().max() <= 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_at_the_left(family: str, tmp_path: Path) -> None:
    """RoBERTa's positions begin at the first real token, the others' at the first place."""
    model = build_peer(family, "mlm")
    model.save_pretrained(tmp_path)
    batch = inputs_of(family, left=True)
    assert_equal_outputs(their_outputs(model, batch), our_outputs(load(tmp_path).model, batch))


SAME_WIDTH = {"embedding_size": 32}
UNSHARED = {"sharing": "none", **SAME_WIDTH}
OFFSET = {**NO_POOLER, **SAME_WIDTH, "position_offset": 2, "segment_types": 1}
COPIES = "blocks that layers share are written 4 times"
POINTS: list[tuple[dict[str, Any], tuple[str, ...], str, str]] = [
    # what changes, objectives, the class that must come out, a word of the note
    ({"sharing": "all"}, ("mlm", "sop"), "AlbertForPreTraining", ""),
    ({"sharing": "groups", "groups": 2}, ("mlm", "sop"), "AlbertForPreTraining", ""),
    ({"sharing": "groups", "groups": 3}, ("mlm", "sop"), "AlbertForPreTraining", ""),
    (
        {"sharing": "groups", "groups": 14, "layers": 18},
        ("mlm", "sop"),
        "AlbertForPreTraining",
        "copied",
    ),
    ({"sharing": "none"}, ("mlm", "sop"), "AlbertForPreTraining", ""),
    (
        {"sharing": "attention"},
        ("mlm", "sop"),
        "AlbertForPreTraining",
        "attention block is written 4 times",
    ),
    (
        {"sharing": "feedforward"},
        ("mlm", "sop"),
        "AlbertForPreTraining",
        "feedforward block is written 4 times",
    ),
    ({"sharing": "all", **SAME_WIDTH}, ("mlm", "sop"), "AlbertForPreTraining", "identity"),
    ({"sharing": "attention", **SAME_WIDTH}, ("mlm", "sop"), "AlbertForPreTraining", "identity"),
    (
        {"sharing": "all", "activation": "silu", "segment_types": 4},
        ("mlm", "sop"),
        "AlbertForPreTraining",
        "",
    ),
    (
        {"sharing": "all", "segment_types": 0},
        ("mlm", "sop"),
        "AlbertForPreTraining",
        "row of token types is zero",
    ),
    ({**UNSHARED, "always_project": True}, ("mlm", "sop"), "AlbertForPreTraining", ""),
    ({**NO_POOLER, "activation": "gelu_tanh"}, ("mlm",), "AlbertForMaskedLM", ""),
    (UNSHARED, ("mlm", "nsp"), "BertForPreTraining", ""),
    (
        {**UNSHARED, "activation": "relu", "norm_eps": 1e-3},
        ("mlm", "nsp"),
        "BertForPreTraining",
        "",
    ),
    ({**UNSHARED, "segment_types": 1}, ("mlm", "nsp"), "BertForPreTraining", ""),
    ({**NO_POOLER, **SAME_WIDTH}, ("mlm",), "BertForMaskedLM", ""),
    (OFFSET, ("mlm",), "RobertaForMaskedLM", ""),
    ({**OFFSET, "position_offset": 4, "segment_types": 2}, ("mlm",), "RobertaForMaskedLM", ""),
    ({**OFFSET, "segment_types": 0}, ("mlm",), "RobertaForMaskedLM", "row of token types is zero"),
    ({**OFFSET, "sharing": "all"}, ("mlm",), "RobertaForMaskedLM", COPIES),
    ({**OFFSET, "sharing": "attention"}, ("mlm",), "RobertaForMaskedLM", COPIES),
    (NO_POOLER, ("mlm",), "ElectraForMaskedLM", ""),
    ({**NO_POOLER, "embedding_size": 48}, ("mlm",), "ElectraForMaskedLM", ""),
    (NO_POOLER, ("mlm", "rtd"), "ElectraForPreTraining", "the generator is left out; head=mlm"),
    (
        {**NO_POOLER, **SAME_WIDTH, "activation": "silu"},
        ("mlm", "rtd"),
        "ElectraForPreTraining",
        "generator",
    ),
    ({**NO_POOLER, "sharing": "all"}, ("mlm", "rtd"), "ElectraForPreTraining", COPIES),
    (
        {**NO_POOLER, "sharing": "groups", "groups": 2},
        ("mlm", "rtd"),
        "ElectraForPreTraining",
        COPIES,
    ),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("changes", "objectives", "name", "note"), POINTS, ids=label)
def test_our_pretrained_model_opens_there(
    changes: dict[str, Any], objectives: tuple[str, ...], name: str, note: str, tmp_path: Path
) -> None:
    model = build_litebert(objectives, **changes)
    notes = save_hf(model, None, tmp_path / "hf")
    assert bool(notes) == bool(note)
    assert any(note in line for line in notes) or not note
    opened = reopen(tmp_path / "hf")
    assert type(opened).__name__ == name
    encoder = model.config.encoder
    batch = inputs(pad_id=max(0, encoder.position_offset - 1), types=max(1, encoder.segment_types))
    assert_equal_outputs(our_outputs(model, batch), their_outputs(opened, batch))
    # And back: the same function, whatever had to be copied.
    assert_equal_outputs(our_outputs(model, batch), our_outputs(load(tmp_path / "hf").model, batch))


TASKS: list[tuple[dict[str, Any], HeadActivation | None, str]] = [
    # what changes, the activation of a head that reads [CLS], the family that must come out
    ({"sharing": "all"}, None, "Albert"),
    (UNSHARED, None, "Bert"),
    ({"sharing": "all", "pooler": False}, "tanh", "Albert"),
    ({**UNSHARED, "pooler": False}, "tanh", "Bert"),
    (OFFSET, "tanh", "Roberta"),
    ({**OFFSET, "pooler": True}, None, "Roberta"),
    (NO_POOLER, "gelu", "Electra"),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("changes", "dense", "family"), TASKS, ids=label)
@pytest.mark.parametrize("kind", ["sequence", "tokens", "span", "choice"])
def test_our_task_model_opens_there(
    kind: str, changes: dict[str, Any], dense: HeadActivation | None, family: str, tmp_path: Path
) -> None:
    classes = {"sequence": 3, "tokens": 5, "span": 2, "choice": 1}[kind]
    reads_cls = kind in ("sequence", "choice")
    model = TaskModel(point(**changes), reads_cls, classes, dense if reads_cls else None).eval()
    randomize(model)
    names = {"sequence": ("no", "maybe", "yes"), "tokens": tuple("ABCDE")}.get(kind, ())
    save_litebert(model, None, tmp_path / "own", labels=names, task={"kind": kind})
    loaded = load(tmp_path / "own")
    assert loaded.labels == names
    notes = convert(tmp_path / "own", tmp_path / "hf", to="hf").notes
    has_pooler = model.encoder.config.pooler
    assert any("pooler is left out" in note for note in notes) is (has_pooler and not reads_cls)
    assert len(notes) <= 1
    opened = reopen(tmp_path / "hf")
    assert type(opened).__name__ == family + HEADS[family][kind]
    batch = inputs(
        pad_id=max(0, model.encoder.config.position_offset - 1),
        types=model.encoder.config.segment_types,
    )
    # A dense map and tanh are a pooler under another name, so either side may or may not have the
    # pooled state.
    expected = our_outputs(model, batch)
    assert_equal_outputs(expected, their_outputs(opened, batch), ignore=("pooled",))
    back = load(tmp_path / "hf")
    assert isinstance(back.model, TaskModel)
    assert (back.task["kind"], back.model.classes, back.labels, back.notes) == (
        kind,
        classes,
        names,
        (),
    )
    assert_equal_outputs(expected, our_outputs(back.model, batch), ignore=("pooled",))
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
    model = build_litebert(objectives)
    notes = save_hf(model, None, tmp_path / "hf", head=head)
    assert notes
    opened = reopen(tmp_path / "hf")
    assert type(opened).__name__ == expected
    batch = inputs()
    written, opened_outputs = our_outputs(model, batch), their_outputs(opened, batch)
    assert_equal_outputs({name: written[name] for name in opened_outputs}, opened_outputs)
    for name, words in {"pooled": "pooler", "mlm": "mlm head", "sentence": "sentence head"}.items():
        is_noted = any(f"the {words} is left out" in note for note in notes)
        assert is_noted is (name in written and name not in opened_outputs)
    if "nsp" in objectives:
        assert "nsp head is written as" in " ".join(notes)


def test_backbone_without_pooler(tmp_path: Path) -> None:
    notes = save_hf(build_litebert(("mlm",), pooler=False), None, tmp_path, head="backbone")
    assert any("add_pooling_layer=False" in note for note in notes)
    model_class: Any = transformers.AlbertModel
    _, report = model_class.from_pretrained(
        tmp_path, add_pooling_layer=False, output_loading_info=True
    )
    assert not any(report.values())
    assert load(tmp_path).model.encoder.pooler is None
