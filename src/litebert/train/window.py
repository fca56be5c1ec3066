"""Sums since the last row of metrics. They stay on the device until a row or a checkpoint asks for numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from litebert.model.objectives import Loss
from litebert.train.ranks import Ranks

_ALONE = Ranks()


class Window:
    """The sums of some steps; saved with checkpoints, so that a resumed run writes the same rows."""

    def __init__(self) -> None:
        self._steps = 0
        self._gradient_norm: Tensor | float = 0.0
        self._sums: dict[tuple[str, str, str], Tensor] = {}
        """By what is summed (total in nats, count, correct or extras), loss, and extra."""

    @classmethod
    def restored(cls, state: Mapping[str, Any], device: torch.device) -> Window:
        """The window that `state` gave; one of an older checkpoint may lack extras."""
        window = cls()
        window._steps, window._gradient_norm = state["steps"], state["gradient_norm"]
        for kind in ("total", "count", "correct"):
            for name, value in state[kind].items():
                window._sums[kind, name, ""] = _precise(torch.tensor(value, dtype=torch.float64), device)
        for name, extras in state.get("extras", {}).items():
            for extra, value in extras.items():
                window._sums["extras", name, extra] = _precise(torch.tensor(value, dtype=torch.float64), device)
        return window

    def add(self, name: str, loss: Loss) -> None:
        """Add one loss of one micro-batch."""
        self._add(("total", name, ""), loss.total)
        self._add(("count", name, ""), loss.count)
        self._add(("correct", name, ""), loss.correct)
        for extra, value in loss.extras.items():
            self._add(("extras", name, extra), value)

    def _add(self, key: tuple[str, str, str], value: Tensor) -> None:
        value = _precise(value.detach(), value.device)
        self._sums[key] = self._sums[key] + value if key in self._sums else value

    def end_step(self, gradient_norm: Tensor) -> None:
        """Count a step."""
        self._gradient_norm = self._gradient_norm + _precise(gradient_norm, gradient_norm.device)
        self._steps += 1

    def state(self, ranks: Ranks = _ALONE) -> dict[str, Any]:
        """The sums over the processes as plain numbers. This is where an accelerator is waited for."""
        found: dict[str, Any] = {"steps": self._steps, "gradient_norm": float(self._gradient_norm)}
        found |= {"total": {}, "count": {}, "correct": {}, "extras": {name: {} for _, name, _ in self._sums}}
        if self._sums:
            sums = torch.stack(list(self._sums.values()))
            ranks.sum([sums])
            for (kind, name, extra), value in zip(self._sums, sums.tolist(), strict=True):
                if kind == "extras":
                    found["extras"][name][extra] = value
                else:
                    found[kind][name] = value if kind == "total" else int(value)
        return found

    def row(self, weights: Mapping[str, float], ranks: Ranks = _ALONE) -> dict[str, float]:
        """Means over the window."""
        sums = self.state(ranks)
        means = {name: total / max(1, sums["count"][name]) for name, total in sums["total"].items()}
        row = {"loss": sum(weights[name] * mean for name, mean in means.items())}
        for name, mean in means.items():
            row[f"{name}_loss"] = mean
            row[f"{name}_accuracy"] = sums["correct"][name] / max(1, sums["count"][name])
            for extra, value in sums["extras"][name].items():
                row[f"{name}_{extra}"] = value / max(1, sums["count"][name])
        row["gradient_norm"] = sums["gradient_norm"] / max(1, self._steps)
        return row


def _precise(value: Tensor, device: torch.device) -> Tensor:
    """A number to sum, in float64 where the device has it."""
    return value.to(device, torch.float32 if device.type == "mps" else torch.float64)
