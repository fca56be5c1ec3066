"""Opening and reading sets of many shards: seconds, memory, files and sequences a second.

    python benchmarks/loading.py                         10,000 small shards
    python benchmarks/loading.py --documents 15200 --shards 131       a billion tokens
    python benchmarks/loading.py --shards 131000         the index of a trillion tokens

The set is generated: one shard of random tokens, linked under the names of all. So the disk is not
measured, and everything that counts shards and documents is. A document has 20 sentences of 25
tokens. Measuring takes place in a fresh process, after the imports; it needs Linux.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SENTENCES, TOKENS = 20, 25
"""Sentences of a document, and tokens of a sentence."""
MOST_LINKS = 30_000
"""Names of one file; file systems allow no more than some 65,000."""
LENGTH, BATCH, BATCHES = 128, 256, 40


def main() -> int:
    """Generate a set, and measure it in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", type=int, default=10_000)
    parser.add_argument("--documents", type=int, default=20, help="documents of a shard")
    parser.add_argument("--json", type=Path, help="write the results to a file too")
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.data:
        result = _measure(arguments.data)
        from results import write as write_results  # which loads torch, so it comes last

        write_results(arguments.json, result)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        _generate(data, arguments.shards, arguments.documents)
        command = [sys.executable, __file__, "--data", str(data)]
        if arguments.json:
            command += ["--json", str(arguments.json)]
        return subprocess.run(command, check=False).returncode


def _generate(folder: Path, count: int, documents: int) -> None:
    """Write a set of `count` shards of `documents` documents, the first of them held out."""
    from litebert import train_tokenizer
    from litebert.base.storage import sha256_of
    from litebert.data import shard_files
    from litebert.data import shards as disk
    from litebert.data.encoding import Encoded
    from litebert.text.sources import read_documents

    folder.mkdir()
    texts = (document.text for document in read_documents(["python-docs"]))
    tokenizer = train_tokenizer(texts, kind="wordpiece", vocab_size=2000)
    tokenizer.save(folder / disk.TOKENIZER)
    sentences = np.full(documents * SENTENCES, TOKENS, np.int32)
    ids = np.random.default_rng(0).integers(5, tokenizer.vocab_size, documents * SENTENCES * TOKENS)
    encoded = Encoded(ids.astype(np.uint16), sentences, np.full(documents, SENTENCES, np.int32))
    infos, first = [], folder / "heldout-00000.arrow"
    shard_files.write_shard(first, [encoded], tokenizer.vocab_size)
    digest = sha256_of(first)
    for number in range(count):
        path = first
        if number:
            path = folder / f"train-{number - 1:05d}.arrow"
            if number % MOST_LINKS == 0:
                shutil.copyfile(first, path)
                first = path
            else:
                os.link(first, path)
        split = path.name.split("-")[0]
        counts = documents, len(sentences), len(ids), path.stat().st_size
        infos.append(disk.ShardInfo(path.name, split, *counts, digest, ""))
    content = {
        "tokenizer": {"fingerprint": tokenizer.fingerprint},
        "settings": {},
        "documents": {"kept": count * documents},
        "unigram_entropy": 1.0,
        "top_piece_share": 0.1,
    }
    disk.write_index(folder, content, infos)


def _measure(data: Path) -> dict[str, float]:
    """Print and return what opening and reading cost."""
    from litebert.config import MaskingConfig, SequenceConfig
    from litebert.data import shards as disk
    from litebert.data.batches import Batches

    size = (data / disk.INDEX).stat().st_size
    before, start = _peak_mb(), time.perf_counter()
    shards = disk.Shards.open(data)
    opening, memory = time.perf_counter() - start, _peak_mb() - before
    tokens, documents = shards.train.tokens, shards.train.documents
    print(f"{tokens / 1e9:.2f} billion tokens, {documents:,} documents, index {size / 1e6:.1f} MB")
    print(f"open: {opening:.2f} s, {memory:.0f} MB, {_count_maps(data):,} mapped shards")
    start = time.perf_counter()
    make = Batches(
        shards.train,
        shards.tokenizer,
        SequenceConfig(length=LENGTH, format="full-sentences"),
        MaskingConfig(),
        None,
        BATCH,
        seed=0,
    )
    make(0)
    first = time.perf_counter() - start
    print(f"first batch: {first:.2f} s, {_peak_mb() - before:.0f} MB at most")
    start = time.perf_counter()
    for step in range(1, BATCHES + 1):
        make(step)
    rate = BATCHES * BATCH / (time.perf_counter() - start)
    print(f"read: {rate:,.0f} sequences of {LENGTH} a second, one process")
    print(f"{_count_maps(data):,} mapped shards, {_peak_mb() - before:.0f} MB at most")
    return {
        "tokens": tokens,
        "documents": documents,
        "index_bytes": size,
        "open_seconds": opening,
        "open_mb": memory,
        "first_batch_seconds": first,
        "sequences_per_second": rate,
    }


def _peak_mb() -> float:
    """Return the most memory that was resident, with the pages of mapped files. It needs Linux."""
    # `resource` would count the memory of the program that started this one.
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def _count_maps(data: Path) -> int:
    """Count the shards that this process maps."""
    return Path("/proc/self/maps").read_text().count(str(data))


if __name__ == "__main__":
    sys.exit(main())
