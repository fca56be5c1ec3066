"""Batches made ahead of the step that trains on them: by a thread, or by processes where one core
is too slow.

    process 0       | step 0 | step 3 | step 6 ...  each makes whole batches, as it is asked for
    process 1         | step 1 | step 4 | ...
    process 2           | step 2 | step 5 | ...
    a thread here    0, 1, 2, 3, ...                asks, reads a step ahead, pins memory

A batch is a pure function of its step. So the number of processes changes no bit of a run. One that
finds its pipe broken ends, whatever happened to this process, `kill -9` included. They are started
as programs, so that a script which trains needs no `if __name__ == "__main__"`. They run in a
session of their own, so that Ctrl-C reaches only this process, and without a GPU. They open the
shards memory-mapped and share their pages; each takes about 200 MB of its own, for libraries.
"""

from __future__ import annotations

import json
import logging
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from typing import IO, Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from litebert.base.errors import LitebertError, RunError
from litebert.base.machine import count_cores
from litebert.base.registry import load_extensions
from litebert.config import Config, cost, replace
from litebert.config.serialization import from_dict, to_dict
from litebert.data.batches import Batch, Batches
from litebert.data.mixture import DataSource, TrainingData, open_data
from litebert.train.device import Device
from litebert.train.measure import measure_matmul_speed
from litebert.train.schedule import Plan

log = logging.getLogger("litebert")

CORE_TOKENS = 1e6
"""Tokens a second of batches that one core makes at least (benchmarks/batches.py)."""
BUSY_SHARE = 0.4
"""Share of the speed of matrix products that training reaches on a GPU."""
NO_STEPS = Plan((0,))


class TrainBatch(Protocol):
    """A micro-batch: it moves to a device and knows its tokens."""

    @property
    def tokens(self) -> int:
        """Tokens, padding aside."""

    def pin(self) -> Any:
        """Return the same batch in page-locked memory."""

    def to(self, device: torch.device) -> Any:
        """Return the same batch on a device."""


B = TypeVar("B", bound=TrainBatch)


class PretrainingBatches:
    """The batches of a pretraining run by step, with what its objectives prepare."""

    def __init__(self, config: Config, shards: TrainingData, plan: Plan = NO_STEPS) -> None:
        """Refuse data that cannot serve what is asked; sequences grow over `plan`."""
        self._objectives = list(config.build_objectives().values())
        sentence = next(
            (objective.sentence for objective in self._objectives if objective.sentence), None
        )
        boundaries = any(objective.reads_boundaries for objective in self._objectives)
        schedule = config.train.length_schedule
        starts = (0, *(plan.find(round(share * plan.planned_ends[0])) for share, _ in schedule))
        self._lengths = (*(length for _, length in schedule), config.sequences.length)
        self._stages = [
            (
                start,
                Batches(
                    shards.train,
                    shards.tokenizer,
                    replace(config.sequences, length=length),
                    config.masking,
                    sentence,
                    config.batch_sequences,
                    config.train.seed,
                    boundaries=boundaries,
                ),
            )
            for start, length in zip(starts, self._lengths, strict=True)
        ]
        """The first step and the batches of each length, at which sequences are dealt again."""
        self._sentence = sentence
        self._batch_sequences = config.batch_sequences

    def measure_unlabeled_shares(self, sequences: int = 512) -> dict[int, float]:
        """Measure the share of segment pairs without a label at each length of the run, among its
        first `sequences`; empty where no objective reads pairs.
        """
        if self._sentence is None:
            return {}
        stages = zip(self._lengths, self._stages, strict=True)
        return {
            length: batches.compute_unlabeled_share(sequences) for length, (_, batches) in stages
        }

    def count_epochs(self, steps: int) -> list[float]:
        starts = [start for start, _ in self._stages]
        epochs = np.zeros(1)
        for (start, batches), end in zip(self._stages, [*starts[1:], steps], strict=True):
            count = max(0, min(end, steps) - start)
            epochs = epochs + batches.count_epochs(count * self._batch_sequences)
        values: list[float] = epochs.tolist()
        return values

    def __call__(self, step: int, rows: slice) -> Batch:
        return self.make(self.place(step), rows)

    def place(self, step: int) -> tuple[int, int]:
        """Return the number of the length that a step has, and how many steps had it before."""
        stage = max(number for number, (start, _) in enumerate(self._stages) if start <= step)
        return stage, step - self._stages[stage][0]

    def make(self, place: Sequence[int], rows: slice) -> Batch:
        stage, step = place
        batch = self._stages[stage][1](step, rows)
        for objective in self._objectives:
            batch = objective.prepare(batch)
        return batch


# -------------------------------------------------------------------------------- ahead of the step


@contextmanager
def prefetch(
    make: Callable[[int], list[B]], start: int, stop: Callable[[], int], device: torch.device
) -> Iterator[Iterator[list[B]]]:
    """Yield the micro-batches of each step in turn, made by a thread; `stop` may move meanwhile."""

    def prepare(step: int) -> list[B]:
        if device.type != "cuda":
            return make(step)
        with torch.cuda.device(device):  # a thread begins on the first GPU
            return [batch.pin() for batch in make(step)]

    def iterate() -> Iterator[list[B]]:
        following = thread.submit(prepare, start) if start < stop() else None
        for step in count(start):
            if following is None:  # the last step has moved
                following = thread.submit(prepare, step)
            made = following.result()
            following = thread.submit(prepare, step + 1) if step + 1 < stop() else None
            yield made

    with ThreadPoolExecutor(1) as thread:
        try:
            yield iterate()
        finally:
            thread.shutdown(wait=True, cancel_futures=True)


def count_processes(config: Config, device: Device) -> int:
    """Choose how many processes make batches: `train.batch_processes`, or what the device needs.

    A GPU gets one at least, because a thread would delay the launching of its kernels, and no more
    than this process has other cores, which torchrun's processes share.
    """
    if config.train.batch_processes != "auto":
        return config.train.batch_processes
    if device.device.type != "cuda":
        return 0
    needed = BUSY_SHARE * measure_matmul_speed(device) / (3 * cost.forward_flops(config))
    most = count_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")) - 1
    return max(0, min(math.ceil(needed / CORE_TOKENS), most))


@contextmanager
def make_in_processes(
    config: Config,
    data: DataSource,
    rows: Sequence[slice],
    processes: int,
    place: Callable[[int], tuple[int, int]],
) -> Iterator[Callable[[int], list[Batch]] | None]:
    """Give a function that returns the micro-batches `rows` of each step, in order, made by
    `processes`; None without them, or if they cannot make the batches (a program that registers its
    own parts without `LITEBERT_EXTENSIONS` is alone in knowing them).

    `place` is `PretrainingBatches.place`, asked for up to `count_steps_ahead` steps ahead.
    """
    if processes < 1:
        yield None
        return
    question = {
        "config": to_dict(config),
        "data": dict(data) if isinstance(data, Mapping) else str(data),
        "rows": [(row.start, row.stop) for row in rows],
    }
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    makers: list[subprocess.Popen[bytes]] = []
    asked: set[int] = set()

    def make(step: int) -> list[Batch]:
        for following in range(step, step + count_steps_ahead(processes)):
            if following not in asked:
                _ask(makers[following % processes], place(following))
                asked.add(following)
        asked.discard(step)
        batches: list[Batch] = _receive(makers[step % processes])
        return batches

    try:
        for _ in range(processes):
            maker = subprocess.Popen(
                [sys.executable, "-m", "litebert.train.supply"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
            makers.append(maker)
            _ask(maker, question)
        try:
            for maker in makers:
                _receive(maker)
        except (LitebertError, OSError) as error:
            log.warning(f"this process makes the batches, because others cannot make them: {error}")
            yield None
        else:
            yield make
    finally:
        for maker in makers:
            maker.kill()
            for stream in (maker.stdin, maker.stdout):
                assert stream is not None
                with suppress(BrokenPipeError):
                    stream.close()
            maker.wait()


def count_steps_ahead(processes: int) -> int:
    """Count the steps whose batches are asked of processes at a time, the present one among them:
    each makes one while another of its batches waits."""
    return 2 * processes


def _ask(maker: subprocess.Popen[bytes], question: Any) -> None:
    assert maker.stdin is not None
    with suppress(BrokenPipeError):  # `_receive` says of which process
        maker.stdin.write(json.dumps(question).encode() + b"\n")
        maker.stdin.flush()


def _receive(maker: subprocess.Popen[bytes]) -> Any:
    assert maker.stdout is not None
    try:
        received = receive(maker.stdout)
    except (EOFError, pickle.UnpicklingError):  # at its end, or within a value
        status = maker.wait()
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        raise RunError(
            f"a process that makes batches ended {how}; run the same command again to continue, "
            "with --train.batch-processes 0 if memory is short"
        ) from None
    if isinstance(received, LitebertError):
        raise received
    return received


# ----------------------------------------------------------------------------------- through a pipe


class _Pickler(pickle.Pickler):
    """Tensors as arrays, whose numbers go into the pipe as they are."""

    def reducer_override(self, value: Any) -> Any:
        return (torch.from_numpy, (value.numpy(),)) if isinstance(value, Tensor) else NotImplemented


def send(stream: IO[bytes], value: Any) -> None:
    """Write a value that may hold tensors."""
    _Pickler(stream, 5).dump(value)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read what `send` wrote in a program of one's own, for nothing else is unpickled safely."""
    return pickle.load(stream)


def _main() -> None:
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an extension prints goes elsewhere
    question = json.loads(sys.stdin.readline())
    torch.set_num_threads(1)
    with suppress(BrokenPipeError):
        try:
            load_extensions()
            config, shards = from_dict(Config, question["config"]), open_data(question["data"])
            batches = PretrainingBatches(config, shards)
            send(stream, "ready")
            for line in sys.stdin:
                place = json.loads(line)
                send(stream, [batches.make(place, slice(*rows)) for rows in question["rows"]])
        except LitebertError as error:
            send(stream, error)
        stream.close()
    os._exit(0)  # with nothing left to write, and no message of a pipe that is broken


if __name__ == "__main__":
    _main()
