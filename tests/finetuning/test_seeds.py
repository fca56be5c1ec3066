"""Several seeds: their summary, and what it says of noise."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_ind

from litebert.judge.seeds import compute_noise, describe_noise, judge, summarize
from toys.finetuning import config, finetune_seeds, recipe_file, write_table
from toys.refusals import names
from toys.tasks import Table


def test_a_summary_is_of_all_runs() -> None:
    values = [0.5, 0.7, 0.9]
    assert summarize([{"f1": value} for value in values]) == {
        "f1": {
            "median": 0.7,
            "mean": pytest.approx(0.7),
            "deviation": pytest.approx(statistics.stdev(values)),
            "lowest": 0.5,
            "highest": 0.9,
        }
    }


def test_noise_is_what_a_t_test_calls_chance() -> None:
    names(describe_noise("dev_f1", [0.5, 0.7, 0.9]), "dev_f1", 0.2, 3, 0.453)
    names(describe_noise("dev_f1", [0.5, 0.5]), "dev_f1", 2)


def test_the_margin_is_that_of_welch() -> None:
    # Variances 1 and 4 over 3 values each: standard error 1.291, 2.941 degrees of freedom, t
    # 3.2188.
    assert compute_noise([1.0, 2.0, 3.0], [0.0, 2.0, 4.0]) == pytest.approx(4.1554, abs=1e-4)
    assert compute_noise([1.0, 1.0], [2.0, 2.0]) == 0
    draw = np.random.default_rng(0)
    first, second = draw.normal(size=5).tolist(), draw.normal(size=3).tolist()
    interval = ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert compute_noise(first, second) == pytest.approx((interval.high - interval.low) / 2)


def test_a_higher_score_inside_the_noise_is_level() -> None:
    """Of two models that answer right as often, one is called better in 5% of all samples of rows,
    whether they are right on the same rows or not; the more rows, the smaller the noise.
    """
    draw = np.random.default_rng(1)
    for rows, share in ((80, 0.7), (400, 0.95)):
        right = draw.random((2000, 2, rows)) < share
        verdicts = [judge([float(a)], [float(b)], rows) for a, b in right.mean(2)]
        assert 0.02 < np.mean([verdict != "level" for verdict in verdicts]) < 0.07
    assert judge([0.7625], [0.75], 80) == "level"
    assert judge([0.7625], [0.75], 80_000) == "better"
    assert judge([0.75], [0.7625], 80_000) == "worse"
    assert judge([76.25], [75.0], 80, 100.0) == "level"
    assert judge([0.9], [0.5]) is None  # on how many rows is not known
    assert judge([float("nan")], [0.5], 80) is None
    # Seeds that differ add to it.
    assert judge([0.80, 0.81, 0.82], [0.75], 4000) == "better"
    assert judge([0.70, 0.81, 0.92], [0.75], 4000) == "level"


@pytest.mark.thorough
def test_runs_differ_by_their_seed_alone(tiny_tokenizer: Path, tmp_path: Path) -> None:
    table = Table(
        write_table(tmp_path / "train.csv", 100), write_table(tmp_path / "dev.csv", 40, seed=1)
    )
    model = recipe_file(tmp_path)
    runs = finetune_seeds(
        model, table, tmp_path / "out", config(epochs=1), seeds=2, tokenizer=tiny_tokenizer
    )
    scores = [run.scores for run in runs]
    written = json.loads((tmp_path / "out" / "seeds.json").read_text())
    assert written["scores"] == scores
    assert len(scores) == 2
    weights = [(tmp_path / "out" / f"seed-{i}" / "best.safetensors").read_bytes() for i in (0, 1)]
    assert weights[0] != weights[1]
    (alone,) = finetune_seeds(
        model, table, tmp_path / "alone", config(epochs=1, seed=1), tokenizer=tiny_tokenizer
    )
    assert alone.scores == scores[1]
