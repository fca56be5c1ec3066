"""Answering with early exits beside all layers: the speed from texts to answers, and the score, for
each threshold.

    python benchmarks/exits.py [RUN DATA] [--rounds 5] [--dtype int8] [--json FILE]

RUN was made by `litebert finetune --early-exits`; DATA is a labeled file of its task. Without
them, a small network learns for a minute first, and its scores mean nothing. Thresholds take turns
in every round. `--clock processor` counts processor time, of which other programs that run beside
take less.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results import write as write_results

from litebert import load, replace, train_tokenizer
from litebert.answer.engines.exits import Exit
from litebert.answer.evaluation import evaluate
from litebert.base.machine import count_threads
from litebert.finetuning.run import finetune
from litebert.kernels.packing import DTYPES
from litebert.recipes.finetuning import finetune_preset
from litebert.studies.packages import LABEL, TEXT, write_table
from litebert.tasks.table import TableFiles
from litebert.tasks.task import Row
from litebert.text.sources import read_documents
from litebert.train import device as devices

STEPS = 60
"""Training steps of the network that is made where no RUN is given."""


def main() -> int:
    """Print a table, medians of the rounds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    parser.add_argument("--json", type=Path, help="write the results to a file too")
    arguments = parser.parse_args()
    if (arguments.run is None) != (arguments.data is None):
        parser.error("give RUN and DATA, or neither")
    with tempfile.TemporaryDirectory() as folder:
        if arguments.run is None:
            arguments.run, arguments.data = train_network(Path(folder))
        write_results(arguments.json, measure(arguments))
    return 0


def train_network(folder: Path) -> tuple[Path, Path]:
    """A network that learned for a few steps which package a docstring is from, and its dev
    part."""
    train, dev = write_table(folder / "packages")
    texts = (document.text for document in read_documents(["python-docs"]))
    train_tokenizer(texts, kind="unigram", vocab_size=8192).save(folder / "tokenizer")
    settings = replace(finetune_preset("small", "table"), early_exits=True, steps=STEPS, length=64)
    table = TableFiles.of({"train": train, "dev": dev}, text_column=TEXT, label_column=LABEL)
    finetune("bert-tiny", table, folder / "run", settings, tokenizer=folder / "tokenizer")
    return folder / "run", dev


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """The speed and the score of each threshold."""
    clock = time.perf_counter if arguments.clock == "wall" else time.process_time
    record = json.loads((arguments.run / "exits.json").read_text(encoding="utf-8"))
    thresholds: list[Exit] = [
        "off",
        "auto",
        *(point["threshold"] for point in record["curve"][1::3]),
    ]
    models = {
        threshold: load(arguments.run, dtype=arguments.dtype, exit_confidence=threshold)
        for threshold in thresholds
    }
    task = models["off"].predictor.task
    examples = task.files.open_labeled(task, arguments.data).read("dev")
    seconds: dict[Exit, list[float]] = {threshold: [] for threshold in thresholds}
    for _ in range(arguments.rounds + 1):  # the first finds its memory
        for threshold, model in models.items():
            start = clock()
            answers = model.predictor.answer_rows(map(Row, examples))
            assert len(list(answers)) == len(examples)
            seconds[threshold].append(clock() - start)
    machine = devices.choose("float32", "cpu").describe()
    print(
        f"{len(examples):,} texts, {arguments.clock} time, {models['off'].engine} "
        f"{arguments.dtype}, {count_threads()} threads; {machine}"
    )
    print(
        f"patience {record['patience']}, calibrated threshold {record['threshold']:.6g}, "
        f"metric {record['metric']}"
    )
    print("| exit | share of layers | texts/s | times as fast | score |\n|---|---|---|---|---|")
    medians = {threshold: statistics.median(times[1:]) for threshold, times in seconds.items()}
    rows: dict[str, dict[str, float]] = {}
    for threshold, model in models.items():
        scored = evaluate(model, data=arguments.data)
        name = threshold if isinstance(threshold, str) else f"{threshold:.6g}"
        share, speed = (
            1.0 if scored.share is None else scored.share,
            medians["off"] / medians[threshold],
        )
        rate, score = len(examples) / medians[threshold], scored.scores[record["metric"]]
        rows[name] = {
            "share": share,
            "texts_per_second": rate,
            "times_as_fast": speed,
            record["metric"]: score,
        }
        print(f"| {name} | {share:.3f} | {rate:,.0f} | {speed:.2f} | {score:.4f} |")
    return {
        "engine": models["off"].engine,
        "dtype": arguments.dtype,
        "clock": arguments.clock,
        "texts": len(examples),
        "exits": rows,
    }


if __name__ == "__main__":
    sys.exit(main())
