"""Figures that need more than lines: means with intervals, and heat maps, drawn by matplotlib as SVG or PNG.

On a page they take its colours, light or dark, and their text stays text: matplotlib draws in stand-in colours, which
become the page's own. The lines of a run's page are drawn by `chart`, which takes a millisecond instead of a tenth of a
second and is written at the end of every run.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import IO, Any

from litebert.analysis.chart import label
from litebert.storage import atomic_write

WIDTH = 4.6
"""Inches of a figure, at 100 units each; the page scales it."""
_PAGE = {"#010101": "var(--soft)", "#020202": "var(--rule)", "#030303": "var(--level)", "#040404": "var(--line-0)"}
_TEXT, _RULE, _LEVEL, _LINE = _PAGE
_PRINT = {_TEXT: "#5d6878", _RULE: "#e3e7ed", _LEVEL: "#7b8594", _LINE: "#2563eb"}
"""The same on white, for PNG."""


@dataclass(frozen=True)
class Intervals:
    """Means with intervals, one line each, beside a level to compare with."""

    title: str
    names: tuple[str, ...]
    means: tuple[float, ...]
    halfwidths: tuple[float, ...]
    """Half of each interval; 0 for none."""
    x_label: str
    level: float | None = None
    note: str = ""
    name: str = ""
    """What it is called as a file."""


@dataclass(frozen=True)
class HeatMap:
    """A matrix of numbers, darker where they are larger."""

    title: str
    rows: tuple[str, ...]
    """From the bottom up."""
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    x_label: str
    y_label: str
    low: float
    high: float
    note: str = ""


def svg(figure: Intervals | HeatMap) -> str:
    """The figure for a page, with what it shows in words for those who cannot see it."""
    file = io.BytesIO()
    _write(figure, {one: one for one in _PAGE}, file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue().decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", text, flags=re.DOTALL)
    for colour, variable in _PAGE.items():
        text = text.replace(colour, variable)
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None
    text = f'<svg viewBox="{box[1]}" role="img" aria-label="{_spoken(figure)}">{text[text.index(">") + 1 :]}'
    return re.sub(r"font: [^;\"]*;?", "", text)


def save_png(figure: Intervals | HeatMap, path: Path) -> None:
    """Write the figure on white, at twice the size."""
    with atomic_write(path) as file:
        _write(figure, _PRINT, file, format="png", dpi=200, facecolor="white")


def _spoken(figure: Intervals | HeatMap) -> str:
    if isinstance(figure, Intervals):
        halves = [f" ± {label(half)}" if half else "" for half in figure.halfwidths]
        parts = zip(figure.names, figure.means, halves, strict=True)
        said = "; ".join(f"{name} {label(mean, True)}{half}" for name, mean, half in parts)
    else:
        flat = [value for row in figure.values for value in row]
        ends = f"from {label(min(flat), True)} to {label(max(flat), True)}"
        said = f"{len(figure.rows)} by {len(figure.columns)} numbers {ends}"
    return escape(f"{figure.title}: {said}.", quote=True)


def _write(figure: Intervals | HeatMap, colours: dict[str, str], file: IO[bytes], **options: Any) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    height = 0.55 + 0.24 * len(figure.names) if isinstance(figure, Intervals) else WIDTH * 0.8
    settings: Any = {
        "svg.fonttype": "none", "svg.hashsalt": "litebert", "font.size": 8, "text.color": colours[_TEXT],
        "axes.edgecolor": colours[_RULE], "axes.labelcolor": colours[_TEXT], "xtick.color": colours[_TEXT],
        "ytick.color": colours[_TEXT], "xtick.major.size": 0, "ytick.major.size": 0, "axes.spines.top": False,
        "axes.spines.right": False,
    }  # fmt: skip
    with rc_context(settings):
        drawn = Figure(figsize=(WIDTH, height), dpi=100, layout="constrained")
        axes = drawn.add_subplot()
        if isinstance(figure, Intervals):
            places = range(len(figure.names))
            axes.set_yticks(list(places), figure.names)
            axes.set_ylim(len(figure.names) - 0.4, -0.6)
            axes.grid(axis="x", color=colours[_RULE], linewidth=0.8)
            axes.set_axisbelow(True)
            if figure.level is not None:
                axes.axvline(figure.level, color=colours[_LEVEL], linestyle=(0, (4, 3)), linewidth=1)
            halves = [half or math.nan for half in figure.halfwidths]  # a dot alone where there is no interval
            axes.errorbar(figure.means, places, xerr=halves, fmt="o", color=colours[_LINE], markersize=4.5, capsize=3,
                          linewidth=1.5)  # fmt: skip
            axes.spines["left"].set_visible(False)
        else:
            _squares(axes, figure, colours[_LINE])
            axes.set_ylabel(figure.y_label)
        axes.set_xlabel(figure.x_label)
        drawn.savefig(file, **options)


def _squares(axes: object, figure: HeatMap, colour: str) -> None:
    """One colour, more or less of it, so that the page's own shines through where a number is small."""
    from matplotlib.axes import Axes
    from matplotlib.patches import Rectangle

    assert isinstance(axes, Axes)
    span = figure.high - figure.low or 1.0
    for y, row in enumerate(figure.values):
        for x, value in enumerate(row):
            share = min(1.0, max(0.0, (value - figure.low) / span))
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, alpha=share, edgecolor="none"))
    axes.set_xlim(-0.5, len(figure.columns) - 0.5)
    axes.set_ylim(-0.5, len(figure.rows) - 0.5)
    axes.set_xticks(*_some(figure.columns))
    axes.set_yticks(*_some(figure.rows))
    axes.set_aspect("auto")


def _some(names: Sequence[str], most: int = 13) -> tuple[list[int], list[str]]:
    """Places and names, few enough not to collide."""
    step = -(-len(names) // most)
    return list(range(0, len(names), step)), list(names[::step])
