"""Answering with early exits: a row leaves the network as soon as its answer is steady, and the
rest go on packed. A runtime that can leave early gives a batch layer by layer (`walk`).

Shapes: R rows, S tokens, C numbers of the head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from litebert.answer.engines.runtime import Runtime
from litebert.base.errors import ConfigError
from litebert.judge.exits import ExitRule
from litebert.tasks.outputs import Output
from litebert.tasks.rows import PaddedRows
from litebert.tasks.scoring import EVALUATION_TOKENS

Exit = Literal["auto", "off"] | float
"""When rows leave: as calibrated where trained for it, never, or at a threshold of one's own."""
_WORTH = 1 / 16
"""Share of rows that leave before the others are packed, which copies the states that stay."""


class EarlyExit(Runtime):
    """A runtime over another one; rows that leave early have the logits of their last layer."""

    def __init__(self, runtime: Runtime, rule: ExitRule, output: Output, layers: int) -> None:
        self.runtime, self.rule, self.output, self.layers = runtime, rule, output, layers
        tokens = min(runtime.capabilities.tokens, EVALUATION_TOKENS)
        self.capabilities = replace(runtime.capabilities, tokens=tokens)
        self.rows = self.used = 0
        """Rows that were answered so far, and layers that they used."""

    @property
    def share(self) -> float:
        """Mean share of the layers that rows have used so far."""
        return self.used / max(1, self.rows * self.layers)

    def logits(self, rows: PaddedRows) -> NDArray[np.float32]:
        return self.logits_and_layers(rows)[:, :-1]

    def logits_and_layers(self, rows: PaddedRows) -> NDArray[np.float32]:
        """Compute the logits of each row, and how many layers it used: (R, C + 1)."""
        walk, lengths = self.runtime.walk(rows), np.array(rows.lengths)
        active = np.arange(len(lengths))  # the rows that are computed; some have left already
        staying, streak = np.ones(len(active), bool), np.zeros(len(active), np.int64)
        results, before = np.zeros((len(active), self.output.width + 1), np.float32), None
        for layer in range(1, self.layers + 1):
            now = walk.step()
            streak = self.rule.count(streak, *self.output.steady(before, now))
            leaving = staying & ((streak >= self.rule.patience) | (layer == self.layers))
            answers = np.column_stack((now[leaving], np.full(leaving.sum(), layer)))
            results[active[leaving]] = answers
            staying &= ~leaving
            if not staying.any():
                break
            before = now
            if staying.mean() <= 1 - _WORTH:
                rest = np.flatnonzero(staying)
                active, streak = active[rest], streak[rest]
                before, staying = now[rest], staying[rest]
                walk.keep(rest, min(rows.size, -(-int(lengths[active].max()) // 8) * 8))
        self.rows, self.used = self.rows + len(results), self.used + int(results[:, -1].sum())
        return results


def check_exit(chosen: Exit) -> None:
    """Refuse what is no choice."""
    if isinstance(chosen, str) and chosen not in ("off", "auto"):
        raise ConfigError(
            f"exit_confidence is '{chosen}'; give off, auto or a threshold such as 0.9"
        )
    if not isinstance(chosen, str) and not (isinstance(chosen, (int, float)) and chosen >= 0):
        raise ConfigError(f"exit_confidence is {chosen}; a threshold is 0 or more")


def refuse_threshold(chosen: Exit, engine: str) -> None:
    """Refuse a threshold for an exported model, whose graph has no exits."""
    check_exit(chosen)
    if chosen not in ("auto", "off"):
        raise ConfigError(
            f"exit_confidence is {chosen}, and the engine {engine} computes all layers of an "
            "exported model; leave it (--exit-confidence) out"
        )


def rule_for(
    chosen: Exit, record: Mapping[str, Any], engine: str, *, early_exit: bool, has_weights: bool
) -> ExitRule | None:
    """The rule by which rows leave early; None where all layers are computed.

    `record` is the model's task.json; a folder that `has_weights` is no export, whose graph has all
    layers.
    """
    calibrated = record.get("exits")
    if chosen == "off" or (chosen == "auto" and (calibrated is None or not has_weights)):
        return None
    if calibrated is None:
        raise ConfigError(
            f"exit_confidence is {chosen}, and the model was not trained to exit early; leave "
            "it out, or run litebert finetune with --early-exits"
        )
    if not early_exit:
        raise ConfigError(
            f"exit_confidence is {chosen}, and the engine {engine} computes all layers; give off "
            "(--exit-confidence off), or take the engine torch with the folder that was fine-tuned"
        )
    threshold = calibrated["threshold"] if chosen == "auto" else float(chosen)
    return ExitRule(calibrated["patience"], threshold)
