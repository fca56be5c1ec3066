"""A linear head on frozen states, fitted before any step of fine-tuning: where a pretrained encoder
starts from.

Fine-tuning that starts from a fitted head changes the states less than from a drawn one (Kumar et
al. 2022, "Fine-Tuning can Distort Pretrained Features and Underperform Out-of-Distribution"). The
fit is that of scikit-learn on standardized states, and the standardization is folded into the
weights of the head's last map.

Shapes: N items, H hidden size, C numbers that the head gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from litebert import progress
from litebert.finetuning.initial import build_task_model
from litebert.finetuning.items import Item
from litebert.finetuning.outputs import Output
from litebert.finetuning.prepared import PreparedTask
from litebert.finetuning.rows import group_by_length, pad_rows
from litebert.finetuning.scoring import EVALUATION_TOKENS, compute_network_logits
from litebert.train import device as devices

STRENGTHS = (1e-6, 1e-3, 1e-2, 1e-1, 1.0)
"""Inverse strengths of the L2 penalty that are tried, as scikit-learn's `C` counts them. The first
gives no weight to any state, so that the fit predicts the shares of the classes.
"""
FEW_HELD, FOLDS = 50, 5
"""Held-out rows below which a cross-validation judges the strengths, and the folds of it."""
MOST_ROWS = 10_000
"""Training rows that a head is fitted on, at most: its few weights learn little from more."""


@dataclass(frozen=True, eq=False)
class FittedHead:
    """The last map of a head, and how good it is on rows that it was not fitted on."""

    weight: NDArray[np.float32]
    """(C, H)"""
    bias: NDArray[np.float32]
    """(C,)"""
    strength: float
    loss: float
    """Mean held-out loss, in the unit of the task's output."""
    prior: float
    """The same of answers that read no state."""
    judged: int
    """Rows that the loss is of."""
    few: bool
    """True if the loss is of a cross-validation, because few rows were held."""

    @property
    def helps(self) -> bool:
        """Return whether the states tell more than the shares of the classes. A few rows cannot
        show that they do not, and then the head is trusted.
        """
        return self.loss < self.prior or self.few

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the weights by their names in the head."""
        return {
            "classifier.weight": torch.from_numpy(self.weight.copy()),
            "classifier.bias": torch.from_numpy(self.bias.copy()),
        }


def read_frozen_states(
    prepared: PreparedTask, items: Sequence[Item], machine: devices.Device
) -> NDArray[np.float32]:
    """Read what the last map of the head reads of each item, before any step, (N, H)."""
    model = (
        build_task_model(prepared.start, prepared.task, prepared.config).to(machine.device).eval()
    )
    positions, pad = model.encoder.config.max_positions, prepared.start.tokenizer.pad_id
    read: list[torch.Tensor] = []
    states = np.zeros((len(items), model.encoder.config.hidden_size), np.float32)
    handle = model.head.classifier.register_forward_pre_hook(
        lambda _, inputs: read.append(inputs[0])
    )
    with progress.task("reading with the frozen encoder", total=len(items), unit="rows") as bar:
        for places in group_by_length([item.length for item in items], EVALUATION_TOKENS):
            compute_network_logits(
                model, machine, pad_rows([items[i].rows[0] for i in places], pad, positions)
            )
            states[places] = read.pop().float().cpu().numpy()
            bar.advance(len(places))
    handle.remove()
    return states


def fit_head(
    output: Output,
    states: NDArray[np.float32],
    targets: Sequence[Any],
    held: NDArray[np.bool_],
    groups: NDArray[np.int64] | None = None,
) -> tuple[FittedHead, FittedHead]:
    """Fit the head on the items that are not held, and with the best strength, on all items. The
    best strength has the lowest loss on the items that are held, or in a cross-validation where
    these are few.

    Args:
        states: (N, H).
        targets: those of the items, as `output` learns them.
        held: (N,)
        groups: (N,): as `number_groups` numbers them, which no fold divides; by
            default each item is one.
    """
    groups = np.arange(len(targets)) if groups is None else groups
    learned = [target for target, apart in zip(targets, held, strict=True) if not apart]
    few = bool(held.sum() < FEW_HELD) and (
        len(targets) < FEW_HELD * FOLDS or not held.any()  # as where groups are large
    )
    count = len(targets) if few else int(held.sum())
    folds = _draw_folds(groups) if few else held[None]
    losses = [_compute_held_loss(output, states, targets, folds, c) for c in STRENGTHS]
    first = 1 if few else 0  # a head without weights is no head
    place = min(range(first, len(STRENGTHS)), key=lambda i: losses[i])
    strength, loss = STRENGTHS[place], losses[place]
    half = _fit_folded(output, states[~held], learned, strength)
    whole = _fit_folded(output, states, targets, strength)
    return (
        FittedHead(*half, strength, loss, losses[0], count, few),
        FittedHead(*whole, strength, loss, losses[0], count, few),
    )


def _draw_folds(groups: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Draw the rows that are held in each fold of a cross-validation, (F, N)."""
    count = int(groups.max()) + 1
    places = (np.random.default_rng(0).permutation(count) % min(FOLDS, count))[groups]
    return np.stack([places == fold for fold in range(min(FOLDS, count))])


def _compute_held_loss(
    output: Output,
    states: NDArray[np.float32],
    targets: Sequence[Any],
    folds: NDArray[np.bool_],
    strength: float,
) -> float:
    """Compute the mean loss of the rows that each fold holds, under the fit of its other rows."""
    total = 0.0
    for held in folds:
        learned, judged = (
            [target for target, apart in zip(targets, held, strict=True) if apart == side]
            for side in (False, True)
        )
        weight, bias = _fit_folded(output, states[~held], learned, strength)
        loss = _compute_loss(output, states[held] @ weight.T + bias, judged)
        total += loss * int(held.sum())
    return total / int(folds.sum())


def _fit_folded(
    output: Output, states: NDArray[np.float32], targets: Sequence[Any], strength: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Fit a linear map on standardized states; return its weights and biases for states as they
    are.
    """
    mean, std = states.mean(0, dtype=np.float64), states.std(0, dtype=np.float64)
    std[std < 1e-6] = 1.0  # a state that never changes tells nothing
    weight, bias = output.fit_linear((states - mean) / std, targets, strength)
    weight = weight / std
    return weight.astype(np.float32), (bias - weight @ mean).astype(np.float32)


def _compute_loss(
    output: Output, logits: NDArray[np.floating[Any]], targets: Sequence[Any]
) -> float:
    """Compute the mean loss that training minimizes."""
    right = torch.from_numpy(output.collate(targets, 0))
    total, _ = output.total(torch.from_numpy(logits.astype(np.float32)), right)
    return float(total) / len(targets)
