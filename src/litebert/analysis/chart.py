"""Draw line charts as inline SVG, in the colors of the page and without a script.

The legend gives each line's last value. Long series are averaged over equal shares of the x axis.
This keeps a page small and its noise readable, but loses single steps. The drawing is laid out for
the width of a phone, and scales up from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 420, 250
LEFT, RIGHT, TOP, BOTTOM = 42, 10, 10, 38  # margins for the labels
COLORS = 6  # the page defines --line-0 to --line-5
MOST_POINTS = 150


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

    def points(self) -> list[tuple[float, float]]:
        """Return the finite points, in the order of x."""
        return [(x, y) for x, y, _ in self.points_with_errors()]

    def points_with_errors(self) -> list[tuple[float, float, float]]:
        """Return the finite points with their errors, in the order of x; an unknown error is 0."""
        errors = self.errors or (0.0,) * len(self.xs)
        triples = zip(self.xs, self.ys, errors, strict=True)
        finite = [(x, y, error) for x, y, error in triples if math.isfinite(x) and math.isfinite(y)]
        return sorted((x, y, error if math.isfinite(error) else 0.0) for x, y, error in finite)

    def thin_points(self) -> list[tuple[float, float, float]]:
        """Return at most `MOST_POINTS` + 1 points with errors, averaged by `thin`."""
        points = self.points_with_errors()
        ys = thin([(x, y) for x, y, _ in points], MOST_POINTS)
        errors = thin([(x, error) for x, _, error in points], MOST_POINTS)
        return [(x, y, error) for (x, y), (_, error) in zip(ys, errors, strict=True)]


@dataclass(frozen=True)
class Chart:
    """Lines over a pair of axes."""

    title: str
    series: tuple[Series, ...]
    x_label: str
    y_label: str
    note: str = ""
    from_zero: bool = False
    """True if the y axis begins at 0, so that small changes look small."""


Points = list[tuple[float, float, float]]
"""x, y and the error of y."""


@dataclass(frozen=True)
class _Frame:
    """The map from numbers to the drawing."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    left: int

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return the point of two numbers in the drawing, in the units of its view box."""
        across = (x - self.x_low) / (self.x_high - self.x_low) if self.x_high > self.x_low else 0.5
        up = (y - self.y_low) / (self.y_high - self.y_low) if self.y_high > self.y_low else 0.5
        height = HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)
        return self.left + across * (WIDTH - self.left - RIGHT), height

    def path(self, points: Iterable[tuple[float, float]]) -> str:
        """Return the SVG path through points."""
        return "M" + "L".join("{:.1f} {:.1f}".format(*self.place(x, y)) for x, y in points)


def draw(chart: Chart) -> str:
    """Return the chart's legend and SVG as HTML, or a sentence if nothing was recorded."""
    lines = [(series, series.thin_points()) for series in chart.series]
    lines = [(series, points) for series, points in lines if points]
    if not lines:
        return '<p class="note">Nothing was recorded yet.</p>'
    frame, grid = _frame(chart, lines)
    description = escape(_describe(chart, lines))
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{description}">', *grid]
    legend, color = [], 0
    for series, points in lines:
        look = "level" if series.dashed else f"line-{color % COLORS}"
        color += not series.dashed
        parts += _line(series, points, look, frame)
        end, size = f"<b>{_end(points)}</b>", f" ({escape(series.size)})" if series.size else ""
        legend.append(f'<li class="{look}">{escape(series.name)} {end}{size}</li>')
    parts.append("</svg>")
    has_legend = len(legend) > 1 or lines[0][0].errors
    legend_html = f'<ul class="legend">{"".join(legend)}</ul>' if has_legend else ""
    return f'<p class="axis">{escape(chart.y_label)}</p>{legend_html}{"".join(parts)}'


def _frame(chart: Chart, lines: Sequence[tuple[Series, Points]]) -> tuple[_Frame, list[str]]:
    """Return a frame that holds all points with their errors, and the SVG of its grid."""
    xs = [x for _, points in lines for x, _, _ in points]
    ys = [y for _, points in lines for _, y, _ in points]
    low = min(y - error for _, points in lines for _, y, error in points)
    high = max(y + error for _, points in lines for _, y, error in points)
    x_low, x_high = (0.0 if 0 < min(xs) < max(xs) / 5 else min(xs)), max(xs)
    bottom = min(0.0, *ys, low) if chart.from_zero else low
    x_ticks = ticks(x_low, x_high, 5, _whole(x for series in chart.series for x in series.xs))
    y_ticks = ticks(bottom, high, 5, _whole(y for series in chart.series for y in series.ys))
    x_names, y_names = labels(x_ticks), labels(y_ticks)
    left = max(LEFT, 8 * max(map(len, y_names)))  # 13 px digits, as on a phone, are 8 wide
    frame = _Frame(x_low, x_high, y_ticks[0], y_ticks[-1], left)
    grid = []
    for tick, name in zip(y_ticks, y_names, strict=True):
        y = frame.place(x_low, tick)[1]
        grid.append(f'<path class="grid" d="M{left} {y:.1f}H{WIDTH - RIGHT}"/>')
        grid.append(f'<text x="{left - 6}" y="{y + 3.5:.1f}" text-anchor="end">{name}</text>')
    for tick, name in zip(x_ticks, x_names, strict=True):
        if x_low <= tick <= x_high:
            x, y = frame.place(tick, y_ticks[0])[0], HEIGHT - BOTTOM + 16
            anchor = "end" if x > WIDTH - RIGHT - 12 and x_high > x_low else "middle"
            grid.append(f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}">{name}</text>')
    middle = f'x="{(left + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 5}" text-anchor="middle"'
    grid.append(f'<text class="axis" {middle}>{escape(chart.x_label)}</text>')
    return frame, grid


def _line(series: Series, points: Points, look: str, frame: _Frame) -> list[str]:
    """Return the SVG of a series: its band of errors, its line, and a whisker at its end."""
    parts = []
    if series.errors:
        upper = [(x, y + error) for x, y, error in points]
        lower = [(x, y - error) for x, y, error in reversed(points)]
        parts.append(f'<path class="band {look}" d="{frame.path([*upper, *lower])}Z"/>')
        x, y, error = points[-1]
        ends = frame.path([(x, y - error), (x, y + error)])
        parts.append(f'<path class="whisker {look}" d="{ends}"/>')
    if len(points) == 1 and not series.dashed:
        x, y = frame.place(*points[0][:2])
        parts.append(f'<circle class="{look}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>')
    else:
        parts.append(f'<path class="{look}" d="{frame.path((x, y) for x, y, _ in points)}"/>')
    return parts


def _end(points: Points) -> str:
    """Format the last value of a line, with its error if there is one."""
    _, y, error = points[-1]
    return format_with_error(y, error) if error else label(y, exact=True)


def format_with_error(value: float, error: float) -> str:
    """Format both with as many decimals as show two digits of the error: 51.4 ± 3.8."""
    decimals = max(0, 1 - math.floor(math.log10(error)))
    if decimals > 6:  # too small to print
        return label(value, exact=True)
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def _describe(chart: Chart, lines: Sequence[tuple[Series, Points]]) -> str:
    """Put the ends of all lines into a sentence, for readers who cannot see the chart."""
    ends = "; ".join(
        f"{series.name} from {label(points[0][1], True)} to {_end(points)}"
        for series, points in lines
    )
    return f"{chart.title}: {chart.y_label} over {chart.x_label}. {ends}."


def thin(points: list[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Return at most `most` + 1 points: the means over equal shares of x, and the last point."""
    if len(points) <= most:
        return points
    low, high = points[0][0], points[-1][0]
    shares: dict[int, list[tuple[float, float]]] = {}
    for x, y in points[:-1]:
        share = int((x - low) / (high - low) * most) if high > low else 0
        shares.setdefault(share, []).append((x, y))
    means = [
        (sum(x for x, _ in share) / len(share), sum(y for _, y in share) / len(share))
        for share in shares.values()
    ]
    return [*means, points[-1]]


def _whole(values: Iterable[float]) -> bool:
    return all(float(value).is_integer() for value in values if math.isfinite(value))


def ticks(low: float, high: float, count: int, whole: bool = False) -> list[float]:
    """Return round numbers that cover [low, high] in about `count` even steps.

    A step is 1, 2, 2.5 or 5 times a power of ten.

    Args:
        whole: True for whole numbers, between which nothing is marked: no step is less than 1.
    """
    span, size = high - low, max(abs(low), abs(high))
    if span <= 1e-9 * size + 1e-30:  # one number, or what its rounding makes of it
        span = size if size > 1e-30 else 1.0
    rough = max(span / count, 1.0) if whole else span / count
    power = 10.0 ** math.floor(math.log10(rough))
    factors = (1, 2, 5, 10) if whole and power == 1 else (1, 2, 2.5, 5, 10)
    step = next(factor * power for factor in factors if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def labels(marks: Sequence[float]) -> list[str]:
    """Format the numbers at an axis, all in the unit of the largest: 2.5k beside 10k."""
    largest = max(map(abs, marks), default=0.0)
    return [label(mark, beside=largest) for mark in marks]


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
