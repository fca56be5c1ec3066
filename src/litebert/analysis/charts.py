"""Draw lines, means with intervals and heat maps with matplotlib, as SVG for a page or as PNG. On a
page, matplotlib's stand-in colors are replaced by the variables of the page, light or dark.
"""

from __future__ import annotations

import io
import itertools
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from litebert.base.storage import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 4.6
COLORS = 6
_PAGE = {
    "#010101": "var(--soft)",
    "#020202": "var(--rule)",
    "#030303": "var(--level)",
    "#040404": "var(--line-0)",
    "#050505": "var(--text)",
    **{f"#0{i}0606": f"var(--line-{i})" for i in range(1, COLORS)},
}
_TEXT, _RULE, _LEVEL, _LINE, _STRONG, *_LINES = _PAGE
_PRINT = {
    **dict(zip(_LINES, ("#d9480f", "#0f8a5f", "#8b3fc7", "#b3256f", "#8a6a00"), strict=True)),
    _TEXT: "#5d6878",
    _RULE: "#e3e7ed",
    _LEVEL: "#7b8594",
    _LINE: "#2563eb",
    _STRONG: "#1b2330",
}
"""The colors on white, for PNG."""
_DEEPEST = 0.55
"""Opacity of the largest number of a heat map, so that text on it has a contrast of 4.8 or more."""
_MOST_NUMBERED = (26, 14)
"""Rows and columns of the largest heat map whose cells are large enough for numbers."""
MOST_POINTS = 150
"""Points of a line; longer series are averaged, so that a page is small and noise readable."""


@dataclass(frozen=True)
class Series:
    """A line with as many `xs` as `ys`. A dashed line is a level to compare with, drawn in gray."""

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    dashed: bool = False
    errors: tuple[float, ...] = ()
    """The standard error of each of `ys`, drawn as a band; empty if the errors are not known."""
    size: str = ""
    """The amount of data behind the last value, such as "496 pairs"."""

    def points(self) -> list[tuple[float, float, float]]:
        """Return the finite points with their errors, in the order of x; an unknown error is 0."""
        errors = self.errors or (0.0,) * len(self.xs)
        triples = zip(self.xs, self.ys, errors, strict=True)
        finite = [(x, y, error) for x, y, error in triples if math.isfinite(x) and math.isfinite(y)]
        return sorted((x, y, error if math.isfinite(error) else 0.0) for x, y, error in finite)


@dataclass(frozen=True)
class Chart:
    title: str
    series: tuple[Series, ...]
    x_label: str
    y_label: str
    note: str = ""
    from_zero: bool = False
    """True if the y axis begins at 0, so that small changes look small."""


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


Figure = Chart | Intervals | HeatMap


def draw(figure: Figure) -> str:
    """Draw a figure as HTML: a chart with its legend, or a sentence if nothing was recorded."""
    if not isinstance(figure, Chart):
        return _svg(figure)
    series = [line for line in figure.series if line.points()]
    if not series:
        return '<p class="note">Nothing was recorded yet.</p>'
    items = []
    for line, look in zip(series, _looks(series), strict=True):
        size = f" ({escape(line.size)})" if line.size else ""
        items.append(f'<li class="{look}">{escape(line.name)} <b>{_end(line)}</b>{size}</li>')
    has_legend = len(items) > 1 or series[0].errors
    legend = f'<ul class="legend">{"".join(items)}</ul>' if has_legend else ""
    return f'<p class="axis">{escape(figure.y_label)}</p>{legend}{_svg(figure)}'


def _looks(series: Sequence[Series]) -> list[str]:
    colors = itertools.count()
    return ["level" if line.dashed else f"line-{next(colors) % COLORS}" for line in series]


def _end(line: Series) -> str:
    _, y, error = line.points()[-1]
    return format_with_error(y, error) if error else label(y, exact=True)


def _svg(figure: Figure) -> str:
    file = io.BytesIO()
    colors = {color: color for color in _PAGE}
    _write(figure, colors, file, format="svg", transparent=True, metadata={"Date": None})
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


def save_png(figure: Figure, path: Path) -> None:
    with atomic_write(path) as file:
        _write(figure, _PRINT, file, format="png", dpi=200, facecolor="white")


def _describe(figure: Figure) -> str:
    if isinstance(figure, Chart):
        lines = [line for line in figure.series if line.points()]
        ends = "; ".join(
            f"{line.name} from {label(line.points()[0][1], True)} to {_end(line)}" for line in lines
        )
        numbers = f"{figure.y_label} over {figure.x_label}. {ends}"
    elif isinstance(figure, Intervals):
        intervals = [f" ± {label(half)}" if half else "" for half in figure.halfwidths]
        rows = zip(figure.names, figure.means, intervals, strict=True)
        numbers = "; ".join(f"{name} {label(mean, True)}{half}" for name, mean, half in rows)
    else:
        values = [value for row in figure.values for value in row]
        ends = f"from {label(min(values), True)} to {label(max(values), True)}"
        numbers = f"{len(figure.rows)} by {len(figure.columns)} numbers {ends}"
    return escape(f"{figure.title}: {numbers}.", quote=True)


def _write(figure: Figure, colors: dict[str, str], file: IO[bytes], **options: Any) -> None:
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    if isinstance(figure, Chart):
        height = 0.6 * WIDTH
    elif isinstance(figure, Intervals):
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
        drawn = Canvas(figsize=(WIDTH, height), dpi=100, layout="constrained")
        if not isinstance(figure, HeatMap):
            axes = drawn.add_subplot()
            if isinstance(figure, Chart):
                _draw_lines(axes, figure, colors)
            else:
                _draw_intervals(axes, figure, colors)
        else:
            axes, scale = drawn.subplots(1, 2, width_ratios=[24, 1])
            _draw_squares(axes, figure, colors)
            _draw_scale(scale, figure, colors[_LINE])
            axes.set_ylabel(figure.y_label)
        axes.set_xlabel(figure.x_label)
        drawn.savefig(file, **options)


def _draw_lines(axes: Axes, figure: Chart, colors: dict[str, str]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    series = [line for line in figure.series if line.points()]
    turn = [colors[color] for color in (_LINE, *_LINES)]
    for line, look in zip(series, _looks(series), strict=True):
        xs, ys, errors = zip(*thin(line.points(), MOST_POINTS), strict=True)
        color = colors[_LEVEL] if line.dashed else turn[int(look[-1])]
        style: Any = (0, (5, 4)) if line.dashed else "-"
        marker = "o" if len(xs) == 1 and not line.dashed else None
        axes.plot(xs, ys, color=color, linestyle=style, linewidth=1.6, marker=marker, markersize=5)
        if line.errors:
            low, high = (
                [y + sign * e for y, e in zip(ys, errors, strict=True)] for sign in (-1, 1)
            )
            axes.fill_between(xs, low, high, color=color, alpha=0.14, linewidth=0)
            axes.errorbar(xs[-1], ys[-1], yerr=errors[-1], color=color, linewidth=3, alpha=0.45)
    values = [[x for line in series for x in line.xs], [y for line in series for y in line.ys]]
    for axis, numbers in zip((axes.xaxis, axes.yaxis), values, strict=True):
        whole = all(float(number).is_integer() for number in numbers if math.isfinite(number))
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=whole))
        span = axis.get_view_interval
        axis.set_major_formatter(
            FuncFormatter(lambda mark, _, span=span: label(mark, beside=max(map(abs, span()))))
        )
    if figure.from_zero:
        axes.set_ylim(bottom=min(0.0, *values[1]))
    axes.grid(axis="y", color=colors[_RULE], linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)


def _draw_intervals(axes: Axes, figure: Intervals, colors: dict[str, str]) -> None:
    positions = range(len(figure.names))
    axes.set_yticks(list(positions), figure.names)
    axes.set_ylim(len(figure.names) - 0.4, -0.6)
    axes.grid(axis="x", color=colors[_RULE], linewidth=0.8)
    axes.set_axisbelow(True)
    if figure.level is not None:
        axes.axvline(figure.level, color=colors[_LEVEL], linestyle=(0, (4, 3)), linewidth=1)
    halves = [half or math.nan for half in figure.halfwidths]  # a dot alone if there is no interval
    look: Any = {"fmt": "o", "color": colors[_LINE], "markersize": 4.5, "capsize": 3}
    axes.errorbar(figure.means, positions, xerr=halves, linewidth=1.5, **look)
    axes.locator_params(axis="x", nbins=6)  # more labels with three decimals would touch
    axes.spines["left"].set_visible(False)


def _draw_squares(axes: Axes, figure: HeatMap, colors: dict[str, str]) -> None:
    # The squares differ in opacity alone, so that the page shows through small numbers.
    from matplotlib.patches import Rectangle

    span = figure.high - figure.low or 1.0
    rows, columns = len(figure.rows), len(figure.columns)
    is_numbered = rows <= _MOST_NUMBERED[0] and columns <= _MOST_NUMBERED[1]
    for y, row in enumerate(figure.values):
        for x, value in enumerate(row):
            share = min(1.0, max(0.0, (value - figure.low) / span))
            look: Any = {"facecolor": colors[_LINE], "alpha": _DEEPEST * share}
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, edgecolor="none", **look))
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
    axes.locator_params(axis="y", nbins=4)
    axes.yaxis.tick_right()
    axes.spines["bottom"].set_visible(False)
    axes.spines["left"].set_visible(False)


def _thin_names(names: Sequence[str], most: int = 13) -> tuple[list[int], list[str]]:
    step = -(-len(names) // most)
    return list(range(0, len(names), step)), list(names[::step])


def format_with_error(value: float, error: float) -> str:
    """Format both with as many decimals as show two digits of the error: 51.4 ± 3.8."""
    decimals = max(0, 1 - math.floor(math.log10(error)))
    if decimals > 6:  # too small to print
        return label(value, exact=True)
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def thin(
    points: Sequence[tuple[float, float, float]], most: int
) -> list[tuple[float, float, float]]:
    """Return at most `most` + 1 points with errors: means over equal shares of x, and the last."""
    if len(points) <= most:
        return list(points)
    low, high = points[0][0], points[-1][0]
    shares: dict[int, list[tuple[float, float, float]]] = {}
    for point in points[:-1]:
        share = int((point[0] - low) / (high - low) * most) if high > low else 0
        shares.setdefault(share, []).append(point)
    means = [tuple(map(statistics.fmean, zip(*share, strict=True))) for share in shares.values()]
    return [*means, points[-1]]  # type: ignore[list-item]


def label(value: float, exact: bool = False, beside: float = 0.0) -> str:
    """Format a number for a reader: 12k and 1.5M if it is large, else three digits.

    Args:
        exact: True for four digits.
        beside: the largest number at the same axis, whose unit it takes.
    """
    digits = 4 if exact else 3
    for scale, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value and max(abs(value), beside) >= scale:
            unit = 1e3 if suffix == "k" else scale
            return f"{value / unit:.3g}{suffix}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"
