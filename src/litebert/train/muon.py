"""Muon with its iteration in float32.

That of `torch.optim.Muon` is in bfloat16, which processors without bfloat16 emulate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from litebert.train.device import Device

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5
EPS = 1e-7


class Muon(torch.optim.Optimizer):
    """`torch.optim.Muon` (Jordan et al. 2024) with its iteration in float32.

    For each matrix w with gradient g and momentum m:

        m = momentum m + (1 - momentum) g;   u = orthogonalize(momentum m + (1 - momentum) g)
        w = (1 - lr weight_decay) w - lr sqrt(max(1, rows / columns)) u
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            lr, momentum = group["lr"], group["momentum"]
            for param in group["params"]:
                if param.grad is None:
                    continue
                if not (state := self.state[param]):
                    state["momentum_buffer"] = torch.zeros_like(param)
                mean = state["momentum_buffer"].lerp_(param.grad, 1 - momentum)
                update = orthogonalize(param.grad.lerp(mean, momentum).float()).to(param.dtype)
                rows, columns = param.shape
                param.mul_(1 - lr * group["weight_decay"])
                param.add_(update, alpha=-lr * math.sqrt(max(1, rows / columns)))


def orthogonalize(matrix: Tensor) -> Tensor:
    """Compute about U V^T of the matrix's singular value decomposition U S V^T, by five
    Newton-Schulz steps. Its singular values lie between 0.7 and 1.2.
    """
    a, b, c = COEFFICIENTS
    tall = matrix.size(0) > matrix.size(1)
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=EPS)
    for _ in range(STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def has_float32_iteration(machine: Device) -> bool:
    """Return True if a run with Muon takes this one: on a CPU that computes its other matrix
    multiplications in float32 too.

    `train.precision=auto` computes in float32 on processors without native bfloat16, where torch's
    iteration takes most of a step.
    """
    return machine.device.type == "cpu" and machine.autocast is None
