"""The difference that a study sees: against simulated studies, and as a user reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from litebert.base.errors import DataError
from litebert.studies.findings import describe_power
from litebert.studies.statistics import (
    POWER,
    compare_with_baseline,
    compute_look_level,
    compute_power,
    find_difference,
    make_power,
    measure_spread,
    read_seed_scores,
)
from toys.refusals import names, refused

Output = tuple[int, str, str]


@pytest.mark.parametrize(("seeds", "level"), [(3, 0.05), (5, 0.0375 / 3), (8, 0.001)])
def test_simulated_pairs_are_found_as_often_as_stated(seeds: int, level: float) -> None:
    difference = find_difference(seeds, level)
    assert compute_power(difference, seeds, level) == pytest.approx(POWER, abs=1e-4)
    pairs = np.random.default_rng(1).normal(difference, 1.0, size=(20_000, seeds))
    share = np.mean(stats.ttest_1samp(pairs, 0.0, axis=1).pvalue < level)
    assert share == pytest.approx(POWER, abs=0.012)


def test_more_seeds_see_less_and_more_comparisons_need_more() -> None:
    seen = [find_difference(seeds, 0.05) for seeds in (3, 5, 10, 20)]
    assert seen == sorted(seen, reverse=True)
    single, many = make_power(5, 1, None), make_power(5, 6, None)
    assert single is not None
    assert many is not None
    assert single.spreads == pytest.approx(find_difference(5, compute_look_level(5, 5)))
    assert many.spreads > single.spreads
    assert make_power(1, 1, None) is None


def test_the_spread_is_pooled_over_the_variants() -> None:
    draw = np.random.default_rng(2)
    scores = {
        variant: {"mlm_loss": dict(enumerate(draw.normal(0, sigma, 400).tolist()))}
        for variant, sigma in (("a", 0.0), ("b", 1.0), ("c", 2.0))
    }
    differences = compare_with_baseline(scores, "a", ["mlm_loss"], 400)
    spread = measure_spread(differences, "mlm_loss", "here")
    assert spread is not None
    assert spread.value == pytest.approx(np.sqrt((1 + 4) / 2), rel=0.1)
    power = make_power(5, 2, spread)
    assert power is not None
    assert power.difference == pytest.approx(power.spreads * spread.value)
    names(describe_power(power), "5 seeds", "2 comparisons", "nats", "here")


def test_a_folder_without_scores_is_no_pilot(tmp_path: Path) -> None:
    with refused(DataError, tmp_path / "results.csv", "--pilot"):
        read_seed_scores(tmp_path)
    (tmp_path / "results.csv").write_text("variant,seed\na,0\n", encoding="utf-8")
    with refused(DataError, tmp_path / "results.csv", "--pilot"):
        read_seed_scores(tmp_path)


OWN = """
question = "Does a wider embedding help?"
baseline = "E 8"
[variants."E 8".encoder]
embedding_size = 8
[variants."E 16".encoder]
embedding_size = 16
"""


def test_a_forecast_says_what_it_sees_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Output], tiny_data: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text(OWN, encoding="utf-8")
    (tmp_path / "old").mkdir()
    rows = ["variant,seed,steps,score,value"]
    rows += [f"E {8 * (1 + i)},{seed},4,mlm_loss,{i + seed}" for i in (0, 1) for seed in range(3)]
    words = ("study", "own.toml", "--shards", tiny_data, "--scale", "toy", "--budget", "4 steps")
    (tmp_path / "old" / "results.csv").write_text("\n".join(rows), encoding="utf-8")
    status, _, err = run(*words, "--forecast", "--pilot", "old")
    assert status == 2
    names(err, "old", "mlm_loss", "--pilot")
    rows[-1] += "5"  # so that the pairs differ
    (tmp_path / "old" / "results.csv").write_text("\n".join(rows), encoding="utf-8")
    status, out, err = run(*words, "--forecast", "--pilot", "old", "--json", "--page=page.md")
    assert status == 0, err
    assert not list((tmp_path / "study-own" / "runs").glob("*"))
    power = json.loads(out)["power"]
    names(power, "5 seeds", "1 comparison", "nats", "the study in old")
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert power in page
    assert "--forecast" not in page
    assert "--page=" not in page
    assert json.loads((tmp_path / "study-own" / "study.json").read_text())["power"] == power
    (tmp_path / "old" / "results.csv").unlink()  # a study that continues needs no pilot
    status, out, err = run(*words, "--forecast", "--pilot", "old", "--json")
    assert (status, json.loads(out)["power"]) == (0, power), err
    notes = tmp_path / "study-own" / "notes.md"
    notes.write_text("mine", encoding="utf-8")
    other = (*words[:-1], "5 steps", "--forecast", "--json")
    assert run(*other)[0] == 0  # of another budget: a forecast takes no folder
    assert json.loads((tmp_path / "study-own" / "study.json").read_text())["budget"] == "5 steps"
    assert notes.read_text(encoding="utf-8") == "mine"
    (tmp_path / "study-own" / "runs" / "e-8-seed0").mkdir(parents=True)  # a run has begun
    status, _, err = run(*words, "--forecast")
    assert status == 2
    names(err, "another budget", "--out")
    (tmp_path / "study-own" / "runs" / "e-8-seed0").rmdir()
    status, out, err = run(*words, "--forecast")
    sentence = "the study can detect a difference of"
    assert (" ".join(out.split()).count(sentence), " ".join(err.split()).count(sentence)) == (1, 0)
