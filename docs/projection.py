"""A simple model of a step on many GPUs: its computation, memory and communication.

    compute         3 x forward FLOPs x tokens of the batch / (GPUs x speed), as if no GPU waited
                    for another
    memory          weights, gradients and moments as `cost.memory` counts them, and the activations
                    of a micro-batch
    communication   a ring all-reduce of the float32 gradients, once a step: 2 (n - 1) / n of their
                    bytes pass each GPU. Where weights are sharded, for each micro-batch instead:
                    gradients are reduced and scattered, and weights gathered in both passes, those
                    of a shared block once for each layer that uses it

It gives up on what it cannot know: how much of the communication is hidden behind the backward pass
(all but the last gradients can be), slow machines, and the reading of data. The two times bracket a
step: the larger of them if all is hidden, their sum if nothing is.
"""

from __future__ import annotations

from dataclasses import dataclass

from litebert.config import Config, cost, replace
from litebert.config.amounts import BUDGET_UNITS, parse_amount


@dataclass(frozen=True)
class Cluster:
    """Machines of some GPUs each, joined by a network. By default H100s of 80 GB, in machines of
    eight.
    """

    devices: int
    peak: float = 990e12
    """Floating point operations a second of a GPU in bfloat16, as its maker gives them."""
    reached: float = 0.4
    """Share of them that training reaches: an assumption, until it is measured."""
    memory: float = 80e9
    """Bytes of a GPU."""
    usable: float = 0.8
    """Share of the memory to plan with."""
    per_machine: int = 8
    inside: float = 450e9
    """Bytes a second that leave a GPU to others of its machine (NVLink)."""
    between: float = 50e9
    """Bytes a second for each GPU between machines (400 Gbit/s each)."""

    @property
    def link(self) -> float:
        """Bytes a second of the slowest link in a ring over all GPUs."""
        return self.inside if self.devices <= self.per_machine else self.between


@dataclass(frozen=True)
class Projection:
    """One optimizer step on a cluster, by the model."""

    sequences: int
    """Sequences of each GPU in a step; the largest share, where they do not divide evenly."""
    micro_batch: int
    """Sequences of a forward pass; as many as fit."""
    sharded: bool
    """True if weights, gradients and moments are shared out because one GPU cannot hold them."""
    memory_bytes: float
    """Bytes that a GPU needs."""
    compute_seconds: float
    communication_seconds: float
    days: tuple[float, float] | None
    """Days of the budget, with all communication hidden and with none; None for a budget in
    time."""


def project_step(config: Config, cluster: Cluster) -> Projection | None:
    """A step of the config's batch on a cluster in bfloat16; None where not one sequence fits into
    a GPU.
    """
    config = replace(config, train=replace(config.train, precision="bfloat16"))
    count = cluster.devices
    sequences = -(-config.batch_sequences // count)
    usage = cost.memory(config, 1)
    each = usage.activations - cost.attention_weights(config)  # which a GPU does not keep
    resident, room = (
        float(usage.weights + usage.gradients + usage.optimizer),
        cluster.usable * cluster.memory,
    )
    sharded = resident + each > room
    if sharded:  # the blocks that are gathered at a time are not counted
        resident /= count
    micro = min(sequences, int((room - resident) // each))
    if micro < 1:
        return None
    moved = 2 * sum(cost.model_parameters(config).values())
    if sharded:
        moved = -(-sequences // micro) * (moved // 2 + 2 * _count_gathered_parameters(config))
    compute = (
        3
        * cost.forward_flops(config)
        * sequences
        * config.sequences.length
        / (cluster.peak * cluster.reached)
    )
    communication = 4 * moved * (count - 1) / count / cluster.link
    days = None
    if (steps := _steps(config)) is not None:
        day = steps / 86400
        days = day * max(compute, communication), day * (compute + communication)
    return Projection(
        sequences, micro, sharded, resident + micro * each, compute, communication, days
    )


def _count_gathered_parameters(config: Config) -> int:
    """Parameters that a pass reads, a block as often as it is used."""
    shape = config.encoder
    parts = cost.encoder_parameters(shape)
    used = shape.layers * (cost.attention_parameters(shape) + cost.feedforward_parameters(shape))
    return (
        sum(cost.model_parameters(config).values())
        - parts["attention"]
        - parts["feedforward"]
        + used
    )


def _steps(config: Config) -> float | None:
    budget = parse_amount(config.train.budget, "train.budget", BUDGET_UNITS)
    if budget.unit == "tokens":
        return budget.value / (config.batch_sequences * config.sequences.length)
    return budget.value if budget.unit == "steps" else None
