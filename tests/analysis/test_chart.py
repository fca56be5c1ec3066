"""The drawing: every point at its place, round numbers at the ticks, nothing lost but the single
step.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.analysis.chart import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    Series,
    draw,
    format_with_error,
    label,
    labels,
    thin,
    ticks,
)

finite = st.builds(lambda n, p: n * 10.0**p, st.integers(-(10**6), 10**6), st.integers(-9, 6))


def spots(html: str, look: str) -> list[tuple[float, float]]:
    path = re.search(rf'<path class="{look}" d="M([^"]*)"', html)
    assert path, f"no {look} in {html}"
    return [(float(x), float(y)) for x, y in (pair.split() for pair in path[1].split("L"))]


def chart(*series: Series) -> str:
    return draw(Chart("t", series, "step", "nats"))


def test_points_lie_where_their_numbers_say() -> None:
    html = chart(Series("loss", (0, 50, 100), (10.0, 5.0, 0.0)))
    middle = ((LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2)
    assert spots(html, "line-0") == [
        (LEFT, TOP),
        pytest.approx(middle, abs=0.1),
        (WIDTH - RIGHT, HEIGHT - BOTTOM),
    ]


def test_a_level_is_dashed_and_takes_no_color_of_the_lines() -> None:
    html = chart(
        Series("first", (0, 1), (1.0, 2.0)),
        Series("level", (0, 1), (1.5, 1.5), True),
        Series("next", (0, 1), (2, 1)),
    )
    assert len({y for _, y in spots(html, "level")}) == 1
    assert spots(html, "line-1")[0][1] == TOP


def test_the_legend_gives_last_values_and_a_lone_line_needs_none() -> None:
    both = chart(Series("training", (1, 2), (9.0, 3.5721)), Series("held out", (2,), (4.25,)))
    assert "training <b>3.572</b>" in both
    assert "held out <b>4.25</b>" in both
    assert "<circle" in both, "a single point is drawn as a dot"
    assert "<ul" not in chart(Series("training", (1, 2), (9.0, 3.5)))


def test_an_error_is_a_band_around_the_line_and_stands_at_its_end() -> None:
    html = chart(Series("held out", (0, 100), (50.0, 51.43), errors=(4.0, 3.78), size="175 pairs"))
    assert "held out <b>51.4 ± 3.8</b> (175 pairs)" in html
    band = spots(html.replace("Z", ""), "band line-0")
    line = spots(html, "line-0")
    assert [x for x, _ in band] == [x for x, _ in (*line, *reversed(line))]
    (_, upper), (_, lower) = band[1], band[2]
    assert upper < line[1][1] < lower, "the end lies within its error"
    assert [y for _, y in spots(html, "whisker line-0")] == [lower, upper]


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (51.43, 3.78, "51.4 ± 3.8"),
        (28.09, 0.454, "28.09 ± 0.45"),
        (0.5, 0.00123, "0.5000 ± 0.0012"),
        (250, 31, "250 ± 31"),
    ],
)
def test_a_value_has_the_decimals_of_its_error(value: float, error: float, text: str) -> None:
    assert format_with_error(value, error) == text


@pytest.mark.parametrize(
    "series", [(), (Series("empty", (), ()),), (Series("nan", (1, 2), (math.nan, math.inf)),)]
)
def test_nothing_to_draw_is_said(series: tuple[Series, ...]) -> None:
    assert chart(*series) == '<p class="note">Nothing was recorded yet.</p>'


def test_points_that_are_not_numbers_are_left_out() -> None:
    assert len(spots(chart(Series("loss", (1, 2, 3), (1.0, math.nan, 2.0))), "line-0")) == 2


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=30))
def test_any_numbers_stay_inside_the_drawing(points: list[tuple[float, float]]) -> None:
    html = chart(Series("any", tuple(x for x, _ in points), tuple(y for _, y in points)))
    drawn = " ".join(re.findall(r' (?:d|cx|cy)="([^"]*)"', html))
    assert all(-0.1 <= float(number) <= WIDTH + 0.1 for number in re.findall(r"[^MLH ]+", drawn))


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2000), st.integers(1, 200))
def test_thinning_keeps_the_mean_the_order_and_the_end(ys: list[float], most: int) -> None:
    points = [(float(i), y) for i, y in enumerate(ys)]
    thinned = thin(points, most)
    assert len(thinned) <= max(most + 1, 2)
    assert thinned[-1] == points[-1]
    assert thinned == sorted(thinned)
    assert min(ys) - 1e-6 <= min(y for _, y in thinned)
    assert max(y for _, y in thinned) <= max(ys) + 1e-6


def test_thinning_takes_means_of_equal_shares() -> None:
    points = [(float(i), float(i % 2)) for i in range(1001)]
    assert all(y == pytest.approx(0.5, abs=0.06) for _, y in thin(points, 100)[:-1])


@given(finite, finite, st.integers(2, 10))
def test_ticks_cover_the_range_in_even_round_steps(a: float, b: float, count: int) -> None:
    low, high = min(a, b), max(a, b)
    marks = ticks(low, high, count)
    span = (high - low) or abs(high) or 1.0
    assert marks[0] <= low + 1e-6 * span
    assert marks[-1] >= high - 1e-6 * span
    assert 1 <= len(marks) <= count + 3
    steps = [after - before for before, after in pairwise(marks)]
    assert all(step == pytest.approx(steps[0], rel=1e-5) for step in steps)


def test_ticks_are_the_ones_a_person_would_write() -> None:
    assert ticks(0, 3000, 5) == [0, 1000, 2000, 3000]
    assert ticks(3.4, 8.9, 5) == [2, 4, 6, 8, 10]
    assert ticks(0.0, 0.003, 5) == pytest.approx([0, 0.001, 0.002, 0.003])


def test_whole_numbers_have_whole_ticks() -> None:
    assert ticks(1, 3, 5, whole=True) == [1, 2, 3]
    assert ticks(1, 12, 5, whole=True) == [0, 5, 10, 15]
    assert ">1.5<" not in chart(Series("layers", (1, 2, 3), (1, 2, 3)))


def test_an_axis_from_zero_shows_the_size_of_a_change() -> None:
    line = Series("tokens/s", (0, 1), (99.0, 101.5))
    (_, first), (_, last) = spots(
        draw(Chart("t", (line,), "minutes", "tokens/s", from_zero=True)), "line-0"
    )
    assert 0 < first - last < 0.05 * HEIGHT


def test_the_labels_of_an_axis_share_a_unit() -> None:
    assert labels([0, 2500, 5000, 10_000]) == ["0", "2.5k", "5k", "10k"]


def test_long_labels_stay_within_the_drawing() -> None:
    html = chart(
        Series("rate", (1, 2), (0.00000125, 0.00000175)),
        Series("zero", (1, 2), (-0.00015, 0.00015)),
    )
    labels = re.findall(r'<text x="([^"]*)" y="[^"]*" text-anchor="end">([^<]*)<', html)
    assert labels
    assert all(float(x) >= 7 * len(text) - 1 for x, text in labels if float(x) < WIDTH / 2)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.003, "0.003"),
        (12.5, "12.5"),
        (3000, "3000"),
        (21_300, "21.3k"),
        (1.5e6, "1.5M"),
        (-2e9, "-2G"),
    ],
)
def test_labels(value: float, text: str) -> None:
    assert label(value) == text
