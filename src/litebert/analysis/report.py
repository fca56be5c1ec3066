"""A run as one HTML file: text, tables and line charts that open offline, light or dark, on a desk or a phone.

The page holds everything it shows: no script, no font, no link to another machine. It is therefore a picture of the
moment it was written. Every text is escaped, so that what a model guesses or a corpus contains cannot break the page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from litebert.analysis.chart import Chart as Chart
from litebert.analysis.chart import Series as Series
from litebert.analysis.chart import draw
from litebert.analysis.figures import HeatMap as HeatMap
from litebert.analysis.figures import Intervals as Intervals
from litebert.analysis.figures import svg
from litebert.model.objectives import Curves
from litebert.registry import OBJECTIVES
from litebert.storage import atomic_write
from litebert.tasks.scores import score_title


@dataclass(frozen=True)
class Table:
    """Rows of text, as many cells as columns; a column of numbers is set to the right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


Section = Table | Chart | Intervals | HeatMap


def render(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The page as text. Charts that follow one another stand side by side where there is room."""
    body = []
    for is_table, group in groupby(sections, key=lambda section: isinstance(section, Table)):
        html = "\n".join(map(_section, group))
        body.append(html if is_table else f'<div class="charts">\n{html}\n</div>')
    return _PAGE.format(title=escape(title), lead=escape(lead), style=_STYLE, body="\n".join(body))


def write(path: str | Path, title: str, lead: str, sections: Sequence[Section]) -> None:
    """Write the page in one step: a reader finds the old page or the new one, never half of one."""
    with atomic_write(Path(path)) as file:
        file.write(render(title, lead, sections).encode())


def _section(section: Section) -> str:
    title = f"<h2>{escape(section.title)}</h2>" if section.title else ""
    note = f'<p class="note">{escape(section.note)}</p>' if section.note else ""
    if isinstance(section, (Intervals, HeatMap)):
        body = svg(section)
    else:
        body = draw(section) if isinstance(section, Chart) else _table(section)
    return f"<section>{title}{body}{note}</section>"


_NUMBER = re.compile(r"[-+−~<>≤≥]?\s?\d[\d.,\s]*(%|×|[a-zA-Z]{1,3}(/s)?)?(\s?±\s?[\d.]+\s?%?)?|[–-]?")


def _table(table: Table) -> str:
    if not table.rows:
        return '<p class="note">Nothing was recorded yet.</p>'
    columns = zip(*table.rows, strict=True)
    kinds = [' class="number"' if all(_NUMBER.fullmatch(cell.strip()) for cell in cells) else "" for cells in columns]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, table.columns, strict=True))
    rows = "\n".join(
        "<tr>" + "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>"
        for row in table.rows
    )
    return (
        f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>'
    )


# ---- a run's curves ------------------------------------------------------------------------------------------------


def run_sections(rows: Iterable[Mapping[str, Any]], unigram_entropy: float | None = None) -> list[Section]:
    """The curves of a run from the rows of its `metrics.jsonl`, and the table of its events where there are any.

    Args:
        rows: of kind `train`, `heldout`, `watch`, `event` and `speed`; where a resumed run wrote a step twice, the
            later row holds.
        unigram_entropy: in nats, of the data the run learns from; drawn as the level to get below.
    """
    kinds: dict[str, list[Mapping[str, Any]]] = {"train": [], "heldout": [], "watch": [], "event": [], "speed": []}
    for row in rows:
        kinds.setdefault(str(row.get("kind")), []).append(row)
    drawn = [_chart(name, curves, kinds, unigram_entropy) for name, one in OBJECTIVES.items() for curves in one.curves]
    charts = [chart for chart in drawn if chart.series] or _plain_charts(kinds)
    if full := _full_depth(kinds["train"]):
        note = (
            f"Held-out scores always use all layers. Training uses them from step {full:,} on, and the held-out scores "
            "of earlier steps say little."
        )
        charts = [replace(chart, note=f"{chart.note} {note}".strip()) for chart in charts]
    sections: list[Section] = [*charts]
    for field, title, label in (
        ("learning_rate", "Learning rate", "rate of the optimizer"),
        ("layers", "Depth", "layers in use"),
    ):
        line = _series(label, kinds["train"], field)
        if line.xs and (field != "layers" or len(set(line.ys)) > 1):
            sections.append(Chart(title, (line,), "step", label))
    sections += _throughput(kinds["speed"])
    if kinds["event"]:
        events = tuple((f"{row['step']:,}", str(row["message"])) for row in kinds["event"])
        sections.append(Table("What happened", ("step", "event"), events))
    return sections


def _throughput(rows: Sequence[Mapping[str, Any]]) -> list[Section]:
    """Tokens per second over the time of training, evaluations and checkpoints aside."""
    if not rows:
        return []
    took = float(rows[-1]["seconds"])
    units = ((3 * 3600, 3600, "hours"), (120, 60, "minutes"), (0, 1, "seconds"))
    scale, unit = next((size, name) for least, size, name in units if took >= least)
    times, rates = (tuple(float(row[key]) for row in rows) for key in ("seconds", "tokens_per_second"))
    note = f"The median is {median(rates):,.0f} tokens/s"
    if shares := [row["share_of_peak"] for row in rows if row.get("share_of_peak") is not None]:
        share = median(shares)
        shown = "less than 1%" if share < 0.01 else f"{share:.0%}"
        note += f", {shown} of the speed of the matrix products alone on this machine"
    line = Series("tokens/s", tuple(seconds / scale for seconds in times), rates)
    return [Chart("Throughput", (line,), f"{unit} of training", "tokens per second", f"{note}.", from_zero=True)]


def _full_depth(rows: Iterable[Mapping[str, Any]]) -> int:
    """The step of the first row at full depth, of a run that began shallower; else 0."""
    depths = _series("", rows, "layers")
    if not depths.ys or depths.ys[0] == max(depths.ys):
        return 0
    return int(depths.xs[depths.ys.index(max(depths.ys))])


def _plain_charts(kinds: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Chart]:
    """Of a run without objectives, as fine-tuning is: its loss and its scores."""
    loss = _series("training", kinds["train"], "loss")
    charts = [Chart("Loss", (loss,) if loss.xs else (), "step", "nats")]
    names = [name for name in (kinds["heldout"] or [{}])[-1] if name not in ("step", "kind")]
    # A count, a threshold or an error is on another scale than the shares and correlations.
    scores = [name for name in names if not name.endswith(("total", "thresh", "threshold", "rmse"))]
    for title, axis, some in (
        ("Scores on the development part", "score", [name for name in scores if not name.startswith("best_")]),
        ("Error on the development part", "in the unit of the labels", [name for name in names if name == "rmse"]),
    ):
        lines = [_series(score_title(name), kinds["heldout"], name) for name in some]
        if drawn := tuple(line for line in lines if line.xs):
            charts.append(Chart(title, drawn, "step", axis))
    return charts


def _chart(name: str, curves: Curves, kinds: Mapping[str, Sequence[Mapping[str, Any]]], entropy: float | None) -> Chart:
    """One chart of an objective; without lines where the run recorded none of them."""
    lines = [_series(label, kinds[kind], f"{name}_{key}", curves.scale) for label, kind, key in curves.lines]
    watched = (_series("watched text", kinds["watch"], f"{name}_{key}", curves.scale)
               for _, kind, key in curves.lines if kind == "heldout")  # fmt: skip
    lines += [line for line in watched if line.xs]
    note, steps = curves.note, [x for line in lines for x in line.xs]
    levels: list[tuple[str, float]] = []
    guess = _series("always the commoner answer", kinds["heldout"], f"{name}_{curves.baseline}", curves.scale)
    if guess.ys:
        levels.append((guess.name, guess.ys[-1]))
    if curves.unigram_entropy and entropy is not None:
        levels.append(("unigram entropy", entropy))
        note = (
            "The unigram entropy is the loss of a model that knows how often each piece occurs and nothing of its "
            "context; a run that stays there has not begun to read."
        )
    if steps:
        lines += [Series(label, (min(steps), max(steps)), (value, value), dashed=True) for label, value in levels]
    return Chart(curves.title.format(NAME=name.upper()), tuple(lines) if steps else (), "step", curves.axis, note)


def _series(name: str, rows: Iterable[Mapping[str, Any]], field: str, scale: float = 1.0) -> Series:
    """The field over the steps that have it; a later row replaces an earlier one of the same step."""
    points = {row["step"]: scale * row[field] for row in rows if row.get(field) is not None}
    points = {step: value for step, value in sorted(points.items()) if math.isfinite(value)}
    return Series(name, tuple(points), tuple(points.values()))


# ---- the page ------------------------------------------------------------------------------------------------------

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<header><h1>{title}</h1><p>{lead}</p></header>
{body}
</main>
</body>
</html>
"""

_STYLE = """
:root { --page: #f6f7f9; --card: #ffffff; --text: #1b2330; --soft: #5d6878; --rule: #e3e7ed;
  --line-0: #2563eb; --line-1: #d9480f; --line-2: #0f8a5f; --line-3: #8b3fc7;
  --line-4: #b3256f; --line-5: #8a6a00; --level: #7b8594; }
@media (prefers-color-scheme: dark) { :root { --page: #10141b; --card: #181e28; --text: #e6eaf1; --soft: #98a3b5;
  --rule: #2a3240; --line-0: #6ea3ff; --line-1: #ff9a5c; --line-2: #4fcf9f; --line-3: #c795f5;
  --line-4: #ff8fc4; --line-5: #e0c04a; --level: #8e99ab; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); line-height: 1.55; -webkit-text-size-adjust: 100%;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 70rem; margin: 0 auto; padding: 2.2rem 1rem 3rem; }
header { margin: 0 .2rem 1.4rem; }
h1 { font-size: clamp(1.55rem, 4.5vw, 2.2rem); line-height: 1.2; margin: 0 0 .5rem; letter-spacing: -.015em; }
header p { color: var(--soft); font-size: 1.06rem; margin: 0; max-width: 46rem; }
h1, h2, header p, .legend li { overflow-wrap: anywhere; }
h2 { font-size: 1.06rem; margin: 0 0 .55rem; line-height: 1.3; }
section { background: var(--card); border: 1px solid var(--rule); border-radius: .7rem; padding: 1.05rem 1.1rem;
  margin: 0 0 1rem; min-width: 0; }
section > p { max-width: 46rem; margin: 0 0 .6rem; overflow-wrap: anywhere; }
section > p:last-child { margin-bottom: 0; }
.note { color: var(--soft); font-size: .86rem; margin-top: .6rem; }
.charts { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr));
  margin-bottom: 1rem; }
.charts section { margin: 0; }
.wide { overflow-x: auto; margin: 0 -1.1rem; padding: 0 1.1rem;
  background: linear-gradient(to right, var(--card) 1.4rem, transparent) left / 2.8rem 100% no-repeat local,
    linear-gradient(to left, var(--card) 1.4rem, transparent) right / 2.8rem 100% no-repeat local,
    linear-gradient(to right, var(--level), transparent) left 0 top 1px / .7rem calc(100% - 3px) no-repeat scroll,
    linear-gradient(to left, var(--level), transparent) right 1px top 1px / .7rem calc(100% - 3px) no-repeat scroll; }
/* The last two are shadows at the edges, which the first two, moving with the table, cover where it ends;
   they are a pixel smaller, so that no seam of them shows at the edge of a cover that was rounded down. */
table { border-collapse: collapse; min-width: min(100%, 24rem); font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .42rem 1.1rem .42rem 0; border-bottom: 1px solid var(--rule); }
th { color: var(--soft); font-weight: 600; font-size: .82rem; vertical-align: bottom; }
th:last-child, td:last-child { padding-right: 0; }
tbody tr:last-child td { border-bottom: 0; }
td:not(.number) { min-width: 6rem; overflow-wrap: anywhere; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--soft); font-size: 11px; font-variant-numeric: tabular-nums; }
svg path { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .level { stroke: var(--level); stroke-dasharray: 5 4; stroke-width: 1.5; }
.line-0 { --own: var(--line-0); } .line-1 { --own: var(--line-1); } .line-2 { --own: var(--line-2); }
.line-3 { --own: var(--line-3); } .line-4 { --own: var(--line-4); } .line-5 { --own: var(--line-5); }
svg [class^=line] { stroke: var(--own); } svg circle[class^=line] { fill: var(--own); }
p.axis { color: var(--soft); font-size: .84rem; margin: 0 0 .15rem; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; padding: 0; margin: 0 0 .6rem;
  font-size: .86rem; }
.legend li::before { content: ""; display: inline-block; width: 1.1em; margin-right: .45em; vertical-align: .28em;
  border-top: 3px solid var(--own); border-radius: 2px; }
.legend .level::before { border-top: 2px dashed var(--level); border-radius: 0; }
.legend b { font-variant-numeric: tabular-nums; }
@media (max-width: 40rem) { main { padding: 1.3rem .75rem 2rem; } svg text { font-size: 13px; }
  section { padding: .95rem .9rem; } .wide { margin: 0 -.9rem; padding: 0 .9rem; } }
"""
