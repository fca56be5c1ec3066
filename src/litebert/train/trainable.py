"""The protocol of the loop: a model with its batches, losses and held-out scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import torch
from torch import nn

from litebert.model.objectives import Loss


class TrainBatch(Protocol):
    """A micro-batch: it moves to a device and knows its tokens."""

    @property
    def tokens(self) -> int:
        """Tokens, padding aside."""

    def pin(self) -> Any:
        """Return the same batch in page-locked memory."""

    def to(self, device: torch.device) -> Any:
        """Return the same batch on a device."""


B = TypeVar("B", bound=TrainBatch)


class Trainable(Protocol[B]):
    """A model that the loop trains, with its batches, losses and held-out scores."""

    layers: int
    metric: str
    """The held-out score that chooses the weights; empty where the last weights count."""
    diagnostic_state: dict[str, Any]
    """Plain values that checkpoints save; the loop ends early where `stopped` is true."""

    @property
    def module(self) -> nn.Module:
        """The module that has the parameters."""

    @property
    def network(self) -> nn.Module:
        """The network that computes the losses: the module, or its wrapper in a group."""

    def batch(self, step: int, rows: slice) -> B:
        """Return some rows of the batch of a step; a pure function."""

    def count_predictions(self, batch: B) -> dict[str, int]:
        """Count the predictions of each loss in a batch, which divide sums of losses."""

    def compute_losses(self, batch: B, layers: int) -> dict[str, Loss]:
        """Return the losses of a batch by name."""

    def get_weights(self) -> Mapping[str, float]:
        """Return the weight of each loss in the sum."""

    def get_rate_scales(self) -> Mapping[str, float]:
        """Factors of the learning rate by parameter name; 1 where a name is absent."""

    def evaluate(self) -> dict[str, float]:
        """Compute held-out scores now."""

    def diagnose(self, step: int, row: Mapping[str, Any]) -> list[str]:
        """Return warnings about a row of metrics, in words."""
