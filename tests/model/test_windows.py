"""Attention within a window by blocks: the same as under a mask, in work and memory that grow with
the sequence.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from litebert.config import EncoderConfig, cost
from litebert.model.blocks import Attention
from litebert.model.encoder import Encoder
from litebert.model.operations import additive, attend
from litebert.model.windows import Blocks, attend_by_blocks, block_mask, window_mask
from toys.points import randomize


def shape(**changes: Any) -> EncoderConfig:
    base: dict[str, Any] = {
        "vocab_size": 50,
        "embedding_size": 16,
        "hidden_size": 16,
        "layers": 2,
        "heads": 2,
        "intermediate_size": 16,
        "max_positions": 4096,
        "positions": "rotary",
        "window": 128,
        "global_every": 2,
        "norm": "pre",
        "pooler": False,
    }
    return EncoderConfig(**{**base, **changes})


@settings(max_examples=60)
@given(
    length=st.integers(1, 200),
    half=st.integers(1, 20),
    extra=st.integers(0, 20),
    batch=st.integers(1, 3),
    padded=st.booleans(),
    bfloat16=st.booleans(),
    numbers=st.booleans(),
    seed=st.integers(0, 99),
    first=st.sampled_from([0, 0, 1, 2, 7, 50]),
)
def test_blocks_are_a_mask(
    *,
    length: int,
    half: int,
    extra: int,
    batch: int,
    padded: bool,
    bfloat16: bool,
    numbers: bool,
    seed: int,
    first: int,
) -> None:
    """Values and gradients at real tokens; what stands at padding is finite, and reaches no real
    token.
    """
    first = min(first, length)
    generator = torch.Generator().manual_seed(seed)
    dtype, block = torch.bfloat16 if bfloat16 else torch.float32, 2 * (half + extra)
    inputs = [torch.randn(batch, 2, length, 8, generator=generator).to(dtype) for _ in range(3)]
    real = (
        torch.arange(length) < torch.randint(1, length + 1, (batch, 1), generator=generator)
        if padded
        else None
    )
    weights = torch.randn(batch, 2, length, 8, generator=generator).to(dtype)
    if real is not None:
        weights = weights * real[:, None, :, None]

    def outcome(by_blocks: bool, mask: Tensor) -> list[Tensor]:
        q, k, v = leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        mask = additive(mask, dtype) if numbers else mask
        if by_blocks:
            read = window_mask(half, length, real, device, first, queries=first)
            read = additive(read, dtype) if numbers else read
            output = attend_by_blocks(
                q, k, v, mask, Blocks(block, first, None if real is None else read), 0.0
            )
        else:
            output = attend(q, k, v, mask, 0.0)
        return [output.detach() * weights, *torch.autograd.grad(output, leaves, weights)]

    device = inputs[0].device
    actual = outcome(True, block_mask(half, block, batch, length, real, device, first))
    wanted = outcome(False, window_mask(half, length, real, device, first))
    for tensor, other in zip(actual, wanted, strict=True):
        assert tensor.isfinite().all()
        assert (tensor - other).float().norm() <= (
            0.02 if bfloat16 else 1e-5
        ) * other.float().norm() + 1e-5


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sharing": "none", "hidden_dropout": 0.0, "window": 7},
        {"window": 9, "global_every": 0, "global_tokens": 3},
    ],
)
def test_an_encoder_computes_long_sequences_as_short_ones(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Encoder(shape(layers=3, **changes)).eval()
    randomize(encoder)
    ids = torch.randint(5, 50, (2, 540), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(540) < torch.tensor([[540], [230]])
    assert cost.window_block(encoder.config, 540) > 0
    hidden = encoder(ids, None, mask).last[mask]
    monkeypatch.setattr(cost, "window_block", lambda *_: 0)
    assert torch.allclose(hidden, encoder(ids, None, mask).last[mask], atol=1e-5)


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The numbers of the largest tensor that any operation makes."""

    most = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(tensor, Tensor):
                self.most = max(self.most, tensor.numel())
        return made


@pytest.mark.parametrize("first", [0, 3, 400])
@pytest.mark.parametrize("length", [600, 1024])
def test_operations_of_long_sequences_are_counted(length: int, first: int) -> None:
    encoder = Encoder(shape(global_tokens=first))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, torch.no_grad():
        encoder(torch.randint(5, 50, (1, length)))
    assert counter.get_total_flops() == pytest.approx(
        length * cost._layer_flops(encoder.config, length), rel=1e-9
    )


@pytest.mark.parametrize("first", [0, 1])
def test_work_and_memory_grow_with_the_sequence(first: int) -> None:
    config = shape(global_tokens=first)
    block, encoder = Attention(config), Encoder(config)
    flops, largest = [], []
    for length in (1024, 2048, 4096):
        x = torch.randn(1, length, 16, requires_grad=True)
        with (
            sdpa_kernel(SDPBackend.MATH),
            FlopCounterMode(display=False) as counter,
            Largest() as seen,  # type: ignore[no-untyped-call]
        ):
            block(x, *encoder._build_attention_inputs(True, x, None)).sum().backward()
        flops.append(counter.get_total_flops())
        largest.append(seen.most)
    assert flops[2] == 2 * flops[1] == 4 * flops[0]
    assert largest[2] == 2 * largest[1] == 4 * largest[0]
    assert largest[2] < 4096 * 4096 / 4
