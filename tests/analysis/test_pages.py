"""The pages that are written, in a real browser, on a phone and a screen: what a reader sees and
can choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from litebert.analysis.report import (
    Chart,
    Headline,
    HeadlineScore,
    HeatMap,
    Intervals,
    Section,
    Series,
    Switched,
    Table,
    write,
)

pytestmark = pytest.mark.thorough


NAMES = ("a variant with a long name, E 128", "none", "attention")
CELLS = ((0.1, 0.3, 0.5, 0.7, 0.9, 1.0),) * 6
VALUES = [tuple(float((i * 7 + k) % 13) for i in range(20)) for k in range(len(NAMES))]
LINES = tuple(
    Series(name, tuple(range(20)), values, errors=(0.5,) * 20)
    for name, values in zip(NAMES, VALUES, strict=True)
)
SECTIONS: list[Section] = [
    Headline(
        "Scores",
        tuple(HeadlineScore(name, "28.1%", "± 0.5%", ("on 9,801 tokens",)) for name in NAMES),
    ),
    Switched(tuple(Chart("Loss", LINES, axis, "nats") for axis in ("step", "minutes of training"))),
    Switched(
        tuple(Chart("Accuracy", LINES[:2], axis, "%") for axis in ("step", "minutes of training"))
    ),
    Table(
        "A wide table",
        ("run", *(f"column {i}" for i in range(12))),
        tuple((f"run {i}", *(f"{i}.{j} ± 0.1" for j in range(12))) for i in range(4)),
        "a note " * 40,
    ),
    Chart("Lines", LINES, "step", "nats"),
    Intervals("Means", NAMES, (3.1, 3.2, 3.3), (0.1, 0.0, 0.2), "nats", 3.2),
    HeatMap("Alike", tuple("012345"), tuple("012345"), CELLS, "layer", "layer", 0.0, 1.0),
    Table("Commands", ("command",), (("litebert pretrain " + "a-very-long-path/" * 12,),)),
]
BEYOND = """() => [...document.querySelectorAll("body *")].filter(
  node => !node.closest(".wide") && !node.matches(".unseen")
    && node.getBoundingClientRect().right > document.documentElement.clientWidth + 1
  ).map(node => node.outerHTML)"""


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open a page of every kind of section; in the end nothing may have been complained of or
    fetched.
    """
    lead = "A lead with a-name-without-a-space-that-is-too-long."
    write(tmp_path / "page.html", "Everything", lead, SECTIONS)
    heard, requests = [], []

    def open_at(width: int, scheme: str = "light") -> Any:
        page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
        page.on("console", lambda message: heard.append(message.text))
        page.on("request", lambda request: requests.append(request.url))
        page.goto((tmp_path / "page.html").as_uri())
        return page

    yield open_at
    assert not heard
    assert all(url.endswith("/page.html") for url in requests), requests


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_runs_over_the_edge(width: int, open_page: Callable[..., Any]) -> None:
    page = open_page(width)
    assert page.evaluate(BEYOND) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("svg:visible").count() == 5


def test_one_switch_changes_the_axis_of_all_charts(open_page: Callable[..., Any]) -> None:
    page = open_page(1280)

    def axes() -> list[str]:
        texts: list[str] = page.locator(".against:visible svg text").all_text_contents()
        return [text for text in texts if text in ("step", "minutes of training")]

    assert axes() == ["step", "step"]
    page.click("label:has-text('minutes of training')")
    assert axes() == ["minutes of training"] * 2
    page.keyboard.press("ArrowLeft")
    assert axes() == ["step", "step"], "the switch obeys the keyboard"


def test_rows_are_cards_on_a_phone(open_page: Callable[..., Any]) -> None:
    row = "table.cards tbody tr"
    phone, screen = open_page(390), open_page(1280)
    display = "node => getComputedStyle(node).display"
    assert phone.locator(row).first.evaluate(display) == "block"
    assert screen.locator(row).first.evaluate(display) == "table-row"
    before = "node => getComputedStyle(node, '::before').content"
    assert phone.locator(f"{row} td").nth(1).evaluate(before) == '"column 0"'
    wide = "[...document.querySelectorAll('.wide')]"
    assert phone.evaluate(f"{wide}.every(node => node.scrollWidth <= innerWidth)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_on_a_heat_map_can_be_read(scheme: str, open_page: Callable[..., Any]) -> None:
    """Each number of a heat map has the contrast that WCAG 2.2 asks for (1.4.3, level AA) with its
    square.
    """
    page = open_page(390, scheme)
    style = "name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()"
    text, card, line = (page.evaluate(style, name) for name in ("--text", "--card", "--line-0"))
    opacities = page.locator("svg path[style*='opacity']").evaluate_all(
        "all => all.map(one => +one.style.opacity)"
    )
    for opacity in opacities:
        mixed = [
            opacity * over + (1 - opacity) * under
            for over, under in zip(rgb(line), rgb(card), strict=True)
        ]
        high, low = sorted((luminance(mixed), luminance(rgb(text))), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5
    assert len(opacities) >= 36


def rgb(color: str) -> list[float]:
    return [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def luminance(color: list[float]) -> float:
    """The relative luminance of sRGB as WCAG defines it."""
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in color
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
