"""Several seeds: their summary, and what it says of noise."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from litebert.finetuning.run import finetune_seeds
from litebert.finetuning.seeds import compute_halfwidth, describe_noise, summarize
from toys.finetuning import config, recipe_file, write_table
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
    assert compute_halfwidth([1.0, 2.0, 3.0], [0.0, 2.0, 4.0]) == pytest.approx(4.1554, abs=1e-4)
    assert compute_halfwidth([1.0, 1.0], [2.0, 2.0]) == 0


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
