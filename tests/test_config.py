"""The space: every refusal in words, amounts, and the strict way to and from JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.config import (
    Activation,
    Config,
    EncoderConfig,
    MaskingConfig,
    OptimizerConfig,
    ReplacedTokenConfig,
    ScheduleConfig,
    SequenceConfig,
    Sharing,
    SpanBoundaryConfig,
    TrainConfig,
    replace,
)
from litebert.config.amounts import Amount, parse_amount
from litebert.config.serialization import from_dict, to_dict, to_json
from litebert.errors import ConfigError

REFUSALS: list[tuple[type, dict[str, Any], str]] = [
    *((EncoderConfig, {name: 0}, f"encoder.{name} is 0; it must be at least 1")
      for name in ("vocab_size", "embedding_size", "hidden_size", "layers", "heads", "intermediate_size", "groups")),
    (EncoderConfig, {"max_positions": 7}, "encoder.max_positions is 7; it must be at least 8"),
    (EncoderConfig, {"segment_types": -1}, "encoder.segment_types is -1; it cannot be negative"),
    (EncoderConfig, {"heads": 7}, "encoder.hidden_size 768 is not a multiple of encoder.heads 7"),
    (EncoderConfig, {"position_offset": -1}, "encoder.position_offset is -1; it cannot be negative"),
    (EncoderConfig, {"position_offset": 2, "positions": "rotary"},
     "encoder.position_offset is 2, which only encoder.positions=learned reads"),
    (EncoderConfig, {"hidden_size": 12, "heads": 4, "embedding_size": 4, "positions": "rotary"},
     "encoder.positions=rotary needs an even head size, and 12/4 is odd"),
    (EncoderConfig, {"groups": 2}, "encoder.groups is 2, which only encoder.sharing=groups reads"),
    (EncoderConfig, {"sharing": "groups", "groups": 13}, "encoder.groups 13 exceeds encoder.layers 12"),
    (EncoderConfig, {"hidden_dropout": 1.0}, "encoder.hidden_dropout is 1.0; it must be in [0, 1)"),
    (EncoderConfig, {"attention_dropout": -0.1}, "encoder.attention_dropout is -0.1; it must be in [0, 1)"),
    (EncoderConfig, {"norm_eps": 0.0}, "encoder.norm_eps is 0.0; it must be positive"),
    (EncoderConfig, {"init_std": 0.0}, "encoder.init_std is 0.0; it must be positive"),
    (SequenceConfig, {"length": 7}, "sequences.length is 7; it must be at least 8"),
    (SequenceConfig, {"short_probability": 1.1}, "sequences.short_probability is 1.1; it must be in [0, 1]"),
    (MaskingConfig, {"rate": 0.0}, "masking.rate is 0.0; it must be between 0 and 1"),
    (MaskingConfig, {"rate": 1.0}, "masking.rate is 1.0; it must be between 0 and 1"),
    (MaskingConfig, {"max_span": 0}, "masking.max_span is 0; it must be at least 1"),
    (MaskingConfig, {"copies": -1}, "masking.copies is -1; it cannot be negative"),
    (MaskingConfig, {"replace_mask": 0.95},
     "masking.replace_mask 0.95 and masking.replace_random 0.1 must be shares that sum to at most 1"),
    *((OptimizerConfig, {name: 0.0}, f"train.optimizer.{name} is 0.0; it must be positive")
      for name in ("learning_rate", "muon_learning_rate", "eps")),
    *((OptimizerConfig, {name: 1.0}, f"train.optimizer.{name} is 1.0; it must be in [0, 1)")
      for name in ("beta1", "beta2", "muon_momentum")),
    (OptimizerConfig, {"weight_decay": -1.0}, "train.optimizer.weight_decay is -1.0; it cannot be negative"),
    (ScheduleConfig, {"warmup": -1.0}, "train.schedule.warmup is -1.0; it cannot be negative"),
    (ScheduleConfig, {"cooldown": 2.0}, "train.schedule.cooldown is 2.0; it must be in [0, 1]"),
    (ScheduleConfig, {"final": 2.0}, "train.schedule.final is 2.0; it must be in [0, 1]"),
    (TrainConfig, {"budget": "soon"}, "train.budget is 'soon'; write it like 30m or 5000 steps or 300M tokens"),
    (TrainConfig, {"batch": "30m"}, "train.batch is '30m'; write it like 256 sequences or 300M tokens"),
    (TrainConfig, {"save_every": "10%"}, "train.save_every is '10%'; write it like 30m or 5000 steps"),
    (TrainConfig, {"evaluate_every": "5m"}, "train.evaluate_every is '5m'; write it like 10% or 5000 steps"),
    (TrainConfig, {"micro_batch": -1}, "train.micro_batch is -1; it cannot be negative"),
    (TrainConfig, {"clip": -1.0}, "train.clip is -1.0; it cannot be negative"),
    (TrainConfig, {"keep_checkpoints": 0}, "train.keep_checkpoints is 0; keep at least 1"),
    (TrainConfig, {"evaluate_sequences": 0}, "train.evaluate_sequences is 0; it must be positive"),
    (TrainConfig, {"depth_schedule": ((0.5, 1), (0.2, 2))},
     "train.depth_schedule shares [0.5, 0.2] must rise strictly between 0 and 1"),
    (TrainConfig, {"depth_schedule": ((1.0, 1),)}, "train.depth_schedule shares [1.0] must rise strictly"),
    (TrainConfig, {"depth_schedule": ((0.5, 0),)}, "train.depth_schedule depths must be at least 1"),
    (Config, {"objectives": ()}, "objectives is empty; name at least one of mlm, sop, nsp, rtd, sbo"),
    (Config, {"objectives": ("mlm", "mlm")}, "objectives ('mlm', 'mlm') repeats one"),
    (Config, {"objectives": ("mln",)}, "objectives has 'mln'; did you mean 'mlm'?"),
    (Config, {"objectives": ("sop", "nsp")}, "objectives has both sop and nsp, which need different second segments"),
    (Config, {"encoder": EncoderConfig(pooler=False)},
     "objective sop reads the pooled [CLS] state; set encoder.pooler=True"),
    (Config, {"sequences": SequenceConfig(format="full-sentences")},
     "objective sop compares two segments, and sequences.format=full-sentences has one; set "
     "sequences.format=segment-pair"),
    (Config, {"sequences": SequenceConfig(format="doc-sentences"), "objectives": ("nsp",)},
     "objective nsp compares two segments, and sequences.format=doc-sentences has one"),
    (Config, {"objectives": ("rtd",)}, "objective rtd builds on mlm; name mlm before rtd"),
    (Config, {"objectives": ("rtd", "mlm")}, "name mlm before rtd"),
    (Config, {"objectives": ("mlm", "rtd", "sbo")},
     "objective sbo predicts masked spans and rtd shows the encoder a text without masks; keep one of them"),
    (Config, {"objectives": ("mlm", "rtd"), "rtd": ReplacedTokenConfig(generator_width=0.3)},
     "rtd.generator_width 0.3 makes a hidden size of 230, which is no whole number of heads of the encoder's size 64; "
     "take 1/12, 2/12, ... or 1"),
    (MaskingConfig, {"replace_mask": 0.0, "replace_random": 0.0}, "are both 0, which hides nothing; set one above 0"),
    (ReplacedTokenConfig, {"generator_width": 0.0}, "rtd.generator_width is 0.0; it must be above 0 and at most 1"),
    (ReplacedTokenConfig, {"generator_width": 1.1}, "rtd.generator_width is 1.1; it must be above 0 and at most 1"),
    (ReplacedTokenConfig, {"weight": 0.0}, "rtd.weight is 0.0; it must be positive"),
    (SpanBoundaryConfig, {"positions": 0}, "sbo.positions is 0; it must be at least 1"),
    (SpanBoundaryConfig, {"position_size": 0}, "sbo.position_size is 0; it must be at least 1"),
    (MaskingConfig, {"geometric_p": 1.0}, "masking.geometric_p is 1.0; it must be between 0 and 1"),
    (Config, {"sequences": SequenceConfig(length=513)},
     "sequences.length 513 exceeds encoder.max_positions 512"),
    (Config, {"encoder": EncoderConfig(sharing="none"), "train": TrainConfig(depth_schedule=((0.5, 2),))},
     "train.depth_schedule grows shared layers, and encoder.sharing=none has layers of their own; use sharing=all"),
    (Config, {"train": TrainConfig(depth_schedule=((0.5, 13),))},
     "train.depth_schedule depths [13] must rise from encoder.groups (1) to encoder.layers (12)"),
    (Config, {"train": TrainConfig(depth_schedule=((0.2, 3), (0.5, 2)))}, "depths [3, 2] must rise"),
    (Config, {"encoder": EncoderConfig(sharing="groups", groups=4), "train": TrainConfig(depth_schedule=((0.5, 3),))},
     "depths [3] must rise from encoder.groups (4)"),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "changes", "message"), REFUSALS, ids=lambda value: getattr(value, "__name__", None))
def test_impossible_points_are_refused_in_one_sentence(cls: type, changes: dict[str, Any], message: str) -> None:
    if cls is Config:
        changes = {"name": "x", **changes}
    with pytest.raises(ConfigError) as caught:
        cls(**changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_points_at_the_edge_are_possible() -> None:
    EncoderConfig(sharing="groups", groups=12)
    EncoderConfig(embedding_size=768, segment_types=0, max_positions=8)
    MaskingConfig(replace_mask=0.5, replace_random=0.5)
    Config(name="x", objectives=("mlm",), encoder=EncoderConfig(pooler=False, segment_types=0))
    Config(name="x", sequences=SequenceConfig(length=512, short_probability=1))
    Config(name="x", train=TrainConfig(depth_schedule=((0.2, 3), (0.5, 3), (0.9, 12))))
    TrainConfig(clip=0, micro_batch=0)


def test_configs_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        EncoderConfig().layers = 3  # type: ignore[misc]


def test_projection_exists_where_widths_differ_or_on_request() -> None:
    assert EncoderConfig(embedding_size=128).projects
    assert not EncoderConfig(embedding_size=768).projects
    assert EncoderConfig(embedding_size=768, always_project=True).projects


# ---- amounts ------------------------------------------------------------------------------------------------------

EVERY = ("time", "steps", "tokens", "sequences", "share")


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("90s", 90, "time"), ("30m", 1800, "time"), ("1.5h", 5400, "time"), ("2 h", 7200, "time"),
        ("5min", 300, "time"), ("2 days", 172800, "time"), ("1d", 86400, "time"),
        ("5000 steps", 5000, "steps"), ("1 step", 1, "steps"), ("12k steps", 12000, "steps"),
        ("300M tokens", 3e8, "tokens"), ("1.5B tokens", 1.5e9, "tokens"), ("2G tokens", 2e9, "tokens"),
        ("256 sequences", 256, "sequences"), ("4k sequences", 4000, "sequences"), (" 8 sequences ", 8, "sequences"),
        ("10%", 0.1, "share"), ("100%", 1.0, "share"), ("2.5 %", 0.025, "share"),
    ],
)  # fmt: skip
def test_amounts(text: str, value: float, unit: str) -> None:
    found = parse_amount(text, "field", EVERY)  # type: ignore[arg-type]
    assert (found.unit, found.value) == (unit, pytest.approx(value))


@pytest.mark.parametrize(
    "text",
    ["", "m", "30", "30 minutesx", "-5 steps", "0 steps", "0m", "1.5 steps", "5 m steps", "101%", "10% steps",
     "1e3 steps", "nan steps", "5000steps steps", "12q tokens"],
)  # fmt: skip
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^field is '.*'; write it like 30m or 5000 steps or 300M tokens"):
        parse_amount(text, "field", EVERY)  # type: ignore[arg-type]


def test_an_amount_of_another_unit_is_refused_with_the_right_ones() -> None:
    with pytest.raises(ConfigError, match=r"^x is '30m'; write it like 5000 steps$"):
        parse_amount("30m", "x", ("steps",))
    assert parse_amount("7 steps", "x", ("steps",)) == Amount(7, "steps")


@pytest.mark.parametrize(
    ("batch", "micro", "sequences", "at_once"),
    [("32 sequences", 0, 32, 32), ("32 sequences", 5, 32, 5), ("131072 tokens", 32, 256, 32), ("100 tokens", 9, 1, 1)],
)
def test_batches(batch: str, micro: int, sequences: int, at_once: int) -> None:
    config = Config(name="x", train=TrainConfig(batch=batch, micro_batch=micro))
    assert (config.batch_sequences, config.micro_sequences) == (sequences, at_once)


# ---- to and from JSON ---------------------------------------------------------------------------------------------


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Points of the space, many fields at once."""
    share = st.floats(0, 0.99, allow_nan=False)
    positive = st.floats(1e-12, 10, allow_nan=False)
    heads, size = draw(st.integers(1, 4)), draw(st.integers(1, 8)) * 2
    layers = draw(st.integers(1, 12))
    sharing = draw(st.sampled_from(get_args(Sharing)))
    encoder = EncoderConfig(
        vocab_size=draw(st.integers(1, 100)),
        embedding_size=draw(st.integers(1, heads * size)),
        hidden_size=heads * size,
        heads=heads,
        layers=layers,
        intermediate_size=draw(st.integers(1, 99)),
        sharing=sharing,
        groups=draw(st.integers(1, layers)) if sharing == "groups" else 1,
        positions=draw(st.sampled_from(["learned", "rotary"])),
        norm=draw(st.sampled_from(["post", "pre"])),
        norm_eps=draw(positive),
        feedforward=draw(st.sampled_from(["plain", "gated"])),
        activation=draw(st.sampled_from(get_args(Activation))),
        bias=draw(st.booleans()),
        always_project=draw(st.booleans()),
        hidden_dropout=draw(share),
        init_std=draw(positive),
    )
    depths = sorted(draw(st.lists(st.integers(encoder.groups, layers), max_size=3)))
    schedule = tuple((round(0.1 * (i + 1), 1), depth) for i, depth in enumerate(depths))
    return Config(
        name=draw(st.text(max_size=8)),
        encoder=encoder,
        sequences=SequenceConfig(length=draw(st.integers(8, 512)), short_probability=draw(share)),
        masking=MaskingConfig(rate=draw(st.floats(0.01, 0.99)), copies=draw(st.integers(0, 9))),
        objectives=draw(st.sampled_from([("mlm",), ("mlm", "sop"), ("mlm", "nsp"), ("sop",)])),
        train=TrainConfig(
            seed=draw(st.integers(1 - 2**63, 2**63 - 1)),
            depth_schedule=schedule if sharing in ("all", "groups") else (),
            optimizer=OptimizerConfig(learning_rate=draw(positive), beta2=draw(share)),
            schedule=ScheduleConfig(warmup=draw(positive)),
        ),
    )


@given(configs())
def test_json_and_back_is_the_same_point(config: Config) -> None:
    assert from_dict(Config, json.loads(to_json(config))) == config
    assert from_dict(Config, to_dict(config), base=Config(name="other")) == config


def test_json_is_plain_and_complete() -> None:
    data = json.loads(to_json(Config(name="x")))
    assert set(data) == {field.name for field in dataclasses.fields(Config)}
    assert set(data["train"]["optimizer"]) == {field.name for field in dataclasses.fields(OptimizerConfig)}
    assert data["objectives"] == ["mlm", "sop"]


def test_absent_fields_keep_the_base_or_the_default() -> None:
    data = {"name": "y", "encoder": {"layers": 3}}
    assert from_dict(Config, data) == Config(name="y", encoder=EncoderConfig(layers=3))
    base = Config(name="x", encoder=EncoderConfig(heads=6), train=TrainConfig(seed=5))
    assert from_dict(Config, data, base=base) == replace(base, name="y", encoder=EncoderConfig(heads=6, layers=3))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "Config is incomplete: "),
        ({"name": "x", "encodr": {}}, "unknown field 'encodr'; did you mean 'encoder'?"),
        ({"name": "x", "encoder": {"layer": 3}}, "unknown field 'encoder.layer'; did you mean 'layers'?"),
        ({"name": "x", "train": {"optimizer": {"lr": 1}}}, "unknown field 'train.optimizer.lr'; "),
        ({"name": "x", "encoder": {"layers": "3"}}, "encoder.layers is '3'; it must be a whole number"),
        ({"name": "x", "encoder": {"layers": 3.0}}, "encoder.layers is 3.0; it must be a whole number"),
        ({"name": "x", "encoder": {"layers": True}}, "encoder.layers is True; it must be a whole number"),
        ({"name": "x", "encoder": {"bias": 1}}, "encoder.bias is 1; it must be true or false"),
        ({"name": "x", "masking": {"rate": "a"}}, "masking.rate is 'a'; it must be a number"),
        ({"name": "x", "masking": {"rate": True}}, "masking.rate is True; it must be a number"),
        ({"name": 3}, "name is 3; it must be a text in quotes"),
        ({"name": "x", "encoder": {"norm": "prae"}}, "encoder.norm is 'prae'; did you mean 'pre'?"),
        ({"name": "x", "encoder": {"norm": 1}}, "encoder.norm is 1; choose one of: post, pre"),
        ({"name": "x", "objectives": "mlm"}, "objectives must be a list, not 'mlm'"),
        ({"name": "x", "objectives": ["mlm", "mln"]}, "objectives has 'mln'; did you mean 'mlm'?"),
        ({"name": "x", "encoder": 3}, "encoder must be a table of fields, not 3"),
        ([], "Config must be a table of fields, not []"),
        ({"name": "x", "train": {"depth_schedule": [[0.5]]}}, "train.depth_schedule[0] must have 2 items, not 1"),
        ({"name": "x", "train": {"depth_schedule": [["a", 1]]}}, "train.depth_schedule[0][0] is 'a'; it must be a num"),
        ({"name": "x", "encoder": {"heads": 7}}, "encoder.hidden_size 768 is not a multiple of encoder.heads 7"),
    ],
)
def test_reading_is_strict(data: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict(Config, data)
    assert message in str(caught.value)


def test_whole_numbers_pass_for_numbers() -> None:
    found = from_dict(Config, {"name": "x", "train": {"clip": 2}})
    assert found.train.clip == 2.0
    assert isinstance(found.train.clip, float)


GENERATORS = [
    # share, hidden, heads of the encoder -> hidden, heads, intermediate of the generator (ELECTRA table 6)
    (1 / 4, 256, 4, 64, 1, 256),
    (1 / 3, 768, 12, 256, 4, 1024),
    (0.33333, 768, 12, 256, 4, 1024),
    (1 / 4, 1024, 16, 256, 4, 1024),
    (1.0, 256, 4, 256, 4, 1024),
]


@pytest.mark.parametrize(("width", "hidden", "heads", "small", "few", "inner"), GENERATORS)
def test_a_generator_is_a_narrower_point(
    width: float, hidden: int, heads: int, small: int, few: int, inner: int
) -> None:
    encoder = EncoderConfig(hidden_size=hidden, heads=heads, intermediate_size=4 * hidden, sharing="none")
    rtd = ReplacedTokenConfig(generator_width=width)
    generator = Config(name="x", encoder=encoder, objectives=("mlm", "rtd"), rtd=rtd).generator
    assert generator == replace(encoder, hidden_size=small, heads=few, intermediate_size=inner, pooler=False)
    assert Config(name="x", encoder=encoder, objectives=("mlm",), rtd=rtd).generator is None
