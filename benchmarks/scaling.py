"""A training step by one process and by several, of the same batch: what a second process gains,
and what it costs.

    python benchmarks/scaling.py [--shapes h128 h256] [--ranks 2] [--rounds 7] [--json FILE]

The shapes are those of `pretraining.py`: ALBERT with AdamW and dropout 0, in float32 on a CPU. Each
side is a step of litebert's loop, exchanges included, of the whole batch:

    one thread       one process with one thread; on GPUs, one GPU
    one process      one process with as many threads as the ranks have together
    ddp              ranks of one thread each, which communicate through gloo; on GPUs one rank for
                     each, through nccl
    no exchange      the same ranks, each on its share of the batch and none waiting for another:
                     the bound
    transformers     the same weights as `AlbertForPreTraining` in `DistributedDataParallel`, as
                     their Trainer trains

All processes are started as torchrun starts them, wait for their turn, and take it round by round.
The first losses of all sides must agree, and those of ours after the last round. What `no exchange`
is faster by is the share of time that goes to communication and to waiting; the bytes are what went
over the loopback device, by Linux's count.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pretraining  # which sets the environment for torch and transformers
import torch
from results import write as write_results

from litebert import replace
from litebert.base.machine import keep_freed_memory
from litebert.config import Config
from litebert.data.batches import Batch
from litebert.model.pretrainer import Pretrainer
from litebert.train import device as devices
from litebert.train.loop import Loop
from litebert.train.measure import make_batch
from litebert.train.parallel import parallelize
from litebert.train.ranks import Ranks, join_group
from litebert.train.schedule import Plan

LOOPBACK = Path("/proc/net/dev")


@dataclass(frozen=True)
class Side:
    """Who computes a step."""

    processes: int
    threads: int
    """Threads of each process."""
    how: str


def sides_of(ranks: int, gpu: bool) -> dict[str, Side]:
    """All sides by name; on GPUs, threads do not count."""
    single = (
        {"one GPU": Side(1, 1, "alone")}
        if gpu
        else {"one thread": Side(1, 1, "alone"), "one process": Side(1, ranks, "alone")}
    )
    several = {"ddp": "ddp", "no exchange": "alone", "transformers": "transformers"}
    return single | {name: Side(ranks, 1, how) for name, how in several.items()}


# -------------------------------------------------------------------------------------- one process


def batch_of(config: Config, rows: slice) -> Batch:
    """Some rows of the made-up batch; each has as many masks, so that a mean of means is the
    mean."""
    whole, length = make_batch(config, config.batch_sequences), config.sequences.length
    masks = round(config.masking.rate * length)
    generator = torch.Generator().manual_seed(1)
    places = (
        torch.rand(config.batch_sequences, length, generator=generator)
        .argsort(1)[:, :masks]
        .sort(1)
        .values
    )
    labels = whole.input_ids.gather(1, places)
    ids, places = whole.input_ids[rows], places[rows]
    return replace(
        whole,
        input_ids=ids,
        token_type_ids=torch.zeros_like(ids),
        sentence_labels=whole.sentence_labels[rows],
        masked_positions=(places + length * torch.arange(len(ids))[:, None]).flatten(),
        masked_labels=labels[rows].flatten(),
        masked_boundaries=torch.full((ids[:, :masks].numel(), 2), -1),
    )


def serve(shape: str, how: str) -> None:
    """Take a step for every line of input, and print its loss."""
    group = join_group() if how in ("ddp", "transformers") else nullcontext(Ranks())
    with group as ranks:
        step = step_of(pretraining.point(shape), how, ranks)
        print("ready", flush=True)
        for _ in sys.stdin:
            print(step(), flush=True)


def step_of(config: Config, how: str, ranks: Ranks) -> Callable[[], float]:
    machine = devices.choose("auto", ranks.device("auto"))
    keep_freed_memory()
    number, count = int(os.environ["SHARE"]), int(os.environ["SHARES"])
    share = Ranks(number, count).share(config.batch_sequences)
    batch = batch_of(config, slice(share.start, share.stop))
    torch.manual_seed(0)
    model = Pretrainer(config).to(machine.device)
    if how == "transformers":
        return pretraining.build_peer(
            model, config, machine, batch, torch.nn.parallel.DistributedDataParallel
        )
    network = parallelize(model, ranks)
    trainable: Any = SimpleNamespace(
        module=model,
        network=network,
        layers=config.encoder.layers,
        diagnostic_state={},
        get_rate_scales=dict,
        compute_losses=lambda batch, layers: network(batch, layers),
        get_weights=lambda: {
            name: objective.weight for name, objective in model.named_objectives.items()
        },
        count_predictions=lambda batch: {
            name: objective.count(batch) for name, objective in model.named_objectives.items()
        },
    )
    sequences = config.batch_sequences if ranks.size > 1 else len(share)
    train = replace(config.train, micro_batch=0)
    loop: Any = Loop(
        trainable, train, Plan((1_000_000,)), sequences, machine, Path("no-folder"), ranks=ranks
    )

    def step() -> float:
        loop.train_step([batch])
        row, loop.window = (
            loop.window.compute_row(trainable.get_weights(), ranks),
            type(loop.window)(),
        )
        return float(row["loss"])

    return step


# -------------------------------------------------------------------------------------- all of them


class Crew:
    """The processes of a side, which wait between steps."""

    def __init__(self, shape: str, side: Side) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        group = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(side.processes),
            "LOCAL_WORLD_SIZE": str(side.processes),
        }
        self._processes: list[subprocess.Popen[str]] = []
        for rank in range(side.processes):
            variables = (
                {"RANK": str(rank), "LOCAL_RANK": str(rank)} | group if side.how != "alone" else {}
            )
            if torch.cuda.is_available() and side.how == "alone":
                variables = {"CUDA_VISIBLE_DEVICES": str(rank)}
            variables |= {
                "SHARE": str(rank),
                "SHARES": str(side.processes),
                "OMP_NUM_THREADS": str(side.threads),
                "TORCH_CPP_LOG_LEVEL": "ERROR",
            }
            words = [sys.executable, __file__, "--serve", shape, side.how]
            pipes: dict[str, Any] = {
                "stdin": subprocess.PIPE,
                "stdout": subprocess.PIPE,
                "text": True,
            }
            self._processes.append(
                subprocess.Popen(words, env={**os.environ, **variables}, **pipes)
            )
        self._answers()

    def step(self) -> tuple[float, float, int]:
        """Seconds of the slowest, the mean loss, and the bytes that passed between them."""
        before, start = _bytes(), time.perf_counter()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        losses = [float(answer) for answer in self._answers()]
        return time.perf_counter() - start, statistics.mean(losses), _bytes() - before

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def _answers(self) -> list[str]:
        answers = [
            process.stdout.readline() for process in self._processes if process.stdout is not None
        ]
        if not all(answers):
            self.close()
            raise SystemExit("a process ended before its turn; see what it reported")
        return answers


def _bytes() -> int:
    """Sent over the loopback device until now; 0 where nobody counts."""
    lines = LOOPBACK.read_text().splitlines() if LOOPBACK.exists() else []
    return next((int(line.split()[9]) for line in lines if line.split()[0] == "lo:"), 0)


def compare(shape: str, sides: dict[str, Side], rounds: int) -> dict[str, Any]:
    """Medians of each side, taken in turns."""
    crews: dict[str, Crew] = {}
    try:
        for name, side in sides.items():
            crews[name] = Crew(shape, side)
        taken = {
            name: [crew.step()] for name, crew in crews.items()
        }  # finds its memory, and is not timed
        for _ in range(rounds):
            for name, crew in crews.items():
                taken[name].append(crew.step())
    finally:
        for crew in crews.values():
            crew.close()
    exchanging = [name for name in sides if name not in ("no exchange", "transformers")]
    for which, names in ((0, list(sides)), (-1, exchanging)):
        losses = {name: taken[name][which][1] for name in names}
        if max(losses.values()) - min(losses.values()) > 1e-4 * min(losses.values()):
            raise SystemExit(
                f"{shape}: the losses differ, so there is nothing to compare: {losses}"
            )
    results: dict[str, Any] = {}
    for name, side in sides.items():
        seconds, _, moved = (
            statistics.median(column) for column in zip(*taken[name][1:], strict=True)
        )
        results[name] = {
            "processes": side.processes,
            "threads": side.threads,
            "seconds": seconds,
            "bytes": moved,
        }
    bound = results["no exchange"]["seconds"]
    results["ddp"]["communication_share"] = 1 - bound / results["ddp"]["seconds"]
    return results


def show(shape: str, results: dict[str, Any]) -> None:
    """Rows of a table of Markdown."""
    first = next(iter(results.values()))["seconds"]
    for name, result in results.items():
        share = f"{result['communication_share']:.0%}" if "communication_share" in result else ""
        moved = (
            f"{result['bytes'] / 2**20:.1f} MiB"
            if name in ("ddp", "transformers") and result["bytes"]
            else ""
        )
        print(
            f"| {shape} | {name} | {result['processes']} x {result['threads']} | "
            f"{result['seconds'] * 1e3:,.0f} ms | "
            f"{first / result['seconds']:.2f} | {share} | {moved} |"
        )


def main() -> int:
    gpus = torch.cuda.device_count()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=pretraining.SHAPES, default=["h128", "h256"])
    parser.add_argument("--ranks", type=int, default=gpus or 2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the results to a file too")
    parser.add_argument("--serve", nargs=2, metavar=("SHAPE", "HOW"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return 0
    if options.ranks < 2:
        print("skipped: one GPU has nobody to share its work with")
        write_results(options.json, {"skipped": "one GPU has nobody to share its work with"})
        return 0
    results: dict[str, Any] = {"machine": devices.choose("auto").describe(), "ranks": options.ranks}
    print(results["machine"])
    print("| shape | side | processes x threads | a step | speed | communication | bytes a step |")
    print("|---|---|---|---|---|---|---|")
    for shape in options.shapes:
        results[shape] = compare(shape, sides_of(options.ranks, gpus > 0), options.rounds)
        show(shape, results[shape])
    write_results(options.json, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
