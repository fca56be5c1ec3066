"""How much memory a batch needs: measured, compared with what is free, and refused before a run
starts if too much.

A step needs more at its peak than the activations that `cost.memory` counts. On a CPU that is only
visible from outside, so the peak is read from a process that trains two batches of different sizes.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from litebert.base.errors import ConfigError, RunError
from litebert.base.machine import keep_freed_memory, read_free_memory, return_freed_memory
from litebert.base.progress import task
from litebert.config import Config, EncoderConfig, cost, replace
from litebert.config.serialization import from_dict, to_json
from litebert.model.pretrainer import Pretrainer
from litebert.train.device import Device, choose
from litebert.train.measure import make_batch, take_process_share
from litebert.train.ranks import ALONE, Ranks

SENSIBLE_TOKENS = 512
"""Products of fewer rows are slow: passes over fewer tokens are worth avoiding."""
USABLE = 0.8
_PEAK = 2.5
"""No peak was so many times what the formula says (float32 1.2 to 1.6, bfloat16 1.4 to 2.1)."""
_PROBE = 96 << 20
"""Bytes, by the formula, of the larger of the two batches that are measured."""


def find_largest_micro_batch(config: Config, device: Device) -> int:
    """Measure how many full sequences per forward pass fit in the free memory, with a margin."""
    config = _with_precision_of(device, config)
    room = USABLE * measure_free_memory(device) - _count_resident_bytes(config)
    return max(0, int(room // measure_peak_bytes(config, device)))


def fit_micro_batch(
    config: Config,
    device: Device,
    rows: int = 1,
    teacher: EncoderConfig | None = None,
    ranks: Ranks = ALONE,
) -> int:
    """Choose the micro-batch of `train.micro_batch=auto`: the batch in as few equal passes as the
    free memory allows; arguments as in `require_memory`.
    """
    config, batch = _with_precision_of(device, config), config.batch_sequences
    room = USABLE * _divide_free_memory(device, ranks) - _count_resident_bytes(config)
    beside = _count_teacher_bytes(config, teacher)
    if _PEAK * batch * rows * (_estimate_bytes(config, device) + beside) <= room:
        return batch
    largest = max(1, int(room // ((measure_peak_bytes(config, device) + beside) * rows)))
    return math.ceil(batch / math.ceil(batch / largest))


def _divide_free_memory(device: Device, ranks: Ranks) -> int:
    """Free bytes for one process; those of a machine share the memory of its CPU."""
    return measure_free_memory(device) // (ranks.local_size if device.device.type == "cpu" else 1)


def find_least_micro_batch(config: Config) -> int:
    """The smallest micro-batch worth training with; beyond it, recomputation helps more."""
    return min(config.batch_sequences, math.ceil(SENSIBLE_TOKENS / config.sequences.length))


def enable_recompute(config: Config) -> Config:
    return replace(config, train=replace(config.train, recompute=True))


def _count_teacher_bytes(config: Config, teacher: EncoderConfig | None) -> int:
    return 0 if teacher is None else cost.teacher_bytes(teacher, config.sequences.length)


def require_memory(
    config: Config,
    device: Device,
    rows: int = 1,
    ranks: Ranks = ALONE,
    teacher: EncoderConfig | None = None,
) -> None:
    """Refuse a run that would not fit; it is measured only where a generous estimate does not fit.

    An item has several `rows` where a task has choices; `teacher` is one that computes too.
    """
    config = take_process_share(_with_precision_of(device, config), ranks)
    sequences, resident = config.micro_sequences * rows, _count_resident_bytes(config)
    free = _divide_free_memory(device, ranks)
    room, beside = USABLE * free - resident, _count_teacher_bytes(config, teacher)
    if _PEAK * sequences * (_estimate_bytes(config, device) + beside) <= room:
        return
    each = measure_peak_bytes(config, device) + beside
    if sequences * each <= room:
        return
    fits = int(room // (each * rows))
    about = (
        f"{sequences:,} sequences of {config.sequences.length} tokens at a time need about "
        f"{cost.format_bytes(resident + sequences * each)} of memory, and "
        f"{cost.format_bytes(free)} are free"
    )
    if fits < find_least_micro_batch(config) and not config.train.recompute:
        again = int(
            room // ((measure_peak_bytes(enable_recompute(config), device) + beside) * rows)
        )
        if again > fits:
            enough = "" if sequences <= again else f" --train.micro-batch {again}"
            raise ConfigError(
                f"{config.name} does not fit in the memory of this machine: {about}; give "
                f"--train.recompute{enough}, which computes activations again instead of keeping "
                "them and trains the same batch"
            )
    if fits < 1:
        raise ConfigError(
            f"{config.name} does not fit in the memory of this machine: {about}, too little even "
            "for one; free some memory, or use a smaller encoder or shorter sequences"
        )
    raise ConfigError(
        f"train.micro_batch is too large for this machine: {about}; give --train.micro-batch "
        f"{fits}, which trains the same batch in smaller passes"
    )


@contextmanager
def explain_out_of_memory(device: Device, sequences: int, recompute: bool) -> Iterator[None]:
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        cpu = isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error)
        if not cpu and not isinstance(error, torch.OutOfMemoryError):
            raise
        raise RunError(
            f"{device.name} has run out of memory with {sequences:,} sequences per forward pass; "
            "end other programs that use it, "
            f"{'' if recompute else 'give the same command with --train.recompute, '}or start "
            f"another --out with half as many: --train.micro-batch {max(1, sequences // 2)}"
        ) from error


@task("measuring memory")
def measure_peak_bytes(config: Config, device: Device) -> int:
    """Measure the bytes that one more sequence takes at the peak of a training step."""
    config = _with_precision_of(device, config)
    planned = _estimate_bytes(config, device)
    probe = config
    if device.device.type != "cuda" and planned >= _PROBE // 4:
        # The peak of a few layers stands in the same proportion to the estimate.
        layers = min(config.encoder.layers, max(4, config.encoder.groups))
        train = replace(config.train, depth_schedule=())
        probe = replace(config, encoder=replace(config.encoder, layers=layers), train=train)
    large = min(64, max(2, _PROBE // _estimate_bytes(probe, device)))
    small = max(1, large // 4)
    try:
        measure = {"cuda": _measure_cuda_peaks, "cpu": _measure_child_peaks}.get(device.device.type)
        peaks = measure(probe, device, (small, large, large, large)) if measure else None
    except torch.OutOfMemoryError:
        peaks = None
    if peaks is None:
        return int(_PEAK * planned)
    # How well tensors pack into the heap differs from pass to pass by a tenth, so the worst of
    # three counts.
    ratio = (max(peaks[1:]) - peaks[0]) / (large - small) / _estimate_bytes(probe, device)
    return int(max(1.2, ratio) * planned)


def _estimate_bytes(config: Config, device: Device) -> int:
    kept_by_cpu = cost.attention_weights(config) if device.device.type == "cuda" else 0
    return cost.memory(config, 1).activations - kept_by_cpu


def measure_free_memory(device: Device) -> int:
    """Free bytes of the device; for a CPU those that this process may still take."""
    if device.device.type == "cuda":
        return int(torch.cuda.mem_get_info(device.device)[0])
    return read_free_memory()


def _count_resident_bytes(config: Config) -> int:
    """The bytes of a run whatever its batch."""
    fixed = cost.memory(config, 1)
    return fixed.weights + fixed.gradients + fixed.optimizer


def _with_precision_of(device: Device, config: Config) -> Config:
    train = replace(config.train, precision="float32" if device.autocast is None else "bfloat16")
    return replace(config, train=train)


def _train_once(model: Pretrainer, config: Config, device: Device, sequences: int) -> None:
    batch = make_batch(config, sequences).to(device.device)
    with device.autocast_context():
        losses = model(batch)
    means = [loss.total / max(1, int(loss.count)) for loss in losses.values()]
    torch.stack(means).sum().backward()  # type: ignore[no-untyped-call]


def _measure_cuda_peaks(config: Config, device: Device, sizes: tuple[int, ...]) -> list[int]:
    model, peaks = Pretrainer(config).to(device.device), []
    for sequences in (1, *sizes):
        torch.cuda.reset_peak_memory_stats(device.device)
        _train_once(model, config, device, sequences)
        peaks.append(torch.cuda.max_memory_allocated(device.device))
    return peaks[1:]


def _measure_child_peaks(config: Config, _: Device, sizes: tuple[int, ...]) -> list[int] | None:
    """Peaks of a process that trains batches of these sizes; None if it cannot."""
    question = {"config": json.loads(to_json(config)), "sizes": sizes}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        answer = subprocess.run(
            [sys.executable, "-m", "litebert.train.memory"],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            env=environment,
        )
        peaks = json.loads(answer.stdout)
        return [int(peak) for peak in peaks]
    except (OSError, ValueError, TypeError, subprocess.SubprocessError):
        return None


def _forget_peak() -> None:
    return_freed_memory()
    with suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # on Linux, the peak begins at what is held now


def _read_peak() -> int:
    """The most bytes that this process has held since `_forget_peak`."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    import resource

    scale = 1 if sys.platform == "darwin" else 1024
    return scale * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _main() -> None:
    question = json.load(sys.stdin)
    keep_freed_memory()
    torch.manual_seed(0)
    config = from_dict(Config, question["config"])
    device = choose(config.train.precision, "cpu")
    model, peaks = Pretrainer(config), []
    for _ in range(2):  # the first pass finds its libraries, the second the gradients
        _train_once(model, config, device, 1)
    for sequences in question["sizes"]:
        _forget_peak()
        _train_once(model, config, device, sequences)
        peaks.append(_read_peak())
    json.dump(peaks, sys.stdout)


if __name__ == "__main__":
    _main()
