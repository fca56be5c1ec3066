"""The functions of training.c as operations with gradients, for model/operations.py.

Shapes: B sequences, S tokens, A heads, D head size, N rows, C classes, W the width of a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from litebert.kernels.loader import BLOCK, STRETCH, WIDEST, library

ACTIVATIONS = ("gelu", "gelu_tanh", "silu", "relu")
"""The activations, in the order of training.c."""
_TYPES = {torch.float32: 0, torch.bfloat16: 1}
_SERIAL = 16384
"""Elements up to which a second thread costs more than it saves."""


def can_follow(x: Tensor, module: nn.Module | None, width: int) -> bool:
    """True where a compiled pass over rows of `width` may follow `x` and torch's `module`."""
    return (
        torch.is_grad_enabled()
        and x.device.type == "cpu"
        and x.dtype in _TYPES
        and type(x) is Tensor
        and x.numel() > 0
        and width <= WIDEST
        and (module is None or _plain(module))
        and not torch.compiler.is_compiling()
        and not torch._C._get_tracing_state()
        and library() is not None
    )


def _plain(module: nn.Module) -> bool:
    """True where a module computes what its class does, in float32, without hooks."""
    return (
        type(module) in (nn.Linear, nn.LayerNorm)
        and all(
            parameter.dtype == torch.float32
            for parameter in module._parameters.values()
            if parameter is not None
        )
        and not module._forward_hooks
        and not module._forward_pre_hooks
    )


def call(name: str, *arguments: Tensor | float | None) -> None:
    """A function of training.c, with as many threads as the work is worth."""
    most = max(x.numel() for x in arguments if isinstance(x, Tensor))
    values = (x.data_ptr() if isinstance(x, Tensor) else x for x in arguments)
    getattr(library(), name)(*values, torch.get_num_threads() if most > _SERIAL else 1)


def _sums(rows: int, width: int) -> tuple[Tensor, Tensor]:
    """Room for sums over rows, and for those of each block."""
    return torch.empty(width), torch.empty(-(-rows // BLOCK), width)


def activate(x: Tensor, bias: Tensor | None, activation: str, gated: bool) -> Tensor:
    """act(x + bias), or with the gate act(first half) * second half; (..., W) or (..., 2 W) to
    (..., W).

    x must be a result that nothing else reads: its memory is taken for what the way back needs.
    """
    number = ACTIVATIONS.index(activation)
    y: Tensor = _Activation.apply(x, bias, number, gated)  # type: ignore[no-untyped-call]
    return y


class _Activation(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, kind: int, gated: bool) -> Tensor:
        slopes = x.contiguous()
        width = x.shape[-1] // (1 + gated)
        ctx.shape, ctx.gated, ctx.has_bias = (
            (x.numel() // x.shape[-1], width),
            int(gated),
            bias is not None,
        )
        y = x.new_empty(*x.shape[:-1], width)
        call("activate", slopes, bias, y, *ctx.shape, kind, ctx.gated, _TYPES[x.dtype])
        ctx.save_for_backward(slopes)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        (slopes,) = ctx.saved_tensors
        dx = torch.empty_like(slopes)
        dbias, parts = _sums(ctx.shape[0], slopes.shape[-1]) if ctx.has_bias else (None, None)
        call(
            "activate_backward",
            slopes,
            dy.contiguous(),
            dx,
            dbias,
            parts,
            *ctx.shape,
            ctx.gated,
            _TYPES[dx.dtype],
        )
        return dx, dbias, None, None


def norm_fits(
    x: Tensor, bias: Tensor | None, residual: Tensor | None, *gains: Tensor | None
) -> bool:
    """True where the shapes belong together, for a compiled pass reads what it is given."""
    rows = residual is None or residual.shape == x.shape
    return rows and all(gain.shape == x.shape[-1:] for gain in (bias, *gains) if gain is not None)


def add_norm(
    x: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    norm: nn.LayerNorm,
    share: float = 0.0,
) -> Tensor:
    """norm(dropout(x + bias) + residual), or norm(x); (..., W) in and out, in the wider dtype."""
    y: Tensor = _AddNorm.apply(  # type: ignore[no-untyped-call]
        x, bias, residual, norm.weight, norm.bias, norm.eps, share
    )
    return y


class _AddNorm(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        bias: Tensor | None,
        residual: Tensor | None,
        weight: Tensor,
        shift: Tensor | None,
        eps: float,
        share: float,
    ) -> Tensor:
        assert norm_fits(x, bias, residual, weight, shift)
        x, residual = x.contiguous(), None if residual is None else residual.contiguous()
        dtype = x.dtype if residual is None else torch.promote_types(x.dtype, residual.dtype)
        z, y = (
            (x if residual is None else torch.empty_like(x, dtype=dtype)),
            torch.empty_like(x, dtype=dtype),
        )
        rows, width = x.numel() // x.shape[-1], x.shape[-1]
        stats = torch.empty(rows, 2)
        x_type, other = _TYPES[x.dtype], 0 if residual is None else _TYPES[residual.dtype]
        ctx.draws = _choose_draws(share)
        inputs = (x, x_type, bias, *ctx.draws, residual, other, weight, shift)
        call("add_norm", *inputs, z, y, _TYPES[dtype], stats, rows, width, eps)
        ctx.save_for_backward(z, stats, weight)
        ctx.dtypes = (
            x.dtype,
            None if residual is None else residual.dtype,
            bias is not None,
            shift is not None,
        )
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        z, stats, weight = ctx.saved_tensors
        x_dtype, residual_dtype, has_bias, has_shift = ctx.dtypes
        rows, width = stats.shape[0], z.shape[-1]
        dz = torch.empty_like(z)
        narrower = next(
            (dtype for dtype in (x_dtype, residual_dtype) if dtype not in (z.dtype, None)), None
        )
        dropped = ctx.draws[1] > 0
        if dropped:  # the gradient of x has factors, and no other one
            narrower = x_dtype
        other = None if narrower is None else torch.empty_like(z, dtype=narrower)
        sums, parts = _sums(rows, 3 * width)
        types = _TYPES[z.dtype], 0 if narrower is None else _TYPES[narrower]
        call(
            "add_norm_backward",
            dy.contiguous(),
            z,
            types[0],
            stats,
            weight,
            *ctx.draws,
            dz,
            other,
            types[1],
            sums,
            parts,
            rows,
            width,
        )
        dweight, dshift, dbias = sums.view(3, width)
        dx = dz if x_dtype == z.dtype and not dropped else other
        dresidual = None if residual_dtype is None else dz if residual_dtype == z.dtype else other
        if dropped:
            dresidual = dz.to(residual_dtype)
        return (
            dx,
            dbias if has_bias else None,
            dresidual,
            dweight,
            dshift if has_shift else None,
            None,
            None,
        )


def split_heads(
    qkv_BS3AD: Tensor, bias: Tensor | None, tables: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v of qkv + bias, (B, A, S, D) each; q and k rotated by tables (at least S, D)."""
    cosine, sine = tables or (None, None)
    q, k, v = _SplitHeads.apply(qkv_BS3AD, bias, cosine, sine)  # type: ignore[no-untyped-call]
    return q, k, v


class _SplitHeads(Function):
    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, bias: Tensor | None, cosine: Tensor | None, sine: Tensor | None
    ) -> tuple[Tensor, ...]:
        qkv = qkv.contiguous()
        batch, length, _, heads, size = qkv.shape
        ctx.turns = (
            cosine,
            None if sine is None else sine.flatten()[size // 2 :],
        )  # whose first half is negated
        ctx.shape = (batch, length, heads, size, _TYPES[qkv.dtype])
        ctx.has_bias = bias is not None
        parts = qkv.new_empty(3, batch, heads, length, size)
        call("split_heads", qkv, bias, parts, *ctx.turns, *ctx.shape)
        return parts.unbind(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        batch, length, heads, size, _ = ctx.shape
        grads = tuple(grad if grad.stride(-1) == 1 else grad.contiguous() for grad in grads)
        strides = torch.tensor([grad.stride()[:3] for grad in grads])
        dqkv = grads[0].new_empty(batch, length, 3, heads, size)
        dbias, parts = _sums(batch * length, 3 * heads * size) if ctx.has_bias else (None, None)
        call("split_heads_backward", *grads, strides, dqkv, dbias, parts, *ctx.turns, *ctx.shape)
        return dqkv, dbias, None, None


def dropout(x: Tensor, share: float) -> Tensor:
    y: Tensor = _Dropout.apply(x, share)  # type: ignore[no-untyped-call]
    return y


class _Dropout(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float) -> Tensor:
        ctx.draws = _choose_draws(share)
        return _drop(x, *ctx.draws)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        return _drop(dy, *ctx.draws), None


def _choose_draws(share: float) -> tuple[int, int, float]:
    """A key of torch's generator, the share as one of 2^32, and the factor of what stays."""
    if share == 0:
        return 0, 0, 1.0
    key = int(torch.empty((), dtype=torch.int64).random_())
    return key, int(share * 2**32), 1 / (1 - share)


def _drop(x: Tensor, key: int, dropped: int, scale: float) -> Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    call("drop", x, y, key, dropped, scale, x.numel(), _TYPES[x.dtype])
    return y


def attention_weights(q_BASD: Tensor, k_BASD: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """softmax(scale q k^T + mask), (B, A, S, S)."""
    weights: Tensor = _Weights.apply(q_BASD, k_BASD, mask, scale)  # type: ignore[no-untyped-call]
    return weights


class _Weights(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, mask: Tensor | None, scale: float) -> Tensor:
        weights = (q @ k.transpose(-1, -2)).contiguous()
        kind, strides = 0, None
        if mask is not None:
            mask = mask.expand(weights.shape)
            mask = mask if mask.stride(-1) == 1 else mask.contiguous()
            kind, strides = (
                1 if mask.dtype == torch.bool else 2 + _TYPES[mask.dtype],
                torch.tensor(mask.stride()[:3]),
            )
        call("softmax", weights, mask, strides, kind, scale, *weights.shape, _TYPES[weights.dtype])
        ctx.save_for_backward(q, k, weights)
        ctx.scale = scale
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, weights = ctx.saved_tensors
        dscores = torch.empty_like(weights)
        rows, keys = grad.numel() // grad.shape[-1], grad.shape[-1]
        call(
            "softmax_backward",
            weights,
            grad.contiguous(),
            dscores,
            ctx.scale,
            rows,
            keys,
            _TYPES[weights.dtype],
        )
        return dscores @ k, dscores.transpose(-1, -2) @ q, None, None


def labels_fit(labels_N: Tensor, classes: int, ignored: int) -> bool:
    """True where every label is a class or ignored; PyTorch's own loss refuses others."""
    if labels_N.dtype != torch.int64 or labels_N.ndim != 1:
        return False
    labels = labels_N.numpy()  # on a CPU, where nothing is waited for
    return bool(((labels == ignored) | ((labels >= 0) & (labels < classes))).all())


def cross_entropy(logits_NC: Tensor, labels_N: Tensor, ignored: int) -> tuple[Tensor, Tensor]:
    """The summed cross-entropy, and how many labels have the highest logit."""
    losses_N, right_N = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
        logits_NC, labels_N, ignored
    )
    return losses_N.sum(), right_N.sum()


class _CrossEntropy(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, ignored: int) -> tuple[Tensor, Tensor]:
        logits, labels = logits.contiguous(), labels.contiguous()
        rows, classes = logits.shape
        losses, norms, right = (
            torch.empty(rows),
            torch.empty(rows),
            torch.empty(rows, dtype=torch.bool),
        )
        ctx.shape = (rows, classes, ignored, _TYPES[logits.dtype])
        call("cross_entropy", logits, labels, losses, norms, right, *ctx.shape)
        ctx.save_for_backward(logits, labels, norms)
        ctx.mark_non_differentiable(right)
        return losses, right

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factors: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        logits, labels, norms = ctx.saved_tensors
        grad = torch.empty_like(logits)
        call(
            "cross_entropy_backward", logits, labels, norms, factors.contiguous(), grad, *ctx.shape
        )
        return grad, None, None


# --------------------------------------------------------------------------------------- optimizers


def can_update(parameters: list[Tensor]) -> bool:
    """True where `update` can step these parameters."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    tensors = [
        *parameters,
        *(gradient.values() if gradient.is_sparse else gradient for gradient in gradients),
    ]
    plain = all(
        tensor.device.type == "cpu" and tensor.dtype == torch.float32 and tensor.is_contiguous()
        for tensor in tensors
    )
    return (
        plain
        and all(type(tensor) in (Tensor, nn.Parameter) for tensor in tensors)
        and library() is not None
    )


def update(
    parameter: Tensor, state: Mapping[str, Tensor], group: Mapping[str, Any], adapt: bool
) -> None:
    """A step of AdamW, or with `adapt` of LAMB, in place; the gradient counts `group["scale"]`
    times, and a sparse one is coalesced.
    """
    gradient, first, second = parameter.grad, state["exp_avg"], state["exp_avg_sq"]
    assert gradient is not None
    n, rate, (beta1, beta2) = parameter.numel(), group["lr"], group["betas"]
    step = root = 1.0
    if "step" in state:
        t = int(state["step"])
        step, root = 1 / (1 - beta1**t), (1 - beta2**t) ** -0.5
    decay = group["weight_decay"]
    rates = (group["scale"], 1 - beta1, 1 - beta2, step, root, group["eps"], decay, rate)
    moments = (first, second, parameter)
    if gradient.is_sparse and not adapt:
        places, rows = gradient.indices()[0], gradient.values()
        call("moments_of_rows", rows, places, len(rows), *moments, *parameter.shape, *rates)
        return
    steps = torch.empty_like(parameter) if adapt else None
    squares = torch.empty(-(-n // STRETCH), 2) if adapt else None
    call("moments", gradient.to_dense(), *moments, steps, squares, n, *rates)
    if adapt:
        call("adapted", parameter, steps, squares, n, rate)
