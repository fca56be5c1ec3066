"""The optimizers against their formulas, recomputed in numpy, their state through a save and a
load, and Muon in float32 beside torch's own.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from litebert.base.errors import ConfigError, RunError
from litebert.config import OptimizerConfig
from litebert.model.blocks import Block
from litebert.model.pretrainer import Pretrainer
from litebert.train.device import choose
from litebert.train.optim import (
    AdamW,
    Lamb,
    Muon,
    Optimizers,
    build_optimizers,
    has_float32_iteration,
    orthogonalize,
)
from toys import points
from toys.pretraining import config, pretrain
from toys.refusals import names, refused

needs_muon = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
KINDS = [
    OptimizerConfig(name="adamw"),
    OptimizerConfig(name="adamw", bias_correction=False),
    OptimizerConfig(name="lamb"),
    pytest.param(OptimizerConfig(name="muon"), marks=needs_muon),
    pytest.param(OptimizerConfig(name="muon", bias_correction=False), marks=needs_muon),
]


class Inner(Block):
    """A block of a norm and one matrix, 4 -> 12."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.input = nn.Linear(4, 12)


class Small(nn.Module):
    """Parameters in and outside a block, one of them without a use, so that its gradient stays
    None.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.word, self.block, self.pooler = nn.Embedding(11, 4), Inner(), nn.Linear(4, 4)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.as_tensor(self.block.input(self.block.norm(self.word(ids))))


def holding(**parameters: nn.Parameter) -> nn.Module:
    """A module with these parameters."""
    return nn.ParameterDict(parameters)


def train(model: nn.Module, optimizers: Optimizers, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        optimizers.zero_grad()
        model(torch.randint(11, (8, 5), generator=generator)).pow(2).mean().backward()
        optimizers.step(1 / (1 + step))


def numpy_lamb(w: Any, grads: list[Any], lr: float, decay: float, adapt: bool) -> list[Any]:
    """Facts of the official code, in float64: the weights after each step."""
    m, v, path = np.zeros_like(w), np.zeros_like(w), []
    for g in grads:
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        u = m / (np.sqrt(v) + 1e-6) + decay * w
        norm_w, norm_u = np.linalg.norm(w), np.linalg.norm(u)
        w = w - lr * (norm_w / norm_u if adapt and norm_w > 0 and norm_u > 0 else 1.0) * u
        path.append(w)
    return path


@pytest.mark.parametrize("decay", [0.01, 0.0])
@pytest.mark.parametrize(
    ("build", "adapt"),
    [
        (Lamb, True),
        (lambda params, **rest: Lamb([{"params": params, "adapt": False}], **rest), False),
        (partial(AdamW, bias_correction=False), False),
    ],
)
def test_lamb_and_uncorrected_adamw_follow_the_formulas(
    build: Any, adapt: bool, decay: float
) -> None:
    generator = np.random.default_rng(1)
    start = [generator.normal(size=shape) for shape in ((7, 5), (3, 2))] + [np.zeros((2, 2))]
    grads = [[generator.normal(size=w.shape) for _ in range(5)] for w in start]
    params = [nn.Parameter(torch.tensor(w)) for w in start]
    optimizer = build(params, lr=0.01, weight_decay=decay)
    expected = [numpy_lamb(w, g, 0.01, decay, adapt) for w, g in zip(start, grads, strict=True)]
    for step in range(5):
        for param, g in zip(params, grads, strict=True):
            param.grad = torch.tensor(g[step])
        optimizer.step()
        for param, path in zip(params, expected, strict=True):
            np.testing.assert_allclose(param.detach().numpy(), path[step], rtol=1e-12, atol=1e-15)


def test_a_lamb_step_of_a_matrix_is_as_long_as_the_rate_times_the_matrix() -> None:
    weight = nn.Parameter(torch.randn(64, 32).double())
    bias = nn.Parameter(torch.randn(64).double())
    optimizers = Optimizers(
        holding(weight=weight, bias=bias), OptimizerConfig(name="lamb", learning_rate=0.5)
    )
    for _ in range(3):
        before, before_bias = weight.detach().clone(), bias.detach().clone()
        weight.grad, bias.grad = torch.randn_like(weight) * 1e3, torch.randn_like(bias) * 1e3
        optimizers.step(0.25)
        length = torch.linalg.norm(weight.detach() - before)
        assert length.item() == pytest.approx(0.125 * torch.linalg.norm(before).item(), rel=1e-12)
        bias_length = torch.linalg.norm(bias.detach() - before_bias)
        assert bias_length.item() != pytest.approx(
            0.125 * torch.linalg.norm(before_bias).item(), rel=1e-3
        )


def test_a_lamb_step_skips_parameters_without_a_gradient_and_keeps_zero_weights_moving() -> None:
    unused, used = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.zeros(2, 2))
    optimizer = Lamb([{"params": [unused]}, {"params": [used]}], lr=0.1)
    used.grad = torch.ones(2, 2)
    optimizer.step()
    assert torch.equal(unused, torch.ones(2, 2))
    # |w| = 0, so r = 1 and u = 0.1 / (sqrt(0.001) + 1e-6)
    torch.testing.assert_close(used.detach(), torch.full((2, 2), -0.1 * 0.1 / (0.001**0.5 + 1e-6)))


def test_adamw_is_bias_corrected_or_not_as_asked() -> None:
    """The first step of corrected AdamW is lr * sign(g); uncorrected it is 0.1 / sqrt(0.001) times
    that.
    """
    lengths = {}
    for corrected in (True, False):
        param = nn.Parameter(torch.full((3, 3), 2.0))
        config = OptimizerConfig(learning_rate=0.01, weight_decay=0.5, bias_correction=corrected)
        optimizers = Optimizers(holding(weight=param), config)
        param.grad = torch.full((3, 3), 7.0)
        optimizers.step(1.0)
        lengths[corrected] = (2.0 - param[0, 0].item()) / 0.01 - 0.5 * 2.0
    assert lengths[True] == pytest.approx(1, abs=1e-4)
    assert lengths[False] == pytest.approx(0.1 / 0.001**0.5, abs=1e-3)


def test_fused_adamw_agrees_with_the_plain_one_under_bfloat16_autocast() -> None:
    models = [Small(), Small()]
    fused = Optimizers(models[0], OptimizerConfig(learning_rate=0.01))
    groups = [
        {"params": [p for p in models[1].parameters() if p.ndim >= 2], "weight_decay": 0.01},
        {"params": [p for p in models[1].parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    plain = torch.optim.AdamW(groups, lr=0.01, eps=1e-6, fused=False, foreach=False)
    for step in range(5):
        ids = torch.randint(11, (8, 5), generator=torch.Generator().manual_seed(step))
        for model in models:
            model.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(ids).pow(2).mean()
            loss.backward()
        fused.step(1.0)
        plain.step()
    for parameter, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert parameter.dtype == torch.float32
        torch.testing.assert_close(parameter, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("config", KINDS)
def test_every_trainable_parameter_is_in_one_group_by_its_role(config: OptimizerConfig) -> None:
    model = Pretrainer(points.config(("mlm", "rtd"), sharing="none"))
    pooler: Any = model.encoder.pooler
    pooler.bias.requires_grad = False
    names = {param: name for name, param in model.named_parameters()}
    seen = {}
    for optimizer in build_optimizers(model, config):
        for group in optimizer.param_groups:
            for param in group["params"]:
                assert names[param] not in seen
                seen[names[param]] = (type(optimizer).__name__, group)
    assert set(seen) == set(names.values()) - {"encoder.pooler.bias"}
    for name, (kind, group) in seen.items():
        is_matrix = name.endswith("weight") and "norm" not in name
        in_block = is_matrix and (".attention." in name or ".feedforward." in name)
        assert group["weight_decay"] == (0.01 if is_matrix else 0)
        assert (kind == "Muon") == (config.name == "muon" and in_block)
        assert group["lr"] == (0.02 if kind == "Muon" else 1e-4)
        if config.name == "lamb":
            assert group.get("adapt", True) == is_matrix
        else:
            assert kind in ("Muon", "AdamW")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_corrected_adamw_and_clipping_are_torchs(dtype: torch.dtype, clip: float) -> None:
    """In float32 by the compiled pass, in float64 by torch's operations."""
    mine, theirs = Small().to(dtype), Small().to(dtype)
    optimizers = Optimizers(mine, OptimizerConfig(learning_rate=0.01, weight_decay=0.1))
    groups = [
        {"params": [p for p in theirs.parameters() if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in theirs.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=0.01, eps=1e-6)
    for step in range(5):
        for model in (mine, theirs):
            model.zero_grad()
            generator = torch.Generator().manual_seed(step)
            model(torch.randint(11, (8, 5), generator=generator)).pow(2).sum().backward()
        norm = optimizers.clip(clip)
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), clip or torch.inf)
        torch.testing.assert_close(norm, expected)
        optimizers.step(1.0)
        adamw.step()
    close = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-6)
    if dtype == torch.float64:
        close = partial(torch.testing.assert_close, rtol=1e-12, atol=1e-14)
    for parameter, other in zip(mine.parameters(), theirs.parameters(), strict=True):
        close(parameter, other)
    name, state = "block.input.weight", optimizers.state()
    for key, value in adamw.state[theirs.block.input.weight].items():
        close(state[f"{name}.{key}"], value)


@needs_muon
def test_muon_orthogonalises_a_fused_matrix_as_a_whole() -> None:
    """The step of a tall matrix has singular values near sqrt(rows / columns) times the rate."""
    block = Inner()
    block.input.weight = weight = nn.Parameter(torch.zeros(48, 16))
    optimizers = Optimizers(block, OptimizerConfig(name="muon"))
    weight.grad = torch.randn(48, 16, generator=torch.Generator().manual_seed(0))
    optimizers.step(0.5)
    values = torch.linalg.svdvals(weight.detach()) / (0.5 * 0.02 * 3**0.5)
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_muon_on_an_old_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.optim, "Muon", raising=False)
    with refused(ConfigError, "train.optimizer.name=muon", "torch 2.9", torch.__version__):
        build_optimizers(Small(), OptimizerConfig(name="muon"))
    # Ours needs none of torch's.
    assert build_optimizers(Small(), OptimizerConfig(name="muon"), muon_in_float32=True)


@pytest.mark.parametrize("config", KINDS)
def test_a_loaded_state_continues_bit_for_bit(config: OptimizerConfig, tmp_path: Path) -> None:
    whole = Small()
    uninterrupted = Optimizers(whole, config)
    train(whole, uninterrupted, range(3))
    save_file(dict(uninterrupted.state()), tmp_path / "optimizer.safetensors")
    resumed, forgetful = Small(), Small()
    resumed.load_state_dict(whole.state_dict())
    forgetful.load_state_dict(whole.state_dict())
    optimizers = Optimizers(resumed, config)
    optimizers.load(load_file(tmp_path / "optimizer.safetensors"))
    train(whole, uninterrupted, range(3, 7))
    train(resumed, optimizers, range(3, 7))
    train(forgetful, Optimizers(forgetful, config), range(3, 7))
    assert all(
        torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True)
    )
    assert not all(
        torch.equal(a, b) for a, b in zip(whole.parameters(), forgetful.parameters(), strict=True)
    )
    expected, actual = uninterrupted.state(), optimizers.state()
    assert expected.keys() == actual.keys()
    assert all(torch.equal(expected[name], actual[name]) for name in expected)


@pytest.mark.parametrize("config", KINDS)
def test_the_state_allocated_at_the_start_is_what_torch_would_allocate(
    config: OptimizerConfig,
) -> None:
    """Steps with it equal steps of the bare optimizers, and no key appears later."""
    allocated, bare = Small(), Small()
    optimizers = Optimizers(allocated, config)
    names = set(optimizers.state())
    built = build_optimizers(bare, config)
    peaks = [[group["lr"] for group in optimizer.param_groups] for optimizer in built]
    train(allocated, optimizers, range(3))
    for step in range(3):
        bare.zero_grad()
        bare(torch.randint(11, (8, 5), generator=torch.Generator().manual_seed(step))).pow(
            2
        ).mean().backward()
        for optimizer, lrs in zip(built, peaks, strict=True):
            for group, lr in zip(optimizer.param_groups, lrs, strict=True):
                group["lr"] = lr / (1 + step)
            optimizer.step()
    assert all(
        torch.equal(a, b) for a, b in zip(allocated.parameters(), bare.parameters(), strict=True)
    )
    of: dict[Any, str] = {param: name for name, param in bare.named_parameters()}
    keys = {
        f"{of[p]}.{key}"
        for optimizer in built
        for p, state in optimizer.state.items()
        for key in state
    }
    assert keys == {name for name in names if "pooler" not in name}


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    model = Small()
    optimizers = Optimizers(model, OptimizerConfig())
    train(model, optimizers, range(2))
    name = "block.input.weight.exp_avg"
    state = {key: value.clone() for key, value in optimizers.state().items()}
    train(model, optimizers, range(2, 3))
    after = {key: value.clone() for key, value in optimizers.state().items()}
    without = {key: value for key, value in state.items() if key != name}
    for wrong, places in (
        (without, [name]),
        (state | {"other.step": torch.zeros(())}, ["other.step"]),
        (state | {name: torch.zeros(4, 12)}, [name, (4, 12), (12, 4)]),
        (state | {name: state[name].double()}, [name, torch.float64, torch.float32]),
    ):
        with refused(RunError, *places):
            optimizers.load(wrong)
    assert all(torch.equal(value, after[key]) for key, value in optimizers.state().items())


# --------------------------------------------------------------------------------- Muon in float32

SHAPES = [(24, 8), (8, 24), (16, 16), (1, 8), (40, 1)]


def in_float64(matrix: Tensor) -> Tensor:
    """The same polynomial, 3.4445 s - 4.7750 s^3 + 2.0315 s^5 five times, of singular values
    instead of matrices.
    """
    left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    values = values / values.norm()
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    product: Tensor = left @ torch.diag(values) @ right
    return product


@pytest.mark.parametrize("shape", SHAPES)
def test_the_iteration_is_a_polynomial_of_the_singular_values(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        orthogonalize(matrix).double(), in_float64(matrix), rtol=0, atol=1e-4
    )
    assert torch.equal(orthogonalize(torch.zeros(shape)), torch.zeros(shape))


@needs_muon
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_steps_are_those_of_torch_to_the_precision_of_bfloat16(decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    our_parameters = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]
    peer_parameters = [nn.Parameter(parameter.detach().clone()) for parameter in our_parameters]
    unused = nn.Parameter(torch.ones(2, 2))
    settings: dict[str, Any] = {"lr": 0.02, "momentum": 0.9, "weight_decay": decay}
    optimizers = (
        Muon([*our_parameters, unused], **settings),
        torch.optim.Muon(peer_parameters, **settings),
    )
    for _ in range(4):
        before = [parameter.detach().clone() for parameter in our_parameters]
        for our_parameter, other in zip(our_parameters, peer_parameters, strict=True):
            our_parameter.grad = torch.randn(our_parameter.shape, generator=generator)
            other.grad = our_parameter.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
        for our_parameter, other, was in zip(our_parameters, peer_parameters, before, strict=True):
            assert (our_parameter - other).norm() < 0.1 * (our_parameter - was).norm()
            other.data.copy_(our_parameter.data)
    assert torch.equal(unused, torch.ones(2, 2))
    for our_parameter, other in zip(our_parameters, peer_parameters, strict=True):
        assert torch.equal(
            optimizers[0].state[our_parameter]["momentum_buffer"],
            optimizers[1].state[other]["momentum_buffer"],
        )


def test_a_run_in_float32_on_a_cpu_takes_it_and_is_told_where_it_began_otherwise(
    tiny_data: Path, tmp_path: Path, log_messages: list[str]
) -> None:
    assert not has_float32_iteration(choose("bfloat16", "cpu"))
    kinds: dict[str, list[type]] = {}
    arithmetic = {}

    def note_kinds(name: str, loop: Any) -> None:
        kinds[name] = [type(optimizer) for optimizer in loop.optimizers._optimizers]

    names_of_optimizers: tuple[Any, ...] = ("adamw", "muon")
    for name in names_of_optimizers:
        point = config(train={"budget": "1 steps", "optimizer": OptimizerConfig(name=name)})
        pretrain(point, tiny_data, tmp_path / name, on_step=partial(note_kinds, name))
        arithmetic[name] = json.loads((tmp_path / name / "run.json").read_text())["arithmetic"]
    assert kinds["muon"] == [Muon, AdamW]
    assert arithmetic["muon"].startswith(arithmetic["adamw"])
    file = tmp_path / "muon" / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "arithmetic": arithmetic["adamw"]}))
    log_messages.clear()
    pretrain(point, tiny_data, tmp_path / "muon")
    (remark,) = [message for message in log_messages if arithmetic["muon"] in message]
    names(remark, *arithmetic.values())
