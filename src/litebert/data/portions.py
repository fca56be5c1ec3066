"""A share of the training documents of a set, with the same held-out text, to compare amounts of
data.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from litebert import storage
from litebert.data import arrow_files
from litebert.data import shards as disk
from litebert.data.encoding import Encoded
from litebert.data.shards import Shards
from litebert.errors import DataError

FILE = "train-00000.arrow"
KEY = 5
"""Seed of the order of the documents. It is constant, so a larger share holds every smaller one."""


def write_portion(source: Path, folder: Path, share: float) -> Shards:
    """Write a set with a share of the training documents of another one, drawn at random.

    An existing set is not written again.

    Raises:
        DataError: the source cannot be used, or the share holds no token.
    """
    if (folder / disk.INDEX).exists():
        return Shards.open(folder, verify=True)
    whole = Shards.open(source, verify=True)
    split, vocabulary = whole.train, whole.tokenizer.vocab_size
    order = np.random.default_rng(KEY).permutation(split.documents)
    chosen = np.sort(order[: max(1, round(share * split.documents))])
    if not split.document_tokens[chosen].sum():
        raise DataError(
            f"{share:.3%} of the documents of {source} hold no token; prepare more text"
        )
    folder.mkdir(parents=True, exist_ok=True)
    storage.remove(folder / disk.TOKENIZER)
    shutil.copytree(source / disk.TOKENIZER, folder / disk.TOKENIZER)
    index, infos = disk.read_index(source)
    heldout = [info for info in infos if info.split == "heldout"]
    for info in heldout:
        shutil.copyfile(source / info.file, folder / info.file)
    chunks = list(_read_chunks(split, chosen))
    arrow_files.write_shard(folder / FILE, chunks, vocabulary)
    first = next(info for info in infos if info.split == "train")
    info = replace(
        first,
        file=FILE,
        documents=len(chosen),
        sentences=sum(len(chunk.sentence_tokens) for chunk in chunks),
        tokens=sum(len(chunk.ids) for chunk in chunks),
        bytes=(folder / FILE).stat().st_size,
        sha256=storage.sha256_of(folder / FILE),
    )
    counts = np.bincount(np.concatenate([chunk.ids for chunk in chunks]), minlength=vocabulary)
    shares = counts[counts > 0] / counts.sum()
    content = {
        key: value for key, value in index.items() if key not in ("format", "shards", "summary")
    }
    content["settings"] = {**index["settings"], "portion": share, "portion_of": whole.fingerprint}
    content["documents"] = {
        **index["documents"],
        "kept": len(chosen) + sum(info.documents for info in heldout),
        "empty": 0,
    }
    content |= {
        "unigram_entropy": float(-(shares * np.log(shares)).sum()),
        "top_piece_share": float(shares.max()),
    }
    disk.write_index(folder, content, [info, *heldout])
    return Shards.open(folder)


def _read_chunks(split: disk.Split, documents: arrow_files.Offsets) -> Iterator[Encoded]:
    """Yield the chosen documents, a hundred at a time."""
    for first in range(0, len(documents), 100):
        parts = [split.read_document(int(number)) for number in documents[first : first + 100]]
        yield Encoded(
            ids=np.concatenate([ids for ids, _ in parts]).astype(np.int32),
            sentence_tokens=np.concatenate([np.diff(starts) for _, starts in parts]).astype(
                np.int32
            ),
            document_sentences=np.array([len(starts) - 1 for _, starts in parts], np.int32),
        )
