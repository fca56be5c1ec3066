"""config.json in both directions, and its refusals."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import transformers

from litebert.base.errors import ModelError
from litebert.base.registry import FAMILIES
from litebert.config import Activation, EncoderConfig
from litebert.interop.hf.families import ALBERT, BERT, ELECTRA, ROBERTA, Family
from litebert.interop.hf.settings import (
    choose_family,
    encoder_config,
    family_of,
    problem_of,
    settings_of,
)
from toys.folders import small_tokenizer
from toys.refusals import refused

ALBERT_BASE: dict[str, Any] = {  # what the released file says, keys without meaning included
    "model_type": "albert",
    "attention_probs_dropout_prob": 0,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0,
    "embedding_size": 128,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "num_hidden_groups": 1,
    "net_structure_type": 0,
    "gap_size": 0,
    "num_memory_blocks": 0,
    "inner_group_num": 1,
    "down_scale_factor": 1,
    "type_vocab_size": 2,
    "vocab_size": 30000,
}
BERT_BASE: dict[str, Any] = {
    "model_type": "bert",
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}
ROBERTA_BASE: dict[str, Any] = {
    **BERT_BASE,
    "model_type": "roberta",
    "architectures": ["RobertaForMaskedLM"],
    "hidden_act": "gelu",
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 1,
    "layer_norm_eps": 1e-5,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "vocab_size": 50265,
}
ELECTRA_SMALL: dict[str, Any] = {
    **BERT_BASE,
    "model_type": "electra",
    "architectures": ["ElectraForPreTraining"],
    "embedding_size": 128,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_attention_heads": 4,
    "summary_activation": "gelu",
    "summary_last_dropout": 0.1,
    "summary_type": "first",
    "summary_use_proj": True,
}
WINDOWS: dict[str, Any] = {
    "window": 9,
    "global_every": 5,
    "rotary_base": 500.0,
    "window_rotary_base": 70.0,
}
RELEASED = {
    "albert": ALBERT_BASE,
    "bert": BERT_BASE,
    "roberta": ROBERTA_BASE,
    "electra": ELECTRA_SMALL,
}


@pytest.mark.parametrize("problem", ["classes", "labels", "number"])
def test_what_the_outputs_of_a_classifier_are(problem: str) -> None:
    config = EncoderConfig(vocab_size=40)
    written = settings_of(ALBERT, config, "sequence", None, ("a", "b"), 0.1, problem)
    assert problem_of(written, "sequence", "x") == {"problem": problem}
    transformers.AutoConfig.for_model(**written)  # which refuses what it does not know
    assert not problem_of(
        settings_of(ALBERT, config, "sequence", None, ("a", "b"), 0.1), "sequence", "x"
    )
    assert "problem_type" not in settings_of(
        ALBERT, config, "tokens", None, ("a", "b"), 0.1, "tokens"
    )
    with refused(ModelError, "x", "problem_type", "'regresion'", "'regression'"):
        problem_of({"problem_type": "regresion"}, "sequence", "x")


def test_released_configs() -> None:
    shape: dict[str, Any] = {
        "embedding_size": 128,
        "hidden_size": 768,
        "layers": 12,
        "heads": 12,
        "intermediate_size": 3072,
        "init": "normal",
    }
    assert encoder_config(ALBERT, ALBERT_BASE, ("pooler",), "x") == EncoderConfig(
        **shape, sharing="all"
    )
    # Absent keys mean the defaults of each family's class.
    assert encoder_config(BERT, BERT_BASE, (), "x") == EncoderConfig(
        **{**shape, "embedding_size": 768},
        vocab_size=30522,
        sharing="none",
        activation="gelu",
        hidden_dropout=0.1,
        attention_dropout=0.1,
        pooler=False,
    )
    assert encoder_config(ROBERTA, ROBERTA_BASE, (), "x") == EncoderConfig(
        **{**shape, "embedding_size": 768},
        vocab_size=50265,
        sharing="none",
        activation="gelu",
        hidden_dropout=0.1,
        attention_dropout=0.1,
        pooler=False,
        norm_eps=1e-5,
        position_offset=2,
        max_positions=512,
        segment_types=1,
    )
    assert encoder_config(ELECTRA, ELECTRA_SMALL, ("discriminator",), "x") == EncoderConfig(
        vocab_size=30522,
        embedding_size=128,
        hidden_size=256,
        heads=4,
        intermediate_size=1024,
        sharing="none",
        activation="gelu",
        hidden_dropout=0.1,
        attention_dropout=0.1,
        pooler=False,
        init="normal",
    )


@pytest.mark.parametrize(
    ("groups", "sharing", "our_groups"),
    [(1, "all", 1), (3, "groups", 3), (5, "groups", 5), (12, "none", 1)],
)
def test_groups(groups: int, sharing: str, our_groups: int) -> None:
    encoder = encoder_config(ALBERT, {**ALBERT_BASE, "num_hidden_groups": groups}, ("pooler",), "x")
    assert (encoder.sharing, encoder.groups) == (sharing, our_groups)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
@pytest.mark.parametrize("activation", get_args(Activation))
def test_written_and_read_back(family: Family, activation: Any) -> None:
    config = EncoderConfig(
        vocab_size=500,
        embedding_size=128 if "projection" in family.parts else 768,
        hidden_size=768,
        layers=12,
        heads=4,
        intermediate_size=99,
        max_positions=77,
        activation=activation,
        norm_eps=1e-5,
        hidden_dropout=0.25,
        attention_dropout=0.5,
        init="normal",
        init_std=0.03,
        pooler="pooler" in family.parts,
        sharing="groups" if family.grouped else "none",
        groups=4 if family.grouped else 1,
        position_offset=6 if family.offset_positions else 0,
        **{"segment_types": 3, **family.computes, **(WINDOWS if family.windows else {})},
    )
    written = settings_of(family, config, "backbone", None, (), 0.1)
    assert family_of(written, "x") is family
    assert encoder_config(family, written, {"pooler"} & {*family.parts}, "x") == config
    # Every key is one that their class knows, in today's version or an older one.
    peer_settings = transformers.AutoConfig.for_model(family.model_type).to_dict()
    older = (
        {"global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"}
        if family.windows
        else set()
    )
    assert set(written) - set(peer_settings) == older


def test_special_tokens_come_from_the_tokenizer() -> None:
    tokenizer = small_tokenizer()
    config = EncoderConfig(vocab_size=40)
    written = settings_of(ALBERT, config, "mlm", tokenizer, (), 0.1)
    keys = ("pad_token_id", "bos_token_id", "eos_token_id")
    assert [written[key] for key in keys] == [tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id]
    alone = settings_of(ALBERT, config, "mlm", None, (), 0.1)
    assert [alone[key] for key in keys] == [0, 2, 3]


@pytest.mark.parametrize(
    "key",
    [
        "vocab_size",
        "embedding_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "max_position_embeddings",
        "type_vocab_size",
    ],
)
def test_a_missing_size_is_named(key: str) -> None:
    settings = {name: value for name, value in ALBERT_BASE.items() if name != key}
    with refused(ModelError, "dir/config.json", f"'{key}'"):
        encoder_config(ALBERT, settings, ("pooler",), "dir/config.json")


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        ({"inner_group_num": 2}, ("inner_group_num=2",)),
        (
            {"position_embedding_type": "relative_key"},
            ("position_embedding_type='relative_key'", "'absolute'"),
        ),
        ({"hidden_act": "tanh"}, ("hidden_act='tanh'",)),
        ({"hidden_act": "gelu_nev"}, ("hidden_act='gelu_nev'", "'gelu_new'")),
        ({"hidden_act": ["gelu"]}, ("hidden_act=['gelu']",)),
        ({"hidden_size": "768"}, ("hidden_size='768'",)),
        ({"num_hidden_layers": 0}, ("num_hidden_layers=0", 1)),
        ({"num_hidden_layers": True}, ("num_hidden_layers=True",)),
        ({"num_hidden_groups": None}, ("num_hidden_groups=None",)),
        ({"layer_norm_eps": "small"}, ("layer_norm_eps='small'",)),
        (
            {"num_hidden_layers": 18, "num_hidden_groups": 14},
            ("num_hidden_groups=14", "num_hidden_layers=18"),
        ),
        ({"num_hidden_groups": 13}, ("encoder.groups 13", "encoder.layers 12")),
        ({"num_attention_heads": 5}, ("encoder.hidden_size 768", "encoder.heads 5")),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(
    changes: dict[str, Any], places: tuple[object, ...]
) -> None:
    with refused(ModelError, "dir/config.json", *places):
        encoder_config(ALBERT, {**ALBERT_BASE, **changes}, ("pooler",), "dir/config.json")


@pytest.mark.parametrize("name", ["bert", "roberta", "electra"])
def test_a_decoder_is_refused(name: str) -> None:
    with refused(ModelError, "is_decoder=True", "False"):
        encoder_config(FAMILIES[name], {**RELEASED[name], "is_decoder": True}, ("pooler",), "x")


def test_keys_that_one_head_reads_matter_for_that_head_alone() -> None:
    settings = {**ELECTRA_SMALL, "summary_type": "cls_index", "summary_activation": None}
    encoder_config(ELECTRA, settings, ("classifier",), "x")
    with refused(ModelError, "summary_type='cls_index'", "'first'"):
        encoder_config(ELECTRA, settings, ("summary", "classifier"), "x")
    # Another spelling of erf gelu is no other activation.
    encoder_config(ELECTRA, {**ELECTRA_SMALL, "hidden_act": "gelu_python"}, ("mlm",), "x")


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        ({"pad_token_id": -1}, ("pad_token_id=-1", 0)),
        ({"pad_token_id": None}, ("pad_token_id=None", 0)),
        ({"max_position_embeddings": 9}, ("encoder.max_positions", 7, 8)),
    ],
)
def test_the_padding_index_that_positions_begin_after(
    changes: dict[str, Any], places: tuple[object, ...]
) -> None:
    with refused(ModelError, "x", *places):
        encoder_config(ROBERTA, {**ROBERTA_BASE, **changes}, (), "x")
    settings = {name: value for name, value in ROBERTA_BASE.items() if name != "pad_token_id"}
    assert encoder_config(ROBERTA, settings, (), "x").position_offset == 2


def test_unknown_model_types() -> None:
    with refused(ModelError, "c", "model_type", *FAMILIES):
        family_of({}, "c")
    with refused(ModelError, "c", "model_type", "'albart'", "'albert'"):
        family_of({"model_type": "albart"}, "c")


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "pre"},
        {"feedforward": "gated"},
        {"positions": "rotary"},
        {"bias": False},
        {"norm": "pre", "feedforward": "gated", "positions": "rotary", "bias": False},
    ],
)
def test_what_their_classes_cannot_compute_is_refused_with_every_field(
    changes: dict[str, Any],
) -> None:
    with refused(ModelError, *(f"encoder.{name}={value}" for name, value in changes.items())):
        choose_family(EncoderConfig(**changes), ())


SAME_WIDTH = {"embedding_size": 768, "sharing": "none", "pooler": False}


@pytest.mark.parametrize(
    ("changes", "has", "dense", "expected"),
    [
        ({}, ("pooler", "mlm", "sentence"), None, "albert"),
        ({"sharing": "none"}, ("pooler", "mlm"), None, "albert"),
        (SAME_WIDTH, ("mlm",), None, "bert"),
        ({**SAME_WIDTH, "segment_types": 1}, ("mlm",), None, "bert"),
        (SAME_WIDTH, ("classifier",), "tanh", "bert"),
        ({**SAME_WIDTH, "position_offset": 1}, ("mlm",), None, "roberta"),
        (SAME_WIDTH, ("mlm", "discriminator"), None, "electra"),
        (SAME_WIDTH, ("classifier",), "gelu", "electra"),
        ({"sharing": "none", "pooler": False, "activation": "gelu"}, ("mlm",), None, "electra"),
        (
            {"sharing": "none", "pooler": False, "activation": "relu"},
            ("classifier",),
            None,
            "electra",
        ),
        ({"sharing": "none", "pooler": False, "activation": "relu"}, ("mlm",), None, "albert"),
        (
            {"sharing": "none", "pooler": False, "activation": "gelu"},
            ("classifier",),
            "tanh",
            "albert",
        ),
    ],
)
def test_which_layout_holds_a_model(
    changes: dict[str, Any], has: Any, dense: Any, expected: str
) -> None:
    assert choose_family(EncoderConfig(**changes), has, dense)[0].model_type == expected


@pytest.mark.parametrize(
    ("changes", "has", "dense", "places"),
    [
        (
            {"position_offset": 2},
            (),
            None,
            ("encoder.position_offset=2", "encoder.embedding_size 128", "encoder.hidden_size 768"),
        ),
        (
            {**SAME_WIDTH, "position_offset": 2, "always_project": True},
            (),
            None,
            ("RobertaModel", "encoder.always_project"),
        ),
        (
            {**SAME_WIDTH, "always_project": True},
            ("discriminator",),
            None,
            ("ElectraModel", "encoder.always_project"),
        ),
        ({**SAME_WIDTH, "position_offset": 2}, ("classifier",), "gelu", ("dense=gelu",)),
        ({"pooler": False}, ("classifier",), "relu", ("dense=relu",)),
    ],
)
def test_what_no_layout_holds_is_refused(
    changes: dict[str, Any], has: Any, dense: Any, places: Any
) -> None:
    with refused(ModelError, *places):
        choose_family(EncoderConfig(**changes), has, dense)
