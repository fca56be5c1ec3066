"""Texts of documents encoded as the token ids of shards.

The module loads neither torch nor Arrow, for worker processes import it.
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
    """Token ids of consecutive documents (tokens,), with the number of tokens in each sentence and
    of sentences in each document.
    """

    ids: npt.NDArray[Any]
    sentence_tokens: npt.NDArray[np.int32]
    document_sentences: npt.NDArray[np.int32]


def choose_id_type(vocab_size: int) -> type[np.unsignedinteger[Any]]:
    """Return the type of ids on disk."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def encode(texts: Sequence[str], tokenizer: Tokenizer, language: str) -> Encoded:
    """Return the sentences and ids of documents.

    Documents without ids, such as those with only control characters, are left out.
    """
    sentences: list[str] = []
    counts = np.empty(len(texts), np.int32)
    for i, text in enumerate(texts):
        document_sentences = split_sentences(text, language)
        counts[i] = len(document_sentences)
        sentences += document_sentences
    ids, lengths = tokenizer.encode_flat(sentences)
    is_full = lengths > 0
    if not is_full.all():
        document = np.repeat(np.arange(len(texts)), counts)
        counts = np.bincount(document[is_full], minlength=len(texts)).astype(np.int32)
        lengths = lengths[is_full]
    return Encoded(
        ids.astype(choose_id_type(tokenizer.vocab_size)),
        lengths.astype(np.int32),
        counts[counts > 0],
    )
