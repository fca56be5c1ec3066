"""Held-out scores over the course of runs: by steps, tokens, floating point operations or time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from litebert.analysis.charts import Chart, Series
from litebert.analysis.report import Switched
from litebert.base.errors import RunError
from litebert.base.json_reader import fault_of, read_json
from litebert.base.registry import OBJECTIVES
from litebert.config import Config, cost, replace
from litebert.config.serialization import from_dict
from litebert.train import metrics
from litebert.train.schedule import Plan

AXES = {"step": 1.0, "million tokens": 1e6, "TFLOP": 1e12, "minutes of training": 60.0}
"""The axes of charts, each with its unit in the unit of `Point`."""


@dataclass(frozen=True)
class Point:
    step: int
    tokens: int
    """Tokens trained on, without padding."""
    flops: float
    """Operations of training, forward and backward, at the depth and length of each step."""
    seconds: float | None
    """Seconds of training without evaluations; None if the run did not record its speed."""
    scores: Mapping[str, float]

    def locate(self, axis: str) -> float | None:
        """Return its value on an axis of `AXES`; None if it is not known."""
        values = (self.step, self.tokens, self.flops, self.seconds)
        value = dict(zip(AXES, values, strict=True))[axis]
        return None if value is None else value / AXES[axis]


def read_points(folder: Path) -> list[Point]:
    config = from_dict(Config, read_json(folder / "recipe.json", RunError))
    rows, file = metrics.read(folder / "metrics.jsonl"), folder / "speed.jsonl"
    speed = metrics.read(file) if file.is_file() else []
    clock = sorted((row["step"], float(row["seconds"])) for row in speed)
    clock_steps = [step for step, _ in clock]
    token_flops: dict[tuple[int, int], float] = {}
    points, tokens, flops = [], 0, 0.0
    file = folder / "run.json"
    try:
        plan = Plan.of_record(read_json(file, RunError))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RunError(f"{file} was changed ({fault_of(error)}); restore it") from None
    # Where each length ends; an extension does not move that.
    ends = [
        (plan.find(round(share * plan.planned_ends[0])), length)
        for share, length in config.train.length_schedule
    ]
    for row in rows:
        if row["kind"] == "train" and isinstance(row.get("tokens"), int):
            layers = int(row.get("layers", config.encoder.layers))
            stages = (length for end, length in ends if row["step"] <= end)
            shape = layers, next(stages, config.sequences.length)
            if shape not in token_flops:
                train = replace(config.train, depth_schedule=())
                encoder = replace(config.encoder, layers=layers)
                at_depth = replace(config, encoder=encoder, train=train)
                # A backward pass takes twice the operations of a forward pass.
                token_flops[shape] = 3 * cost.forward_flops(at_depth, shape[1])
            flops += (row["tokens"] - tokens) * token_flops[shape]
            tokens = row["tokens"]
        elif row["kind"] == "heldout":
            before = bisect_right(clock_steps, row["step"])
            seconds = clock[before - 1][1] if before else None
            scores = {name: value for name, value in row.items() if isinstance(value, float)}
            points.append(Point(row["step"], tokens, flops, seconds, scores))
    return points


def make_charts(runs: Mapping[str, Sequence[Point]]) -> list[Switched]:
    """Make a chart, by every axis of `AXES` that a run knows, of every score that a run has a curve
    of, with a line for each run by its name.
    """
    charts = []
    for name, objective in OBJECTIVES.items():
        for curves in objective.curves:
            key = next((key for _, kind, key in curves.lines if kind == "heldout"), None)
            if key is None:
                continue
            error = next((score.error for score in objective.shown if score.key == key), "")
            keys = f"{name}_{key}", f"{name}_{error}" if error else ""
            title = curves.title.format(NAME=name.upper())
            chart = make_switched(title, curves.axis, keys, runs, scale=curves.scale)
            if chart:
                charts.append(chart)
    return charts


def make_switched(
    title: str,
    y_label: str,
    keys: tuple[str, str],
    runs: Mapping[str, Sequence[Point]],
    *,
    scale: float = 1.0,
    axes: Sequence[str] = tuple(AXES),
) -> Switched | None:
    """Make a chart of a score by several axes; None if no run has the score. `keys` are the names
    of the score and of its standard error, which may be empty; `scale` is a factor for both.
    """
    score, error = keys
    charts = []
    for axis in axes:
        lines = []
        for name, points in runs.items():
            values = [
                (x, scale * point.scores[score], point.scores.get(error))
                for point in points
                if (x := point.locate(axis)) is not None and score in point.scores
            ]
            if not values:
                continue
            errors = tuple(scale * value for _, _, value in values if value is not None)
            if len(errors) < len(values):  # a band needs all errors
                errors = ()
            xs, ys = tuple(x for x, _, _ in values), tuple(y for _, y, _ in values)
            lines.append(Series(name, xs, ys, errors=errors))
        if lines:
            charts.append(Chart(title, tuple(lines), axis, y_label))
    return Switched(tuple(charts)) if charts else None


def average_points(seeds: Sequence[Sequence[Point]]) -> list[Point]:
    by_step = [{point.step: point for point in points} for points in seeds]
    shared = sorted(set.intersection(*(set(points) for points in by_step))) if by_step else []
    averages = []

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    for step in shared:
        points = [points[step] for points in by_step]
        names = sorted(set.intersection(*(set(point.scores) for point in points)))
        seconds = [point.seconds for point in points if point.seconds is not None]
        averages.append(
            Point(
                step,
                round(mean([point.tokens for point in points])),
                mean([point.flops for point in points]),
                mean(seconds) if len(seconds) == len(points) else None,
                {name: mean([point.scores[name] for point in points]) for name in names},
            )
        )
    return averages
