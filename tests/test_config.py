"""The space: every refusal in words, amounts, and the strict way to and from JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.base.errors import ConfigError
from litebert.config import (
    Activation,
    Config,
    EncoderConfig,
    LoopConfig,
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
from toys.refusals import refused

REFUSALS: list[tuple[type, Mapping[str, Any], Sequence[object]]] = [
    *(
        (EncoderConfig, {name: 0}, [f"encoder.{name}", 0])
        for name in (
            "vocab_size",
            "embedding_size",
            "hidden_size",
            "layers",
            "heads",
            "intermediate_size",
            "groups",
        )
    ),
    (EncoderConfig, {"max_positions": 7}, ["encoder.max_positions", 7]),
    (EncoderConfig, {"segment_types": -1}, ["encoder.segment_types", -1]),
    (EncoderConfig, {"heads": 7}, ["encoder.hidden_size", 768, "encoder.heads", 7]),
    (EncoderConfig, {"position_offset": -1}, ["encoder.position_offset", -1]),
    (
        EncoderConfig,
        {"position_offset": 2, "positions": "rotary"},
        ["encoder.position_offset", 2, "encoder.positions=learned"],
    ),
    (
        EncoderConfig,
        {"hidden_size": 12, "heads": 4, "embedding_size": 4, "positions": "rotary"},
        ["encoder.positions=rotary", "12/4"],
    ),
    (EncoderConfig, {"groups": 2}, ["encoder.groups", 2, "encoder.sharing=groups"]),
    (
        EncoderConfig,
        {"sharing": "groups", "groups": 13},
        ["encoder.groups", 13, "encoder.layers", 12],
    ),
    (EncoderConfig, {"hidden_dropout": 1.0}, ["encoder.hidden_dropout", 1.0]),
    (EncoderConfig, {"attention_dropout": -0.1}, ["encoder.attention_dropout", -0.1]),
    (EncoderConfig, {"norm_eps": 0.0}, ["encoder.norm_eps", 0.0]),
    (EncoderConfig, {"init_std": 0.0}, ["encoder.init_std", 0.0]),
    (SequenceConfig, {"length": 7}, ["sequences.length", 7]),
    (SequenceConfig, {"short_probability": 1.1}, ["sequences.short_probability", 1.1]),
    *((MaskingConfig, {"rate": rate}, ["masking.rate", rate]) for rate in (0.0, 1.0)),
    (MaskingConfig, {"max_span": 0}, ["masking.max_span", 0]),
    (MaskingConfig, {"copies": -1}, ["masking.copies", -1]),
    (MaskingConfig, {"geometric_p": 1.0}, ["masking.geometric_p", 1.0]),
    (
        MaskingConfig,
        {"replace_mask": 0.95},
        ["masking.replace_mask", 0.95, "masking.replace_random", 0.1],
    ),
    (
        MaskingConfig,
        {"replace_mask": 0.0, "replace_random": 0.0},
        ["masking.replace_mask", "masking.replace_random"],
    ),
    *(
        (OptimizerConfig, {name: 0.0}, [f"train.optimizer.{name}", 0.0])
        for name in ("learning_rate", "muon_learning_rate", "eps")
    ),
    *(
        (OptimizerConfig, {name: 1.0}, [f"train.optimizer.{name}", 1.0])
        for name in ("beta1", "beta2", "muon_momentum")
    ),
    (EncoderConfig, {"first_norm": False}, ["encoder.first_norm", "encoder.norm=post"]),
    (EncoderConfig, {"window": 1, "global_every": 3}, ["encoder.window", 1, 2]),
    (EncoderConfig, {"window": -2, "global_every": 3}, ["encoder.window", -2]),
    (EncoderConfig, {"window": 8}, ["encoder.window", 8, "encoder.global_every"]),
    (EncoderConfig, {"global_every": 3}, ["encoder.global_every", 3, "encoder.window"]),
    (EncoderConfig, {"window": 8, "global_every": -1}, ["encoder.global_every", -1]),
    (EncoderConfig, {"global_tokens": 1}, ["encoder.global_tokens", 1, "encoder.window"]),
    (
        EncoderConfig,
        {"window": 8, "global_every": 0, "global_tokens": -1},
        ["encoder.global_tokens", -1],
    ),
    (EncoderConfig, {"global_every": 0}, ["encoder.global_every", 0, "encoder.window"]),
    (EncoderConfig, {"rotary_base": 5e5}, ["encoder.rotary_base", 5e5, "encoder.positions=rotary"]),
    (EncoderConfig, {"positions": "rotary", "rotary_base": 0.0}, ["encoder.rotary_base", 0.0]),
    (
        EncoderConfig,
        {"positions": "rotary", "window_rotary_base": 5e5},
        ["encoder.window_rotary_base", 5e5],
    ),
    (OptimizerConfig, {"weight_decay": -1.0}, ["train.optimizer.weight_decay", -1.0]),
    (ScheduleConfig, {"warmup": -1.0}, ["train.schedule.warmup", -1.0]),
    (ScheduleConfig, {"cooldown": 2.0}, ["train.schedule.cooldown", 2.0]),
    *(
        (loop, {name: value}, [f"train.{name}", value])
        for loop in (LoopConfig, TrainConfig)
        for name, value in (
            ("batch", "30m"),
            ("save_every", "10%"),
            ("evaluate_every", "5m"),
            ("micro_batch", -1),
            ("clip", -1.0),
            ("keep_checkpoints", 0),
            ("seed", 2**63),
        )
    ),
    (
        TrainConfig,
        {"budget": "soon"},
        ["train.budget", "'soon'", "30m", "5000 steps", "300M tokens"],
    ),
    (TrainConfig, {"evaluate_sequences": 0}, ["train.evaluate_sequences", 0]),
    (TrainConfig, {"depth_schedule": ((0.5, 1), (0.2, 2))}, ["train.depth_schedule", "[0.5, 0.2]"]),
    (TrainConfig, {"depth_schedule": ((1.0, 1),)}, ["train.depth_schedule", "[1.0]"]),
    (TrainConfig, {"depth_schedule": ((0.5, 0),)}, ["train.depth_schedule"]),
    (Config, {"objectives": ()}, ["objectives", "mlm, sop, nsp, rtd, sbo"]),
    (Config, {"objectives": ("mlm", "mlm")}, ["objectives", "('mlm', 'mlm')"]),
    (Config, {"objectives": ("mln",)}, ["objectives", "'mln'", "'mlm'"]),
    (Config, {"objectives": ("sop", "nsp")}, ["objectives", "sop", "nsp"]),
    (Config, {"encoder": EncoderConfig(pooler=False)}, ["sop", "encoder.pooler=True"]),
    (
        Config,
        {"sequences": SequenceConfig(format="full-sentences"), "objectives": ("sop",)},
        ["sop", "sequences.format=full-sentences"],
    ),
    (
        Config,
        {"sequences": SequenceConfig(format="doc-sentences"), "objectives": ("nsp",)},
        ["nsp", "sequences.format=doc-sentences"],
    ),
    *((Config, {"objectives": names}, ["rtd", "mlm"]) for names in (("rtd",), ("rtd", "mlm"))),
    (Config, {"objectives": ("mlm", "rtd", "sbo")}, ["sbo", "rtd"]),
    (
        Config,
        {"objectives": ("mlm", "rtd"), "rtd": ReplacedTokenConfig(generator_width=0.3)},
        ["rtd.generator_width", 0.3, 230, 64, "1/12"],
    ),
    *(
        (ReplacedTokenConfig, {"generator_width": width}, ["rtd.generator_width", width])
        for width in (0.0, 1.1)
    ),
    (ReplacedTokenConfig, {"weight": 0.0}, ["rtd.weight", 0.0]),
    (SpanBoundaryConfig, {"positions": 0}, ["sbo.positions", 0]),
    (SpanBoundaryConfig, {"position_size": 0}, ["sbo.position_size", 0]),
    (
        Config,
        {"sequences": SequenceConfig(length=513)},
        ["sequences.length", 513, "encoder.max_positions", 512],
    ),
    (
        Config,
        {
            "encoder": EncoderConfig(sharing="none"),
            "train": TrainConfig(depth_schedule=((0.5, 2),)),
        },
        ["train.depth_schedule", "encoder.sharing=none", "sharing=all"],
    ),
    *(
        (
            Config,
            {"train": TrainConfig(depth_schedule=depths)},
            ["train.depth_schedule", shown, 1, 12],
        )
        for depths, shown in ((((0.5, 13),), "[13]"), (((0.2, 3), (0.5, 2)), "[3, 2]"))
    ),
    (
        Config,
        {
            "encoder": EncoderConfig(sharing="groups", groups=4),
            "train": TrainConfig(depth_schedule=((0.5, 3),)),
        },
        ["train.depth_schedule", "[3]", "encoder.groups", 4],
    ),
]


@pytest.mark.parametrize(
    ("cls", "changes", "places"), REFUSALS, ids=lambda value: getattr(value, "__name__", None)
)
def test_impossible_points_are_refused(
    cls: type, changes: dict[str, Any], places: list[object]
) -> None:
    with refused(ConfigError, *places):
        cls(**({"name": "x", **changes} if cls is Config else changes))


def test_points_at_the_edge_are_possible() -> None:
    EncoderConfig(sharing="groups", groups=12)
    EncoderConfig(embedding_size=768, segment_types=0, max_positions=8)
    MaskingConfig(replace_mask=0.5, replace_random=0.5)
    Config(name="x", objectives=("mlm",), encoder=EncoderConfig(pooler=False, segment_types=0))
    Config(name="x", sequences=SequenceConfig(length=512, short_probability=1))
    Config(name="x", train=TrainConfig(depth_schedule=((0.2, 3), (0.5, 3), (0.9, 12))))
    TrainConfig(clip=0, micro_batch=0)


def test_projection_exists_where_widths_differ_or_on_request() -> None:
    assert EncoderConfig(embedding_size=128).projects
    assert not EncoderConfig(embedding_size=768).projects
    assert EncoderConfig(embedding_size=768, always_project=True).projects


# ------------------------------------------------------------------------------------------ amounts

EVERY = ("time", "steps", "tokens", "sequences", "share")


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("90s", 90, "time"),
        ("30m", 1800, "time"),
        ("1.5h", 5400, "time"),
        ("2 h", 7200, "time"),
        ("5min", 300, "time"),
        ("2 days", 172800, "time"),
        ("1d", 86400, "time"),
        ("1h30m", 5400, "time"),
        ("1 h 30 min", 5400, "time"),
        ("90 min", 5400, "time"),
        ("90 minutes", 5400, "time"),
        ("1d2h3m4s", 93784, "time"),
        ("1 hour", 3600, "time"),
        ("5000 steps", 5000, "steps"),
        ("1 step", 1, "steps"),
        ("12k steps", 12000, "steps"),
        ("300M tokens", 3e8, "tokens"),
        ("1.5B tokens", 1.5e9, "tokens"),
        ("2G tokens", 2e9, "tokens"),
        ("256 sequences", 256, "sequences"),
        ("4k sequences", 4000, "sequences"),
        (" 8 sequences ", 8, "sequences"),
        ("10%", 0.1, "share"),
        ("100%", 1.0, "share"),
        ("2.5%", 0.025, "share"),
    ],
)
def test_amounts(text: str, value: float, unit: str) -> None:
    amount = parse_amount(text, "field", EVERY)  # type: ignore[arg-type]
    assert amount.unit == unit
    assert amount.value == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "30",
        "30 minutesx",
        "-5 steps",
        "0 steps",
        "0m",
        "1.5 steps",
        "5 m steps",
        "101%",
        "10% steps",
        "1e3 steps",
        "nan steps",
        "1h30",
        "30M",
        "h30m",
        "9" * 400 + "h",
        "5000steps steps",
        "12q tokens",
    ],
)
def test_what_is_no_amount(text: str) -> None:
    with refused(ConfigError, "field", f"'{text}'", "30m", "5000 steps"):
        parse_amount(text, "field", EVERY)  # type: ignore[arg-type]


def test_an_amount_of_another_unit_is_refused_with_the_right_ones() -> None:
    with refused(ConfigError, "x", "'30m'", "5000 steps"):
        parse_amount("30m", "x", ("steps",))
    assert parse_amount("7 steps", "x", ("steps",)) == Amount(7, "steps")


@pytest.mark.parametrize(
    ("batch", "micro", "sequences", "at_once"),
    [
        ("32 sequences", 0, 32, 32),
        ("32 sequences", 5, 32, 5),
        ("131072 tokens", 32, 256, 32),
        ("100 tokens", 9, 1, 1),
    ],
)
def test_batches(batch: str, micro: int, sequences: int, at_once: int) -> None:
    config = Config(name="x", train=TrainConfig(batch=batch, micro_batch=micro))
    assert (config.batch_sequences, config.micro_sequences) == (sequences, at_once)


# --------------------------------------------------------------------------------- to and from JSON


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Points of the space, many fields at once."""
    share = st.floats(0, 0.99, allow_nan=False)
    positive = st.floats(1e-12, 10, allow_nan=False)
    heads, size = draw(st.integers(1, 4)), draw(st.integers(1, 8)) * 2
    layers = draw(st.integers(1, 12))
    sharing = draw(st.sampled_from(get_args(Sharing)))
    settings: dict[str, Any] = draw(
        st.sampled_from(
            [
                {},
                {"norm": "pre"},
                {"window": 6, "global_every": 2},
                {"norm": "pre", "first_norm": False},
            ]
        )
    )
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
        norm_eps=draw(positive),
        feedforward=draw(st.sampled_from(["plain", "gated"])),
        activation=draw(st.sampled_from(get_args(Activation))),
        bias=draw(st.booleans()),
        always_project=draw(st.booleans()),
        embedding_norm=draw(st.sampled_from(["before", "after"])),
        prediction=draw(st.sampled_from(["embedding", "hidden"])),
        **settings,
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


@pytest.mark.thorough
@given(configs())
def test_json_and_back_is_the_same_point(config: Config) -> None:
    assert from_dict(Config, json.loads(to_json(config))) == config
    assert from_dict(Config, to_dict(config), base=Config(name="other")) == config


def test_json_is_plain_and_complete() -> None:
    data = json.loads(to_json(Config(name="x")))
    names = {field.name for field in dataclasses.fields(Config)}
    assert set(data) == names - {"objective_settings", "tracker"}, "left out where there are none"
    assert set(data["train"]["optimizer"]) == {
        field.name for field in dataclasses.fields(OptimizerConfig)
    }
    assert data["objectives"] == ["mlm", "sop"]


def test_absent_fields_keep_the_base_or_the_default() -> None:
    data = {"name": "y", "encoder": {"layers": 3}}
    assert from_dict(Config, data) == Config(name="y", encoder=EncoderConfig(layers=3))
    base = Config(name="x", encoder=EncoderConfig(heads=6), train=TrainConfig(seed=5))
    assert from_dict(Config, data, base=base) == replace(
        base, name="y", encoder=EncoderConfig(heads=6, layers=3)
    )


@pytest.mark.parametrize(
    ("data", "places"),
    [
        ({}, ["'name'"]),
        ({"name": "x", "encodr": {}}, ["'encodr'", "'encoder'"]),
        ({"name": "x", "encoder": {"layer": 3}}, ["'encoder.layer'", "'layers'"]),
        ({"name": "x", "train": {"optimizer": {"lr": 1}}}, ["'train.optimizer.lr'"]),
        *(
            ({"name": "x", "encoder": {"layers": value}}, ["encoder.layers", repr(value)])
            for value in ("3", 3.0, True)
        ),
        ({"name": "x", "encoder": {"bias": 1}}, ["encoder.bias", 1]),
        *(
            ({"name": "x", "masking": {"rate": value}}, ["masking.rate", repr(value)])
            for value in ("a", True)
        ),
        ({"name": 3}, ["name", 3]),
        ({"name": "x", "encoder": {"norm": "prae"}}, ["encoder.norm", "'prae'", "'pre'"]),
        ({"name": "x", "encoder": {"norm": 1}}, ["encoder.norm", 1, "post, pre"]),
        ({"name": "x", "objectives": "mlm"}, ["objectives", "'mlm'"]),
        ({"name": "x", "objectives": ["mlm", "mln"]}, ["objectives", "'mln'", "'mlm'"]),
        ({"name": "x", "encoder": 3}, ["encoder", 3]),
        ([], ["Config", "[]"]),
        ({"name": "x", "train": {"depth_schedule": [[0.5]]}}, ["train.depth_schedule[0]", 2, 1]),
        (
            {"name": "x", "train": {"depth_schedule": [["a", 1]]}},
            ["train.depth_schedule[0][0]", "'a'"],
        ),
        ({"name": "x", "encoder": {"heads": 7}}, ["encoder.hidden_size", 768, "encoder.heads", 7]),
    ],
)
def test_reading_is_strict(data: Any, places: list[object]) -> None:
    with refused(ConfigError, *places):
        from_dict(Config, data)


def test_whole_numbers_pass_for_numbers() -> None:
    config = from_dict(Config, {"name": "x", "train": {"clip": 2}})
    assert config.train.clip == 2.0
    assert isinstance(config.train.clip, float)


GENERATORS = [
    # share, hidden, heads of the encoder -> hidden, heads, intermediate of the generator (ELECTRA
    # table 6)
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
    encoder = EncoderConfig(
        hidden_size=hidden, heads=heads, intermediate_size=4 * hidden, sharing="none"
    )
    rtd = ReplacedTokenConfig(generator_width=width)
    generator = Config(name="x", encoder=encoder, objectives=("mlm", "rtd"), rtd=rtd).generator
    assert generator == replace(
        encoder, hidden_size=small, heads=few, intermediate_size=inner, pooler=False
    )
    assert Config(name="x", encoder=encoder, objectives=("mlm",), rtd=rtd).generator is None
