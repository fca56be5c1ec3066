"""Charts by matplotlib: valid, deterministic, in the page's colors, with text as text and nothing
from outside.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.analysis.charts import (
    Chart,
    HeatMap,
    Intervals,
    Series,
    draw,
    format_with_error,
    label,
    save_png,
    thin,
)

INTERVALS = Intervals("Loss", ("none", "all & <b>"), (3.1, 3.25), (0.05, 0.0), "nats", level=3.25)
CELLS = ((1.0, 0.5, 0.0), (0.5, 1.0, 0.25))
HEAT = HeatMap("Alike", ("0", "1"), ("0", "1", "2"), CELLS, "layer", "layer", 0.0, 1.0)


@pytest.mark.parametrize("figure", [INTERVALS, HEAT])
def test_a_figure_stands_in_a_page(figure: Intervals | HeatMap) -> None:
    drawn = draw(figure)
    ElementTree.fromstring(drawn.replace("xlink:href", "href"))  # well-formed
    assert drawn == draw(figure)
    assert "<style" not in drawn, "a style would hold for the whole page"
    assert "#0" not in drawn.replace('"#m', "").replace("url(#", ""), "a stand-in color is left"
    assert "var(--soft)" in drawn
    assert "http" not in drawn
    assert "layer" in drawn or "nats" in drawn, "text stays text"


def test_names_are_escaped_and_spoken() -> None:
    drawn = draw(INTERVALS)
    assert "<b>" not in drawn
    assert 'aria-label="Loss: none 3.1 ± 0.05; all &amp; &lt;b&gt; 3.25."' in drawn


def test_a_mean_without_an_interval_is_a_dot() -> None:
    def bars(*halves: float) -> int:
        drawn = draw(Intervals("Loss", ("none", "all"), (3.1, 3.25), halves, "nats"))
        assert "nan" not in drawn.lower()
        return drawn.split('id="LineCollection_1"')[1].split("</g>")[0].count('d="M')

    assert [bars(0.05, 0.05), bars(0.05, 0.0), bars(0.0, 0.0)] == [2, 1, 0]


def test_a_larger_number_has_more_of_the_color_and_stands_in_its_cell() -> None:
    drawn = draw(HEAT)
    found = re.findall(r"opacity: ([\d.]+)", drawn)
    opacities = [float(opacity) for opacity in found][:5]  # 0 has none
    assert opacities[0] == max(opacities)
    assert opacities[1] == pytest.approx(opacities[0] / 2)
    cells = re.findall(r"fill: var\(--text\)[^>]*>([^<]*)</text>", drawn)
    assert cells == ["1", ".50", "0", ".50", "1", ".25"]


def test_a_scale_gives_numbers_to_the_colors() -> None:
    heat = HeatMap("Heads", ("1",), ("1", "2"), ((0.5, 4.02),), "head", "layer", 0.0, 4.02)
    texts = re.findall(r">([^<>]+)</text>", draw(heat))
    assert {"0.5", "4.0"} <= set(texts), "the numbers of the cells"
    assert texts[-3:] == ["0", "2", "4"], "round numbers at the scale"


def test_cells_that_are_too_small_have_no_numbers() -> None:
    names = tuple(map(str, range(25)))
    heat = HeatMap("Alike", names, names, ((0.5,) * 25,) * 25, "layer", "layer", 0.0, 1.0)
    assert "var(--text)" not in draw(heat)


def test_a_png_is_written_whole(tmp_path: Path) -> None:
    save_png(HEAT, tmp_path / "heat.png")
    assert (tmp_path / "heat.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["heat.png"]


finite = st.builds(lambda n, p: n * 10.0**p, st.integers(-(10**6), 10**6), st.integers(-9, 6))


def chart(*series: Series) -> str:
    return draw(Chart("t", series, "step", "nats"))


def test_a_level_is_dashed_and_takes_no_color_of_the_lines() -> None:
    html = chart(
        Series("first", (0, 1), (1.0, 2.0)),
        Series("level", (0, 1), (1.5, 1.5), True),
        Series("next", (0, 1), (2, 1)),
    )
    assert re.findall(r'<li class="([^"]*)">', html) == ["line-0", "level", "line-1"]
    dashed = r"stroke-dasharray: [^;]*; stroke-dashoffset: 0; stroke: ([^;\"]*)"
    assert re.findall(dashed, html) == ["var(--level)"]
    assert "stroke: var(--line-1)" in html
    assert "var(--line-2)" not in html


def test_the_legend_gives_last_values_and_a_lone_line_needs_none() -> None:
    both = chart(Series("training", (1, 2), (9.0, 3.5721)), Series("held out", (2,), (4.25,)))
    assert "training <b>3.572</b>" in both
    assert "held out <b>4.25</b>" in both
    assert "<ul" not in chart(Series("training", (1, 2), (9.0, 3.5)))


def test_an_error_is_a_band_around_the_line_and_stands_at_its_end() -> None:
    line = Series("held out", (0, 100), (50.0, 51.43), errors=(4.0, 3.78), size="175 pairs")
    html = chart(line)
    assert "held out <b>51.4 ± 3.8</b> (175 pairs)" in html
    assert "opacity: 0.14" in html, "the band"
    assert "opacity: 0.14" not in chart(Series("held out", (0, 100), (50.0, 51.43)))


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


@pytest.mark.thorough
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=30))
def test_any_numbers_stay_inside_the_drawing(points: list[tuple[float, float]]) -> None:
    html = chart(Series("any", tuple(x for x, _ in points), tuple(y for _, y in points)))
    svg = ElementTree.fromstring(html[html.index("<svg") :].replace("xlink:href", "href"))
    width, height = (float(number) for number in svg.attrib["viewBox"].split()[2:])
    (path,) = re.findall(r'<path d="([^"]*)" clip-path="[^"]*" style="[^"]*--line-0', html) or [""]
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", path)]
    assert all(-0.1 <= number <= max(width, height) + 0.1 for number in numbers)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2000), st.integers(1, 200))
def test_thinning_keeps_the_mean_the_order_and_the_end(ys: list[float], most: int) -> None:
    points = [(float(i), y, 1.0) for i, y in enumerate(ys)]
    thinned = thin(points, most)
    assert len(thinned) <= max(most + 1, 2)
    assert thinned[-1] == points[-1]
    assert thinned == sorted(thinned)
    assert min(ys) - 1e-6 <= min(y for _, y, _ in thinned)
    assert max(y for _, y, _ in thinned) <= max(ys) + 1e-6


def test_whole_numbers_have_whole_ticks() -> None:
    assert ">1.5<" not in chart(Series("layers", (1, 2, 3), (1, 2, 3)))


def test_the_labels_of_an_axis_share_a_unit() -> None:
    texts = re.findall(r">([^<>]+)</text>", chart(Series("loss", (0, 10_000), (1.0, 2.0))))
    assert {"0", "2.5k", "5k", "7.5k", "10k"} <= set(texts) or {"0", "2k", "4k"} <= set(texts)


def test_an_axis_from_zero_shows_the_size_of_a_change() -> None:
    line = Series("tokens/s", (0, 1), (99.0, 101.5))
    drawn = draw(Chart("t", (line,), "minutes", "tokens/s", from_zero=True))
    texts = re.findall(r">([^<>]+)</text>", drawn)
    assert "50" in texts or "40" in texts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0, "0"), (0.003, "0.003"), (12.5, "12.5"), (3000, "3000")),
        *((21_300, "21.3k"), (1.5e6, "1.5M"), (-2e9, "-2G")),
    ],
)
def test_labels(value: float, text: str) -> None:
    assert label(value) == text
