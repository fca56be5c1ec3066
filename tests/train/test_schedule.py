"""The schedules against the figures of the papers' code, and their shapes for any run."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.config import ScheduleConfig
from litebert.train.schedule import compute_factor, find_depth

NAMES = get_args(get_type_hints(ScheduleConfig)["name"])


def test_tf_linear_has_the_jump_of_the_official_albert_run() -> None:
    config = ScheduleConfig(name="tf_linear", warmup=3125)
    rates = {
        step: 0.00176 * compute_factor(config, step, 125_000)
        for step in (0, 3124, 3125, 62_500, 124_999)
    }
    assert rates[0] == 0
    assert rates[3124] == pytest.approx(0.0017594, abs=5e-8)
    assert rates[3125] == pytest.approx(0.001716, abs=5e-8)
    assert rates[62_500] == pytest.approx(0.00088)
    assert rates[124_999] == pytest.approx(0.00176 / 125_000)


def test_product_linear_is_electras_product_without_a_jump() -> None:
    config = ScheduleConfig(name="product_linear", warmup=10_000)
    assert compute_factor(config, 0, 1_000_000) == 0
    assert compute_factor(config, 5_000, 1_000_000) == pytest.approx(0.5 * 0.995)
    assert compute_factor(config, 9_999, 1_000_000) == pytest.approx(0.9999 * (1 - 0.009999))
    assert compute_factor(config, 10_000, 1_000_000) == pytest.approx(0.99)
    assert compute_factor(ScheduleConfig(name="product_linear", warmup=0), 0, 10) == 1


def test_linear_rises_to_the_peak_and_falls_straight_to_the_end() -> None:
    config = ScheduleConfig(name="linear", warmup=4)
    rise = [0.25, 0.5, 0.75, 1]
    assert [compute_factor(config, step, 8) for step in range(8)] == [*rise, *rise[::-1]]
    at_once = ScheduleConfig(name="linear", warmup=0)
    assert [compute_factor(at_once, step, 4) for step in range(4)] == [1, 0.75, 0.5, 0.25]


def test_cosine_is_half_way_in_the_middle_of_the_decay() -> None:
    config = ScheduleConfig(name="cosine", warmup=0.2)
    assert compute_factor(config, 20, 100) == 1
    assert compute_factor(config, 60, 100) == pytest.approx(0.5)
    assert compute_factor(config, 40, 100) == pytest.approx((1 + 2**-0.5) / 2)


def test_trapezoid_is_flat_then_falls_over_the_cooldown() -> None:
    config = ScheduleConfig(name="trapezoid", warmup=0.02, cooldown=0.2)
    assert [compute_factor(config, step, 100) for step in (0, 1, 50, 80, 90)] == pytest.approx(
        [0.5, 1, 1, 1, 0.5]
    )
    assert compute_factor(config, 99, 100) == pytest.approx(1 / 20)
    flat = ScheduleConfig(name="trapezoid", warmup=2, cooldown=0)
    assert [compute_factor(flat, step, 5) for step in range(5)] == [0.5, 1, 1, 1, 1]


def test_a_share_and_a_number_of_steps_of_warmup_are_the_same() -> None:
    share, number = (ScheduleConfig(name="linear", warmup=warmup) for warmup in (0.1, 50.0))
    assert [compute_factor(share, step, 500) for step in range(500)] == [
        compute_factor(number, step, 500) for step in range(500)
    ]


@given(
    name=st.sampled_from(NAMES),
    warmup=st.one_of(st.floats(0, 0.99), st.integers(1, 400).map(float)),
    cooldown=st.floats(0, 1),
    steps=st.integers(1, 300),
)
def test_every_schedule_stays_between_0_and_1_and_wastes_no_step(
    name: str, warmup: float, cooldown: float, steps: int
) -> None:
    config = ScheduleConfig(name=name, warmup=warmup, cooldown=cooldown)  # type: ignore[arg-type]
    factors = [compute_factor(config, step, steps) for step in range(steps)]
    assert all(0 <= value <= 1 for value in factors)
    assert all(
        value > 0 for value in factors[1 if name in ("tf_linear", "product_linear") else 0 :]
    )
    length = round(warmup * steps) if warmup < 1 else int(warmup)
    decay = factors[length:]
    assert decay == sorted(decay, reverse=True)


def test_depth_grows_at_its_shares_of_the_run() -> None:
    schedule = ((0.25, 1), (0.6, 3))
    assert [find_depth(schedule, 6, step, 20) for step in range(20)] == [1] * 5 + [3] * 7 + [6] * 8
    assert find_depth((), 12, 0, 20) == 12
