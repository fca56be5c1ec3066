"""The watch for plateaus: a run that stays at the unigram entropy of its data, the loss of a model
that knows only the frequencies of tokens, or diverges, is reported in time to stop it.
"""

from __future__ import annotations

import math
from typing import Any

from litebert.model.pretrainer import Pretrainer

PLATEAU_NATS = 0.15
"""A loss less than this below the unigram entropy has learned little but frequencies."""
PLATEAU_ROWS = 40
"""Rows of metrics, a fifth of a run, before a plateau; and never before `PLATEAU_STEPS`."""
PLATEAU_STEPS = 300
DIVERGED_NATS = 1.0
"""A loss that has risen this much above its lowest, and above the unigram entropy, has diverged."""
DIVERGED_ROWS = 10
"""Rows of metrics, a twentieth of a run, before that is reported."""


def find_watched_objective(model: Pretrainer) -> str | None:
    """Find the objective whose loss falls below the unigram entropy where a model learns."""
    for name, objective in model.named_objectives.items():
        if any(curves.unigram_entropy for curves in objective.curves):
            return name
    return None


def watch_plateau(
    state: dict[str, Any], step: int, loss: float | None, entropy: float, random: float = math.inf
) -> str | None:
    """Warn when a run is stuck at the unigram entropy or has diverged, and report when it has left.

    `state`, which checkpoints keep, smooths the losses of rows of metrics; `random` is the loss of
    guessing every token with the same probability. All are in nats.
    """
    if loss is None:
        return None
    # Small batches are noisy.
    loss = state["plateau_loss"] = 0.8 * state.get("plateau_loss", loss) + 0.2 * loss
    lowest = state["plateau_lowest"] = min(loss, state.get("plateau_lowest", loss))
    is_on_plateau, is_above = loss > entropy - PLATEAU_NATS, loss > entropy + PLATEAU_NATS
    has_risen = loss > lowest + DIVERGED_NATS
    has_diverged = is_above and (has_risen or loss > random + PLATEAU_NATS)
    state["plateau_rows"] = state.get("plateau_rows", 0) + 1 if is_on_plateau else 0
    state["diverged_rows"] = state.get("diverged_rows", 0) + 1 if has_diverged else 0
    reported = state.get("plateau_said")
    if reported and not is_on_plateau:
        state["plateau_said"] = False
        change = "recovered" if reported == "diverged" else "left the plateau"
        return f"step {step}: the loss has {change} ({loss:.2f}; unigram entropy {entropy:.2f})"
    if step < PLATEAU_STEPS:
        return None
    if state["diverged_rows"] >= DIVERGED_ROWS and reported != "diverged":
        state["plateau_said"] = "diverged"
        reason = (
            f"has risen from {lowest:.2f} to {loss:.2f}, above the unigram entropy of this data "
            f"({entropy:.2f} nats)"
            if has_risen
            else f"({loss:.2f}) is worse than that of guessing at random ({random:.2f} nats)"
        )
        return (
            f"step {step}: the loss {reason}: the run has diverged and is unlikely to recover. "
            "Stop it and start another --out with a lower train.optimizer.learning_rate, a longer "
            "train.schedule.warmup or encoder.norm=pre"
        )
    if state["plateau_rows"] < PLATEAU_ROWS or reported or has_diverged:
        return None
    state["plateau_said"] = True
    if is_above:
        return (
            f"step {step}: the loss {loss:.2f} is still above the unigram entropy of this data "
            f"({entropy:.2f} nats): so far the model has not even learned how frequent each token "
            "is. The train.optimizer.learning_rate may be too low, or so high that nothing is "
            "learned"
        )
    return (
        f"step {step}: the loss {loss:.2f} is stuck at the unigram entropy of this data "
        f"({entropy:.2f} nats): so far the model has learned how frequent each token is and "
        "nothing else. Some runs leave this plateau late; to leave it sooner try "
        "train.optimizer.name=muon, encoder.norm=pre, shallower layers first "
        "(train.depth_schedule), shorter sequences, or another train.optimizer.learning_rate"
    )


def knows_frequencies_only(loss: float, entropy: float) -> bool:
    """True if a held-out loss is not clearly below the unigram entropy, both in nats."""
    return loss > entropy - PLATEAU_NATS


def remark_on_short_run(loss: float | None, steps: int, entropy: float) -> str | None:
    """Remark on a run too short for `watch_plateau` whose held-out loss ends near it."""
    if loss is None or steps >= PLATEAU_STEPS or not knows_frequencies_only(loss, entropy):
        return None
    return (
        f"the held-out loss, {loss:.2f} nats, is not clearly below the unigram entropy of this "
        f"data ({entropy:.2f}): in {steps:,} steps the model has learned little more than how "
        "frequent each token is; give it a larger budget"
    )
