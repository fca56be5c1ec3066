"""Line charts as inline SVG, small enough to own: they take the page's colours, light or dark, and need no script.

The legend gives each line's last value. Long series are averaged over equal shares of the x axis, which keeps a page
small and its noise readable; what is lost is the single step. The drawing is laid out for the width of a phone and
scales up from there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 420, 250
LEFT, RIGHT, TOP, BOTTOM = 42, 10, 10, 38  # margins for the labels
COLOURS = 4  # the page defines --line-0 to --line-3
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


def draw(chart: Chart) -> str:
    """The chart's legend and SVG as HTML, every text escaped; a sentence where there is nothing to draw."""
    lines = [(series, thin(series.points(), MOST_POINTS)) for series in chart.series]
    lines = [(series, points) for series, points in lines if points]
    if not lines:
        return '<p class="note">Nothing was recorded yet.</p>'
    xs = [x for _, points in lines for x, _ in points]
    ys = [y for _, points in lines for _, y in points]
    x_low, x_high = (0.0 if 0 < min(xs) < max(xs) / 5 else min(xs)), max(xs)
    x_ticks, y_ticks = ticks(x_low, x_high, 5), ticks(min(ys), max(ys), 5)
    y_low, y_high = y_ticks[0], y_ticks[-1]

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / (x_high - x_low) if x_high > x_low else 0.5
        up = (y - y_low) / (y_high - y_low) if y_high > y_low else 0.5
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(_spoken(chart, lines))}">']
    for tick in y_ticks:
        y = at(x_low, tick)[1]
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{label(tick)}</text>')
    for tick in x_ticks:
        if x_low <= tick <= x_high:
            x = at(tick, y_low)[0]
            anchor = "end" if x > WIDTH - RIGHT - 12 and x_high > x_low else "middle"
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="{anchor}">{label(tick)}</text>')
    parts.append(
        f'<text class="axis" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 5}" text-anchor="middle">'
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


def ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers that cover [low, high] in about `count` even steps of 1, 2, 2.5 or 5 times a power of ten."""
    span, size = high - low, max(abs(low), abs(high))
    if span <= 1e-9 * size + 1e-30:  # one number, or what its rounding makes of it
        span = size if size > 1e-30 else 1.0
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def label(value: float, exact: bool = False) -> str:
    """A number for a reader: 12k and 1.5M for large ones, three digits for the rest, four when `exact`."""
    digits = 4 if exact else 3
    for scale, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= scale:
            unit = 1e3 if suffix == "k" else scale
            return f"{value / unit:.3g}{suffix}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"
