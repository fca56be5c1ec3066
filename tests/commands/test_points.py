"""`litebert recipes` and `litebert plan`: what they print is what is built."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.recipes import RECIPES
from litebert.recipes.files import recipe
from toys.refusals import names

Output = tuple[int, str, str]


@pytest.fixture
def small_recipe(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text('base = "albert-tiny"\n[encoder]\nhidden_size = 32\nembedding_size = 8\n')
    return path


def test_recipes_fit_a_terminal(
    run: Callable[..., Output], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = run("recipes")
    assert status == 0
    lines = out.rstrip().splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[2:]] == list(RECIPES)


def test_recipes_as_json(run: Callable[..., Output]) -> None:
    status, out, _ = run("recipes", "--json")
    assert status == 0
    record = json.loads(out)
    assert record.keys() == RECIPES.keys()
    assert record["albert-xxlarge"]["encoder"]["hidden_size"] == 4096


@pytest.mark.thorough
@pytest.mark.parametrize("name", RECIPES)
def test_plan_counts_what_is_built(name: str, run: Callable[..., Output]) -> None:
    import torch

    from litebert.model.pretrainer import Pretrainer

    status, out, _ = run("plan", name, "--json")
    assert status == 0
    planned = json.loads(out)
    with torch.device("meta"):
        model = Pretrainer(recipe(name))
    parts = planned["parameters"]
    assert parts["total"] == sum(p.numel() for p in model.parameters())
    assert parts["total"] == sum(count for part, count in parts.items() if part != "total")
    assert planned["encoder_parameters"] == sum(p.numel() for p in model.encoder.parameters())
    assert planned["flops_per_token"]["backward"] == 2 * planned["flops_per_token"]["forward"] > 0
    assert planned["memory_bytes"]["total"] > 8 * parts["total"]
    assert run("plan", name)[0] == 0


def test_plan_prints_the_papers_number_only_for_the_papers_model(
    run: Callable[..., Output],
) -> None:
    _, out, _ = run("plan", "albert-base")
    names(" ".join(out.split()), "12M", "ALBERT table 1", "11,683,584")
    _, out, _ = run("plan", "albert-base", "--encoder.hidden-size", "384")
    assert "paper" not in out


def test_plan_of_a_changed_recipe(run: Callable[..., Output], small_recipe: Path) -> None:
    def total(*words: object) -> int:
        status, out, err = run("plan", *words, "--json")
        assert status == 0, err
        parameters: int = json.loads(out)["parameters"]["total"]
        return parameters

    base = total("bert-tiny")
    assert total("bert-tiny", "--encoder.layers", "7") > base
    assert total("--encoder.layers", "7", "bert-tiny") == total(
        "bert-tiny", "--encoder.layers", "7"
    )
    assert total(small_recipe) < base
    assert total(small_recipe, "--train.depth-schedule", "--encoder.sharing", "none") > total(
        small_recipe
    )


@pytest.mark.thorough
def test_plan_measures(
    run: Callable[..., Output], small_recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litebert.train.measure._is_enough", lambda passes, *_: passes >= 3)
    monkeypatch.setattr("litebert.train.memory._PROBE", 8 << 20)
    words: tuple[object, ...]
    words = ("plan", small_recipe, "--measure", "--device", "cpu", "--train.batch", "2 sequences")
    words = (*words, "--train.budget", "1000 steps", "--train.evaluate-sequences", "2")
    status, out, _ = run(*words, "--json")
    assert status == 0
    measured = json.loads(out)["measured"]
    assert measured["steps"] == 1000
    assert measured["hours"] == pytest.approx(1000 * measured["seconds_per_step"] / 3600)
    assert measured["tokens_per_second"] == pytest.approx(2 * 64 / measured["seconds_per_step"])
    products = measured["products_flops_per_second"]
    assert measured["flops_per_second"] > 1e6
    assert measured["share_of_products"] == measured["flops_per_second"] / products
    assert measured["batch_processes"] == 0
    assert measured["largest_micro_batch"] > 1
    assert "CPU cores" in measured["machine"]
