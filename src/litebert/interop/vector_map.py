"""The map of a model's sentence vectors."""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from litebert.base.errors import ModelError


class VectorMap(NamedTuple):
    """A map of pooled states, the last step before unit length: weight v + bias, or tanh of it."""

    weight: NDArray[np.float32]
    """(D, H)"""
    bias: NDArray[np.float32]
    """(D,)"""
    tanh: bool = False

    def of(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """(..., H) -> (..., D)."""
        if (width := self.weight.shape[1]) != vectors.shape[-1]:
            raise ModelError(
                f"the Dense module of this model maps vectors of {width} numbers, and its "
                "states have "
                f"{vectors.shape[-1]}; restore the one that it was trained with"
            )
        if (torch := sys.modules.get("torch")) is not None:
            # Threads of numpy and those of torch, which compute the states, would wait for work in
            # loops and so keep each other from the cores.
            mapped: NDArray[np.float32] = (
                torch.from_numpy(vectors) @ torch.from_numpy(self.weight).T
            ).numpy() + self.bias
        else:
            mapped = vectors @ self.weight.T + self.bias
        return np.tanh(mapped) if self.tanh else mapped
