"""Texts of documents encoded as the token ids of shards.

The module loads neither torch nor Arrow, for worker processes import it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.text.sentences import split_sentences
from litebert.tokenizer import Tokenizer


@dataclass(frozen=True)
class Texts:
    """Facts of the texts of consecutive documents (documents,), which a part keeps for `merge`."""

    digests: npt.NDArray[np.uint8]
    """Hashes of `hash_text`, (documents, 16)."""
    sizes: npt.NDArray[np.int32]
    """Bytes."""
    words: npt.NDArray[np.int32]
    """Words, counted by `count_words`."""
    notes: tuple[str, ...] | None = None
    """Notes of the filters, "" for none (filtering.py); None without filters."""


@dataclass(frozen=True)
class Encoded:
    """Token ids of consecutive documents (tokens,), with the number of tokens in each sentence and
    of sentences in each document.
    """

    ids: npt.NDArray[Any]
    sentence_tokens: npt.NDArray[np.int32]
    document_sentences: npt.NDArray[np.int32]
    texts: Texts | None = None

    def without_empty(self) -> Encoded:
        """Return the documents that have tokens."""
        counts = self.document_sentences
        return replace(self, document_sentences=counts[counts > 0], texts=None)


Encode = Callable[[Sequence[str], Tokenizer, str], Encoded]
"""Encodes texts with a tokenizer; the last argument is their language."""


def hash_text(data: bytes) -> bytes:
    """Return the hash of a document, 16 bytes, of its text in UTF-8."""
    return hashlib.blake2b(data, digest_size=16).digest()


def count_words(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int32]:
    """Count the words of documents, (documents,).

    A word ends at a space or a line end, so several spaces in a row count as several words.

    Args:
        data: the documents in UTF-8, each with a line end after it, end to end.
        starts: where each document begins.
    """
    is_end = (data == ord(" ")) | (data == ord("\n"))
    return np.add.reduceat(is_end, starts, dtype=np.int32)


def choose_id_type(vocab_size: int) -> type[np.unsignedinteger[Any]]:
    """Return the type of ids on disk."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def encode(texts: Sequence[str], tokenizer: Tokenizer, language: str) -> Encoded:
    """Return the sentences and ids of documents.

    Documents without ids, such as those with only control characters, are left out.
    """
    return _encode_every(texts, tokenizer, language).without_empty()


def encode_with_texts(texts: Sequence[str], tokenizer: Tokenizer, language: str) -> Encoded:
    """Return the sentences and ids of documents with facts of their texts.

    Documents without ids stay, as documents without sentences.
    """
    return replace(_encode_every(texts, tokenizer, language), texts=describe_texts(texts))


def describe_texts(texts: Sequence[str]) -> Texts:
    """Return the facts of texts."""
    datas = [text.encode() for text in texts]
    sizes = np.array([len(data) for data in datas], np.int32)
    digests = np.frombuffer(b"".join(map(hash_text, datas)), np.uint8).reshape(-1, 16)
    buffer = np.frombuffer(b"\n".join([*datas, b""]), np.uint8)
    words = count_words(buffer, np.cumsum(sizes + 1, dtype=np.int64) - sizes - 1)
    return Texts(digests, sizes, words)


def _encode_every(texts: Sequence[str], tokenizer: Tokenizer, language: str) -> Encoded:
    return encode_sentences([split_sentences(text, language) for text in texts], tokenizer)


def encode_sentences(
    documents: Sequence[Sequence[str]], tokenizer: Tokenizer, texts: Texts | None = None
) -> Encoded:
    """Return the ids of the sentences of documents, and `texts`. Every document stays."""
    sentences = [sentence for document in documents for sentence in document]
    counts = np.array([len(document) for document in documents], np.int32)
    ids, lengths = tokenizer.encode_flat(sentences)
    is_full = lengths > 0
    if not is_full.all():
        document = np.repeat(np.arange(len(documents)), counts)
        counts = np.bincount(document[is_full], minlength=len(documents)).astype(np.int32)
        lengths = lengths[is_full]
    return Encoded(
        ids.astype(choose_id_type(tokenizer.vocab_size)), lengths.astype(np.int32), counts, texts
    )
