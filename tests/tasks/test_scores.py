"""Scores against scikit-learn, scipy and arithmetic, and what they are where formulas have no
value.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from sklearn import metrics

from litebert.tasks.scores import SCORES, Values, compute_scores

Pair = tuple[Values, Values]


def draw_pair(seed: int, classes: int) -> Pair:
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, classes, 60)
    return truth, np.where(draw.random(60) < 0.6, truth, draw.integers(0, classes, 60))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_classes_as_scikit_learn_counts_them(seed: int, classes: int) -> None:
    truth, guess = draw_pair(seed, classes)
    scores = compute_scores(("accuracy", "macro_f1", "matthews"), truth, guess)
    assert scores["accuracy"] == pytest.approx(metrics.accuracy_score(truth, guess))
    assert scores["macro_f1"] == pytest.approx(
        metrics.f1_score(truth, guess, average="macro", zero_division=0)
    )
    assert scores["matthews"] == pytest.approx(metrics.matthews_corrcoef(truth, guess))


def test_a_table_of_four_counted_by_hand() -> None:
    """6 true positives, 2 false positives, 3 false negatives, 9 true negatives."""
    truth = np.array([1] * 6 + [0] * 2 + [1] * 3 + [0] * 9)
    guess = np.array([1] * 8 + [0] * 12)
    assert compute_scores(("accuracy", "f1", "macro_f1", "matthews"), truth, guess) == {
        "accuracy": pytest.approx(15 / 20),
        "f1": pytest.approx(12 / 17),
        "macro_f1": pytest.approx((12 / 17 + 18 / 23) / 2),
        "matthews": pytest.approx((6 * 9 - 2 * 3) / math.sqrt(8 * 9 * 11 * 12)),
    }


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("labels", [1, 2, 5])
def test_several_labels_as_scikit_learn_counts_them(seed: int, labels: int) -> None:
    draw = np.random.default_rng(seed)
    truth, guess = draw.integers(0, 2, (2, 40, labels))
    scores = compute_scores(("micro_f1", "macro_f1", "exact"), truth, guess)
    # scikit-learn takes one column for a binary problem; a second column without positives changes
    # no count
    padded = [np.concatenate([values, np.zeros((40, 1), int)], 1) for values in (truth, guess)]
    assert scores["micro_f1"] == pytest.approx(metrics.f1_score(*padded, average="micro"))
    assert scores["exact"] == pytest.approx(metrics.accuracy_score(*padded))
    each = metrics.f1_score(*padded, average=None, zero_division=0)[:labels]
    assert scores["macro_f1"] == pytest.approx(float(np.mean(each)))


@pytest.mark.parametrize("seed", range(5))
def test_numbers_as_scipy_and_scikit_learn_count_them(seed: int) -> None:
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, 26, 50) / 5.0  # with ties
    guess = truth + draw.normal(size=50).round(1)
    scores = compute_scores(("pearson", "spearman", "r2", "rmse"), truth, guess)
    assert scores["pearson"] == pytest.approx(np.corrcoef(truth, guess)[0, 1])
    ranks = [stats.rankdata(values) for values in (truth, guess)]
    assert scores["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert scores["r2"] == pytest.approx(
        1 - ((truth - guess) ** 2).sum() / ((truth - truth.mean()) ** 2).sum()
    )
    assert scores["rmse"] == pytest.approx(metrics.root_mean_squared_error(truth, guess))


ZEROS: NDArray[np.int64] = np.zeros(5, np.int64)
MIXED = np.array([0, 1, 0, 1, 1])


@pytest.mark.parametrize(
    ("name", "truth", "guess", "value"),
    [
        ("matthews", MIXED, ZEROS, 0),
        ("matthews", ZEROS, MIXED, 0),
        ("matthews", ZEROS, ZEROS, 0),
        ("f1", ZEROS, ZEROS, 0),
        ("f1", MIXED, ZEROS, 0),
        ("macro_f1", ZEROS, ZEROS, 1),
        ("macro_f1", MIXED, ZEROS, (4 / 7) / 2),
        ("micro_f1", np.zeros((3, 2), int), np.zeros((3, 2), int), 0),
        ("macro_f1", np.zeros((3, 2), int), np.zeros((3, 2), int), 0),
        ("exact", np.zeros((3, 2), int), np.zeros((3, 2), int), 1),
        ("pearson", MIXED / 2, np.full(5, 3.1), 0),
        ("pearson", np.full(5, 0.1), MIXED / 2, 0),
        ("pearson", np.array([1.0]), np.array([2.0]), 0),
        ("spearman", MIXED / 2, np.full(5, 3.1), 0),
        ("spearman", np.array([1.0, 2.0]), np.array([3.0, 4.0]), 1),
        ("r2", np.full(5, 0.1), MIXED / 2, 0),
        ("r2", np.array([1.0]), np.array([2.0]), 0),
    ],
)
def test_where_the_formula_has_no_value(
    name: str, truth: Values, guess: Values, value: float
) -> None:
    assert compute_scores((name,), truth, guess) == {name: pytest.approx(value)}


@pytest.mark.thorough
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=8))
def test_no_score_of_classes_is_ever_undefined(rows: list[tuple[int, int]]) -> None:
    truth, guess = np.array(rows).T
    for name in ("accuracy", "f1", "macro_f1", "matthews"):
        assert -1 <= SCORES[name](truth, guess) <= 1


FLOATS = st.sampled_from([0.0, 0.1, 2.5, 5.0])


# ---------------------------------------------------------------------------- answers without merit

ANY = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(ANY, min_size=1, max_size=8), ANY)
def test_a_constant_answer_has_no_correlation_and_explains_nothing(
    truth: list[float], answer: float
) -> None:
    scores = compute_scores(
        ("pearson", "spearman", "r2"), np.array(truth), np.full(len(truth), answer)
    )
    assert scores["pearson"] == scores["spearman"] == 0
    assert scores["r2"] <= 1e-6


@given(st.lists(ANY, min_size=2, max_size=8), st.data())
def test_answers_that_are_not_finite_have_the_worst_scores(
    truth: list[float], data: st.DataObject
) -> None:
    guess = np.array(truth)
    guess[data.draw(st.integers(0, len(truth) - 1))] = data.draw(
        st.sampled_from([math.nan, math.inf, -math.inf])
    )
    scores = compute_scores(("pearson", "spearman", "r2", "rmse"), np.array(truth), guess)
    assert scores == {"pearson": 0, "spearman": 0, "r2": -math.inf, "rmse": math.inf}


@given(st.lists(st.tuples(ANY, ANY), min_size=1, max_size=8))
def test_numbers_of_any_size_have_scores(rows: list[tuple[float, float]]) -> None:
    truth, guess = np.array(rows).T
    scores = compute_scores(("pearson", "spearman", "r2", "rmse"), truth, guess)
    assert not any(map(math.isnan, scores.values()))
    assert max(scores["pearson"], scores["spearman"], scores["r2"]) <= 1 + 1e-9


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(0, 3))
def test_a_constant_class_scores_its_share_at_most(truth: list[int], answer: int) -> None:
    right, guess = np.array(truth), np.full(len(truth), answer)
    scores = compute_scores(("accuracy", "macro_f1", "matthews"), right, guess)
    share = float((right == guess).mean())
    assert scores["accuracy"] == pytest.approx(share)
    assert scores["matthews"] == 0
    assert scores["macro_f1"] <= 2 * share / (1 + share) + 1e-9
