"""Near-duplicates planted in made documents: how many are dropped, and how fast.

    pip install datasketch rensa datatrove
    python benchmarks/near_duplicates.py [--documents 20000] [--similarity 0.8] [--seed 0]

Every tenth document has a version of one of five kinds, whose Jaccard similarity (runs of five
tokens) is between 0.7 and 0.95. A version should be dropped where its similarity is at least that
asked for. Precision is the share of such versions among the documents that are dropped, and recall
the share that of them is dropped.

The peers get token ids, as litebert does, and 128 minima. datatrove gets each id as a word, and
runs its four steps in this process; it drops by its bands alone, without an estimate. Seconds are
processor seconds of one thread, so other work on the machine changes little.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.base.machine import read_processor_name
from litebert.data.near_duplicates import (
    MINIMA,
    SHINGLE,
    find_near_duplicates,
    write_signatures,
)
from litebert.data.shard_files import Block

Ids = npt.NDArray[np.int64]
Vary = Callable[[Ids, float, np.random.Generator], Ids]
VOCABULARY = 8192
BLOCK = 2000
"""Documents that are signed at once."""

KINDS: dict[str, Vary] = {
    "tokens replaced": lambda ids, share, draw: np.where(
        draw.random(len(ids)) < share / 8, draw.integers(0, VOCABULARY, len(ids)), ids
    ),
    "end cut off": lambda ids, share, _: ids[: int(len(ids) * (1 - share))],
    "text added": lambda ids, share, draw: np.concatenate(
        [draw.integers(0, VOCABULARY, int(len(ids) * share)), ids]
    ),
    "stretches in another order": lambda ids, share, _: np.concatenate(
        np.array_split(ids, max(2, int(share * len(ids) / 8)))[::-1]
    ),
    "a stretch from elsewhere": lambda ids, share, draw: np.concatenate(
        [
            ids[: int(len(ids) * (1 - share / 2))],
            draw.integers(0, VOCABULARY, int(len(ids) * share / 2)),
        ]
    ),
}
"""Five kinds of versions of a document."""


def list_runs(ids: Ids) -> set[bytes]:
    """List the runs of five tokens of a document."""
    windows = np.lib.stride_tricks.sliding_window_view(ids.astype(np.uint16), SHINGLE)
    return {window.tobytes() for window in windows}


def plant(count: int, seed: int) -> tuple[list[Ids], dict[int, tuple[str, int, float]]]:
    """Make documents and versions of them.

    Returns:
        The documents, and for each version its kind, its original and their similarity.
    """
    draw = np.random.default_rng(seed)
    documents = [draw.integers(0, VOCABULARY, draw.integers(100, 600)) for _ in range(count)]
    versions = {}
    kinds = list(KINDS.items())
    for number in range(0, count, 10):
        kind, vary = kinds[number // 10 % len(kinds)]
        original, runs = documents[number], list_runs(documents[number])
        for _ in range(100):
            version = vary(original, float(draw.uniform(0.02, 0.35)), draw)
            other = list_runs(version)
            similarity = len(runs & other) / len(runs | other)
            if 0.7 <= similarity <= 0.95:
                versions[len(documents)] = (kind, number, similarity)
                documents.append(version)
                break
    return documents, versions


def drop_with_litebert(documents: list[Ids], similarity: float) -> set[int]:
    """Return the numbers of the documents that litebert drops."""
    blocks = []
    for first in range(0, len(documents), BLOCK):
        chosen = documents[first : first + BLOCK]
        ends = np.cumsum([0, *map(len, chosen)]).astype(np.int32)
        ids = np.concatenate(chosen).astype(np.uint16)
        blocks.append(Block(ids, ends, np.arange(len(ends), dtype=np.int32)))
    with tempfile.TemporaryFile() as file:
        count = write_signatures(file, blocks)
        dropped = find_near_duplicates(file, similarity, np.zeros(count, bool)).dropped
    return set(np.flatnonzero(dropped).tolist())


def drop_with_datasketch(documents: list[Ids], similarity: float) -> set[int]:
    """Return the numbers of the documents that resemble an earlier one by datasketch."""
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(threshold=similarity, num_perm=MINIMA)
    sketches: list[Any] = []
    dropped = set()
    for number, document in enumerate(documents):
        sketch = MinHash(num_perm=MINIMA)
        sketch.update_batch(list_runs(document))
        sketches.append(sketch)
        if any(sketch.jaccard(sketches[other]) >= similarity for other in index.query(sketch)):
            dropped.add(number)
        index.insert(number, sketch)
    return dropped


def drop_with_rensa(documents: list[Ids], similarity: float) -> set[int]:
    """Return the numbers of the documents that resemble an earlier one by rensa."""
    from rensa import RMinHash, RMinHashLSH

    index = RMinHashLSH(threshold=similarity, num_perm=MINIMA, num_bands=16)
    sketches: list[Any] = []
    dropped = set()
    for number, document in enumerate(documents):
        sketch = RMinHash(num_perm=MINIMA, seed=1)
        sketch.update([run.hex() for run in list_runs(document)])
        sketches.append(sketch)
        if any(sketch.jaccard(sketches[other]) >= similarity for other in index.query(sketch)):
            dropped.add(number)
        index.insert(number, sketch)
    return dropped


def drop_with_datatrove(documents: list[Ids], similarity: float) -> set[int]:
    """Return the numbers of the documents that datatrove drops, by 16 bands of 8 minima.

    The similarity at which half of the pairs share a band is then 0.69, whatever is asked for.
    """
    from datatrove.data import Document
    from datatrove.pipeline.dedup import minhash
    from datatrove.utils.hashing import HashConfig
    from datatrove.utils.logging import logger
    from datatrove.utils.word_tokenizers import WordTokenizer

    class SpaceTokenizer(WordTokenizer):  # type: ignore[misc]
        def word_tokenize(self, text: str) -> list[str]:
            return text.split()

        sent_tokenize = span_tokenize = word_tokenize

    logger.remove()
    letters = str.maketrans("0123456789", "abcdefghij")
    words = [str(number).translate(letters) for number in range(VOCABULARY)]

    def list_documents() -> Iterator[Any]:
        for number, document in enumerate(documents):
            text = " ".join([words[token] for token in document.tolist()])
            yield Document(text=text, id=str(number))

    # Its own choice, xxhash, is called with text, which the newest xxhash refuses.
    hashing = HashConfig(hash_fc="sha1", precision=64)
    config = minhash.MinhashConfig(
        num_buckets=16, hashes_per_bucket=MINIMA // 16, seed=1, hash_config=hashing
    )
    with tempfile.TemporaryDirectory() as held:
        signatures, buckets, removed = (f"{held}/{name}" for name in ("s", "b", "r"))
        minhash.MinhashDedupSignature(signatures, config, SpaceTokenizer()).run(list_documents())
        for rank in range(config.num_buckets):
            step = minhash.MinhashDedupBuckets(signatures, buckets, config=config)
            step.run(None, rank, config.num_buckets)
        minhash.MinhashDedupCluster(buckets, removed, config).run(None)
        staying = {
            int(document.id)
            for document in minhash.MinhashDedupFilter(removed).run(list_documents())
        }
    return {*range(len(documents))} - staying


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--documents", type=int, default=20000)
    parser.add_argument("--similarity", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    documents, versions = plant(arguments.documents, arguments.seed)
    tokens = sum(map(len, documents))
    wanted = {n for n, (*_, value) in versions.items() if value >= arguments.similarity}
    print(
        f"{len(documents):,} documents, {tokens:,} tokens, {len(versions):,} versions, "
        f"{len(wanted):,} at {arguments.similarity} or above; {read_processor_name()}\n"
    )
    print("| program | precision | recall | M tokens/s |", "|---|---|---|---|", sep="\n")
    by_kind = {}
    for name, drop in (
        ("litebert", drop_with_litebert),
        ("datasketch", drop_with_datasketch),
        ("rensa", drop_with_rensa),
        ("datatrove", drop_with_datatrove),
    ):
        began = time.process_time()
        try:
            dropped = drop(documents, arguments.similarity)
        except ImportError as error:
            print(f"| {name} | not installed: {error} | | |")
            continue
        speed = tokens / (time.process_time() - began) / 1e6
        right = len(dropped & wanted)
        precision = right / len(dropped) if dropped else 1.0
        print(f"| {name} | {precision:.3f} | {right / len(wanted):.3f} | {speed:.2f} |")
        by_kind[name] = dropped
    print("", f"| kind | versions | {' | '.join(by_kind)} |", sep="\n")
    print("|---" * (len(by_kind) + 2) + "|")
    for kind in KINDS:
        members = {n for n in wanted if versions[n][0] == kind}
        shares = (
            f"{len(members & dropped) / max(1, len(members)):.3f}" for dropped in by_kind.values()
        )
        print(f"| {kind} | {len(members)} | {' | '.join(shares)} |")


if __name__ == "__main__":
    main()
