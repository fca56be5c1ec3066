"""Settings of an objective of one's own: a dataclass, set in recipes and on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from extension.test_objective import Repeated
from litebert.base.errors import ConfigError, require
from litebert.base.registry import OBJECTIVES
from litebert.config import Config, replace
from litebert.config.serialization import from_dict, to_dict
from litebert.recipes.files import recipe as named_recipe
from toys.points import config
from toys.refusals import refused

Output = tuple[int, str, str]


@dataclass(frozen=True)
class RepeatedSettings:
    """How tokens are repeated."""

    rate: float = 0.1
    """Share of the tokens that are repeated."""
    where: str = "anywhere"

    def __post_init__(self) -> None:
        require(0 < self.rate < 1, f"rep.rate is {self.rate}; it must be between 0 and 1")


class RepeatedAtRate(Repeated):
    """The same objective with a rate."""

    settings_class = RepeatedSettings

    def flops(self, length: int) -> float:
        rate: float = self.settings.rate
        return super().flops(length) * rate


@pytest.fixture(autouse=True, scope="module")
def _register() -> None:
    OBJECTIVES.add("rep", RepeatedAtRate)


def test_a_config_holds_them() -> None:
    plain = config(("mlm", "rep"))
    assert plain.build_objectives()["rep"].settings == RepeatedSettings()
    assert "objective_settings" not in to_dict(plain), "an empty field changes no recipe.json"
    changed = replace(plain, objective_settings=("rep.rate=0.25", "rep.where=at the end"))
    assert changed.build_objectives()["rep"].settings == RepeatedSettings(0.25, "at the end")
    assert from_dict(Config, to_dict(changed)) == changed


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("rep.rat=0.5", ("rep.rat", "rate")),
        ("rep.rate=often", ("rep.rate", "'often'")),
        ("rep.rate=2", ("rep.rate is 2.0",)),
        ("rep=0.5", ("NAME.SETTING=VALUE",)),
        ("rap.rate=0.5", ("'rap'", "rep")),
        ("mlm.rate=0.5", ("mlm", "no settings")),
    ],
)
def test_a_wrong_one_is_refused(entry: str, words: tuple[str, ...]) -> None:
    with refused(ConfigError, *words):
        replace(config(("mlm", "rep")), objective_settings=(entry,))


def test_recipes_and_commands_set_them(tmp_path: Path, run: Callable[..., Output]) -> None:
    recipe = tmp_path / "own.toml"
    recipe.write_text(
        'base = "albert-tiny"\nobjectives = ["mlm", "sop", "rep"]\n'
        'objective_settings = ["rep.rate=0.5"]\n'
    )

    def forward(*words: str) -> float:
        status, out, err = run("plan", recipe, "--json", *words)
        assert status == 0, err
        flops: float = json.loads(out)["flops_per_token"]["forward"]
        return flops

    half, more = forward(), forward("--objective-settings", "rep.rate=0.75")
    per_token = 2 * 2 * named_recipe("albert-tiny").encoder.hidden_size
    assert more - half == pytest.approx(0.25 * per_token)
    status, _, err = run("plan", recipe, "--objective-settings", "rep.rate=3")
    assert (status, "rep.rate is 3" in err) == (2, True)
