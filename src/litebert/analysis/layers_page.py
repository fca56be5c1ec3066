"""Write the page of `litebert analyze`: how layers change hidden states, model beside model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from litebert.analysis.layers import Analysis, Layer
from litebert.analysis.report import Chart, HeatMap, Section, Series, Table, write

CURVES: tuple[tuple[str, str, Callable[[Layer], float | None], str], ...] = (
    (
        "How far a layer moves a state",
        "L2 distance",
        lambda layer: layer.distance,
        "The L2 distance between a token's state before a layer and after it, as in figure 1 of "
        "the ALBERT paper. It grows with the norm of the states, so compare models by the angle.",
    ),
    (
        "How far a layer turns a state",
        "degrees",
        lambda layer: layer.angle,
        "The angle between the two states. At 0 the layers would have converged to a fixed point. "
        "The paper finds that they do not, and that shared layers turn states more smoothly.",
    ),
    (
        "How well each layer predicts masked tokens",
        "nats per masked token",
        lambda layer: layer.mlm_loss,
        "The loss of the masked tokens if the head of the last layer reads the state after each "
        "layer.",
    ),
    (
        "How many tokens attention reads",
        "nats, mean of the heads",
        lambda layer: fmean(layer.entropy),
        "The entropy of attention: 0 if a token reads a single token.",
    ),
    (
        "How far attention reaches",
        "tokens, mean of the heads",
        lambda layer: fmean(layer.reach),
        "The mean distance between a token and the tokens that it reads.",
    ),
)


def make_summary(analyses: Sequence[Analysis]) -> Table:
    rows = []
    for analysis in analyses:
        angles = [layer.angle for layer in analysis.layers]
        changes = [abs(after - before) for before, after in pairwise(angles)]
        row = {
            "model": analysis.name,
            "layers": str(len(analysis.layers)),
            "parameters": f"{sum(analysis.parameters.values()):,}",
            "distance": f"{fmean(layer.distance for layer in analysis.layers):.2f}",
            "angle": f"{fmean(angles):.1f}",
            "change of angle": f"{fmean(changes):.1f}" if changes else "-",
            "last angle": f"{analysis.layers[-1].angle:.1f}",
            "first and last alike": f"{analysis.similarity[0][-1]:.2f}",
        }
        rows.append(row)
    note = (
        f"Means over layers, of {analyses[0].tokens:,} held-out tokens. Angles are in degrees. "
        "Their change is from a layer to the next, so it is small for a smooth curve. Alike is the "
        "linear centered kernel alignment of the embedding and the last state: 1 for states that "
        "differ by a rotation and a factor."
    )
    return Table(
        "Layers in brief", tuple(rows[0]), tuple(tuple(row.values()) for row in rows), note
    )


def _make_sections(analyses: Sequence[Analysis]) -> list[Section]:
    sections: list[Section] = [make_summary(analyses)]
    for title, axis, value, note in CURVES:
        lines = []
        for analysis in analyses:
            values = enumerate(map(value, analysis.layers), 1)
            if points := [(float(x), y) for x, y in values if y is not None]:
                xs, ys = zip(*points, strict=True)
                lines.append(Series(analysis.name, xs, ys))
        if lines:
            sections.append(Chart(title, tuple(lines), "layer", axis, note))
    for analysis in analyses:
        names = tuple(map(str, range(len(analysis.similarity))))
        title = f"{analysis.name}: which states are alike"
        axes = "layer, 0 for the embedding", "layer"
        note = (
            "Linear centered kernel alignment: 1 for states that differ by a rotation and a "
            "factor. The scale at the right shows the color of each number."
        )
        sections.append(HeatMap(title, names, names, analysis.similarity, *axes, 0.0, 1.0, note))
    sections += [_map_entropy(analysis) for analysis in analyses]
    note = (
        "± is the standard deviation over tokens. Of heads, the lowest and the highest are shown."
    )
    for analysis in analyses:
        cells = tuple(
            (str(i), *(cell(layer) for cell in _COLUMNS.values()))
            for i, layer in enumerate(analysis.layers, 1)
        )
        title = f"{analysis.name}: layer by layer"
        sections.append(Table(title, ("layer", *_COLUMNS), cells, note))
    parts = list(dict.fromkeys(part for analysis in analyses for part in analysis.parameters))
    rows = tuple(
        (analysis.name, *(f"{analysis.parameters.get(part, 0):,}" for part in parts))
        for analysis in analyses
    )
    return [*sections, Table("Where the parameters are", ("model", *parts), rows)]


def _map_entropy(analysis: Analysis) -> HeatMap:
    values = tuple(layer.entropy for layer in analysis.layers)
    highest = max(max(row) for row in values)
    layers, heads = (tuple(str(i + 1) for i in range(len(each))) for each in (values, values[0]))
    title = f"{analysis.name}: how many tokens each head reads"
    note = (
        "The entropy of attention in nats: 0 if a token reads a single token. The scale at the "
        f"right shows the color of each number, up to {highest:.2f}."
    )
    return HeatMap(title, layers, heads, values, "head", "layer", 0.0, highest, note)


_COLUMNS: dict[str, Callable[[Layer], str]] = {
    "distance": lambda layer: f"{layer.distance:.2f} ± {layer.distance_std:.2f}",
    "angle": lambda layer: f"{layer.angle:.1f} ± {layer.angle_std:.1f}",
    "cosine": lambda layer: f"{layer.cosine:.3f}",
    "norm after": lambda layer: f"{layer.norm:.2f}",
    "entropy of heads": lambda layer: _format_range(layer.entropy),
    "reach of heads": lambda layer: _format_range(layer.reach),
    "MLM loss": lambda layer: "-" if layer.mlm_loss is None else f"{layer.mlm_loss:.3f}",
    "MLM accuracy": lambda layer: (
        "-" if layer.mlm_accuracy is None else f"{layer.mlm_accuracy:.1%}"
    ),
}


def _format_range(values: Sequence[float]) -> str:
    return f"{min(values):.2f}" if len(values) == 1 else f"{min(values):.2f} – {max(values):.2f}"


def write_page(path: Path, analyses: Sequence[Analysis], machine: str, command: str) -> None:
    lead = f"{command} (litebert {version('litebert')}, {date.today()}, {machine})"
    write(path, "From layer to layer", lead, _make_sections(analyses))
