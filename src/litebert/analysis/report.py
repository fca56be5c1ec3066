"""Write a run as an HTML file of text, tables and line charts. It opens offline and holds
everything it shows: no script, no font, no link to another machine. Every text is escaped, so that
predictions or the text of a corpus cannot break the page.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import count, groupby
from pathlib import Path
from statistics import median
from typing import Any

from litebert.analysis.charts import Chart as Chart
from litebert.analysis.charts import HeatMap as HeatMap
from litebert.analysis.charts import Intervals as Intervals
from litebert.analysis.charts import Series as Series
from litebert.analysis.charts import draw
from litebert.base.registry import OBJECTIVES
from litebert.base.storage import atomic_text
from litebert.judge.seeds import compute_share_error
from litebert.model.objectives import Curves
from litebert.tasks.scores import score_title

PAGE = """<!doctype html>
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

STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Table:
    """Rows of text, with as many cells as columns. A column of numbers is aligned at the right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class HeadlineScore:
    name: str
    value: str
    error: str = ""
    notes: tuple[str, ...] = ()
    """Lines below the score: the baseline, and the size of the data."""


@dataclass(frozen=True)
class Headline:
    title: str
    scores: tuple[HeadlineScore, ...]
    note: str = ""


@dataclass(frozen=True)
class Switched:
    """A chart with several x axes, of which a switch of the page chooses one for all charts. The
    charts differ only in `Chart.x_label`, which names the axis in the switch.
    """

    charts: tuple[Chart, ...]

    @property
    def title(self) -> str:
        return self.charts[0].title


Section = Table | Headline | Chart | Switched | Intervals | HeatMap


def render(title: str, lead: str, sections: Sequence[Section]) -> str:
    """Return the page as text. Charts that follow each other are side by side on a wide screen."""
    body, switches = [], count()
    for is_wide, sections_group in groupby(
        sections, lambda section: isinstance(section, (Table, Headline))
    ):
        group = list(sections_group)
        switched = [section for section in group if isinstance(section, Switched)]
        labels = (chart.x_label for section in switched for chart in section.charts)
        axes = list(dict.fromkeys(labels))
        html = "\n".join(_section(section, axes) for section in group)
        if not is_wide:
            switch = _switch(axes, f"axis-{next(switches)}") if len(axes) > 1 else ""
            html = f'<div class="charts">{switch}\n{html}\n</div>'
        body.append(html)
    return PAGE.format(title=escape(title), lead=escape(lead), style=STYLE, body="\n".join(body))


def write(path: str | Path, title: str, lead: str, sections: Sequence[Section]) -> None:
    with atomic_text(Path(path)) as file:
        file.write(render(title, lead, sections))


def _section(section: Section, axes: Sequence[str]) -> str:
    title = f"<h2>{escape(section.title)}</h2>" if section.title else ""
    if isinstance(section, Switched):
        charts = section.charts
        bodies = (_add_note(draw(chart), chart.note) for chart in charts)
        body = "".join(
            f'<div class="against axis-{axes.index(chart.x_label)}">{html}</div>'
            for chart, html in zip(charts, bodies, strict=True)
        )
        return f"<section>{title}{body}</section>"
    if isinstance(section, (Chart, Intervals, HeatMap)):
        body = draw(section)
    else:
        body = _headline(section) if isinstance(section, Headline) else _table(section)
    return f"<section>{title}{_add_note(body, section.note)}</section>"


def _add_note(body: str, note: str) -> str:
    return body + (f'<p class="note">{escape(note)}</p>' if note else "")


def _switch(axes: Sequence[str], name: str) -> str:
    """Return radio buttons that the style of the page obeys, so that no script is needed. They come
    before the sections whose charts they show, because a style can only look ahead.
    """
    buttons = "".join(
        f'<input type="radio" name="{name}" id="{name}-{i}" class="unseen '
        f'show-{i}"{" checked" if i == 0 else ""}>'
        for i in range(len(axes))
    )
    names = "".join(
        f'<label for="{name}-{i}">{escape(axis)}</label>' for i, axis in enumerate(axes)
    )
    return f'{buttons}<div class="switch"><span>Drawn against</span>{names}</div>'


def _headline(headline: Headline) -> str:
    items = []
    for score in headline.scores:
        error = f" <small>{escape(score.error)}</small>" if score.error else ""
        notes = "".join(f"<dd>{escape(note)}</dd>" for note in score.notes)
        items.append(
            f"<div><dt>{escape(score.name)}</dt>"
            f"<dd><b>{escape(score.value)}</b>{error}</dd>{notes}</div>"
        )
    return f'<dl class="headline">{"".join(items)}</dl>'


_NUMBER = re.compile(
    r"([-+−~<>≤≥]?\s?\d[\d.,\s]*(%|×|[a-zA-Z]{1,3}(/s)?)?"
    r"(\s?±\s?[\d.]+\s?%?)?(\s?\([-−]?[\d.,]+\s?%?\))?|[–-]?)"
)
_JOINT = re.compile(r"(?<=[/\\_=:])(?=[^\s/])|(?<=[^\W\d][.,])(?=[^\W\d])")
"""The positions where a long name may break: after a slash, an underscore or a dot."""


def _table(table: Table) -> str:
    """Return a table. On a phone each row is a card, unless there are two columns or many rows."""
    if not table.rows:
        return '<p class="note">Nothing was recorded yet.</p>'
    columns = zip(*table.rows, strict=True)
    titles = list(zip(map(_look, columns), table.columns, strict=True))
    head = "".join(
        f'<th role="columnheader" scope="col"{look}>{escape(name.replace(", ", _JOINED))}</th>'
        for look, name in titles
    )
    rows = "\n".join(
        '<tr role="row">'
        + "".join(
            f'<td role="cell"{look} '
            f'data-column="{escape(name)}">{_JOINT.sub("<wbr>", escape(cell))}</td>'
            for (look, name), cell in zip(titles, row, strict=True)
        )
        + "</tr>"
        for row in table.rows
    )
    look = ' class="cards"' if len(table.columns) > 2 and len(table.rows) <= _MOST_CARDS else ""
    # A browser forgets that cards are a table; the roles remind it.
    return (
        f'<div class="wide" tabindex="0"><table role="table"{look}><thead '
        f'role="rowgroup"><tr role="row">{head}</tr>'
        f'</thead><tbody role="rowgroup">\n{rows}\n</tbody></table></div>'
    )


_MOST_CARDS = 8
"""The most rows that become cards on a phone; a longer table scrolls to the side."""
_JOINED = ",\N{NO-BREAK SPACE}"
"""The comma before a unit, which stays on the line of its name."""
_SHORT = 30
"""The most characters of a cell that never breaks."""


def _look(cells: Sequence[str]) -> str:
    if all(_NUMBER.fullmatch(cell.strip()) for cell in cells):
        return ' class="number"'
    return ' class="short"' if max(map(len, cells)) <= _SHORT else ""


# ----------------------------------------------------------------------------------- a run's curves


def run_sections(
    rows: Iterable[Mapping[str, Any]],
    unigram_entropy: float | None = None,
    dev_rows: Mapping[str, int] | None = None,
) -> list[Section]:
    """Make the curves of a run from the rows of its `metrics.jsonl`, and a table of its events.

    If a resumed run wrote a step twice, the later row holds. `unigram_entropy` (nats) is drawn as
    the level to get below. `dev_rows` has the number of rows of each score that is a share of rows.
    """
    kinds = defaultdict[str, list[Mapping[str, Any]]](list)
    for row in rows:
        kinds[str(row.get("kind"))].append(row)
    steps = [int(row["step"]) for row in kinds["train"][-3:]]
    if len(steps) == 3 and 0 < 2 * (steps[2] - steps[1]) < steps[1] - steps[0]:
        kinds["train"].pop()  # it sums far fewer steps, so that its mean is noise
    drawn = [
        _chart(name, curves, kinds, unigram_entropy)
        for name, objective in OBJECTIVES.items()
        for curves in objective.curves
    ]
    charts = [chart for chart in drawn if chart.series] or _plain_charts(kinds, dev_rows or {})
    depths = _series("", kinds["train"], "layers")
    if depths.ys and depths.ys[0] < max(depths.ys):
        full = int(depths.xs[depths.ys.index(max(depths.ys))])
        note = (
            f"Held-out scores always use all layers. Training uses them from step {full:,} "
            "on, so the held-out scores of earlier steps say little."
        )
        charts[0] = replace(charts[0], note=f"{charts[0].note} {note}".strip())
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
    if not rows:
        return []
    total = float(rows[-1]["seconds"])
    units = ((3 * 3600, 3600, "hours"), (120, 60, "minutes"), (0, 1, "seconds"))
    scale, unit = next((size, name) for least, size, name in units if total >= least)
    times, rates = (
        tuple(float(row[key]) for row in rows) for key in ("seconds", "tokens_per_second")
    )
    note = f"The median is {median(rates):,.0f} tokens/s"
    if shares := [row["share_of_peak"] for row in rows if row.get("share_of_peak") is not None]:
        share = median(shares)
        shown = "less than 1%" if share < 0.01 else f"{share:.0%}"
        note += f", {shown} of the speed of the matrix products alone on this machine"
    line = Series("tokens/s", tuple(seconds / scale for seconds in times), rates)
    axes = f"{unit} of training", "tokens per second"
    return [Chart("Throughput", (line,), *axes, f"{note}.", from_zero=True)]


def _plain_charts(
    kinds: Mapping[str, Sequence[Mapping[str, Any]]], dev_rows: Mapping[str, int]
) -> list[Chart]:
    loss = _series("training", kinds["train"], "loss")
    charts = [Chart("Loss", (loss,) if loss.xs else (), "step", "nats")]
    names = [name for name in (kinds["heldout"] or [{}])[-1] if name not in ("step", "kind")]
    # A count, a threshold or an error is on another scale than the shares and correlations.
    scores = [name for name in names if not name.endswith(("total", "thresh", "threshold", "rmse"))]
    shares = [name for name in scores if not name.startswith("best_")]
    errors = [name for name in names if name == "rmse"]
    for title, axis, group in (
        ("Scores on the development split", "score", shares),
        ("Error on the development split", "in the unit of the labels", errors),
    ):
        lines = []
        for name in group:
            line = _series(score_title(name), kinds["heldout"], name)
            if count := dev_rows.get(name, 0):
                line_errors = tuple(compute_share_error(y, count) for y in line.ys)
                line = replace(line, errors=line_errors, size=f"{count:,} rows")
            if line.xs:
                lines.append(line)
        if lines:
            charts.append(Chart(title, tuple(lines), "step", axis))
    return charts


def _chart(
    name: str,
    curves: Curves,
    kinds: Mapping[str, Sequence[Mapping[str, Any]]],
    entropy: float | None,
) -> Chart:
    lines = [
        _series_with_errors(label, kinds[kind], name, key, curves.scale)
        for label, kind, key in curves.lines
    ]
    note, steps = curves.note, [x for line in lines for x in line.xs]
    levels: list[tuple[str, float]] = []
    baseline = _series(
        "always the commoner answer", kinds["heldout"], f"{name}_{curves.baseline}", curves.scale
    )
    if baseline.ys:
        levels.append((baseline.name, baseline.ys[-1]))
    if curves.unigram_entropy and entropy is not None:
        levels.append(("unigram entropy", entropy))
        note = (
            "The unigram entropy is the loss of a model that knows how often each token occurs and "
            "nothing of its context. A run that stays there has not begun to read."
        )
    if steps:
        lines += [
            Series(label, (min(steps), max(steps)), (value, value), dashed=True)
            for label, value in levels
        ]
    title = curves.title.format(NAME=name.upper())
    return Chart(title, tuple(lines) if steps else (), "step", curves.axis, note)


def _series_with_errors(
    label: str, rows: Sequence[Mapping[str, Any]], name: str, key: str, scale: float
) -> Series:
    line = _series(label, rows, f"{name}_{key}", scale)
    score = next((score for score in OBJECTIVES[name].shown if score.key == key), None)
    if score is None or not score.error:
        return line
    by_step = {row["step"]: row for row in rows}
    recorded = [by_step[step].get(f"{name}_{score.error}") for step in line.xs]
    errors = tuple(scale * float(error) for error in recorded if error is not None)
    if not errors or len(errors) < len(recorded):  # training rows have none
        return line
    return replace(line, errors=errors, size=score.describe_size(by_step[line.xs[-1]], name))


def _series(name: str, rows: Iterable[Mapping[str, Any]], field: str, scale: float = 1.0) -> Series:
    """Return a field over the steps that have it; a later row of a step replaces an earlier row."""
    points = {row["step"]: scale * row[field] for row in rows if row.get(field) is not None}
    points = {step: value for step, value in sorted(points.items()) if math.isfinite(value)}
    return Series(name, tuple(points), tuple(points.values()))
