"""Maskers and sequences for the tests of masks."""

from __future__ import annotations

from typing import Any

import numpy as np

from litebert.config import MaskingConfig
from litebert.data.masking import Masker
from toys.shards import CLS, PAD, SEP, SPECIAL, toy_tokenizer

VOCABULARY = 105
BEGINS = np.arange(VOCABULARY) % 3 > 0  # two pieces of three begin a word


def masker(word_starts: Any = BEGINS, vocabulary: int = VOCABULARY, **config: Any) -> Masker:
    return Masker(MaskingConfig(**config), toy_tokenizer(vocabulary, word_starts))


def sequences(batch: int, length: int, seed: int = 0, vocabulary: int = VOCABULARY) -> np.ndarray:
    """[CLS] A [SEP] B [SEP] [PAD] with `length` tokens in A and B."""
    tokens = np.random.default_rng(seed).integers(len(SPECIAL), vocabulary, (batch, length))
    special = [np.full((batch, 1), id_) for id_ in (CLS, SEP, SEP, PAD)]
    return np.hstack(
        [
            special[0],
            tokens[:, : length // 2],
            special[1],
            tokens[:, length // 2 :],
            special[2],
            special[3],
        ]
    )


def runs(positions: np.ndarray, width: int) -> list[np.ndarray]:
    """The positions by maximal runs of adjacent ones within a row."""
    breaks = np.flatnonzero((np.diff(positions) > 1) | (positions[1:] % width == 0)) + 1
    return np.split(positions, breaks)
