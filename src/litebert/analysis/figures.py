"""Draw means with intervals, and heat maps, with matplotlib as SVG or PNG.

On a page, figures have the colors of the page, light or dark, and their text stays text. For this
matplotlib draws in stand-in colors, which are replaced by the variables of the page. `chart` draws
the lines of a run's page. It takes a millisecond instead of a tenth of a second, which matters
because every run ends with its page.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from litebert.analysis.chart import label, ticks
from litebert.storage import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 4.6
"""Width of a figure in inches of 100 units; the page scales it."""
_PAGE = {
    "#010101": "var(--soft)",
    "#020202": "var(--rule)",
    "#030303": "var(--level)",
    "#040404": "var(--line-0)",
    "#050505": "var(--text)",
}
_TEXT, _RULE, _LEVEL, _LINE, _STRONG = _PAGE
_PRINT = {
    _TEXT: "#5d6878",
    _RULE: "#e3e7ed",
    _LEVEL: "#7b8594",
    _LINE: "#2563eb",
    _STRONG: "#1b2330",
}
"""The colors on white, for PNG."""
_DEEPEST = 0.55
"""Opacity of the largest number of a heat map.

Text on it has a contrast of 4.8 or more, light and dark.
"""
_MOST_NUMBERED = (26, 14)
"""Rows and columns of the largest heat map whose cells are large enough for numbers."""


@dataclass(frozen=True)
class Intervals:
    """Means with intervals, each on a line, beside a level to compare with."""

    title: str
    names: tuple[str, ...]
    means: tuple[float, ...]
    halfwidths: tuple[float, ...]
    """Half of each interval; 0 for none."""
    x_label: str
    level: float | None = None
    note: str = ""
    name: str = ""
    """The name of its file."""


@dataclass(frozen=True)
class HeatMap:
    """A matrix of numbers, darker where they are larger."""

    title: str
    rows: tuple[str, ...]
    """The names of the rows, from the bottom up."""
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    x_label: str
    y_label: str
    low: float
    high: float
    note: str = ""


def svg(figure: Intervals | HeatMap) -> str:
    """Draw a figure for a page, with a description for readers who cannot see it."""
    file = io.BytesIO()
    _write(
        figure,
        {color: color for color in _PAGE},
        file,
        format="svg",
        transparent=True,
        metadata={"Date": None},
    )
    text = file.getvalue().decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    for color, variable in _PAGE.items():
        text = text.replace(color, variable)
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None
    text = (
        f'<svg viewBox="{box[1]}" role="img" '
        f'aria-label="{_describe(figure)}">{text[text.index(">") + 1 :]}'
    )
    # The font of the page holds, not the font of matplotlib.
    return re.sub(r"font: [^;\"]*;?", "", text)


def save_png(figure: Intervals | HeatMap, path: Path) -> None:
    """Write a figure on white, at twice the size."""
    with atomic_write(path) as file:
        _write(figure, _PRINT, file, format="png", dpi=200, facecolor="white")


def _describe(figure: Intervals | HeatMap) -> str:
    """Put the numbers of a figure into a sentence, escaped for HTML."""
    if isinstance(figure, Intervals):
        intervals = [f" ± {label(half)}" if half else "" for half in figure.halfwidths]
        rows = zip(figure.names, figure.means, intervals, strict=True)
        numbers = "; ".join(f"{name} {label(mean, True)}{half}" for name, mean, half in rows)
    else:
        values = [value for row in figure.values for value in row]
        ends = f"from {label(min(values), True)} to {label(max(values), True)}"
        numbers = f"{len(figure.rows)} by {len(figure.columns)} numbers {ends}"
    return escape(f"{figure.title}: {numbers}.", quote=True)


def _write(
    figure: Intervals | HeatMap, colors: dict[str, str], file: IO[bytes], **options: Any
) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    if isinstance(figure, Intervals):
        height = 0.55 + 0.24 * len(figure.names)
    else:
        height = min(WIDTH * 0.8, 0.9 + 0.3 * len(figure.rows))
    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "litebert",
        "font.size": 9,
        "text.color": colors[_TEXT],
        "axes.edgecolor": colors[_RULE],
        "axes.labelcolor": colors[_TEXT],
        "xtick.color": colors[_TEXT],
        "ytick.color": colors[_TEXT],
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with rc_context(settings):
        drawn = Figure(figsize=(WIDTH, height), dpi=100, layout="constrained")
        if isinstance(figure, Intervals):
            axes = drawn.add_subplot()
            _draw_intervals(axes, figure, colors)
        else:
            axes, scale = drawn.subplots(1, 2, width_ratios=[24, 1])
            _draw_squares(axes, figure, colors)
            _draw_scale(scale, figure, colors[_LINE])
            axes.set_ylabel(figure.y_label)
        axes.set_xlabel(figure.x_label)
        drawn.savefig(file, **options)


def _draw_intervals(axes: Axes, figure: Intervals, colors: dict[str, str]) -> None:
    positions = range(len(figure.names))
    axes.set_yticks(list(positions), figure.names)
    axes.set_ylim(len(figure.names) - 0.4, -0.6)
    axes.grid(axis="x", color=colors[_RULE], linewidth=0.8)
    axes.set_axisbelow(True)
    if figure.level is not None:
        axes.axvline(figure.level, color=colors[_LEVEL], linestyle=(0, (4, 3)), linewidth=1)
    halves = [half or math.nan for half in figure.halfwidths]  # a dot alone if there is no interval
    axes.errorbar(
        figure.means,
        positions,
        xerr=halves,
        fmt="o",
        color=colors[_LINE],
        markersize=4.5,
        capsize=3,
        linewidth=1.5,
    )
    axes.locator_params(axis="x", nbins=6)  # more labels with three decimals would touch
    axes.spines["left"].set_visible(False)


def _draw_squares(axes: Axes, figure: HeatMap, colors: dict[str, str]) -> None:
    """Draw a square for each number, with the number in it if the square is large enough.

    All squares have the same color and differ in opacity, so that the page shows through small
    numbers.
    """
    from matplotlib.patches import Rectangle

    span = figure.high - figure.low or 1.0
    rows, columns = len(figure.rows), len(figure.columns)
    is_numbered = rows <= _MOST_NUMBERED[0] and columns <= _MOST_NUMBERED[1]
    for y, row in enumerate(figure.values):
        for x, value in enumerate(row):
            share = min(1.0, max(0.0, (value - figure.low) / span))
            axes.add_patch(
                Rectangle(
                    (x - 0.5, y - 0.5),
                    1,
                    1,
                    facecolor=colors[_LINE],
                    alpha=_DEEPEST * share,
                    edgecolor="none",
                )
            )
            if is_numbered:
                number, color = _format_cell(value, figure.high), colors[_STRONG]
                axes.text(x, y, number, ha="center", va="center", fontsize=8, color=color)
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(-0.5, rows - 0.5)
    axes.set_xticks(*_thin_names(figure.columns))
    axes.set_yticks(*_thin_names(figure.rows))
    axes.set_aspect("auto")


def _format_cell(value: float, highest: float) -> str:
    """Format a number in three characters and perhaps a minus: .87 up to 1, then 2.3, then 23."""
    decimals = 2 if highest <= 1 else 1 if highest < 10 else 0
    text = f"{value:.{decimals}f}"
    if float(text).is_integer() and decimals == 2:
        return f"{float(text):.0f}"
    return text.replace("0.", ".", 1) if decimals == 2 else text


def _draw_scale(axes: Axes, figure: HeatMap, color: str) -> None:
    """Draw the colors from the lowest to the highest number, with numbers beside them."""
    from matplotlib.patches import Rectangle

    steps, span = 32, figure.high - figure.low or 1.0
    for step in range(steps):
        share = (step + 0.5) / steps
        bottom = figure.low + span * step / steps
        alpha = _DEEPEST * share
        axes.add_patch(
            Rectangle((0, bottom), 1, span / steps, facecolor=color, alpha=alpha, edgecolor="none")
        )
    axes.set_xlim(0, 1)
    axes.set_ylim(figure.low, figure.low + span)
    axes.set_xticks([])
    marks = [
        mark
        for mark in ticks(figure.low, figure.low + span, 4)
        if figure.low <= mark <= figure.low + span
    ]
    axes.set_yticks(marks, [label(mark) for mark in marks])
    axes.yaxis.tick_right()
    axes.spines["bottom"].set_visible(False)
    axes.spines["left"].set_visible(False)


def _thin_names(names: Sequence[str], most: int = 13) -> tuple[list[int], list[str]]:
    """Return positions with their names, so few that they do not collide."""
    step = -(-len(names) // most)
    return list(range(0, len(names), step)), list(names[::step])
