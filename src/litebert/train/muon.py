"""Muon with what `torch.optim.Muon` lacks: its iteration in float32, which processors without
bfloat16 would emulate, NorMuon's normalised rows, and cautious weight decay.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from litebert.train.device import Device

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5
EPS = 1e-7


class Muon(torch.optim.Optimizer):
    """`torch.optim.Muon` (Jordan et al. 2024) with its iteration in `dtype`.

    For each matrix w with gradient g and momentum m:

        m = momentum m + (1 - momentum) g;   u = orthogonalised(momentum m + (1 - momentum) g)
        w = (1 - lr weight_decay) w - lr sqrt(max(1, rows / columns)) u

    With `rows` above 0 (NorMuon: Li et al. 2025, algorithm 1), v is a number for each row of u:

        v = rows v + (1 - rows) mean(u^2);   u = u / sqrt(v), scaled to the norm that u had

    The paper scales to 0.2 sqrt(rows columns) instead, whatever the norm was; this keeps Muon's
    learning rates. With `cautious` (Chen et al. 2025), only the elements of w that have the sign of
    u decay.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        rows: float = 0.0,
        cautious: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        settings = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, {**settings, "rows": rows, "cautious": cautious, "dtype": dtype})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            lr, momentum = group["lr"], group["momentum"]
            for param in group["params"]:
                if param.grad is None:
                    continue
                if not (state := self.state[param]):
                    state.update(zero_state(param, group, len(param)))
                mean = state["momentum_buffer"].lerp_(param.grad, 1 - momentum)
                update = orthogonalised(param.grad.lerp(mean, momentum).to(group["dtype"])).to(
                    param.dtype
                )
                if group["rows"]:
                    update = normalised(update, state["row_squares"], group["rows"])
                rows, columns = param.shape
                if group["cautious"]:
                    param.addcmul_(
                        param,
                        (param * update > 0).to(param.dtype),
                        value=-lr * group["weight_decay"],
                    )
                else:
                    param.mul_(1 - lr * group["weight_decay"])
                param.add_(update, alpha=-lr * math.sqrt(max(1, rows / columns)))


def zero_state(param: Tensor, group: Mapping[str, Any], rows: int) -> dict[str, Tensor]:
    """What a parameter of a group begins with; a process that holds some of its `rows` has numbers
    for all.
    """
    state = {"momentum_buffer": torch.zeros_like(param)}
    if group["rows"]:
        state["row_squares"] = torch.zeros(rows, 1, dtype=param.dtype, device=param.device)
    return state


def normalised(update: Tensor, squares: Tensor, beta: float) -> Tensor:
    """The rows of an update, each divided by the root of its mean square, whose mean over the steps
    is kept in `squares` (rows, 1); the whole as long as before."""
    squares.lerp_(update.square().mean(1, keepdim=True), 1 - beta)
    rows = update / squares.sqrt().clamp(min=EPS)
    scaled: Tensor = rows * (update.norm() / rows.norm().clamp(min=EPS))
    return scaled


def orthogonalised(matrix: Tensor) -> Tensor:
    """About U V^T of the matrix's singular value decomposition U S V^T, by five Newton-Schulz
    steps: its singular values lie between 0.7 and 1.2."""
    a, b, c = COEFFICIENTS
    tall = matrix.size(0) > matrix.size(1)
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=EPS)
    for _ in range(STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def in_float32(machine: Device) -> bool:
    """Whether a run with Muon takes this one: on a CPU, where its other products are in float32
    too.

    `train.precision=auto` computes in float32 on processors without native bfloat16, where torch's
    iteration takes most of a step.
    """
    return machine.device.type == "cpu" and machine.autocast is None
