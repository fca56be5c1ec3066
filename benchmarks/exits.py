"""Answering with early exits beside all layers: the speed from texts to answers, and the score, for each threshold.

    python benchmarks/exits.py RUN DATA [--rounds 5] [--engine onnx]

RUN was made by `litebert finetune --exits`; DATA is a labelled file of its task. Thresholds take turns in every round.
`--clock processor` counts processor time, of which other programs that run beside take less.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch

from litebert import load
from litebert.answer.exits import Exit
from litebert.answer.scoring import score_file
from litebert.registry import ENGINES
from litebert.train import device as devices


def main() -> int:
    """Print a table, medians of the rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", choices=[name for name in ENGINES if name != "auto"], default="torch")
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    arguments = parser.parse_args()
    clock = time.perf_counter if arguments.clock == "wall" else time.process_time
    found = json.loads((arguments.run / "exits.json").read_text(encoding="utf-8"))
    thresholds: list[Exit] = ["off", "auto", *(one["threshold"] for one in found["curve"][1::3])]
    models = {one: load(arguments.run, engine=arguments.engine, exit=one) for one in thresholds}
    examples = models["off"].predictor.task.labelled(arguments.data)
    seconds: dict[Exit, list[float]] = {one: [] for one in thresholds}
    for _ in range(arguments.rounds + 1):  # the first finds its memory
        for one, model in models.items():
            start = clock()
            assert len(list(model.predictor.answers(examples))) == len(examples)
            seconds[one].append(clock() - start)
    machine = devices.choose("float32", "cpu").describe()
    print(
        f"{len(examples):,} texts, {arguments.clock} time, engine {arguments.engine}, "
        f"{torch.get_num_threads()} threads; {machine}"
    )
    print(f"patience {found['patience']}, calibrated threshold {found['threshold']:.6g}, metric {found['metric']}")
    print("| exit | share of layers | texts/s | times as fast | score |\n|---|---|---|---|---|")
    medians = {one: statistics.median(times[1:]) for one, times in seconds.items()}
    for one, model in models.items():
        scored = score_file(model, arguments.data)
        name = one if isinstance(one, str) else f"{one:.6g}"
        share, speed = 1.0 if scored.share is None else scored.share, medians["off"] / medians[one]
        rate, score = len(examples) / medians[one], scored.scores[found["metric"]]
        print(f"| {name} | {share:.3f} | {rate:,.0f} | {speed:.2f} | {score:.4f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
