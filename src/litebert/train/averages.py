"""An average of the weights over the last steps, kept beside them.

A checkpoint has the average where every reader looks for weights, and the weights that training
goes on from beside the optimizer's state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from litebert.train.parallel import gathered_anew, load_state, local, whole_state
from litebert.train.ranks import Ranks

_OWN = "weights."
"""Comes before a weight's name in the file of the optimizer."""


class Averages:
    """An exponential moving average of a module's weights: a = a + (w - a) / n after each step,
    with n the number of steps so far, at most `steps`. So the first ones count alike, and no start
    counts too much."""

    def __init__(self, module: nn.Module, steps: int) -> None:
        self._module, self._steps = module, max(1, steps)
        self._weights = [local(one) for one in module.parameters()]
        self._averages = [one.detach().clone() for one in self._weights]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after so many steps."""
        torch._foreach_lerp_(self._averages, self._weights, 1 / min(step, self._steps))

    def own_weights(self, ranks: Ranks) -> dict[str, Tensor]:
        """A copy of the module's own weights under their names in a checkpoint, which every process
        asks for.
        """
        return {
            f"{_OWN}{name}": tensor.clone()
            for name, tensor in whole_state(self._module, ranks).items()
        }

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """While it lasts, the module has the averages."""
        kept = [one.detach().clone() for one in self._weights]
        self._put(self._averages)
        try:
            yield
        finally:
            self._put(kept)

    def load(self, saved: Mapping[str, Tensor] | None, ranks: Ranks) -> dict[str, Tensor] | None:
        """Take over the averages, which the module has now, and give it its own weights; the rest
        of what was `saved` beside the optimizer's state. In a group, the main process has it."""
        for average, weight in zip(self._averages, self._weights, strict=True):
            average.copy_(weight.detach())
        own = (
            None
            if saved is None
            else {
                name.removeprefix(_OWN): one for name, one in saved.items() if name.startswith(_OWN)
            }
        )
        load_state(self._module, own, ranks)
        return (
            None
            if saved is None
            else {name: one for name, one in saved.items() if not name.startswith(_OWN)}
        )

    @torch.no_grad()
    def _put(self, tensors: list[Tensor]) -> None:
        for weight, tensor in zip(self._weights, tensors, strict=True):
            weight.copy_(tensor)
        gathered_anew(self._module)
