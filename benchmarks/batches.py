"""Making a batch beside one training step of albert-tiny, on the built-in corpus; the law is at
most 5%. And how many tokens a second one core makes, by length, format and masks.

    python benchmarks/batches.py [DATA] [--json FILE]

DATA is a folder written by `litebert prepare`; without it one is made from python-docs in a
temporary folder.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from results import write as write_results

from litebert import Shards, prepare, recipe, replace, train_tokenizer
from litebert.config import Format, MaskingConfig, SequenceConfig
from litebert.data.batches import Batches
from litebert.data.segments import SentenceTask
from litebert.text.sources import read_documents
from litebert.train import device as devices
from litebert.train.pretrain import TrainablePretrainer, build_pretrainer
from litebert.train.start import resolve_vocabulary


def main() -> int:
    """Interleave both, print the medians and the ratio; the exit status says whether the law
    holds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument(
        "--sequences", type=int, help="of a training step; by default as the recipe has them"
    )
    parser.add_argument(
        "--tokens", type=int, default=65536, help="of the batches that the speeds are measured on"
    )
    parser.add_argument("--json", type=Path, help="write the results to a file too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = arguments.data or _data(Path(folder))
        speeds = _speeds(Shards.open(data), arguments.tokens)
        shares = _measure(data, arguments.repeats, arguments.sequences)
    holds = all(result["share"] <= 0.05 for result in shares.values())
    write_results(
        arguments.json, {"million_tokens_per_second": speeds, "depths": shares, "law_holds": holds}
    )
    return int(not holds)


def _data(folder: Path) -> Path:
    texts = (document.text for document in read_documents(["python-docs"]))
    train_tokenizer(texts, kind="unigram", vocab_size=8192).save(folder / "tokenizer")
    prepare(["python-docs"], folder / "data", tokenizer=folder / "tokenizer")
    return folder / "data"


def _speeds(shards: Shards, tokens: int) -> dict[str, dict[str, float]]:
    """Batches of so many tokens, made by one core; medians of millions of tokens a second."""
    masks = {
        "words": MaskingConfig(span="single"),
        "n-grams": MaskingConfig(span="ngram"),
        "spans": MaskingConfig(span="geometric", max_span=10, replace_per="span"),
    }
    print(f"{'one core, million tokens/s':30}" + "".join(f"{name:>10}" for name in masks))
    speeds: dict[str, dict[str, float]] = {}
    tasks: dict[Format, SentenceTask | None] = {
        "segment-pair": "sop",
        "full-sentences": None,
        "doc-sentences": None,
    }
    for layout, task in tasks.items():
        for length in (64, 128, 512):
            sequences = SequenceConfig(format=layout, length=length, short_probability=0.0)
            rates = []
            for mask in masks.values():
                batches = Batches(
                    shards.train, shards.tokenizer, sequences, mask, task, tokens // length, 0
                )
                times = []
                for step in range(6):
                    start = time.perf_counter()
                    made = batches(step).tokens
                    times.append((time.perf_counter() - start) / made)
                rates.append(1e-6 / statistics.median(times[1:]))
            speeds[f"{layout}, {length}"] = dict(zip(masks, rates, strict=True))
            print(f"{layout + ', ' + str(length):30}" + "".join(f"{rate:10.2f}" for rate in rates))
    print()
    return speeds


def _measure(data: Path, repeats: int, sequences: int | None) -> dict[str, dict[str, float]]:
    shards = Shards.open(data)
    machine = devices.choose("auto")
    shares: dict[str, dict[str, float]] = {}
    for depth in (1, 6):  # the shallowest step of the depth schedule, and the full one
        point = recipe("albert-tiny")
        if sequences is not None:
            point = replace(point, train=replace(point.train, batch=f"{sequences} sequences"))
        config = resolve_vocabulary(point, shards)
        trainable = TrainablePretrainer(config, build_pretrainer(config, machine), shards, machine)
        optimizer = torch.optim.AdamW(trainable.module.parameters(), fused=True)
        making, training = [], []
        for step in range(repeats):
            start = time.perf_counter()
            batch = trainable.batch(step, slice(None))
            middle = time.perf_counter()
            with machine.autocast_context():
                losses = trainable.compute_losses(batch, depth)
            torch.stack(
                [loss.total / max(1, int(loss.count)) for loss in losses.values()]
            ).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            making.append(middle - start)
            training.append(time.perf_counter() - middle)
        batch_ms, step_ms = (1000 * statistics.median(times[3:]) for times in (making, training))
        share = batch_ms / (batch_ms + step_ms)
        shares[str(depth)] = {"batch_ms": batch_ms, "step_ms": step_ms, "share": share}
        print(
            f"depth {depth}: making a batch {batch_ms:.1f} ms, training on it "
            f"{step_ms:.1f} ms, share {share:.1%}"
        )
    print(machine.describe())
    return shares


if __name__ == "__main__":
    sys.exit(main())
