"""What a config costs on this machine, in time and memory, and how many steps a budget buys.

Measured on made-up batches of full length, so nothing but the config is needed.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from litebert import cost
from litebert.config import Config
from litebert.config.amounts import parse_amount
from litebert.data.batches import Batch
from litebert.data.masking import span_boundaries
from litebert.model.pretrainer import Pretrainer
from litebert.progress import task
from litebert.train.device import Device
from litebert.train.evaluate import EVALUATION_BATCH
from litebert.train.optim import Optimizers


@dataclass(frozen=True)
class Rate:
    """Seconds of one optimizer step at each depth of the schedule, and of one held-out evaluation."""

    step_seconds: tuple[tuple[float, float], ...]
    """(share of the run, seconds per step at its depth); the shares sum to 1."""
    evaluation_seconds: float

    @property
    def mean_step_seconds(self) -> float:
        """Over the whole run."""
        return sum(share * seconds for share, seconds in self.step_seconds)


def steps_for(config: Config, rate: Rate | None) -> int:
    """Optimizer steps a budget buys; a time budget needs a measured `rate`, held-out evaluations counted in."""
    budget = parse_amount(config.train.budget, "train.budget", ("time", "steps", "tokens"))
    if budget.unit == "steps":
        return int(budget.value)
    if budget.unit == "tokens":
        return max(1, round(budget.value / (config.batch_sequences * config.sequences.length)))
    assert rate is not None
    every = parse_amount(config.train.evaluate_every, "train.evaluate_every", ("share", "steps"))
    if every.unit == "share":
        evaluations = rate.evaluation_seconds / every.value
        return max(1, int((budget.value - evaluations) / rate.mean_step_seconds))
    return max(1, int(budget.value / (rate.mean_step_seconds + rate.evaluation_seconds / every.value)))


def synthetic_batch(config: Config, sequences: int) -> Batch:
    """A full batch of random ids with the share of masks the config asks for."""
    length = config.sequences.length
    generator = torch.Generator().manual_seed(0)
    count = max(1, round(config.masking.rate * sequences * length))
    positions = torch.randperm(sequences * length, generator=generator)[:count].sort().values
    vocab = config.encoder.vocab_size
    return Batch(
        input_ids=torch.randint(0, vocab, (sequences, length), generator=generator),
        token_type_ids=torch.zeros(sequences, length, dtype=torch.int64),
        attention_mask=None,
        masked_positions=positions,
        masked_labels=torch.randint(0, vocab, (count,), generator=generator),
        sentence_labels=torch.randint(0, 2, (sequences,), generator=generator),
        masked_boundaries=torch.from_numpy(span_boundaries(np.ones((sequences, length), bool), positions.numpy())),
    )


@task("measuring the speed of training")
def measure(config: Config, device: Device, seconds: float = 4.0) -> Rate:
    """Time real training steps on a throw-away model, about `seconds` at each depth.

    Large batches are timed by one micro-batch, forward and backward, and multiplied.
    """
    torch.manual_seed(0)
    model = Pretrainer(config).to(device.device)
    optimizers = Optimizers(model, config.train.optimizer)
    sequences = config.micro_sequences
    batch = synthetic_batch(config, sequences).to(device.device)
    scale = config.batch_sequences / sequences
    timed, start_share = [], 0.0
    for end_share, depth in (*config.train.depth_schedule, (1.0, config.encoder.layers)):
        passes: list[float] = []
        updates: list[float] = []
        began = time.monotonic()
        while not _enough(len(passes), time.monotonic() - began, seconds):
            start = _now(device)
            with device.autocast_context():
                losses = model(batch, depth)
            torch.stack([loss.total / max(1, int(loss.count)) for loss in losses.values()]).sum().backward()  # type: ignore[no-untyped-call]
            middle = _now(device)
            optimizers.step(0.0)
            optimizers.zero_grad()
            passes.append(middle - start)
            updates.append(_now(device) - middle)
        # The first two find their memory, the second that of the gradients.
        passes, updates = passes[2:] or passes[1:], updates[2:] or updates[1:]
        timed.append((end_share - start_share, statistics.median(passes) * scale + statistics.median(updates)))
        start_share = end_share
    model.eval()
    sequences = min(EVALUATION_BATCH, config.train.evaluate_sequences)
    batch = synthetic_batch(config, sequences).to(device.device)
    forward = []
    for _ in range(3):
        start = _now(device)
        with torch.no_grad(), device.autocast_context():
            model(batch)
        forward.append(_now(device) - start)
    # One pass over the held-out sequences for each objective.
    evaluation = min(forward) / sequences * config.train.evaluate_sequences * len(config.objectives)
    return Rate(tuple(timed), evaluation)


def _enough(passes: int, spent: float, seconds: float) -> bool:
    """Four passes at least, two where they are slow; beyond, as many as fit."""
    if passes < 4:
        return passes >= 2 and spent >= 4 * seconds
    return spent >= seconds or passes >= 40


@task("measuring memory")
def kept_bytes(config: Config) -> int:
    """Bytes autograd keeps per sequence for the backward pass on a CPU, counted on forward passes of two sizes.

    Their difference leaves out what is kept once for any batch, as the copies of the weights that autocast makes.
    """
    model = Pretrainer(config)
    return (_kept(model, config, 4) - _kept(model, config, 2)) // 2


def _kept(model: Pretrainer, config: Config, sequences: int) -> int:
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    held: list[object] = []  # keep the graph alive, so that no address is used twice
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.train.precision != "float32"),
    ):
        held.append(model(synthetic_batch(config, sequences)))
    return sum(seen.values())


def largest_micro_batch(config: Config, device: Device) -> int:
    """Sequences of full length per forward pass that fit in nine tenths of the free memory."""
    fixed = cost.memory(config, 1)
    room = 0.9 * free_memory(device) - fixed.weights - fixed.gradients - fixed.optimizer
    kept = kept_bytes(config) - (0 if device.device.type == "cpu" else cost.attention_weights(config))
    return max(0, int(room // kept))


def free_memory(device: Device) -> int:
    """Free bytes of the device; of the machine for a CPU."""
    if device.device.type == "cuda":
        return int(torch.cuda.mem_get_info(device.device)[0])
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            line = next(line for line in file if line.startswith("MemAvailable"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _now(device: Device) -> float:
    if device.device.type == "cuda":
        torch.cuda.synchronize(device.device)
    return time.perf_counter()
