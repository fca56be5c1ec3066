"""FLOPs against PyTorch's own counter, memory against what a training step really keeps.

Parameter counts are in parity/test_counts.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from litebert.config import (
    Config,
    EncoderConfig,
    OptimizerConfig,
    ReplacedTokenConfig,
    SequenceConfig,
    TrainConfig,
    replace,
)
from litebert.config.cost import forward_flops, memory, model_parameters, training_flops
from litebert.data.batches import Batch
from litebert.data.masking import find_span_boundaries
from litebert.model.pretrainer import Pretrainer
from litebert.recipes.files import recipe
from litebert.train.optim import Optimizers

ROWS, LENGTH, MASKED = 4, 40, 24  # 24 of 160 tokens are 15%

MODERN: dict[str, Any] = {
    "norm": "pre",
    "first_norm": False,
    "embedding_norm": "after",
    "feedforward": "gated",
    "positions": "rotary",
    "bias": False,
    "prediction": "hidden",
    "segment_types": 0,
    "window": 6,
    "global_every": 3,
}

POINTS: list[dict[str, Any]] = [
    {},
    {"sharing": "none", "embedding_size": 64},
    {"embedding_size": 64, "always_project": True},
    {"norm": "pre", "feedforward": "gated", "positions": "rotary", "bias": False},
    {"layers": 1, "intermediate_size": 300},
    {"objectives": ("mlm", "rtd"), "rtd": ReplacedTokenConfig(generator_width=0.5)},
    {
        "objectives": ("mlm", "rtd"),
        "rtd": ReplacedTokenConfig(generator_embeddings="tables"),
        "embedding_size": 64,
    },
    {"objectives": ("mlm", "sbo"), "sharing": "none"},
    {**MODERN, "sharing": "none"},
    {**MODERN, "sharing": "all"},
    {**MODERN, "untied": True},
    {"window": 4, "global_every": 0, "global_tokens": 2},
    {**MODERN, "untied": True, "embedding_size": 64},
    {"untied": True, "objectives": ("mlm", "rtd"), "rtd": ReplacedTokenConfig(generator_width=0.5)},
    {"sharing": "groups", "groups": 3},
    {**MODERN, "embedding_size": 64, "sharing": "none"},
    {**MODERN, "objectives": ("mlm", "rtd"), "rtd": ReplacedTokenConfig(generator_width=0.5)},
    {
        **MODERN,
        "objectives": ("mlm", "rtd"),
        "rtd": ReplacedTokenConfig(generator_embeddings="tables"),
    },
]


def point(**changes: Any) -> Config:
    shape: dict[str, Any] = {
        "vocab_size": 500,
        "embedding_size": 32,
        "hidden_size": 64,
        "layers": 4,
        "heads": 4,
        "intermediate_size": 128,
        "max_positions": LENGTH,
    }
    parts = {name: changes.pop(name) for name in ("objectives", "rtd") if name in changes}
    if "objectives" in parts:
        changes["pooler"] = False
    return Config(
        **parts,
        name="x",
        encoder=EncoderConfig(**{**shape, **changes}),
        sequences=SequenceConfig(length=LENGTH),
        train=TrainConfig(precision="float32", batch=f"{ROWS} sequences"),
    )


def batch(config: Config) -> Batch:
    ids = torch.randint(5, config.encoder.vocab_size, (ROWS, LENGTH))
    inside = (
        torch.arange(ROWS * LENGTH).view(ROWS, LENGTH)[:, 1:-1:2].flatten()
    )  # spans of one, none at an edge
    positions = inside[torch.randperm(len(inside))[:MASKED]].sort().values
    boundaries = torch.from_numpy(
        find_span_boundaries(np.ones((ROWS, LENGTH), bool), positions.numpy())
    )
    labels = torch.arange(ROWS) % 2
    return Batch(
        ids, torch.zeros_like(ids), None, positions, ids.flatten()[positions], labels, boundaries
    )


@pytest.mark.parametrize("changes", POINTS, ids=str)
def test_forward_flops_are_those_that_run(changes: dict[str, Any]) -> None:
    config = point(**changes)
    model = Pretrainer(config)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, torch.no_grad():
        model(batch(config))
    assert forward_flops(config) == pytest.approx(
        counter.get_total_flops() / (ROWS * LENGTH), rel=1e-6
    )


def test_flops_of_the_published_base_model() -> None:
    """Twice the 85 M weights in use per token, and the scores of 512 tokens on top."""
    config = recipe("albert-base")
    shape = replace(config, objectives=("mlm",), encoder=replace(config.encoder, pooler=False))
    blocks = 12 * 2 * (4 * 768**2 + 2 * 768 * 3072)
    scores = 12 * 4 * 512 * 768
    head = 0.15 * 2 * (768 * 128 + 128 * 30000)
    assert forward_flops(shape) == blocks + scores + 2 * 128 * 768 + head
    assert forward_flops(shape, length=128) == forward_flops(shape) - 12 * 4 * (512 - 128) * 768


@pytest.mark.parametrize("name", ["adamw", "lamb", "muon"])
@pytest.mark.parametrize("changes", POINTS, ids=str)
def test_weights_gradients_and_moments(changes: dict[str, Any], name: Any) -> None:
    base = point(**changes)
    config = replace(base, train=replace(base.train, optimizer=OptimizerConfig(name=name)))
    model = Pretrainer(config)
    planned = memory(config)
    weights = sum(parameter.nbytes for parameter in model.parameters())
    assert (
        planned.weights
        == planned.gradients
        == weights
        == 4 * sum(model_parameters(config).values())
    )
    state = Optimizers(model, config.train.optimizer).state()
    state_bytes = sum(tensor.nbytes for tensor in state.values())
    assert planned.optimizer == pytest.approx(
        state_bytes, rel=0.03
    )  # Muon's share leaves out the blocks' norms and biases


@pytest.mark.parametrize("changes", POINTS, ids=str)
def test_activations_are_about_what_the_backward_pass_needs(changes: dict[str, Any]) -> None:
    config = point(**changes)
    model = Pretrainer(config).train()
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    activations: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            activations[tensor.untyped_storage().data_ptr()] = (
                tensor  # alive, so that no address is used twice
            )
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        losses = model(batch(config))
    assert set(losses) == set(config.objectives)
    measured = sum(tensor.untyped_storage().nbytes() for tensor in activations.values())
    assert 0.9 < memory(config).activations / measured < 1.2


def test_activations_grow_with_the_micro_batch_and_shrink_with_bfloat16() -> None:
    config = point()
    assert memory(config, 8).activations == pytest.approx(
        2 * memory(config, 4).activations, rel=1e-6
    )
    assert memory(config).activations == memory(config, ROWS).activations
    micro = replace(config, train=replace(config.train, micro_batch=2))
    assert memory(micro).activations == memory(config, 2).activations
    half = replace(config, train=replace(config.train, precision="bfloat16"))
    assert 0.5 < memory(half).activations / memory(config).activations < 0.9


def test_depth_costs_activations_and_no_weights_when_shared() -> None:
    shallow, deep = memory(point(layers=2)), memory(point(layers=20))
    assert (shallow.weights, shallow.optimizer) == (deep.weights, deep.optimizer)
    assert deep.activations > 5 * shallow.activations


# ----------------------------------------------------------------------------------------- of a run


def test_the_operations_of_a_run_follow_its_schedules() -> None:
    config = recipe("albert-next-mini")
    depths, lengths = ((0.4, 2), (0.7, 5)), ((0.7, 64),)
    train = replace(
        config.train, batch="8 sequences", depth_schedule=depths, length_schedule=lengths
    )
    config = replace(config, train=train)

    def step(layers: int, length: int) -> float:
        flat = replace(config.train, depth_schedule=(), length_schedule=())
        shape = replace(config, encoder=replace(config.encoder, layers=layers), train=flat)
        return 3 * forward_flops(shape, length) * 8 * length

    first = training_flops(config, 100)
    assert first(0) == 0
    assert first(40) == pytest.approx(40 * step(2, 64))
    assert first(60) == pytest.approx(40 * step(2, 64) + 20 * step(5, 64))
    assert first(100) - first(99) == pytest.approx(step(8, 128))
    assert first(150) - first(100) == pytest.approx(50 * step(8, 128)), (
        "an extension is at full depth and length"
    )
    taught = training_flops(config, 100, config.encoder)
    assert 4 / 3.3 < (taught(100) - taught(99)) / step(8, 128) < 4 / 3
