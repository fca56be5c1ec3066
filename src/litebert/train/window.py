"""Sums since the last row of metrics, on the device until a row or a checkpoint needs numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from litebert.model.objectives import Loss
from litebert.train.ranks import Ranks

_ALONE = Ranks()
_KEYS = ("total", "count", "correct")


class Window:
    """The sums of some steps; saved, so that a resumed run writes the same rows."""

    def __init__(self) -> None:
        self._steps = 0
        self._gradient_norm: Tensor | float = 0.0
        self._sums: dict[str, dict[str, Tensor]] = {}
        """The sums of each loss: total (nats), count, correct, and its extras."""

    @classmethod
    def from_state(cls, state: Mapping[str, Any], device: torch.device) -> Window:
        """Restore the window whose `state` was saved."""
        window = cls()
        window._steps, window._gradient_norm = state["steps"], state["gradient_norm"]
        for name in state["total"]:
            sums = {key: state[key][name] for key in _KEYS if name in state[key]}
            sums |= state["extras"][name]
            window._sums[name] = {
                key: torch.tensor(value, dtype=_choose_dtype(device), device=device)
                for key, value in sums.items()
            }
        return window

    def add(self, name: str, loss: Loss) -> None:
        """Add one loss of one micro-batch."""
        sums = self._sums.setdefault(name, {})
        judged = {} if loss.correct is None else {"correct": loss.correct}
        for key, value in {
            "total": loss.total,
            "count": loss.count,
            **judged,
            **loss.extras,
        }.items():
            sums[key] = sums.get(key, 0.0) + value.detach().to(_choose_dtype(value.device))

    def end_step(self, gradient_norm: Tensor) -> None:
        self._gradient_norm = self._gradient_norm + gradient_norm.to(
            _choose_dtype(gradient_norm.device)
        )
        self._steps += 1

    def state(self, ranks: Ranks = _ALONE) -> dict[str, Any]:
        """Return the sums over the processes as plain numbers; this waits for the accelerator.

        Steps and gradient norm are not summed: every process takes the same steps, on the same
        summed gradient.
        """
        totals = torch.stack(
            [value for sums in self._sums.values() for value in sums.values()] or [torch.zeros(())]
        )
        ranks.sum([totals])
        numbers = iter(totals.tolist())
        sums = {name: {key: next(numbers) for key in sums} for name, sums in self._sums.items()}
        return {
            "steps": self._steps,
            "gradient_norm": float(self._gradient_norm),
            "total": {name: values["total"] for name, values in sums.items()},
            "count": {name: int(values["count"]) for name, values in sums.items()},
            "correct": {
                name: int(values["correct"]) for name, values in sums.items() if "correct" in values
            },
            "extras": {
                name: {key: values[key] for key in values if key not in _KEYS}
                for name, values in sums.items()
            },
        }

    def compute_row(self, weights: Mapping[str, float], ranks: Ranks = _ALONE) -> dict[str, float]:
        """Compute the means over the window."""
        sums = self.state(ranks)
        counts = {name: max(1, count) for name, count in sums["count"].items()}
        row = {
            "loss": sum(
                weights[name] * (total / counts[name]) for name, total in sums["total"].items()
            )
        }
        for name, count in sums["count"].items():
            if not count:  # such as of pairs without a label
                continue
            right = {"accuracy": sums["correct"][name]} if name in sums["correct"] else {}
            values = {"loss": sums["total"][name], **right, **sums["extras"][name]}
            row |= {f"{name}_{key}": value / count for key, value in values.items()}
        row["gradient_norm"] = sums["gradient_norm"] / max(1, self._steps)
        return row


def _choose_dtype(device: torch.device) -> torch.dtype:
    """float64 where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64
