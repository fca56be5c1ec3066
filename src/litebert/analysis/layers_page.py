"""The page of `litebert analyze`: what layers do to states, of several models side by side."""

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
        lambda one: one.distance,
        "The L2 distance between a token's state before a layer and after it, as in figure "
        "1 of the ALBERT paper. It "
        "grows with the states themselves, so compare models by the angle.",
    ),
    (
        "How far a layer turns a state",
        "degrees",
        lambda one: one.angle,
        "The angle between the two. At 0 the layers would have converged to a fixed point; "
        "the paper finds that they "
        "do not, and that shared layers turn states more smoothly.",
    ),
    (
        "What each layer could already predict",
        "nats per masked token",
        lambda one: one.mlm_loss,
        "The loss of the masked tokens if the head of the last layer reads the state after "
        "each one.",
    ),
    (
        "How widely attention is spread",
        "nats, mean of the heads",
        lambda one: fmean(one.entropy),
        "Entropy of what a token reads: 0 where it is one other token.",
    ),
    (
        "How far attention reaches",
        "tokens, mean of the heads",
        lambda one: fmean(one.reach),
        "Mean distance between a token and what it reads.",
    ),
)


def summary(found: Sequence[Analysis]) -> Table:
    """A row for each model: how much its layers do, and how unevenly."""
    rows = []
    for one in found:
        angles = [layer.angle for layer in one.layers]
        steps = [abs(after - before) for before, after in pairwise(angles)]
        rows.append(
            (
                one.name,
                str(len(one.layers)),
                f"{sum(one.parameters.values()):,}",
                f"{fmean(layer.distance for layer in one.layers):.2f}",
                f"{fmean(angles):.1f}",
                f"{fmean(steps):.1f}" if steps else "-",
                f"{one.layers[-1].angle:.1f}",
                f"{one.similarity[0][-1]:.2f}",
            )
        )
    return Table(
        "Layers in brief",
        (
            "model",
            "layers",
            "parameters",
            "distance",
            "angle",
            "change of angle",
            "last angle",
            "first and last alike",
        ),
        tuple(rows),
        f"Means over layers, of {found[0].tokens:,} held-out tokens. Angles are in "
        "degrees; their change is from one "
        "layer to the next, so a smooth curve has a small one. Alike is the linear "
        "centered kernel alignment of the "
        "embedding and the last state, 1 for states that differ by a rotation and a factor.",
    )


def sections(found: Sequence[Analysis]) -> list[Section]:
    """The summary, the curves by layer, and a table of every layer and one of the parameters of
    each model.
    """
    shown: list[Section] = [summary(found)]
    for title, axis, value, note in CURVES:
        lines = [_line(one, value) for one in found]
        if drawn := tuple(line for line in lines if line.xs):
            shown.append(Chart(title, drawn, "layer", axis, note))
    shown += [_alike(one) for one in found] + [_heads(one) for one in found]
    shown += [_details(one) for one in found]
    parts = list(dict.fromkeys(part for one in found for part in one.parameters))
    rows = tuple(
        (one.name, *(f"{one.parameters.get(part, 0):,}" for part in parts)) for one in found
    )
    return [*shown, Table("Where the parameters are", ("model", *parts), rows)]


def _alike(one: Analysis) -> HeatMap:
    names = tuple(map(str, range(len(one.similarity))))
    return HeatMap(
        f"{one.name}: which states are alike",
        names,
        names,
        one.similarity,
        "layer, 0 for the embedding",
        "layer",
        0.0,
        1.0,
        "Linear centered kernel alignment: 1 for states that differ by a rotation and a "
        "factor. The scale at "
        "the right shows the color of each number.",
    )


def _heads(one: Analysis) -> HeatMap:
    values = tuple(layer.entropy for layer in one.layers)
    highest = max(max(row) for row in values)
    return HeatMap(
        f"{one.name}: how widely each head reads",
        tuple(str(i + 1) for i in range(len(values))),
        tuple(str(i + 1) for i in range(len(values[0]))),
        values,
        "head",
        "layer",
        0.0,
        highest,
        "Entropy of attention in nats: 0 where a token reads one token alone. The scale at "
        "the right shows the color "
        f"of each number, up to {highest:.2f}.",
    )


def _line(one: Analysis, value: Callable[[Layer], float | None]) -> Series:
    points = [(i, y) for i, layer in enumerate(one.layers, 1) if (y := value(layer)) is not None]
    return Series(one.name, tuple(float(x) for x, _ in points), tuple(y for _, y in points))


def _details(one: Analysis) -> Table:
    rows = []
    for i, layer in enumerate(one.layers, 1):
        guessed = (
            ("-", "-")
            if layer.mlm_loss is None or layer.mlm_accuracy is None
            else (f"{layer.mlm_loss:.3f}", f"{layer.mlm_accuracy:.1%}")
        )
        rows.append(
            (
                str(i),
                f"{layer.distance:.2f} ± {layer.distance_spread:.2f}",
                f"{layer.angle:.1f} ± {layer.angle_spread:.1f}",
                f"{layer.cosine:.3f}",
                f"{layer.norm:.2f}",
                _range(layer.entropy),
                _range(layer.reach),
                *guessed,
            )
        )
    columns = (
        "layer",
        "distance",
        "angle",
        "cosine",
        "norm after",
        "entropy of heads",
        "reach of heads",
        "MLM loss",
        "MLM accuracy",
    )
    return Table(
        f"{one.name}: layer by layer",
        columns,
        tuple(rows),
        "± is the standard deviation over tokens; of heads, the lowest and the highest.",
    )


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f}" if len(values) == 1 else f"{min(values):.2f} – {max(values):.2f}"


def write_page(path: Path, found: Sequence[Analysis], machine: str, command: str) -> None:
    """Write it as one file."""
    lead = f"{command} (litebert {version('litebert')}, {date.today()}, {machine})"
    write(path, "From layer to layer", lead, sections(found))
