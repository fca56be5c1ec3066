"""Turns texts of documents into the token ids of shards. Loads neither torch nor Arrow, for worker
processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.text.sentences import split_sentences
from litebert.tokenizer import Tokenizer


@dataclass(frozen=True)
class Encoded:
    """Token ids of consecutive documents: `ids` (tokens,), their number per sentence and of
    sentences per document.
    """

    ids: npt.NDArray[Any]
    sentence_tokens: npt.NDArray[np.int32]
    document_sentences: npt.NDArray[np.int32]


def id_type(vocab_size: int) -> type[np.unsignedinteger[Any]]:
    """The type of ids on disk."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def encode(texts: Sequence[str], tokenizer: Tokenizer, language: str) -> Encoded:
    """The sentences and ids of documents, without documents that give no id (only control
    characters, say).
    """
    sentences: list[str] = []
    counts = np.empty(len(texts), np.int32)
    for i, text in enumerate(texts):
        found = split_sentences(text, language)
        counts[i] = len(found)
        sentences += found
    ids, lengths = tokenizer.encode_flat(sentences)
    some = lengths > 0
    if not some.all():
        document = np.repeat(np.arange(len(texts)), counts)
        counts = np.bincount(document[some], minlength=len(texts)).astype(np.int32)
        lengths = lengths[some]
    return Encoded(
        ids.astype(id_type(tokenizer.vocab_size)), lengths.astype(np.int32), counts[counts > 0]
    )
