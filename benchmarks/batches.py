"""Making a batch beside one training step of albert-tiny, on the built-in corpus; the law is at most 5 %. And how many
tokens a second one core makes, by length, format and masks.

    python benchmarks/batches.py [DATA]

DATA is a folder written by `litebert prepare`; without it one is made from python-docs in a temporary folder.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from litebert import Shards, prepare, recipe, replace, train_tokenizer
from litebert.config import Format, MaskingConfig, SequenceConfig
from litebert.data.batches import Batches
from litebert.data.passages import SentenceTask
from litebert.text.sources import documents
from litebert.train import device as devices
from litebert.train.pretrain import TrainablePretrainer, build
from litebert.train.start import resolve


def main() -> int:
    """Interleave both, print the medians and the ratio; the exit status says whether the law holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = arguments.data or _data(Path(folder))
        _speeds(Shards.open(data))
        return _measure(data, arguments.repeats)


def _data(folder: Path) -> Path:
    texts = (document.text for document in documents(["python-docs"]))
    train_tokenizer(texts, kind="unigram", vocab_size=8192).save(folder / "tokenizer")
    prepare(["python-docs"], folder / "data", tokenizer=folder / "tokenizer")
    return folder / "data"


def _speeds(shards: Shards) -> None:
    """Batches of 65,536 tokens, made by one core; medians of millions of tokens a second."""
    masks = {
        "words": MaskingConfig(span="single"),
        "n-grams": MaskingConfig(span="ngram"),
        "spans": MaskingConfig(span="geometric", max_span=10, replace_per="span"),
    }
    print(f"{'one core, million tokens/s':30}" + "".join(f"{name:>10}" for name in masks))
    tasks: dict[Format, SentenceTask | None] = {"segment-pair": "sop", "full-sentences": None, "doc-sentences": None}
    for layout, task in tasks.items():
        for length in (64, 128, 512):
            sequences = SequenceConfig(format=layout, length=length, short_probability=0.0)
            rates = []
            for mask in masks.values():
                batches = Batches(shards.train, shards.tokenizer, sequences, mask, task, 65536 // length, 0)
                times = []
                for step in range(6):
                    start = time.perf_counter()
                    tokens = batches(step).tokens
                    times.append((time.perf_counter() - start) / tokens)
                rates.append(1e-6 / statistics.median(times[1:]))
            print(f"{layout + ', ' + str(length):30}" + "".join(f"{rate:10.2f}" for rate in rates))
    print()


def _measure(data: Path, repeats: int) -> int:
    shards = Shards.open(data)
    machine = devices.choose("auto")
    status = 0
    for depth in (1, 6):  # the shallowest step of the depth schedule, and the full one
        config = resolve(replace(recipe("albert-tiny")), shards)
        trainable = TrainablePretrainer(config, build(config, machine), shards, machine)
        optimizer = torch.optim.AdamW(trainable.module.parameters(), fused=True)
        making, training = [], []
        for step in range(repeats):
            start = time.perf_counter()
            batch = trainable.batch(step, slice(None))
            middle = time.perf_counter()
            with machine.autocast_context():
                losses = trainable.losses(batch, depth)
            torch.stack([loss.total / max(1, int(loss.count)) for loss in losses.values()]).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            making.append(middle - start)
            training.append(time.perf_counter() - middle)
        batch_ms, step_ms = (1000 * statistics.median(times[3:]) for times in (making, training))
        share = batch_ms / (batch_ms + step_ms)
        status |= share > 0.05
        print(f"depth {depth}: making a batch {batch_ms:.1f} ms, training on it {step_ms:.1f} ms, share {share:.1%}")
    print(machine.describe())
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
