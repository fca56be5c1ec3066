"""A share of the training documents of a set, with the same held-out text: for comparing amounts of
data.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from litebert import storage
from litebert.data import shards as disk
from litebert.data.encoding import Encoded
from litebert.data.shards import Shards
from litebert.errors import DataError

FILE = "train-00000.arrow"
KEY = 5  # any constant: a smaller share is part of every larger one


def write_portion(source: Path, folder: Path, share: float) -> Shards:
    """Write a set with a share of the training documents of another one, drawn at random; what is
    there is kept.

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
    held = [info for info in infos if info.split == "heldout"]
    for info in held:
        shutil.copyfile(source / info.file, folder / info.file)
    chunks = list(_chunks(split, chosen))
    disk.write_shard(folder / FILE, chunks, vocabulary)
    first = next(info for info in infos if info.split == "train")
    own = replace(
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
    kept = {
        key: value for key, value in index.items() if key not in ("format", "shards", "summary")
    }
    kept["settings"] = {**index["settings"], "portion": share, "portion_of": whole.fingerprint}
    kept["documents"] = {
        **index["documents"],
        "kept": len(chosen) + sum(info.documents for info in held),
        "empty": 0,
    }
    kept |= {
        "unigram_entropy": float(-(shares * np.log(shares)).sum()),
        "top_piece_share": float(shares.max()),
    }
    disk.write_index(folder, kept, [own, *held])
    return Shards.open(folder)


def _chunks(split: disk.Split, documents: disk.Offsets) -> Iterator[Encoded]:
    """Some documents, a hundred at a time."""
    for first in range(0, len(documents), 100):
        found = [split.sentences_of(int(number)) for number in documents[first : first + 100]]
        yield Encoded(
            ids=np.concatenate([ids for ids, _ in found]).astype(np.int32),
            sentence_tokens=np.concatenate([np.diff(starts) for _, starts in found]).astype(
                np.int32
            ),
            document_sentences=np.array([len(starts) - 1 for _, starts in found], np.int32),
        )
