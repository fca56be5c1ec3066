"""config.json in both directions, and its refusals."""

from __future__ import annotations

from typing import Any

import pytest
import transformers

from interop.folders import small_tokenizer
from litebert.config import EncoderConfig
from litebert.errors import ModelError
from litebert.interop.names import ALBERT, BERT, Layout
from litebert.interop.settings import encoder_config, layout_for, layout_of, settings_of

ALBERT_BASE: dict[str, Any] = {  # what the released file says, keys without meaning included
    "model_type": "albert", "attention_probs_dropout_prob": 0, "hidden_act": "gelu_new", "hidden_dropout_prob": 0,
    "embedding_size": 128, "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
    "max_position_embeddings": 512, "num_attention_heads": 12, "num_hidden_layers": 12, "num_hidden_groups": 1,
    "net_structure_type": 0, "gap_size": 0, "num_memory_blocks": 0, "inner_group_num": 1, "down_scale_factor": 1,
    "type_vocab_size": 2, "vocab_size": 30000,
}  # fmt: skip
BERT_BASE: dict[str, Any] = {
    "model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2, "vocab_size": 30522,
}  # fmt: skip


def test_released_configs() -> None:
    shape = {"embedding_size": 128, "hidden_size": 768, "layers": 12, "heads": 12, "intermediate_size": 3072,
             "init": "normal"}  # fmt: skip
    assert encoder_config(ALBERT, ALBERT_BASE, True, "x") == EncoderConfig(**shape, sharing="all")
    # Absent keys mean the defaults of each family's class.
    assert encoder_config(BERT, BERT_BASE, False, "x") == EncoderConfig(
        **{**shape, "embedding_size": 768}, vocab_size=30522, sharing="none", activation="gelu", hidden_dropout=0.1,
        attention_dropout=0.1, pooler=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("groups", "sharing", "ours"), [(1, "all", 1), (3, "groups", 3), (5, "groups", 5), (12, "none", 1)]
)
def test_groups(groups: int, sharing: str, ours: int) -> None:
    found = encoder_config(ALBERT, {**ALBERT_BASE, "num_hidden_groups": groups}, True, "x")
    assert (found.sharing, found.groups) == (sharing, ours)


@pytest.mark.parametrize(("layout", "settings"), [(ALBERT, ALBERT_BASE), (BERT, BERT_BASE)], ids=["albert", "bert"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu", "silu"])
def test_written_and_read_back(layout: Layout, settings: dict[str, Any], activation: Any) -> None:
    width = 128 if layout is ALBERT else 768
    config = EncoderConfig(
        vocab_size=500, embedding_size=width, hidden_size=768, layers=12, heads=4, intermediate_size=99,
        max_positions=77, segment_types=3, activation=activation, norm_eps=1e-5, hidden_dropout=0.25,
        attention_dropout=0.5, init="normal", init_std=0.03, sharing="groups" if layout is ALBERT else "none",
        groups=4 if layout is ALBERT else 1,
    )  # fmt: skip
    written = settings_of(layout, config, "mlm", 4 if layout is ALBERT else 12, None, (), 0.1)
    assert layout_of(written, "x") is layout
    assert encoder_config(layout, written, True, "x") == config
    # Every key is one that their class knows.
    known = transformers.AutoConfig.for_model(layout.model_type).to_dict()
    assert set(written) - set(known) == set()


def test_special_tokens_come_from_the_tokenizer() -> None:
    tokenizer = small_tokenizer()
    config = EncoderConfig(vocab_size=40)
    written = settings_of(ALBERT, config, "mlm", 1, tokenizer, (), 0.1)
    keys = ("pad_token_id", "bos_token_id", "eos_token_id")
    assert [written[key] for key in keys] == [tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id]
    alone = settings_of(ALBERT, config, "mlm", 1, None, (), 0.1)
    assert [alone[key] for key in keys] == [0, 2, 3]


@pytest.mark.parametrize("key", ["vocab_size", "embedding_size", "hidden_size", "num_hidden_layers",
                                 "num_attention_heads", "intermediate_size", "max_position_embeddings",
                                 "type_vocab_size"])  # fmt: skip
def test_a_missing_size_is_named(key: str) -> None:
    settings = {name: value for name, value in ALBERT_BASE.items() if name != key}
    with pytest.raises(ModelError, match=f"^dir/config.json has no '{key}'; add it"):
        encoder_config(ALBERT, settings, True, "dir/config.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inner_group_num": 2}, "has inner_group_num=2; only 1 can be computed"),
        ({"position_embedding_type": "relative_key"}, "has position_embedding_type='relative_key'; only 'absolute'"),
        ({"hidden_act": "tanh"}, "has hidden_act='tanh'; "),
        ({"hidden_act": "gelu_nev"}, "did you mean 'gelu_new'"),
        ({"hidden_size": "768"}, "has hidden_size='768'; it must be a whole number above 0"),
        ({"num_hidden_layers": 0}, "has num_hidden_layers=0; it must be a whole number above 0"),
        ({"num_hidden_layers": True}, "must be a whole number"),
        ({"num_hidden_groups": None}, "has num_hidden_groups=None; it must be a whole number"),
        ({"layer_norm_eps": "small"}, "has layer_norm_eps='small'; it must be a number"),
        ({"num_hidden_layers": 18, "num_hidden_groups": 14}, "has num_hidden_groups=14 for num_hidden_layers=18"),
        ({"num_hidden_groups": 13}, "encoder.groups 13 exceeds encoder.layers 12"),
        ({"num_attention_heads": 5}, "encoder.hidden_size 768 is not a multiple of encoder.heads 5"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        encoder_config(ALBERT, {**ALBERT_BASE, **changes}, True, "dir/config.json")
    assert message in str(caught.value)
    assert str(caught.value).startswith("dir/config.json")


def test_a_decoder_is_refused() -> None:
    with pytest.raises(ModelError, match="has is_decoder=True; only False can be computed"):
        encoder_config(BERT, {**BERT_BASE, "is_decoder": True}, True, "x")


def test_unknown_model_types() -> None:
    with pytest.raises(ModelError, match=r"^c has no 'model_type'; add it: albert or bert"):
        layout_of({}, "c")
    with pytest.raises(ModelError, match=r"^c has model_type 'albart', which cannot be read; did you mean 'albert'"):
        layout_of({"model_type": "albart"}, "c")


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "pre"},
        {"feedforward": "gated"},
        {"positions": "rotary"},
        {"bias": False},
        {"segment_types": 0},
        {"norm": "pre", "feedforward": "gated", "positions": "rotary", "bias": False},
    ],
)
def test_what_their_classes_cannot_compute_is_refused_with_every_field(changes: dict[str, Any]) -> None:
    with pytest.raises(ModelError) as caught:
        layout_for(EncoderConfig(**changes))
    message = str(caught.value)
    assert all(f"encoder.{name}={value}" in message for name, value in changes.items())
    assert "keep the model as a litebert folder" in message
    assert "\n" not in message
