"""Stand-ins for a split of shards and a tokenizer, in memory, with what sequences and masks read of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from litebert.data.shard_files import Block
from litebert.data.shards import Split

PAD, UNK, CLS, SEP, MASK = range(5)
SPECIAL = (PAD, UNK, CLS, SEP, MASK)


class ToySplit(Split):
    """Documents given as the lengths of their sentences, three in a block. Token ids count upwards
    through the whole split, from 5 on, modulo `vocab_size` where that is given: a token then tells
    its document and place."""

    def __init__(self, sentences: Sequence[Sequence[int]], vocab_size: int | None = None) -> None:
        tokens = np.array([sum(document) for document in sentences], np.int64)
        ids = np.arange(tokens.sum())
        if vocab_size is not None:
            ids %= vocab_size - len(SPECIAL)
        self.ids = (ids + len(SPECIAL)).astype(np.uint32)
        self.bounds = np.concatenate([[0], np.cumsum(tokens)])
        self.starts = [np.cumsum([0, *document]).astype(np.int64) for document in sentences]
        places = np.cumsum([0, *(length for document in sentences for length in document)]).astype(
            np.int32
        )
        numbers = np.cumsum([0, *map(len, sentences)]).astype(np.int32)
        super().__init__(
            [Block(self.ids, places, numbers[i : i + 4]) for i in range(0, len(sentences), 3)]
        )


def toy_tokenizer(
    vocab_size: int, word_starts: np.ndarray | str | None = "all", pair_separators: int = 1
) -> Any:
    starts = np.ones(vocab_size, bool) if isinstance(word_starts, str) else word_starts
    return SimpleNamespace(
        kind="unigram",
        vocab_size=vocab_size,
        pad_id=PAD,
        unk_id=UNK,
        cls_id=CLS,
        sep_id=SEP,
        mask_id=MASK,
        special_ids=SPECIAL,
        pair_separators=pair_separators,
        word_starts=starts,
    )


def prose(documents: int, seed: int, longest: int = 60, mean: float = 20.0) -> list[list[int]]:
    """Sentence lengths spread like those of prose: log-normal, in documents of 1 to `longest`
    sentences.
    """
    draw = np.random.default_rng(seed)
    return [
        np.clip(draw.lognormal(np.log(mean), 0.6, draw.integers(1, longest + 1)), 1, 200)
        .astype(int)
        .tolist()
        for _ in range(documents)
    ]
