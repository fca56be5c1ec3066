"""Figures by matplotlib: valid, deterministic, in the page's colors, with text as text and nothing
from outside.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from litebert.analysis.figures import HeatMap, Intervals, save_png, svg

INTERVALS = Intervals("Loss", ("none", "all & <b>"), (3.1, 3.25), (0.05, 0.0), "nats", level=3.25)
HEAT = HeatMap(
    "Alike",
    ("0", "1"),
    ("0", "1", "2"),
    ((1.0, 0.5, 0.0), (0.5, 1.0, 0.25)),
    "layer",
    "layer",
    0.0,
    1.0,
)


@pytest.mark.parametrize("figure", [INTERVALS, HEAT])
def test_a_figure_stands_in_a_page(figure: Intervals | HeatMap) -> None:
    drawn = svg(figure)
    ElementTree.fromstring(drawn.replace("xlink:href", "href"))  # well-formed
    assert drawn == svg(figure)
    assert "<style" not in drawn, "a style would hold for the whole page"
    assert "#0" not in drawn.replace('"#m', "").replace("url(#", ""), "a stand-in color is left"
    assert "var(--soft)" in drawn
    assert "http" not in drawn
    assert "layer" in drawn or "nats" in drawn, "text stays text"


def test_names_are_escaped_and_spoken() -> None:
    drawn = svg(INTERVALS)
    assert "<b>" not in drawn
    assert 'aria-label="Loss: none 3.1 ± 0.05; all &amp; &lt;b&gt; 3.25."' in drawn


def test_a_mean_without_an_interval_is_a_dot() -> None:
    def bars(*halves: float) -> int:
        drawn = svg(Intervals("Loss", ("none", "all"), (3.1, 3.25), halves, "nats"))
        assert "nan" not in drawn.lower()
        return drawn.split('id="LineCollection_1"')[1].split("</g>")[0].count('d="M')

    assert [bars(0.05, 0.05), bars(0.05, 0.0), bars(0.0, 0.0)] == [2, 1, 0]


def test_a_larger_number_has_more_of_the_color_and_stands_in_its_cell() -> None:
    drawn = svg(HEAT)
    opacities = [float(opacity) for opacity in re.findall(r"opacity: ([\d.]+)", drawn)][
        :5
    ]  # 0 has none
    assert opacities[0] == max(opacities)
    assert opacities[1] == pytest.approx(opacities[0] / 2)
    cells = re.findall(r"fill: var\(--text\)[^>]*>([^<]*)</text>", drawn)
    assert cells == ["1", ".50", "0", ".50", "1", ".25"]


def test_a_scale_gives_numbers_to_the_colors() -> None:
    heat = HeatMap("Heads", ("1",), ("1", "2"), ((0.5, 4.02),), "head", "layer", 0.0, 4.02)
    texts = re.findall(r">([^<>]+)</text>", svg(heat))
    assert {"0.5", "4.0"} <= set(texts), "the numbers of the cells"
    assert texts[-3:] == ["0", "2", "4"], "round numbers at the scale"


def test_cells_that_are_too_small_have_no_numbers() -> None:
    names = tuple(map(str, range(25)))
    heat = HeatMap("Alike", names, names, ((0.5,) * 25,) * 25, "layer", "layer", 0.0, 1.0)
    assert "var(--text)" not in svg(heat)


def test_a_png_is_written_whole(tmp_path: Path) -> None:
    save_png(HEAT, tmp_path / "heat.png")
    assert (tmp_path / "heat.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["heat.png"]
