"""The points: published shapes, and recipes in files of every kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from litebert.base.errors import ConfigError
from litebert.base.registry import ENGINES, OBJECTIVES, SOURCES, Registry
from litebert.config import Config, replace
from litebert.config.cost import encoder_parameters
from litebert.config.serialization import from_dict, to_json
from litebert.recipes import PUBLISHED, RECIPES
from litebert.recipes.files import recipe
from toys.refusals import names, refused


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_a_whole_point(name: str) -> None:
    config = recipe(name)
    assert config.name == name
    assert recipe(name) == config
    assert from_dict(Config, json.loads(to_json(config))) == config
    assert f"litebert pretrain {name} --shards D --out R" in (RECIPES[name].__doc__ or "")


SHAPES = {
    # layers, hidden, heads, intermediate, embedding, vocabulary
    "albert-base": (12, 768, 12, 3072, 128, 30000),
    "albert-large": (24, 1024, 16, 4096, 128, 30000),
    "albert-xlarge": (24, 2048, 16, 8192, 128, 30000),
    "albert-xxlarge": (12, 4096, 64, 16384, 128, 30000),
    "bert-base": (12, 768, 12, 3072, 768, 30522),
    "bert-large": (24, 1024, 16, 4096, 1024, 30522),
    "bert-xlarge": (24, 2048, 32, 8192, 2048, 30000),
}


COMMON = ["max_positions", "segment_types", "norm_eps", "norm", "feedforward", "positions", "bias"]
SIZES = ["layers", "hidden_size", "heads", "intermediate_size", "embedding_size", "vocab_size"]


@pytest.mark.parametrize(("name", "shape"), SHAPES.items())
def test_published_shapes(name: str, shape: tuple[int, ...]) -> None:
    config = recipe(name)
    encoder, masking, optimizer = config.encoder, config.masking, config.train.optimizer
    assert tuple(getattr(encoder, field) for field in SIZES) == shape
    common = [getattr(encoder, field) for field in COMMON]
    assert common == [512, 2, 1e-12, "post", "plain", "learned", True]
    assert (encoder.init, encoder.init_std) == ("truncated_normal", 0.02)
    assert (masking.rate, masking.replace_mask, masking.replace_random) == (0.15, 0.8, 0.1)
    block = (encoder.sharing, encoder.activation, encoder.hidden_dropout)
    masks = (masking.unit, masking.span, masking.copies)
    learned = (config.objectives, config.batch_sequences, optimizer.name, optimizer.learning_rate)
    if name.startswith("albert"):
        assert block == ("all", "gelu_tanh", 0.0)
        assert (*masks, masking.max_span) == ("word", "ngram", 0, 3)
        assert learned == (("mlm", "sop"), 4096, "lamb", 0.00176)
    else:
        assert block == ("none", "gelu", 0.1)
        assert masks == ("token", "single", 10)
        assert learned == (("mlm", "nsp"), 256, "adamw", 1e-4)


@pytest.mark.parametrize(
    ("size", "dropout"), [("base", 0.1), ("large", 0.1), ("xlarge", 0.1), ("xxlarge", 0.0)]
)
def test_version_one_is_version_two_with_dropout(size: str, dropout: float) -> None:
    version_one, two = recipe(f"albert-{size}-v1"), recipe(f"albert-{size}")
    encoder = replace(two.encoder, hidden_dropout=dropout, attention_dropout=dropout)
    assert version_one == replace(two, name=version_one.name, encoder=encoder)


@pytest.mark.parametrize("size", ["tiny", "mini"])
def test_twins_have_the_same_shape(size: str) -> None:
    shared, apart = recipe(f"albert-{size}").encoder, recipe(f"bert-{size}").encoder
    assert shared == replace(apart, sharing="all", embedding_size=shared.embedding_size)
    assert apart.embedding_size == apart.hidden_size
    assert sum(encoder_parameters(shared).values()) < sum(encoder_parameters(apart).values()) / 2


def test_published_counts_belong_to_recipes() -> None:
    assert set(PUBLISHED) <= set(RECIPES)
    for name, (printed, source) in PUBLISHED.items():
        exact = sum(encoder_parameters(recipe(name).encoder).values()) / 1e6
        assert float(printed.removesuffix("M")) == pytest.approx(exact, rel=0.06), (name, source)


# -------------------------------------------------------------------------------------------- files


def test_toml_starts_from_a_recipe(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'base = "albert-base"\n[encoder]\nlayers = 6\n[train]\nbudget = "10 steps"\nclip = 2\n'
    )
    base = recipe("albert-base")
    assert recipe(str(file)) == replace(
        base,
        name="mine",
        encoder=replace(base.encoder, layers=6),
        train=replace(base.train, budget="10 steps", clip=2.0),
    )


def test_json_may_be_a_whole_point_or_a_part(tmp_path: Path) -> None:
    config = recipe("bert-tiny")
    (tmp_path / "whole.json").write_text(to_json(config))
    assert recipe(str(tmp_path / "whole.json")) == config
    (tmp_path / "part.json").write_text('{"encoder": {"layers": 2}}')
    part = recipe(str(tmp_path / "part.json"))
    assert (part.name, part.encoder.layers, part.encoder.hidden_size) == ("part", 2, 768)


def test_a_python_file_gives_functions(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from litebert.config import replace\nfrom litebert import recipe\n"
        "def wide():\n    return replace(recipe('albert-tiny'), name='wide')\n"
        "def wrong():\n    return 3\n"
    )
    assert recipe(f"{file}:wide") == replace(recipe("albert-tiny"), name="wide")
    with refused(ConfigError, f"{file}:wrong", "int"):
        recipe(f"{file}:wrong")
    with refused(ConfigError, file, "'wid'", "'wide'"):
        recipe(f"{file}:wid")


@pytest.mark.parametrize(
    ("name", "content", "places"),
    [
        ("a.toml", b"layers = \n", ["a.toml", "line 1"]),
        ("a.toml", b"\xff\x00\xfe", ["a.toml"]),
        ("a.json", b'{"encoder": ', ["a.json", "line 1"]),
        ("a.json", b"[1]", ["a.json"]),
        ("a.json", b'{"encoder": {"layer": 1}}', ["a.json", "'encoder.layer'", "'layers'"]),
        ("a.toml", b'base = "albert-bass"', ["a.toml", "'albert-bass'", "'albert-base'"]),
        (
            "a.toml",
            b"[encoder]\nheads = 7\n",
            ["a.toml", "encoder.hidden_size", 768, "encoder.heads", 7],
        ),
    ],
)
def test_broken_files_are_named(
    name: str, content: bytes, places: list[object], tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with refused(ConfigError, *places):
        recipe(str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("albert-bas", ["'albert-bas'", "'albert-base'"]),
        ("/nowhere/a.toml", ["/nowhere/a.toml"]),
        ("/nowhere/a.py:f", ["/nowhere/a.py"]),
    ],
)
def test_absent_recipes(name: str, places: list[str]) -> None:
    with refused(ConfigError, *places):
        recipe(name)


@pytest.mark.parametrize(
    ("registry", "part", "expected"),
    [
        (OBJECTIVES, Path, "loss"),
        (ENGINES, lambda loaded, device: None, "capabilities"),
        (SOURCES, "mine:read", "function"),
    ],
)
def test_what_is_no_part_of_a_kind_is_not_registered(
    registry: Registry, part: Any, expected: str
) -> None:
    with refused(ConfigError, repr(part), registry.kind, "'mine'", expected):
        registry.add("mine", part)
    assert "mine" not in registry


def test_extensions_are_run_once_from_their_own_folder(
    tmp_path: Path, run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may import its neighbors, and a recipe in it is read twice without registering
    twice."""
    (tmp_path / "neighbor_of_mine.py").write_text("NAME = 'tales'\n")
    (tmp_path / "mine.py").write_text(
        "from neighbor_of_mine import NAME\nfrom litebert import recipe\nfrom "
        "litebert.base.registry import SOURCES\n"
        "SOURCES.add(NAME, lambda name, reading: iter([('Once upon a time.', 1)]))\n"
        "def tiny():\n    return recipe('albert-tiny')\n"
    )
    monkeypatch.setattr(SOURCES, "_parts", dict(SOURCES._parts))
    monkeypatch.setenv("LITEBERT_EXTENSIONS", str(tmp_path / "mine.py"))
    for _ in range(2):
        assert run("plan", f"{tmp_path / 'mine.py'}:tiny", "--json")[0] == 0
    assert "tales" in SOURCES
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.setenv("LITEBERT_EXTENSIONS", str(tmp_path / "broken.py"))
    status, _, err = run("recipes")
    assert status == 2
    names(err, tmp_path / "broken.py", "LITEBERT_EXTENSIONS")
