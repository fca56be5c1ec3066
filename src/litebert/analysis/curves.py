"""Held-out scores over the course of runs, against steps, tokens, floating point operations and
time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from litebert import cost
from litebert.analysis.chart import Chart, Series
from litebert.analysis.report import Switched
from litebert.config import Config, replace
from litebert.config.serialization import from_dict
from litebert.errors import RunError
from litebert.json_reader import read_json
from litebert.registry import OBJECTIVES
from litebert.train import metrics

AXES = {"step": 1.0, "million tokens": 1e6, "TFLOP": 1e12, "minutes of training": 60.0}
"""What a score is drawn against, and the unit of the axis in that of `Point`."""


@dataclass(frozen=True)
class Point:
    """A run when it was scored."""

    step: int
    tokens: int
    """Trained on, padding aside."""
    flops: float
    """Of training, forward and backward, at the depth and length that each step had."""
    seconds: float | None
    """Of training, evaluations aside; None where the run has no record of its speed."""
    scores: Mapping[str, float]

    def along(self, axis: str) -> float | None:
        """Where it lies on one of `AXES`."""
        values = (self.step, self.tokens, self.flops, self.seconds)
        value = dict(zip(AXES, values, strict=True))[axis]
        return None if value is None else value / AXES[axis]


def points(folder: Path) -> list[Point]:
    """The held-out evaluations of a pretraining run, in order.

    Raises:
        RunError: the folder is no run, or was changed.
    """
    config = from_dict(Config, read_json(folder / "recipe.json", RunError))
    rows, speed = metrics.read(folder / "metrics.jsonl"), folder / "speed.jsonl"
    clock = sorted(
        (row["step"], float(row["seconds"]))
        for row in (metrics.read(speed) if speed.is_file() else [])
    )
    steps, by_shape = [step for step, _ in clock], dict[tuple[int, int], float]()
    found, tokens, flops = [], 0, 0.0
    total = _scheduled_steps(folder) if config.train.length_schedule else 0
    for row in rows:
        if row["kind"] == "train" and isinstance(row.get("tokens"), int):
            length = next(
                (
                    own
                    for share, own in config.train.length_schedule
                    if row["step"] <= round(share * total)
                ),
                config.sequences.length,
            )
            shape = int(row.get("layers", config.encoder.layers)), length
            if shape not in by_shape:
                by_shape[shape] = 3 * cost.forward_flops(_at_depth(config, shape[0]), length)
            flops += (row["tokens"] - tokens) * by_shape[shape]
            tokens = row["tokens"]
        elif row["kind"] == "heldout":
            before = bisect_right(steps, row["step"])
            seconds = clock[before - 1][1] if before else None
            scores = {name: value for name, value in row.items() if isinstance(value, float)}
            found.append(Point(row["step"], tokens, flops, seconds, scores))
    return found


def _scheduled_steps(folder: Path) -> int:
    """The steps that a run was started with: an extension does not move its phases."""
    run = read_json(folder / "run.json", RunError)
    return int((*(one["from_step"] for one in run.get("extensions", [])), run["steps"])[0])


def _at_depth(config: Config, layers: int) -> Config:
    train = replace(config.train, depth_schedule=())
    return replace(config, encoder=replace(config.encoder, layers=layers), train=train)


def charts(runs: Mapping[str, Sequence[Point]]) -> list[Switched]:
    """Every score that at least one run has a curve of, with a line for each run by its name.

    Each score is drawn against every one of `AXES` that a run knows.
    """
    drawn = []
    for name, objective in OBJECTIVES.items():
        for curves in objective.curves:
            key = next((key for _, kind, key in curves.lines if kind == "heldout"), None)
            if key is None:
                continue
            error = next((score.error for score in objective.shown if score.key == key), "")
            keys = f"{name}_{key}", f"{name}_{error}" if error else ""
            title = curves.title.format(NAME=name.upper())
            against = switched(title, curves.axis, keys, runs, scale=curves.scale)
            drawn += [against] if against else []
    return drawn


def switched(
    title: str,
    y_label: str,
    keys: tuple[str, str],
    runs: Mapping[str, Sequence[Point]],
    *,
    scale: float = 1.0,
    axes: Sequence[str] = tuple(AXES),
) -> Switched | None:
    """One score against several axes; None if no run has it.

    Args:
        keys: of the score and of its standard error; the second may be empty.
        scale: what both are multiplied by.
    """
    drawn = [chart(title, y_label, keys, axis, runs, scale) for axis in axes]
    known = tuple(against for against in drawn if against.series)
    return Switched(known) if known else None


def chart(
    title: str,
    y_label: str,
    keys: tuple[str, str],
    axis: str,
    runs: Mapping[str, Sequence[Point]],
    scale: float = 1.0,
) -> Chart:
    """One score against one axis."""
    lines, (score, error) = [], keys
    for name, points_of_run in runs.items():
        spots = [
            (x, scale * point.scores[score], point.scores.get(error))
            for point in points_of_run
            if (x := point.along(axis)) is not None and score in point.scores
        ]
        errors = tuple(scale * known for _, _, known in spots if known is not None)
        errors = errors if len(errors) == len(spots) else ()
        xs, ys = tuple(x for x, _, _ in spots), tuple(y for _, y, _ in spots)
        lines += [Series(name, xs, ys, errors=errors)] if spots else []
    return Chart(title, tuple(lines), axis, y_label)


def mean(seeds: Sequence[Sequence[Point]]) -> list[Point]:
    """The mean course of runs that differ in their seeds, at the steps where all of them were
    scored.
    """
    by_step = [{point.step: point for point in own} for own in seeds]
    shared = sorted(set.intersection(*(set(own) for own in by_step))) if by_step else []
    found = []
    for step in shared:
        some = [own[step] for own in by_step]
        names = set.intersection(*(set(one.scores) for one in some))
        clock = [one.seconds for one in some if one.seconds is not None]
        found.append(
            Point(
                step,
                round(sum(one.tokens for one in some) / len(some)),
                sum(one.flops for one in some) / len(some),
                sum(clock) / len(clock) if len(clock) == len(some) else None,
                {name: sum(one.scores[name] for one in some) / len(some) for name in sorted(names)},
            )
        )
    return found
