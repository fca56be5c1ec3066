"""Muon in float32 beside torch's own and a float64 reference, and what a run says of it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from litebert.config import OptimizerConfig
from litebert.train.device import choose
from litebert.train.optim import Muon, has_float32_iteration, orthogonalize
from toys.pretraining import config, pretrain
from toys.refusals import names

SHAPES = [(24, 8), (8, 24), (16, 16), (1, 8), (40, 1)]


def kinds_of(loop: Any) -> list[type]:
    return [type(optimizer) for optimizer in loop.optimizers._optimizers]


needs_muon = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")


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
        kinds[name] = kinds_of(loop)

    names_of_optimizers: tuple[Any, ...] = ("adamw", "muon")
    for name in names_of_optimizers:
        point = config(train={"budget": "1 steps", "optimizer": OptimizerConfig(name=name)})
        pretrain(point, tiny_data, tmp_path / name, on_step=partial(note_kinds, name))
        arithmetic[name] = json.loads((tmp_path / name / "run.json").read_text())["arithmetic"]
    assert kinds["muon"] == [Muon, torch.optim.AdamW]
    assert arithmetic["muon"].startswith(arithmetic["adamw"])
    file = tmp_path / "muon" / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "arithmetic": arithmetic["adamw"]}))
    log_messages.clear()
    pretrain(point, tiny_data, tmp_path / "muon")
    (remark,) = [message for message in log_messages if arithmetic["muon"] in message]
    names(remark, *arithmetic.values())
