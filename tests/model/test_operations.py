"""Attention by either way of computing it, with masks and biases, in both precisions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from litebert.model.operations import attend

REAL = (torch.arange(24) < torch.tensor([[24], [17]]))[:, None, None, :]
DISTANCE = (torch.arange(24) - torch.arange(24)[:, None]).abs()
BIAS = -DISTANCE * 2.0 ** -torch.arange(4)[:, None, None]
MASKS = {
    "none": None,
    "bool": REAL,
    "bias": BIAS,
    "both": BIAS.masked_fill(~REAL, torch.finfo(torch.bfloat16).min),
}


def plain(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q k^T / sqrt(D) + mask) v by its formula, in double precision."""
    scores = q.double() @ k.double().transpose(-1, -2) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = (
            scores.masked_fill(~mask, -1e300)
            if mask.dtype == torch.bool
            else scores + mask.double()
        )
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    mixed: Tensor = weights / weights.sum(-1, keepdim=True) @ v.double()
    return mixed


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_follows_its_formula_forward_and_backward(
    dtype: torch.dtype, learns: bool, kind: str
) -> None:
    """A CPU that learns in bfloat16 takes two products instead of the fused kernel."""
    generator = torch.Generator().manual_seed(1)
    *parts, weights = (torch.randn(2, 4, 24, 8, generator=generator).to(dtype) for _ in range(4))
    exact = [tensor.double().requires_grad_(learns) for tensor in parts]
    leaves = [tensor.clone().requires_grad_(learns) for tensor in parts]
    mask = MASKS[kind]
    coarse = dtype == torch.bfloat16
    wanted: Any = plain(exact[0], exact[1], exact[2], mask)
    with torch.set_grad_enabled(learns), torch.autocast("cpu", torch.bfloat16, enabled=coarse):
        output: Any = attend(leaves[0], leaves[1], leaves[2], mask, 0.0)
    assert output.dtype == dtype
    assert torch.allclose(
        output.double(), wanted, atol=0.02 if coarse else 1e-6, rtol=0.01 if coarse else 1e-5
    )
    if learns:
        output.backward(weights)
        wanted.backward(weights.double())
        for leaf, exact_leaf in zip(leaves, exact, strict=True):
            assert leaf.grad is not None
            assert exact_leaf.grad is not None
            atol, rtol = (0.04, 0.02) if coarse else (1e-5, 1e-4)
            assert torch.allclose(leaf.grad.double(), exact_leaf.grad, atol=atol, rtol=rtol)
        if kind in ("bool", "both"):
            for leaf in leaves[1:]:
                assert leaf.grad is not None
                assert not leaf.grad[1, :, 17:].any(), "nothing is learnt from padding"


def test_attention_in_bfloat16_drops_weights_out() -> None:
    q, k = (torch.randn(64, 1, 8, 8).bfloat16().requires_grad_() for _ in range(2))
    ones = torch.ones(64, 1, 8, 8).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        output = attend(q, k, ones, None, 0.25)
    assert output.std() > 0.05, "the sums of the weights that are left"
    assert abs(output.float().mean().item() - 1) < 0.1, "what is left is scaled up"
