"""Temperatures, calibration errors and thresholds, against formulas and made-up answers whose
probabilities are known.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.calibration import calibration_curve

from litebert.base.errors import ConfigError, ModelError
from litebert.judge.calibration import (
    bin_decisions,
    calibrate_part,
    choose_threshold,
    compute_calibration_error,
    trace_precision,
)
from litebert.tasks.text_outputs import Number, OneClass, SeveralLabels
from toys.refusals import refused


def draw_answers(rows: int, temperature: float, seed: int = 0) -> tuple[np.ndarray, list[int]]:
    """Logits (N, 3) that are `temperature` times too large, and the classes that they mean."""
    draw = np.random.default_rng(seed)
    logits = draw.normal(size=(rows, 3)) * 2
    likely = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    targets = [int(draw.choice(3, p=row)) for row in likely]
    return (logits * temperature).astype(np.float32), targets


@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_the_temperature_of_made_up_answers_is_recovered(temperature: float) -> None:
    logits, targets = draw_answers(4000, temperature)
    fit = calibrate_part(OneClass(("a", "b", "c")), list(logits), targets)
    assert fit is not None
    assert fit.temperature == pytest.approx(temperature, rel=0.1)
    assert fit.error_after < 0.03 < fit.error_before
    assert sum(part.rows for part in fit.bins_after) == fit.rows == 4000


def test_the_temperature_of_labels_is_recovered() -> None:
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(3000, 2)) * 2
    present = draw.random((3000, 2)) < 1 / (1 + np.exp(-logits))
    fit = calibrate_part(
        SeveralLabels(("a", "b")),
        list((2 * logits).astype(np.float32)),
        [tuple(map(int, row)) for row in present],
    )
    assert fit is not None
    assert fit.temperature == pytest.approx(2.0, rel=0.1)
    assert fit.error_after < fit.error_before


def test_no_temperature_is_taken_that_chance_could_give() -> None:
    logits, targets = draw_answers(60, 1.0)
    fit = calibrate_part(OneClass(("a", "b", "c")), list(logits), targets)
    assert fit is not None
    assert fit.temperature == 1.0
    assert fit.error_after == fit.error_before
    right = list(np.eye(3, dtype=np.float32)[[0, 1, 2] * 20])  # no mistake: no limit but the bound
    flawless = calibrate_part(OneClass(("a", "b", "c")), right, [0, 1, 2] * 20)
    assert flawless is not None
    assert flawless.temperature == 1.0
    assert calibrate_part(Number(), [np.zeros(1, np.float32)], [1.0]) is None


def test_bins_are_those_of_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    likely = draw.random(500)
    right = draw.random(500) < likely**2
    bins = bin_decisions(likely, right)
    shares, confidences = calibration_curve(right, likely, n_bins=10)
    assert [part.share for part in bins] == pytest.approx(shares.tolist())
    assert [part.confidence for part in bins] == pytest.approx(confidences.tolist())
    weights = np.array([part.rows for part in bins]) / 500
    expected = float((weights * np.abs(shares - confidences)).sum())
    assert compute_calibration_error(likely, right) == pytest.approx(expected)


def test_a_threshold_has_the_precision_that_it_names() -> None:
    draw = np.random.default_rng(0)
    likely = draw.uniform(0.5, 1, 1000)
    right = draw.random(1000) < 0.97 * likely
    points = trace_precision(likely, right)
    record = {"precision": [asdict(point) for point in points]}
    for wanted in (0.75, 0.8, 0.85):
        point = choose_threshold(record, wanted, "model")
        answered = likely >= point.threshold
        assert right[answered].mean() == pytest.approx(point.precision, abs=1e-9)
        assert point.precision >= wanted
        assert answered.mean() == pytest.approx(point.coverage)
        hits = int(right[answered].sum())
        interval = binomtest(hits, point.answers).proportion_ci(0.95, "wilson")
        assert point.answers == answered.sum()
        assert point.lower_bound == pytest.approx(interval.low, abs=1e-6)
        lower = likely >= point.threshold - 0.02
        assert right[lower].mean() < point.precision  # no lower threshold is as good
    with refused(ConfigError, "min_precision is 1", "or less"):
        choose_threshold({"precision": record["precision"][:3]}, 1.0, "model")
    with refused(ConfigError, "min_precision is 2", "at most 1"):
        choose_threshold(record, 2.0, "model")
    with refused(ConfigError, "does not know its precision"):
        choose_threshold({}, 0.9, "model")
    # A model of an earlier version does not know the number of its answers.
    earlier = [{k: v for k, v in point.items() if k != "answers"} for point in record["precision"]]
    assert choose_threshold({"precision": earlier}, 0.8, "model").answers == 0
    with refused(ModelError, "damaged field 'precision'"):
        choose_threshold({"precision": [{"threshold": "x"}]}, 0.9, "model")


def test_few_answers_give_no_threshold() -> None:
    assert trace_precision(np.full(10, 0.9), np.ones(10, bool)) == ()
    assert trace_precision(np.zeros(0), np.zeros(0, bool)) == ()
