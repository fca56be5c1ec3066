"""Statistics of seeds: intervals and tests against scipy, corrections against the definition, and
the error rate of the looks by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from litebert.studies.statistics import (
    LEVEL,
    SeedScores,
    compare_with_baseline,
    compute_look_level,
    compute_mean,
    correct_holm,
)


def test_the_interval_of_a_mean_is_students() -> None:
    values = [3.1, 2.9, 3.4]
    low, high = stats.t.interval(0.95, 2, loc=sum(values) / 3, scale=stats.sem(values))
    mean = compute_mean(values)
    assert mean.halfwidth is not None
    assert (mean.value - mean.halfwidth, mean.value + mean.halfwidth) == pytest.approx((low, high))
    assert compute_mean([3.1]).halfwidth is None


def number(*values: float | None) -> dict[int, float | None]:
    """Number the values of a score by seed."""
    return dict(enumerate(values))


def test_differences_are_those_of_the_paired_test_after_both_corrections() -> None:
    values = {"a": [1.0, 1.1, 1.2], "b": [2.0, 2.1, 2.3], "c": [1.1, 1.0, 1.3]}
    scores = {variant: {"x": number(*seeds)} for variant, seeds in values.items()}
    b, c = compare_with_baseline(scores, "a", ["x", "missing"], 3)
    tests = [stats.ttest_rel(values[variant], values["a"]) for variant in "bc"]
    plain, look = [test.pvalue for test in tests], 0.05 / compute_look_level(3, 3)
    assert (b.p, c.p) == pytest.approx((2 * min(plain) * look, min(1, max(plain) * look)))
    assert (b.is_beyond_noise, c.is_beyond_noise) == (True, False)
    assert b.value == pytest.approx(2.1333 - 1.1, abs=1e-4)
    interval = tests[0].confidence_interval(0.95)
    assert b.halfwidth == pytest.approx((interval.high - interval.low) / 2)


def test_seeds_that_all_variants_share_are_no_noise() -> None:
    """Seeds differ by 1, the variants by 0.1: unpaired tests see nothing, pairs do."""
    first = [1.0, 2.0, 3.0, 4.0, 5.0]
    second = [1.1, 2.11, 3.09, 4.1, 5.1]
    assert stats.ttest_ind(first, second, equal_var=False).pvalue > 0.9
    scores = {"a": {"x": number(*first)}, "b": {"x": number(*second)}}
    (difference,) = compare_with_baseline(scores, "a", ["x"], 5)
    assert difference.is_beyond_noise
    assert difference.pairs == 5


def test_a_run_that_failed_takes_its_pair_with_it() -> None:
    scores = {"a": {"x": number(1.0, 9.0, 1.1, 1.2)}, "b": {"x": number(2.0, None, 2.1, 2.3)}}
    (difference,) = compare_with_baseline(scores, "a", ["x"], 4)
    assert difference.pairs == 3
    assert difference.value == pytest.approx(31 / 30)


def test_a_seed_counts_once_the_seeds_before_it_have_ended() -> None:
    scores: SeedScores = {"a": {"x": {0: 1.0, 1: 1.1, 3: 1.2}}, "b": {"x": {0: 2.0, 1: 2.2, 3: 2}}}
    (difference,) = compare_with_baseline(scores, "a", ["x"], 5)
    assert (difference.pairs, difference.p, difference.is_open) == (2, None, True)


@pytest.mark.parametrize("planned", [2, 3, 5, 8, 20])
def test_the_looks_spend_five_percent_in_all_whatever_seeds_are_added(planned: int) -> None:
    levels = [compute_look_level(seeds, planned) for seeds in range(1, planned + 200)]
    assert sum(levels) <= LEVEL * (1 + 1e-12)
    assert levels[planned - 1] == 0.75 * LEVEL
    assert compute_look_level(1, planned) == 0


@pytest.mark.thorough
def test_the_chance_of_any_false_verdict_is_at_most_five_percent() -> None:
    """Simulate studies of three variants that are all alike, and look after each seed until a
    verdict stands, two seeds more than planned.
    """
    draw, studies, false = np.random.default_rng(0), 1500, 0
    for _ in range(studies):
        values = draw.normal(size=(4, 7))
        scores = {str(i): {"x": number(*row)} for i, row in enumerate(values.tolist())}
        differences = compare_with_baseline(scores, "0", ["x"], 5)
        false += any(difference.is_beyond_noise for difference in differences)
    error = math.sqrt(LEVEL * (1 - LEVEL) / studies)
    assert false / studies < LEVEL + 2 * error
    assert false / studies > 0.01, "a rule that never says anything would pass, too"


def test_a_verdict_that_stands_is_not_taken_back() -> None:
    early = [1.0, 1.001, 0.999]
    for later in ([], [1.0], [1.0, -40.0]):
        scores = {"a": {"x": number(0, 0, 0, 0, 0)}, "b": {"x": number(*early, *later)}}
        (difference,) = compare_with_baseline(scores, "a", ["x"], 5)
        assert difference.is_beyond_noise
        assert difference.value == pytest.approx(np.mean([*early, *later]))


def test_a_look_with_a_variant_behind_is_no_more_lenient() -> None:
    """What a stopped study shows is what the whole study will show."""
    whole = {"a": number(0, 0, 0), "b": number(1, 1.05, 0.95), "c": number(0.5, 0.1, -0.4)}
    behind = {**whole, "c": number(0.5)}
    p = [
        compare_with_baseline({k: {"x": v} for k, v in seeds.items()}, "a", ["x"], 3)[0].p
        for seeds in (whole, behind)
    ]
    assert p[0] is not None
    assert p[1] is not None
    assert p[1] >= p[0]


def test_one_seed_says_nothing_about_noise() -> None:
    (difference,) = compare_with_baseline(
        {"a": {"x": number(1.0)}, "b": {"x": number(9.0)}}, "a", ["x"], 1
    )
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
    values = {"a": (1.0, 1.0), "b": (1.0, 1.0), "c": (2.0, 2.0)}
    scores = {variant: {"x": number(*seeds)} for variant, seeds in values.items()}
    same, other = compare_with_baseline(scores, "a", ["x"], 2)
    assert (same.p, same.is_beyond_noise) == (1.0, False)
    assert (other.value, other.p, other.is_beyond_noise) == (1.0, None, False), (
        "without any spread nothing can be tested"
    )
