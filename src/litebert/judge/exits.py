"""Leaving a network early: the loss that teaches it, the rule, and its calibration on held-out
data.

One classifier reads the state after every layer. A row leaves where the answers of the last
`patience` layers agree and each is certain enough: with threshold 0 that is PABEE (Zhou et al.
2020), with patience 1 nearly DeeBERT (Xin et al. 2020, which takes the entropy).

Shapes: L layers, N items, R rows, C numbers of the head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import ConfigError
from litebert.tasks.outputs import Output
from litebert.tasks.task import Task
from litebert.tasks.values import EncodedPart

if TYPE_CHECKING:  # who answers without PyTorch has no loss
    from torch import Tensor

    from litebert.model.objectives import Loss

NEVER = 1.1
"""A threshold that no certainty reaches."""
_PATIENCE = (1, 2, 3, 4)
_LEVELS = 16
"""Thresholds that are tried for each patience."""


def require_exits(output: Output, layers: int) -> None:
    if not output.exits:
        raise ConfigError(
            "exits is True, and only tasks that answer with a class, labels or a number can exit "
            f"early; this one answers with '{output.name}', so leave --early-exits out"
        )
    if layers == 1:
        raise ConfigError(
            "exits is True for an encoder of 1 layer, which no text can exit early; leave "
            "--early-exits out"
        )


def average_layer_losses(loss: Callable[[Tensor], Loss], logits_LBC: Tensor) -> Loss:
    """Compute the mean of the losses of all layers; the last layer decides what is right.

    Layer i weighs i, as in PABEE, so that the early classifiers, which are wrong more often, do not
    pull the last one down.
    """
    from litebert.model.objectives import Loss

    losses = [loss(logits_BC) for logits_BC in logits_LBC]
    total = sum((layer * loss.total for layer, loss in enumerate(losses[1:], 2)), losses[0].total)
    total = total / sum(range(1, len(losses) + 1))
    return Loss(total, losses[-1].count, losses[-1].correct)


@dataclass(frozen=True)
class ExitRule:
    patience: int
    """Successive layers that must give the same answer."""
    threshold: float
    """How certain each of them must be; above 1, none is."""

    def count(
        self, streak: NDArray[np.int64], same: NDArray[np.bool_], certain: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Count, from the layer before, for how many layers each answer has been the same and
        certain, (R,).
        """
        return np.where(certain >= self.threshold, np.where(same, streak, 0) + 1, 0)


@dataclass(frozen=True)
class Exits:
    """A rule with what it gives on held-out data, as exits.json of a run holds it."""

    part: str
    """The development part that chose it."""
    metric: str
    drop: float
    """Points of score that it may cost."""
    patience: int
    threshold: float
    share: float
    """Mean share of the layers that is used."""
    score: float
    full: float
    layers: list[float] = field(default_factory=list)
    """The score if all rows leave after each layer."""
    curve: list[dict[str, float]] = field(default_factory=list)
    """`threshold`, `share` and `score` tried with this patience, the strictest first."""

    def record(self) -> dict[str, Any]:
        return {"patience": self.patience, "threshold": self.threshold, "share": self.share}


def calibrate(
    task: Task[Any],
    output: Output,
    part: EncodedPart,
    logits: Sequence[NDArray[np.float32]],
    drop: float,
) -> Exits:
    """Find the rule that uses the fewest layers and costs at most `drop` points; logits (L, C) of
    each item.

    A rule counts only if every stricter threshold keeps the score too, so that a lucky one is not
    taken.
    """
    logits_LNC = np.stack(list(logits), axis=1)
    depth, items = logits_LNC.shape[:2]
    points = 1.0 if task.percent else 100.0

    def score(chosen_NC: Sequence[NDArray[np.float32]]) -> float:
        return task.score(part.examples, task.answers(part.examples, part.items, chosen_NC))[
            task.metric
        ]

    views = [output.steady(logits_LNC[i - 1] if i else None, logits_LNC[i]) for i in range(depth)]
    certain = np.concatenate([view for _, view in views[:-1]])
    levels = np.floor(np.quantile(certain, np.linspace(0, 1, _LEVELS)) * 1e6) / 1e6
    thresholds = [NEVER, *sorted({0.0, *levels.tolist()}, reverse=True)]
    full = score(list(logits_LNC[-1]))
    best: tuple[float, int, dict[str, float]] | None = None
    curves: dict[int, list[dict[str, float]]] = {}
    for patience in _PATIENCE[: depth - 1]:
        curve, keeps = curves.setdefault(patience, []), True
        for threshold in thresholds:
            exit_layers = find_exits(ExitRule(patience, threshold), views)
            score_now = score(list(logits_LNC[exit_layers - 1, np.arange(items)]))
            share = float(exit_layers.mean() / depth)
            point = {"threshold": threshold, "share": share, "score": score_now}
            if not curve or share < curve[-1]["share"]:
                curve.append(point)
            keeps = keeps and (threshold == NEVER or score_now >= full - drop / points)
            if keeps and (best is None or share < best[0]):
                best = share, patience, point
    assert best is not None
    _, patience, point = best
    each = [score(list(view)) for view in logits_LNC]
    return Exits(
        part.name,
        task.metric,
        drop,
        patience,
        point["threshold"],
        point["share"],
        point["score"],
        full,
        each,
        curves[patience],
    )


def find_exits(
    rule: ExitRule, views: Sequence[tuple[NDArray[np.bool_], NDArray[np.float64]]]
) -> NDArray[np.int64]:
    """Find after how many layers each item leaves, (N,), from `Output.steady` of each layer."""
    rows = len(views[0][0])
    left, streak = np.full(rows, len(views)), np.zeros(rows, np.int64)
    for layer, (same, certain) in enumerate(views, 1):
        streak = rule.count(streak, same, certain)
        left = np.where(streak >= rule.patience, np.minimum(left, layer), left)
    return left
