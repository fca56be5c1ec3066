"""The compiled passes against PyTorch's operations: values, gradients, odd shapes, numbers that are
not finite.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from litebert.config import EncoderConfig, OptimizerConfig
from litebert.kernels import loader
from litebert.model import fused, operations
from litebert.model.attention_positions import AttentionPositions, Rotary
from litebert.model.blocks import Attention, Block, FeedForward
from litebert.train.optim import AdamW, Lamb, Optimizers

pytestmark = pytest.mark.skipif(
    loader.library() is None, reason=f"compiled kernels are {loader.describe()}"
)

DTYPES = (torch.float32, torch.bfloat16)
NEAR = 2e-6
"""How far both ways may be apart in float32, as a share of a tensor's norm; in bfloat16, where the
two round in other places, it is 0.01, and twice the distance of PyTorch's own way from its result
in float32."""
LARGEST = 90
ROUNDED = LARGEST * 2.0**-24
"""How far a sum of so many terms of size 1 may be off in float32 when its terms cancel, such as the
gradient of a bias."""
COARSE = 2.0**-8
"""How far a number may be off in bfloat16 when its terms, of size 1, cancel: where an activation is
flat, its slope is what rounding leaves of it."""
fast = settings(max_examples=40)


@contextmanager
def reference() -> Iterator[None]:
    """PyTorch's operations alone."""
    with patch.object(fused, "library", lambda: None):
        yield


def gradients(compute: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """The output of a computation, and its gradient by each input, under a random weighting."""
    leaves = [
        tensor.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        for tensor in inputs
    ]
    output = compute(*leaves)
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).to(output.dtype)
    return [output.detach(), *torch.autograd.grad(output, leaves, weights)]


def both(compute: Callable[..., Tensor], inputs: list[Tensor], dtype: torch.dtype) -> None:
    """Both ways agree, in bfloat16 with what the reference computes in float32."""
    coarse = dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16, enabled=coarse):
        results = gradients(compute, inputs)
        with reference():
            same = gradients(compute, inputs)
    with reference():
        wanted = gradients(compute, [tensor.float() for tensor in inputs])
    for actual, plain, exact in zip(results, same, wanted, strict=True):
        assert (actual.shape, actual.dtype) == (plain.shape, plain.dtype)
        share = (
            0.01 * exact.norm() + 2 * (plain.float() - exact).norm() + COARSE * exact.numel() ** 0.5
            if coarse
            else NEAR * exact.norm()
        )
        assert (actual.float() - exact).norm() <= share + ROUNDED


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


sizes = st.integers(1, LARGEST)


@fast
@given(
    rows=sizes,
    width=sizes,
    inner=sizes,
    bias=st.booleans(),
    gated=st.booleans(),
    seed=st.integers(0, 99),
    activation=st.sampled_from(fused.ACTIVATIONS),
    dtype=st.sampled_from(DTYPES),
)
def test_an_activation_follows_a_product(
    rows: int,
    width: int,
    inner: int,
    bias: bool,
    gated: bool,
    activation: str,
    dtype: torch.dtype,
    seed: int,
) -> None:
    assume(
        activation != "relu" or dtype == torch.float32
    )  # whose slope jumps where rounding changes a sign
    wide = inner * (1 + gated)
    inputs = [
        normal(rows, width, seed=seed),
        normal(wide, width, seed=1),
        *([normal(wide, seed=2)] if bias else []),
    ]

    def compute(x: Tensor, weight: Tensor, shift: Tensor | None = None) -> Tensor:
        linear = nn.Linear(width, wide, bias=bias)
        return operations.linear_activation(
            x, with_parameters(linear, weight, shift), activation, gated
        )

    both(compute, inputs, dtype)


def with_parameters(module: Any, weight: Tensor, bias: Tensor | None) -> Any:
    """A module that computes with these tensors as if they were its parameters."""
    module._parameters.update(weight=weight, bias=bias)
    return module


@fast
@given(
    rows=sizes,
    width=st.integers(8, 90),
    dtype=st.sampled_from(DTYPES),
    other=st.sampled_from(DTYPES),
    bias=st.booleans(),
    shift=st.booleans(),
)
def test_a_norm_of_a_sum(
    rows: int, width: int, dtype: torch.dtype, other: torch.dtype, bias: bool, shift: bool
) -> None:
    """The residual may have another dtype than what is added to it."""
    residual = normal(rows, width, seed=3).to(other if dtype == torch.bfloat16 else torch.float32)
    inputs = [normal(rows, 8), normal(width, 8, seed=1), residual, normal(width, seed=4) + 1]
    inputs += [normal(width, seed=5)] * bias + [normal(width, seed=6)] * shift

    def compute(
        x: Tensor, weight: Tensor, residual: Tensor, scale: Tensor, *rest: Tensor
    ) -> Tensor:
        linear = with_parameters(nn.Linear(8, width, bias=bias), weight, rest[0] if bias else None)
        norm = with_parameters(nn.LayerNorm(width, bias=shift), scale, rest[-1] if shift else None)
        return operations.linear_norm(x, linear, operations.Dropout(0.0), residual, norm)

    both(compute, inputs, dtype)


@fast
@given(
    batch=st.integers(1, 3),
    length=st.integers(1, 70),
    heads=st.integers(1, 3),
    half=st.integers(1, 20),
    bias=st.booleans(),
    rotary=st.booleans(),
    masks=st.sampled_from(["none", "bool", "added"]),
    dtype=st.sampled_from(DTYPES),
)
def test_attention(
    batch: int,
    length: int,
    heads: int,
    half: int,
    bias: bool,
    rotary: bool,
    masks: str,
    dtype: torch.dtype,
) -> None:
    hidden = 2 * half * heads
    config = EncoderConfig(hidden_size=hidden, heads=heads, max_positions=70, bias=bias, norm="pre")
    positions = Rotary(config) if rotary else AttentionPositions()
    mask = {
        "none": None,
        "bool": (torch.arange(length) < 1 + torch.arange(batch)[:, None])[:, None, None],
        "added": normal(heads, length, length, seed=7),
    }[masks]
    block = Attention(config)
    block.dropout.p = block.attention_dropout = 0.0
    inputs = [normal(batch, length, hidden), normal(3 * hidden, hidden, seed=1) / hidden**0.5]
    inputs += [normal(3 * hidden, seed=2)] if bias else []

    def compute(x: Tensor, weight: Tensor, shift: Tensor | None = None) -> Tensor:
        with_parameters(block.qkv, weight, shift)
        return block.inner(x, mask, positions)

    both(compute, inputs, dtype)


def kept_after(seed: int, count: int, share: float) -> Tensor:
    """What dropout keeps of so many places after this seed: `drop` of training.c, in NumPy."""
    torch.manual_seed(seed)
    key = int(torch.empty((), dtype=torch.int64).random_())

    def mix(x: Any) -> Any:
        x = (x ^ x >> 16) * np.uint32(0x7FEB352D)
        x = (x ^ x >> 15) * np.uint32(0x846CA68B)
        return x ^ x >> 16

    low, high = np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32)
    drawn = mix(mix(np.arange(count, dtype=np.uint32) ^ low) + high)
    torch.manual_seed(seed)
    return torch.from_numpy(drawn >= share * 2**32)


@fast
@given(
    size=st.sampled_from([1, 7, 16384, 40001]),
    share=st.sampled_from([0.1, 0.5, 0.999]),
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from(DTYPES),
)
def test_dropout_draws_each_place_by_its_number(
    size: int, share: float, seed: int, dtype: torch.dtype
) -> None:
    x, weights = normal(size).to(dtype).requires_grad_(), normal(size, seed=1).to(dtype)
    factor = kept_after(seed, size, share) * torch.tensor(1 / (1 - share), dtype=torch.float32)
    y: Any = operations.dropout(x, share)
    y.backward(weights)
    assert x.grad is not None
    assert torch.equal(y, (x.detach().float() * factor).to(dtype))
    assert torch.equal(x.grad, (weights.float() * factor).to(dtype))


def test_dropout_keeps_its_share_and_draws_neighbors_and_keys_independently() -> None:
    size, share = 2**20, 0.3
    draws = []
    for seed in range(4):
        torch.manual_seed(seed)
        kept = operations.dropout(torch.ones(size, requires_grad=True), share) > 0
        draws.append(kept.double() - (1 - share))
    variance, least = share * (1 - share), 5 / size**0.5  # five standard errors
    for number, drawn in enumerate(draws):
        assert abs(drawn.mean()) < least * variance**0.5
        for stride in (1, 2, 32, 384, 16384):
            assert abs((drawn[stride:] * drawn[:-stride]).mean()) < least * variance
        for other in draws[:number]:
            assert abs((drawn * other).mean()) < least * variance


def test_dropout_is_the_same_by_any_number_of_threads() -> None:
    drawn, threads = [], torch.get_num_threads()
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        torch.manual_seed(3)
        drawn.append(operations.dropout(torch.ones(70000, requires_grad=True), 0.1))
    torch.set_num_threads(threads)
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("other", DTYPES)
def test_a_norm_of_a_sum_drops_what_is_added(
    bias: bool, dtype: torch.dtype, other: torch.dtype
) -> None:
    rows, width, share = 70, 24, 0.25
    factors = kept_after(5, rows * width, share).view(rows, width) / (1 - share)
    added, residual = normal(rows, width).to(dtype), normal(rows, width, seed=3).to(other)
    inputs = [added, residual, *(normal(width, seed=seed) for seed in (4, 5, 6))]

    def compute(added: Tensor, residual: Tensor, shift: Tensor, *rest: Tensor) -> Tensor:
        torch.manual_seed(5)
        norm = with_parameters(nn.LayerNorm(width), *rest)
        return fused.add_norm(added, shift if bias else None, residual, norm, share) + 0 * shift

    def plain(added: Tensor, residual: Tensor, shift: Tensor, *rest: Tensor) -> Tensor:
        moved = (added.float() + shift if bias else added) * factors
        weight, bias_of_norm = rest
        sum_ = moved + residual
        return nn.functional.layer_norm(sum_, (width,), weight, bias_of_norm) + 0 * shift

    near = NEAR if dtype == other == torch.float32 else 0.01
    for actual, expected in zip(gradients(compute, inputs), gradients(plain, inputs), strict=True):
        distance = (actual.float() - expected.float()).norm()
        assert distance <= near * (1 + expected.float().norm())


@pytest.mark.parametrize("masked", [True, False])
def test_attention_drops_weights_in_float32(masked: bool) -> None:
    batch, heads, length, size, share = 3, 2, 9, 4, 0.25
    parts = [normal(batch, heads, length, size, seed=seed) for seed in range(3)]
    mask = (torch.arange(length) < 5 + torch.arange(batch)[:, None])[:, None, None]
    mask = mask if masked else torch.ones_like(mask)
    kept = kept_after(11, batch * heads * length * length, share)
    kept = kept.view(batch, heads, length, length)

    def compute(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        torch.manual_seed(11)
        return operations.attend(q, k, v, mask if masked else None, share)

    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = (q @ k.mT / size**0.5).masked_fill(~mask, -torch.inf)
        mixed: Tensor = scores.softmax(-1) * kept / (1 - share) @ v
        return mixed

    for actual, expected in zip(gradients(compute, parts), gradients(plain, parts), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)


@fast
@given(
    rows=sizes,
    classes=st.sampled_from([2, 7, 100, 16384, 16400]),
    dtype=st.sampled_from(DTYPES),
    ignored=st.booleans(),
)
def test_cross_entropy(rows: int, classes: int, dtype: torch.dtype, ignored: bool) -> None:
    labels = torch.randint(0, classes, (rows,), generator=torch.Generator().manual_seed(rows))
    if ignored:
        labels[::2] = -100
    logits = (3 * normal(rows, classes)).to(dtype)
    logits[:, 1] = logits[:, 0]  # of equal ones the first counts
    actual = gradients(lambda x: operations.cross_entropy(x, labels, -100)[0], [logits])
    right = operations.cross_entropy(logits, labels, -100)[1]
    with reference():
        wanted = gradients(lambda x: operations.cross_entropy(x, labels, -100)[0], [logits])
        assert right == operations.cross_entropy(logits, labels, -100)[1]
    assert torch.allclose(actual[0], wanted[0], rtol=1e-5)
    assert torch.allclose(
        actual[1].float(),
        wanted[1].float(),
        rtol=1e-4 if dtype == torch.float32 else 1e-2,
        atol=1e-6,
    )


def test_cross_entropy_refuses_a_label_that_is_no_class() -> None:
    with pytest.raises(IndexError):
        operations.cross_entropy(normal(3, 5), torch.tensor([1, 5, 2]), -100)


def block_of(kind: Any, **fields: Any) -> Any:
    settings: dict[str, Any] = {
        "hidden_size": 24,
        "heads": 2,
        "intermediate_size": 40,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    }
    return kind(EncoderConfig(**{**settings, **fields}))


@pytest.mark.parametrize("kind", [Attention, FeedForward])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_not_finite_reaches_output_and_gradient(
    kind: type[Block], dtype: torch.dtype, broken: float
) -> None:
    block, x = block_of(kind), normal(2, 9, 24)
    x[1, 3, 5] = broken
    x.requires_grad_()
    inputs = (None, AttentionPositions()) if kind is Attention else ()
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        output = block(x, *inputs)
    assert not output[1, 3].isfinite().all()
    assert output[0].isfinite().all(), "other sequences stay as they are"
    output.sum().backward()
    assert not block.output.weight.grad.isfinite().all()


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_loss_is_not_finite_where_a_logit_is_not(dtype: torch.dtype, broken: float) -> None:
    logits = normal(4, 9).to(dtype)
    logits[2, 3] = broken
    logits.requires_grad_()
    total: Any
    total, _ = operations.cross_entropy(logits, torch.tensor([0, 1, 2, -100]), -100)
    assert not total.isfinite()
    total.backward()
    assert logits.grad is not None
    assert not logits.grad[2].isfinite().all()


def test_strided_and_empty_inputs() -> None:
    block = block_of(FeedForward)
    wide = normal(9, 2, 48)
    both(block, [wide.transpose(0, 1)[..., ::2]], torch.float32)
    assert block(torch.empty(0, 9, 24)).shape == (0, 9, 24)
    total, right = operations.cross_entropy(
        torch.empty(0, 7, requires_grad=True), torch.empty(0, dtype=torch.int64), -100
    )
    assert (int(total), int(right)) == (0, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_repetition_change_no_bit(dtype: torch.dtype) -> None:
    blocks = [
        block_of(kind, hidden_size=64, intermediate_size=200) for kind in (Attention, FeedForward)
    ]
    x = normal(8, 70, 64)

    def outcome(threads: int) -> list[Tensor]:
        copies = copy.deepcopy(blocks)
        with patch.object(torch, "get_num_threads", lambda: threads):
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                y = copies[1](copies[0](x, None, AttentionPositions()))
            y.square().sum().backward()
        return [
            y,
            *(
                parameter.grad
                for block in copies
                for parameter in block.parameters()
                if parameter.grad is not None
            ),
        ]

    first = outcome(1)
    for threads in (1, 2, 3):
        assert all(map(torch.equal, first, outcome(threads)))


def test_doubles_hooks_and_evaluation_keep_the_reference() -> None:
    block, x = block_of(FeedForward), normal(3, 5, 24)
    with (
        patch.object(fused, "activate", side_effect=AssertionError),
        patch.object(fused, "add_norm", side_effect=AssertionError),
    ):
        with torch.no_grad():
            block(x)
        heard: list[Tensor] = []
        block.input.register_forward_hook(lambda module, inputs, output: heard.append(output))
        block.output.register_forward_hook(lambda module, inputs, output: heard.append(output))
        block(x)
        assert [tensor.shape[-1] for tensor in heard] == [40, 24]
        double = block_of(FeedForward).double()
        assert torch.autograd.gradcheck(double, normal(2, 3, 24).double().requires_grad_())


@fast
@given(
    size=st.sampled_from([1, 7, 16384, 40001]),
    build=st.sampled_from([Lamb, AdamW, partial(AdamW, bias_correction=False)]),
    decay=st.sampled_from([0.0, 0.1]),
    scale=st.sampled_from([1.0, 0.3]),
)
def test_a_step_of_an_optimizer(size: int, build: Any, decay: float, scale: float) -> None:
    """From the same state both ways move the weights alike; a weight of zero has no norm to adapt
    to.
    """
    outcomes = []
    for uses_kernels in (True, False):
        parameters = [nn.Parameter(normal(size)), nn.Parameter(torch.zeros(size))]
        optimizer = build(parameters, lr=0.01, weight_decay=decay)
        optimizer.param_groups[0]["scale"] = scale
        for step in range(3):
            for number, parameter in enumerate(parameters):
                parameter.grad = normal(size, seed=10 * step + number)
            with nullcontext() if uses_kernels else reference():
                optimizer.step()
        states = [
            tensor for parameter in parameters for tensor in optimizer.state[parameter].values()
        ]
        outcomes.append([*(parameter.detach() for parameter in parameters), *states])
    for kernel_outcome, reference_outcome in zip(*outcomes, strict=True):
        assert (kernel_outcome - reference_outcome).norm() <= 1e-6 * reference_outcome.norm()


@pytest.mark.parametrize("name", ["adamw", "lamb"])
@pytest.mark.parametrize("clip", [0.0, 0.01])
@pytest.mark.parametrize("uses_kernels", [True, False])
def test_a_table_learns_the_same_from_a_sparse_gradient(
    name: Any, clip: float, uses_kernels: bool
) -> None:
    """Rows that are never read, read again after steps without them, and twice in one batch."""
    generator, tables, norms = torch.Generator().manual_seed(0), [], []
    batches = [torch.randint(0, 200, (2, 30), generator=generator) for _ in range(6)]
    factors = normal(30, 20)
    for sparse in (True, False):
        table = nn.Embedding(300, 20, sparse=sparse)
        table.weight.data = normal(300, 20, seed=4)
        config = OptimizerConfig(name=name, learning_rate=0.01, weight_decay=0.1)
        optimizers = Optimizers(table, config)
        for batch in batches:
            for rows in batch:  # two micro-batches
                (table(rows) * factors).sum().backward()
            assert table.weight.grad is not None
            assert table.weight.grad.is_sparse == sparse
            with nullcontext() if uses_kernels else reference():
                norms.append(optimizers.clip(clip))
                optimizers.step(1.0)
            optimizers.zero_grad()
        tables.append((table.weight.detach(), *optimizers.state().values()))
    torch.testing.assert_close(norms[: len(batches)], norms[len(batches) :], rtol=1e-6, atol=0)
    for sparse_result, dense in zip(*tables, strict=True):
        torch.testing.assert_close(sparse_result, dense, rtol=2e-6, atol=1e-8)


def test_a_gradient_that_is_not_finite_reaches_the_weights_of_an_optimizer() -> None:
    parameter = nn.Parameter(normal(9))
    parameter.grad = torch.full((9,), float("nan"))
    Lamb([parameter], lr=0.01).step()
    assert parameter.isnan().all()
