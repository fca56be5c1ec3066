"""Line charts as inline SVG, small enough to own: they take the page's colours, light or dark, and need no script.

The legend gives each line's last value. Long series are averaged over equal shares of the x axis, which keeps a page
small and its noise readable; what is lost is the single step. The drawing is laid out for the width of a phone and
scales up from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 420, 250
LEFT, RIGHT, TOP, BOTTOM = 42, 10, 10, 38  # margins for the labels
COLOURS = 6  # the page defines --line-0 to --line-5
MOST_POINTS = 150


@dataclass(frozen=True)
class Series:
    """One line: as many `xs` as `ys`. A dashed one is a level to compare with, drawn in grey."""

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    dashed: bool = False

    def points(self) -> list[tuple[float, float]]:
        """The finite points, in the order of x."""
        pairs = zip(self.xs, self.ys, strict=True)
        return sorted((x, y) for x, y in pairs if math.isfinite(x) and math.isfinite(y))


@dataclass(frozen=True)
class Chart:
    """Lines over one pair of axes."""

    title: str
    series: tuple[Series, ...]
    x_label: str
    y_label: str
    note: str = ""
    from_zero: bool = False
    """Whether the y axis begins at 0, so that small changes look small."""


def draw(chart: Chart) -> str:
    """The chart's legend and SVG as HTML, every text escaped; a sentence where there is nothing to draw."""
    lines = [(series, thin(series.points(), MOST_POINTS)) for series in chart.series]
    lines = [(series, points) for series, points in lines if points]
    if not lines:
        return '<p class="note">Nothing was recorded yet.</p>'
    xs = [x for _, points in lines for x, _ in points]
    ys = [y for _, points in lines for _, y in points]
    x_low, x_high = (0.0 if 0 < min(xs) < max(xs) / 5 else min(xs)), max(xs)
    bottom = min(0.0, *ys) if chart.from_zero else min(ys)
    x_ticks = ticks(x_low, x_high, 5, _whole(x for series in chart.series for x in series.xs))
    y_ticks = ticks(bottom, max(ys), 5, _whole(y for series in chart.series for y in series.ys))
    y_low, y_high = y_ticks[0], y_ticks[-1]
    x_names, y_names = labels(x_ticks), labels(y_ticks)
    left = max(LEFT, 8 * max(map(len, y_names)))  # 13 px digits, as on a phone, are 8 wide

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / (x_high - x_low) if x_high > x_low else 0.5
        up = (y - y_low) / (y_high - y_low) if y_high > y_low else 0.5
        return left + across * (WIDTH - left - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(_spoken(chart, lines))}">']
    for tick, name in zip(y_ticks, y_names, strict=True):
        y = at(x_low, tick)[1]
        parts.append(f'<path class="grid" d="M{left} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 3.5:.1f}" text-anchor="end">{name}</text>')
    for tick, name in zip(x_ticks, x_names, strict=True):
        if x_low <= tick <= x_high:
            x = at(tick, y_low)[0]
            anchor = "end" if x > WIDTH - RIGHT - 12 and x_high > x_low else "middle"
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="{anchor}">{name}</text>')
    parts.append(
        f'<text class="axis" x="{(left + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 5}" text-anchor="middle">'
        f"{escape(chart.x_label)}</text>"
    )
    legend, colour = [], 0
    for series, points in lines:
        look = "level" if series.dashed else f"line-{colour % COLOURS}"
        colour += not series.dashed
        spots = [at(x, y) for x, y in points]
        if len(spots) == 1 and not series.dashed:
            parts.append(f'<circle class="{look}" cx="{spots[0][0]:.1f}" cy="{spots[0][1]:.1f}" r="3.5"/>')
        else:
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in spots)
            parts.append(f'<path class="{look}" d="M{path}"/>')
        legend.append(f'<li class="{look}">{escape(series.name)} <b>{label(points[-1][1], exact=True)}</b></li>')
    parts.append("</svg>")
    named = f'<ul class="legend">{"".join(legend)}</ul>' if len(legend) > 1 else ""
    return f'<p class="axis">{escape(chart.y_label)}</p>{named}{"".join(parts)}'


def _spoken(chart: Chart, lines: Sequence[tuple[Series, list[tuple[float, float]]]]) -> str:
    ends = "; ".join(f"{s.name} from {label(p[0][1], True)} to {label(p[-1][1], True)}" for s, p in lines)
    return f"{chart.title}: {chart.y_label} over {chart.x_label}. {ends}."


def thin(points: list[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most `most` + 1 points: the means of the points within equal shares of x, and the last point as it is."""
    if len(points) <= most:
        return points
    low, high = points[0][0], points[-1][0]
    shares: dict[int, list[tuple[float, float]]] = {}
    for x, y in points[:-1]:
        shares.setdefault(int((x - low) / (high - low) * most) if high > low else 0, []).append((x, y))
    means = [(sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in shares.values()]
    return [*means, points[-1]]


def _whole(values: Iterable[float]) -> bool:
    return all(float(value).is_integer() for value in values if math.isfinite(value))


def ticks(low: float, high: float, count: int, whole: bool = False) -> list[float]:
    """Round numbers that cover [low, high] in about `count` even steps of 1, 2, 2.5 or 5 times a power of ten.

    Args:
        whole: between whole numbers there is nothing to mark, so no step is less than 1.
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
    """The numbers at one axis, all in the unit of the largest: 2.5k beside 10k."""
    largest = max(map(abs, marks), default=0.0)
    return [label(mark, beside=largest) for mark in marks]


def label(value: float, exact: bool = False, beside: float = 0.0) -> str:
    """A number for a reader: 12k and 1.5M for large ones, three digits for the rest, four when `exact`.

    Args:
        beside: the largest number that it is to be compared with, whose unit it takes.
    """
    digits = 4 if exact else 3
    for scale, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value and max(abs(value), beside) >= scale:
            unit = 1e3 if suffix == "k" else scale
            return f"{value / unit:.3g}{suffix}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"
