"""Statistics of seeds: intervals and tests against scipy, corrections against the
definition."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from litebert.studies.statistics import compare_with_baseline, compute_mean, correct_holm


def test_the_interval_of_a_mean_is_students() -> None:
    values = [3.1, 2.9, 3.4]
    low, high = stats.t.interval(0.95, 2, loc=sum(values) / 3, scale=stats.sem(values))
    mean = compute_mean(values)
    assert mean.halfwidth is not None
    assert (mean.value - mean.halfwidth, mean.value + mean.halfwidth) == pytest.approx((low, high))
    assert compute_mean([3.1]).halfwidth is None


def test_differences_are_those_of_welchs_test_after_holms_correction() -> None:
    scores = {"a": {"x": [1.0, 1.1, 1.2]}, "b": {"x": [2.0, 2.1, 2.3]}, "c": {"x": [1.1, 1.0, 1.3]}}
    b, c = compare_with_baseline(scores, "a", ["x", "missing"])
    plain = [
        stats.ttest_ind(scores[variant]["x"], scores["a"]["x"], equal_var=False).pvalue
        for variant in "bc"
    ]
    assert (b.p, c.p) == pytest.approx((2 * min(plain), max(plain)))
    assert (b.is_beyond_noise, c.is_beyond_noise) == (True, False)
    assert b.value == pytest.approx(2.1333 - 1.1, abs=1e-4)


def test_one_seed_says_nothing_about_noise() -> None:
    (difference,) = compare_with_baseline({"a": {"x": [1.0]}, "b": {"x": [9.0]}}, "a", ["x"])
    assert (difference.value, difference.halfwidth, difference.p, difference.is_beyond_noise) == (
        8.0,
        None,
        None,
        False,
    )


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_bounds_the_chance_of_any_false_claim(ps: list[float]) -> None:
    corrected = correct_holm(ps)
    assert all(corrected_p >= p for corrected_p, p in zip(corrected, ps, strict=True))
    assert all(corrected_p <= 1 for corrected_p in corrected)
    # What is called a difference at a level is a set that the step-down procedure rejects.
    for level in (0.01, 0.05, 0.5):
        rejected, order = 0, sorted(ps)
        while rejected < len(ps) and (len(ps) - rejected) * order[rejected] <= level:
            rejected += 1
        assert sum(corrected_p <= level for corrected_p in corrected) == rejected or math.isclose(
            min(corrected), level
        )


def test_equal_seeds_are_no_reason_to_divide_by_zero() -> None:
    same, other = compare_with_baseline(
        {"a": {"x": [1.0, 1.0]}, "b": {"x": [1.0, 1.0]}, "c": {"x": [2.0, 2.0]}}, "a", ["x"]
    )
    assert (same.p, same.is_beyond_noise) == (1.0, False)
    assert (other.value, other.p, other.is_beyond_noise) == (1.0, None, False), (
        "without any spread nothing can be tested"
    )
