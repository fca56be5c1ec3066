"""Parameters -> optimizers: AdamW, LAMB, or Muon on the block matrices with AdamW elsewhere.

Groups follow the role of a parameter, never its name: norms and biases get no weight decay and no
layer-wise adaptation, and each block declares its own matrices. Their state is one flat dictionary
of tensors, without pickle, allocated at the start: a checkpoint of step 0 is whole, and a missing
tensor is always an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from litebert.base.errors import ConfigError, RunError
from litebert.config import OptimizerConfig
from litebert.model import fused
from litebert.model.blocks import Block
from litebert.train.device import Device
from litebert.train.parallel import copy_to_all
from litebert.train.ranks import ALONE, Ranks

NO_RATES: Mapping[str, float] = MappingProxyType({})

_MUON_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_MUON_STEPS = 5
_MUON_EPS = 1e-7


class AdamW(torch.optim.Optimizer):
    """AdamW (Loshchilov and Hutter 2019), on a CPU in one compiled pass.

    For each parameter w with gradient g, at its step t:

        m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
        u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay w
        w = w - lr u

    Without `bias_correction` both divisors are 1, as in the TensorFlow releases (`optimization.py`,
    `AdamWeightDecayOptimizer`). A gradient counts `group["scale"]` times.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        bias_correction: bool = True,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "scale": 1.0})
        self.bias_correction = bias_correction

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            if not params:
                continue
            for param in params:
                self.state[param] = self.state[param] or _zero_state(self, param)
                if self.bias_correction:
                    self.state[param]["step"] += 1
                if param.grad.is_sparse:
                    param.grad = param.grad.coalesce()
            if fused.can_update(params):
                for param in params:
                    fused.update(param, self.state[param], group, self.is_adapted(group))
                continue
            grads = [param.grad.to_dense() for param in params]
            if group["scale"] != 1:
                torch._foreach_mul_(grads, group["scale"])
            first, second = (
                [self.state[param][key] for param in params] for key in ("exp_avg", "exp_avg_sq")
            )
            beta1, beta2 = group["betas"]
            torch._foreach_lerp_(first, grads, 1 - beta1)
            torch._foreach_mul_(second, beta2)
            torch._foreach_addcmul_(second, grads, grads, 1 - beta2)
            scale = torch._foreach_sqrt(second)
            if self.bias_correction:
                times = [self.state[param]["step"].double() for param in params]
                torch._foreach_div_(scale, [(1 - beta2**t).sqrt() for t in times])
            torch._foreach_add_(scale, group["eps"])
            update = list(torch._foreach_div(first, scale))
            if self.bias_correction:
                torch._foreach_div_(update, [1 - beta1**t for t in times])
            if group["weight_decay"]:
                torch._foreach_add_(update, params, alpha=group["weight_decay"])
            self.adapt(group, params, update)
            torch._foreach_add_(params, update, alpha=-group["lr"])

    def is_adapted(self, group: Mapping[str, Any]) -> bool:
        return False

    def adapt(self, group: Mapping[str, Any], params: list[Tensor], update: list[Tensor]) -> None:
        """Scale the updates of a group in place; here they stay as they are."""


class Lamb(AdamW):
    """LAMB (You et al. 2020) as in the official ALBERT code (`lamb_optimizer.py`).

        w = w - lr r u,   r = |w| / |u| when the group adapts and both norms are positive, else 1

    No bias correction, and no upper limit on r. A shared block has one r for each matrix, its
    gradient summed over its uses. A group with `adapt` False takes the step of `AdamW`.
    """

    def __init__(self, params: Iterable[Any], lr: float, **settings: Any) -> None:
        super().__init__(params, lr, **settings, bias_correction=False)

    def is_adapted(self, group: Mapping[str, Any]) -> bool:
        return bool(group.get("adapt", True))

    def adapt(self, group: Mapping[str, Any], params: list[Tensor], update: list[Tensor]) -> None:
        """Multiply each update by its r."""
        if not self.is_adapted(group):
            return
        norms = zip(torch._foreach_norm(params), torch._foreach_norm(update), strict=True)
        # On the device throughout: asking whether a norm is zero would wait for an accelerator.
        ratios = [torch.where((w > 0) & (u > 0), w / u, torch.ones_like(w)) for w, u in norms]
        torch._foreach_mul_(update, ratios)


class Muon(torch.optim.Optimizer):
    """`torch.optim.Muon` (Jordan et al. 2024) with its iteration in float32. Torch's is in
    bfloat16, which processors without bfloat16 emulate.

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
    Newton-Schulz steps; singular values become 0.7 to 1.2.
    """
    a, b, c = _MUON_COEFFICIENTS
    tall = matrix.size(0) > matrix.size(1)
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=_MUON_EPS)
    for _ in range(_MUON_STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def has_float32_iteration(machine: Device) -> bool:
    """Return True if a run with Muon takes this one: on a CPU that computes in float32, where
    torch's emulated bfloat16 iteration takes most of a step.
    """
    return machine.device.type == "cpu" and machine.autocast is None


def build_optimizers(
    module: nn.Module,
    config: OptimizerConfig,
    rates: Mapping[str, float] = NO_RATES,
    muon_in_float32: bool = False,
) -> list[torch.optim.Optimizer]:
    """Build the optimizers of a run; every trainable parameter is in exactly one group of one of
    them.

    LAMB never corrects the bias of its moments, whatever `bias_correction` says. Muon gets
    `Block.matrices` and keeps torch's own scale, sqrt(max(1, rows / columns)). It orthogonalizes
    fused matrices as they are stored, as one tall matrix: q, k, v (3H, H), and both halves of a
    gated feed-forward (2I, H). Their rows together then have the same root mean square as when done
    apart. But the part with the larger gradient takes the larger share of the step.
    """
    named = [(name, param) for name, param in module.named_parameters() if param.requires_grad]
    optimizers: list[torch.optim.Optimizer] = []
    lr, eps, betas = config.peak, config.eps, (config.beta1, config.beta2)
    if config.name == "muon":
        matrices = {
            param
            for block in module.modules()
            if isinstance(block, Block)
            for param in block.matrices()
        }
        muon = [(name, param) for name, param in named if param in matrices]
        if not muon_in_float32 and not hasattr(torch.optim, "Muon"):
            raise ConfigError(
                "train.optimizer.name=muon needs torch 2.9 or later, except in float32 on a CPU, "
                f"and this is {torch.__version__}; upgrade torch or choose adamw or lamb"
            )
        kind: Any = Muon if muon_in_float32 else torch.optim.Muon
        optimizers.append(
            kind(
                _group_by_rate(muon, rates, config.muon_learning_rate),
                momentum=config.muon_momentum,
                weight_decay=config.weight_decay,
            )
        )
        named = [(name, param) for name, param in named if param not in matrices]
    tables = [(name, param) for name, param in named if param.ndim >= 2]
    vectors = [(name, param) for name, param in named if param.ndim < 2]
    groups = [
        *_group_by_rate(tables, rates, lr, weight_decay=config.weight_decay),
        *_group_by_rate(vectors, rates, lr, weight_decay=0.0, adapt=False),
    ]
    if config.name == "lamb":
        optimizers.append(Lamb(groups, lr=lr, betas=betas, eps=eps))
    elif config.bias_correction and any(param.device.type != "cpu" for _, param in named):
        optimizers.append(torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps, fused=True))
    else:
        optimizers.append(AdamW(groups, lr, betas, eps, bias_correction=config.bias_correction))
    return optimizers


def _group_by_rate(
    named: Iterable[tuple[str, nn.Parameter]],
    rates: Mapping[str, float],
    learning_rate: float,
    **settings: Any,
) -> list[dict[str, Any]]:
    groups: dict[float, list[nn.Parameter]] = {}
    for name, param in named:
        groups.setdefault(rates.get(name, 1.0), []).append(param)
    return [
        {"params": params, "lr": learning_rate * rate, **settings}
        for rate, params in groups.items()
    ]


def _zero_state(optimizer: torch.optim.Optimizer, param: Tensor) -> dict[str, Tensor]:
    """Allocate the state that the optimizer would allocate for the parameter at its first step."""
    if not isinstance(optimizer, (AdamW, torch.optim.AdamW)):
        return {"momentum_buffer": torch.zeros_like(param)}
    moments = {name: torch.zeros_like(param) for name in ("exp_avg", "exp_avg_sq")}
    if isinstance(optimizer, AdamW) and not optimizer.bias_correction:
        return moments
    # Torch's fused kernel reads the step on the device.
    return {"step": torch.zeros((), dtype=torch.float32, device=param.device), **moments}


class Optimizers:
    """All optimizers of a run as one, with flat state. Move the model to its device first."""

    def __init__(
        self,
        module: nn.Module,
        config: OptimizerConfig,
        rates: Mapping[str, float] = NO_RATES,
        ranks: Ranks = ALONE,
        muon_in_float32: bool = False,
    ) -> None:
        """`rates` has factors of the learning rate by parameter name; 1 where a name is absent."""
        names = {param: name for name, param in module.named_parameters()}
        self._optimizers = build_optimizers(module, config, rates, muon_in_float32)
        self._parameters = [param for param in module.parameters() if param.requires_grad]
        self._ranks = ranks
        self._groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        self._peaks = [group["lr"] for group in self._groups]
        self._state: dict[str, Tensor] = {}
        for optimizer in self._optimizers:
            for param in (param for group in optimizer.param_groups for param in group["params"]):
                optimizer.state[param] = _zero_state(optimizer, param)
                for key, tensor in optimizer.state[param].items():
                    self._state[f"{names[param]}.{key}"] = tensor

    def clip(self, limit: float, at_once: bool = False) -> Tensor:
        """Return the norm of all gradients together, which the next step takes scaled to `limit` at
        most; 0 is no limit. `at_once` says that a number can be asked of the device without
        waiting.
        """
        for param in self._parameters:
            if param.grad is not None and param.grad.is_sparse:
                param.grad = param.grad.coalesce()
        grads = [param.grad for param in self._parameters if param.grad is not None]
        norm = nn.utils.get_total_norm(
            [grad.values() if grad.is_sparse else grad for grad in grads]
        )
        scale = ((limit or math.inf) / (norm + 1e-6)).clamp(max=1.0)  # as in `clip_grad_norm_`
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                if isinstance(optimizer, AdamW) and at_once:
                    group["scale"] = scale.item()  # multiplied in the pass of the step
                else:
                    nn.utils.clip_grads_with_norm_(group["params"], limit or math.inf, norm)
        return norm

    def step(self, factor: float) -> None:
        for group, peak in zip(self._groups, self._peaks, strict=True):
            group["lr"] = peak * factor
        for optimizer in self._optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)

    def state(self) -> Mapping[str, Tensor]:
        """Every state tensor by `<parameter name>.<state key>`; the next step changes them."""
        return self._state

    def start(self, tensors: Mapping[str, Tensor] | None) -> int:
        """Begin with the tensors of another run's `state()` that fit by name and shape, and zeros
        elsewhere; how many were taken. In a group, the main process has them."""
        fitting = {
            name: tensor
            for name, tensor in (tensors or {}).items()
            if name in self._state and _describe(tensor) == _describe(self._state[name])
        }
        fresh = {
            name: torch.zeros(tensor.shape, dtype=tensor.dtype)
            for name, tensor in self._state.items()
        }
        self.load(None if tensors is None else fresh | fitting)
        return len(fitting)

    def load(self, tensors: Mapping[str, Tensor] | None) -> None:
        """Take over a saved `state()`, bit for bit; in a group, the main process has it."""
        if tensors is not None:
            saved, expected = (
                {name: _describe(tensor) for name, tensor in each.items()}
                for each in (tensors, self._state)
            )
            if saved != expected:
                name = min(
                    name for name in saved | expected if saved.get(name) != expected.get(name)
                )
                raise RunError(
                    f"the saved optimizer state has {name} as {saved.get(name, 'nothing')} where "
                    f"this run has {expected.get(name, 'nothing')}; it belongs to another recipe, "
                    "so continue with that one or start in another folder"
                )
        copy_to_all(tensors, self._state, self._ranks)


def _describe(tensor: Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"
