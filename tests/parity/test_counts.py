"""Parameter counts to the unit, from the config alone and from the built model.

The numbers are those of the published shapes under the official rules (a linear map E -> H only
where E differs, tied vocabulary projection), and were checked once against `transformers`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from litebert.config import Config, EncoderConfig, replace
from litebert.config.cost import (
    attention_parameters,
    encoder_parameters,
    feedforward_parameters,
    linear,
    model_parameters,
)
from litebert.model.encoder import Encoder
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from litebert.recipes.files import recipe

pytestmark = pytest.mark.thorough


def count_built(module: type[nn.Module], *arguments: Any) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in module(*arguments).parameters())


def pretrainer(encoder: EncoderConfig, *objectives: str) -> int:
    return count_built(Pretrainer, Config(name="x", encoder=encoder, objectives=objectives))


def count_planned(encoder: EncoderConfig, *objectives: str) -> int:
    whole = Config(name="x", encoder=encoder, objectives=objectives) if objectives else None
    return sum((encoder_parameters(encoder) if whole is None else model_parameters(whole)).values())


def without_pooler(encoder: EncoderConfig) -> EncoderConfig:
    return replace(encoder, pooler=False)


PIECES = {
    "albert-base": (2363904, 4723968, 3906048, 99072, 590592, 128688),
    "albert-large": (4200448, 8395776, 3906048, 132096, 1049600, 161456),
    "albert-xlarge": (16789504, 33568768, 3906048, 264192, 4196352, 292528),
    "albert-xxlarge": (67133440, 134246400, 3906048, 528384, 16781312, 554672),
}


@pytest.mark.parametrize(("name", "counts"), PIECES.items())
def test_pieces(name: str, counts: tuple[int, ...]) -> None:
    encoder = recipe(name).encoder
    parts = encoder_parameters(encoder)
    assert (
        attention_parameters(encoder),
        feedforward_parameters(encoder),
        parts["embeddings"],
        parts["projection"],
        parts["pooler"],
        model_parameters(recipe(name))["mlm head"],
    ) == counts
    with torch.device("meta"):
        model = Pretrainer(recipe(name))
    modules: tuple[Any, ...] = (
        model.encoder.attention,
        model.encoder.feedforward,
        [
            model.encoder.embedding.word,
            model.encoder.embedding.position,
            model.encoder.embedding.token_type,
            model.encoder.embedding.norm,
        ],
        [model.encoder.embedding.project],
        [model.encoder.pooler],
        [model.objectives["mlm"]],
    )
    assert (
        tuple(
            sum(parameter.numel() for module in group for parameter in module.parameters())
            for group in modules
        )
        == counts
    )


WHOLE = {
    # backbone, with pooler, MaskedLM, PreTraining, SequenceClassification, MultipleChoice, QA =
    # TokenClassification
    "albert-base": (11092992, 11683584, 11221680, 11813810, 11685122, 11684353, 11094530),
    "albert-large": (16634368, 17683968, 16795824, 17847474, 17686018, 17684993, 16636418),
    "albert-xlarge": (54528512, 58724864, 54821040, 59021490, 58728962, 58726913, 54532610),
    "albert-xxlarge": (205814272, 222595584, 206368944, 223158450, 222603778, 222599681, 205822466),
}


@pytest.mark.parametrize(("name", "counts"), WHOLE.items())
def test_albert_with_every_head(name: str, counts: tuple[int, ...]) -> None:
    full = recipe(name).encoder
    bare = without_pooler(full)
    assert counts == (
        count_planned(bare),
        count_planned(full),
        count_planned(bare, "mlm"),
        count_planned(full, "mlm", "sop"),
        count_planned(full) + linear(full.hidden_size, 2),
        count_planned(full) + linear(full.hidden_size, 1),
        count_planned(bare) + linear(bare.hidden_size, 2),
    )
    assert counts == (
        count_built(Encoder, bare),
        count_built(Encoder, full),
        pretrainer(bare, "mlm"),
        pretrainer(full, "mlm", "sop"),
        count_built(TaskModel, full, True, 2),
        count_built(TaskModel, full, True, 1),
        count_built(TaskModel, bare, False, 2),
    )


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("albert-base", 89650176),
        ("albert-large", 307397120),
        ("albert-xlarge", 1216965120),
        ("albert-xxlarge", 2437773824),
    ],
)
def test_same_depth_without_sharing(name: str, count: int) -> None:
    encoder = replace(recipe(name).encoder, sharing="none")
    assert count_planned(encoder) == count_built(Encoder, encoder) == count


BERT = [
    # recipe, vocabulary, backbone, with pooler, MaskedLM, PreTraining
    ("bert-base", 30522, 108891648, 109482240, 109514298, 110106428),
    ("bert-large", 30522, 334092288, 335141888, 335174458, 336226108),
    ("bert-base", 30000, 108490752, 109081344, 109112880, 109705010),
    ("bert-large", 30000, 333557760, 334607360, 334639408, 335691058),
    ("bert-xlarge", 30000, 1271095296, 1275291648, 1275325744, 1279526194),
    ("bert-base", 28996, 107719680, 108310272, 108340804, 108932934),
    ("bert-large", 28996, 332529664, 333579264, 333610308, 334661958),
]


@pytest.mark.parametrize(
    ("name", "vocabulary", "backbone", "pooled", "masked", "pretraining"), BERT
)
def test_bert(
    name: str, vocabulary: int, backbone: int, pooled: int, masked: int, pretraining: int
) -> None:
    full = replace(recipe(name).encoder, vocab_size=vocabulary)
    bare = without_pooler(full)
    counts = (backbone, pooled, masked, pretraining)
    assert (
        count_planned(bare),
        count_planned(full),
        count_planned(bare, "mlm"),
        count_planned(full, "mlm", "nsp"),
    ) == counts
    assert counts == (
        count_built(Encoder, bare),
        count_built(Encoder, full),
        pretrainer(bare, "mlm"),
        pretrainer(full, "mlm", "nsp"),
    )


ROBERTA = [
    # recipe, backbone, with pooler, MaskedLM
    ("roberta-base", 124055040, 124645632, 124697433),
    ("roberta-large", 354310144, 355359744, 355412057),
]


@pytest.mark.parametrize(("name", "backbone", "pooled", "masked"), ROBERTA)
def test_roberta(name: str, backbone: int, pooled: int, masked: int) -> None:
    config = recipe(name)
    bare = config.encoder
    full = replace(bare, pooler=True)
    counts = (backbone, pooled, masked)
    assert (
        count_planned(bare),
        count_planned(full),
        sum(model_parameters(config).values()),
    ) == counts
    assert (
        count_built(Encoder, bare),
        count_built(Encoder, full),
        count_built(Pretrainer, config),
    ) == counts


ELECTRA = [
    # recipe, generator's width, backbones of D and of G, D with its head, G with its head, both
    # with shared embeddings
    ("electra-small", 1 / 4, 13483008, 4580928, 13549057, 4620026, 14196219),
    ("electra-small", 1, 13483008, 13483008, 13549057, 13546682, 23122875),
    ("electra-base", 1 / 3, 108891648, 33511168, 109483009, 33740602, 119386427),
    ("electra-large", 1 / 4, 334092288, 50999552, 335142913, 51295290, 354655291),
]


@pytest.mark.parametrize(
    ("name", "width", "discriminator", "generator", "detection", "masked", "joint"),
    ELECTRA,
    ids=lambda value: str(value) if isinstance(value, str) else None,
)
def test_electra(
    name: str,
    width: float,
    discriminator: int,
    generator: int,
    detection: int,
    masked: int,
    joint: int,
) -> None:
    config = recipe(name)
    config = replace(config, rtd=replace(config.rtd, generator_width=width))
    shape = config.generator
    assert shape is not None
    assert count_planned(config.encoder) == count_built(Encoder, config.encoder) == discriminator
    assert count_planned(shape) == count_built(Encoder, shape) == generator
    assert count_planned(config.encoder) + model_parameters(config)["rtd head"] == detection
    assert count_planned(shape, "mlm") == pretrainer(shape, "mlm") == masked
    assert sum(model_parameters(config).values()) == count_built(Pretrainer, config) == joint
    with torch.device("meta"):
        model = Pretrainer(config)
    modules = (model.encoder, model.objectives["rtd"])
    assert sum(item.numel() for module in modules for item in module.parameters()) == detection
    # The paper's sharing, of the tables alone: the generator has two rows of token types and a norm
    # more.
    tables = replace(config, rtd=replace(config.rtd, generator_embeddings="tables"))
    assert (
        sum(model_parameters(tables).values())
        == count_built(Pretrainer, tables)
        == joint + 4 * shape.embedding_size
    )


SPANBERT = [("spanbert-base", 110300480, 1959676), ("spanbert-large", 336998976, 3388668)]


@pytest.mark.parametrize(("name", "count", "boundary"), SPANBERT)
def test_spanbert(name: str, count: int, boundary: int) -> None:
    config = recipe(name)
    assert sum(model_parameters(config).values()) == count_built(Pretrainer, config) == count
    without = replace(config, objectives=("mlm",))
    assert (
        sum(model_parameters(without).values())
        == count_built(Pretrainer, without)
        == count - boundary
    )


ABLATIONS = [
    # embedding size, sharing, without and with pooler
    (64, "none", 87057408, 87648000),
    (128, "none", 89059584, 89650176),
    (256, "none", 93063936, 93654528),
    (768, "none", 108490752, 109081344),
    (64, "all", 9090816, 9681408),
    (128, "all", 11092992, 11683584),
    (256, "all", 15097344, 15687936),
    (768, "all", 30524160, 31114752),
    (768, "attention", 82487808, 83078400),
    (128, "attention", 63056640, 63647232),
    (768, "feedforward", 56527104, 57117696),
    (128, "feedforward", 37095936, 37686528),
]


@pytest.mark.parametrize(("width", "sharing", "bare", "pooled"), ABLATIONS)
def test_embedding_and_sharing_ablations(width: int, sharing: Any, bare: int, pooled: int) -> None:
    encoder = replace(recipe("albert-base").encoder, embedding_size=width, sharing=sharing)
    assert (
        count_planned(without_pooler(encoder))
        == count_built(Encoder, without_pooler(encoder))
        == bare
    )
    assert count_planned(encoder) == count_built(Encoder, encoder) == pooled


@pytest.mark.parametrize(("sharing", "count"), [("none", 109671936), ("all", 31705344)])
def test_the_map_kept_where_embedding_and_hidden_size_agree(sharing: Any, count: int) -> None:
    base = recipe("albert-base").encoder
    encoder = replace(base, embedding_size=768, sharing=sharing, always_project=True)
    assert count_planned(encoder) == count_built(Encoder, encoder) == count


@pytest.mark.parametrize("groups", [1, 2, 3, 5, 12])
def test_groups(groups: int) -> None:
    base = recipe("albert-base").encoder
    encoder = replace(base, sharing="groups", groups=groups)
    block = 2363904 + 4723968
    assert (
        count_planned(encoder) == count_built(Encoder, encoder) == 11683584 + (groups - 1) * block
    )


@pytest.mark.parametrize("layers", [1, 7, 48])
def test_depth_costs_nothing_when_all_is_shared(layers: int) -> None:
    encoder = replace(recipe("albert-base").encoder, layers=layers)
    assert count_planned(encoder) == count_built(Encoder, encoder) == 11683584


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("feedforward", ["plain", "gated"])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("segment_types", [0, 2])
@pytest.mark.parametrize("embedding_norm", ["before", "after"])
@pytest.mark.parametrize("prediction", ["embedding", "hidden"])
def test_plan_equals_the_built_model_at_every_corner(
    norm: Any,
    feedforward: Any,
    positions: Any,
    bias: bool,
    segment_types: int,
    embedding_norm: Any,
    prediction: Any,
) -> None:
    encoder = EncoderConfig(
        vocab_size=50,
        embedding_size=6,
        hidden_size=12,
        layers=3,
        heads=3,
        intermediate_size=20,
        max_positions=512,
        sharing="attention",
        norm=norm,
        feedforward=feedforward,
        positions=positions,
        bias=bias,
        segment_types=segment_types,
        embedding_norm=embedding_norm,
        prediction=prediction,
    )
    assert count_planned(encoder) == count_built(Encoder, encoder)
    assert count_planned(encoder, "mlm") == pretrainer(encoder, "mlm")


@pytest.mark.parametrize(
    ("sharing", "groups"), [("none", 1), ("all", 1), ("feedforward", 1), ("groups", 4)]
)
@pytest.mark.parametrize("layers", [1, 4, 6])
def test_a_block_of_the_first_layer_alone_has_no_norm_without_first_norm(
    sharing: Any, groups: int, layers: int
) -> None:
    base = recipe("albert-base").encoder
    encoder = replace(base, norm="pre", sharing=sharing, layers=layers, groups=min(groups, layers))
    without = replace(encoder, first_norm=False)
    alone = encoder.attention_of().count(0) == 1
    assert (
        count_planned(without)
        == count_built(Encoder, without)
        == count_planned(encoder) - alone * 2 * 768
    )


MODERNBERT = [
    # recipe, backbone, MaskedLM
    ("modernbert-base", 149014272, 149655232),
    ("modernbert-large", 394781696, 395881664),
]


@pytest.mark.parametrize(("name", "backbone", "masked"), MODERNBERT)
def test_modernbert(name: str, backbone: int, masked: int) -> None:
    config = recipe(name)
    assert count_planned(config.encoder) == count_built(Encoder, config.encoder) == backbone
    assert sum(model_parameters(config).values()) == count_built(Pretrainer, config) == masked
