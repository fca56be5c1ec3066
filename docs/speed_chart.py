"""Draws docs/speed.svg, the README's chart, from a table of docs/reports/performance.md.

    python docs/speed_chart.py

The table has texts a second of MiniLM's shape, engine by engine. The picture holds its own
background and takes light or dark colors from the reader's system, so it can be read on any page.
"""

from __future__ import annotations

import io
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot

DOCS = Path(__file__).parent
PICTURE = DOCS / "speed.svg"
MARK = "litebert, compiled int8"
"""A row that only this table has."""
COLUMN = "MiniLM's shape: rows/s"
NAMES = {
    "litebert, compiled": "litebert",
    "ONNX Runtime, `torch.onnx.export`": "ONNX Runtime",
    "OpenVINO, `torch.onnx.export`": "OpenVINO",
    "`transformers`, eager": "transformers",
    "litebert, compiled int8": "litebert",
    "stock int8": "ONNX Runtime",
}
"""The table's rows that are drawn, top to bottom, and how the picture names them."""
GROUPS = (("float32", 4), ("8 bits", 2))
COLORS = {
    "#010101": "--ink",
    "#020202": "--soft",
    "#030303": "--card",
    "#040404": "--peer",
    "#050505": "--ours",
}
"""Colors that matplotlib draws with, and the variable that each becomes."""
INK, SOFT, CARD, PEER, OURS = COLORS
STYLE = """<style>
  svg { --ink: #1b2330; --soft: #596475; --card: #f6f8fb; --peer: #a9b4c2; --ours: #2563eb; }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e6eaf1; --soft: #a3aebf; --card: #181e28; --peer: #55606f; --ours: #6ea3ff; }
  }
  text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
</style>"""


@dataclass(frozen=True)
class Bar:
    """One engine of the chart."""

    name: str
    rate: float
    """Texts a second."""


def read(page: str) -> list[Bar]:
    """The bars, from the table of the page that has the row `MARK`."""
    tables = re.findall(r"(?:^\|.*\n)+", page, re.M)
    (table,) = [table for table in tables if MARK in table and COLUMN in table]
    head, _, *rows = [
        [cell.strip(" *") for cell in line.split("|")[1:-1]] for line in table.splitlines()
    ]
    rates = {row[0]: float(row[head.index(COLUMN)].replace(",", "")) for row in rows}
    return [Bar(name, rates[row]) for row, name in NAMES.items()]


def draw(bars: list[Bar]) -> str:
    """The chart as SVG."""
    settings: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "litebert", "font.size": 10}
    file = io.BytesIO()
    with pyplot.rc_context(settings):
        figure, axes = pyplot.subplots(figsize=(7.4, 2.9), facecolor=CARD)
        axes.set_facecolor(CARD)
        place = 0.0
        rest = list(bars)
        for group, count in GROUPS:
            members, rest = rest[:count], rest[count:]
            axes.text(
                -319,
                place + (count - 1) / 2,
                group,
                color=INK,
                weight="bold",
                va="center",
                ha="right",
            )
            for bar in members:
                is_litebert = bar.name == "litebert"
                axes.barh(place, bar.rate, height=0.72, color=OURS if is_litebert else PEER)
                weight = "bold" if is_litebert else "normal"
                axes.text(-14, place, bar.name, color=INK, weight=weight, va="center", ha="right")
                axes.text(
                    bar.rate + 14, place, f"{bar.rate:,.1f}", color=INK, weight=weight, va="center"
                )
                place += 1
            place += 0.6
        axes.invert_yaxis()
        axes.set_xlim(0, 1320)
        axes.set_yticks([])
        axes.set_xticks([])
        axes.spines[:].set_visible(False)
        figure.text(
            0.03,
            0.92,
            "MiniLM's shape, texts a second on two CPU cores",
            color=INK,
            size=13,
            weight="bold",
        )
        foot = (
            "2 cores of an AMD EPYC (Zen 4, AVX-512 with VNNI), 2026-11-28. Random weights. "
            "Longer is better."
        )
        figure.text(0.03, 0.035, foot, color=SOFT, size=9)
        figure.subplots_adjust(left=0.3, right=0.97, top=0.86, bottom=0.11)
        figure.savefig(file, format="svg", metadata={"Date": None}, facecolor=CARD)
        pyplot.close(figure)
    return _apply_theme(file.getvalue().decode(), bars)


def _apply_theme(text: str, bars: list[Bar]) -> str:
    """The drawing of matplotlib in the colors of the reader's system, with the chart in words."""
    text = re.sub(
        r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>",
        "",
        text[text.index("<svg") :],
        flags=re.DOTALL,
    )
    text = re.sub(r" font-family: [^;\"]*;", "", text)
    for color, variable in COLORS.items():
        text = text.replace(color, f"var({variable})")
    spoken = ", ".join(f"{bar.name} {bar.rate:.1f}" for bar in bars)
    title = f"<title>Texts a second of MiniLM's shape on two CPU cores, by engine: {spoken}</title>"
    end = text.index(">") + 1
    lines = [line.rstrip() for line in f"{text[:end]}\n{title}\n{STYLE}{text[end:]}".splitlines()]
    return "\n".join(line for line in lines if line) + "\n"


def main() -> None:
    """Write the picture."""
    page = (DOCS / "reports" / "performance.md").read_text(encoding="utf-8")
    PICTURE.write_text(draw(read(page)), encoding="utf-8")
    sys.stdout.write(f"wrote {PICTURE}\n")


if __name__ == "__main__":
    main()
