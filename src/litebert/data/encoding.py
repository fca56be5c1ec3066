"""Texts of documents encoded as the token ids of shards, in several processes, in order.

Workers are spawned, never forked: tokenizers and Arrow run threads, and a fork in the middle of one
hangs. They start in half a second, for this module loads neither torch nor Arrow.
"""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from litebert.base.errors import DataError
from litebert.text.sentences import split_sentences
from litebert.tokenizer import Tokenizer

T = TypeVar("T")


@dataclass(frozen=True)
class Texts:
    """Facts of the texts of consecutive documents (documents,), which a part keeps for `merge`."""

    digests: npt.NDArray[np.uint8]
    """Hashes of `hash_text`, (documents, 16)."""
    sizes: npt.NDArray[np.int32]
    words: npt.NDArray[np.int32]
    notes: tuple[str, ...] | None = None
    """Notes of the filters, "" for none (filtering.py); None without filters."""


@dataclass(frozen=True)
class Encoded:
    """Token ids of consecutive documents (tokens,), and the sizes of sentences and documents."""

    ids: npt.NDArray[Any]
    sentence_tokens: npt.NDArray[np.int32]
    document_sentences: npt.NDArray[np.int32]
    texts: Texts | None = None

    def without_empty(self) -> Encoded:
        counts = self.document_sentences
        return replace(self, document_sentences=counts[counts > 0], texts=None)


Encode = Callable[[Sequence[str], Tokenizer, str], Encoded]


def hash_text(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def count_words(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int32]:
    """Count the words of documents, (documents,), each ended by a space or a line end.

    `data` is the documents in UTF-8, each with a line end after it, and `starts` where each begins.
    """
    is_end = (data == ord(" ")) | (data == ord("\n"))
    return np.add.reduceat(is_end, starts, dtype=np.int32)


def choose_id_type(vocab_size: int) -> type[np.unsignedinteger[Any]]:
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def encode(texts: Sequence[str], tokenizer: Tokenizer, language: str) -> Encoded:
    """Encode documents, and leave out those without ids, such as of control characters only."""
    sentences = [split_sentences(text, language) for text in texts]
    return encode_sentences(sentences, tokenizer).without_empty()


def encode_with_texts(texts: Sequence[str], tokenizer: Tokenizer, language: str) -> Encoded:
    """Encode all documents, with facts of their texts. One without ids has no sentences."""
    sentences = [split_sentences(text, language) for text in texts]
    return encode_sentences(sentences, tokenizer, describe_texts(texts))


def describe_texts(texts: Sequence[str]) -> Texts:
    datas = [text.encode() for text in texts]
    sizes = np.array([len(data) for data in datas], np.int32)
    digests = np.frombuffer(b"".join(map(hash_text, datas)), np.uint8).reshape(-1, 16)
    buffer = np.frombuffer(b"\n".join([*datas, b""]), np.uint8)
    words = count_words(buffer, np.cumsum(sizes + 1, dtype=np.int64) - sizes - 1)
    return Texts(digests, sizes, words)


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


# -------------------------------------------------------------------------------------- processes


def encode_all(
    chunks: Iterable[tuple[T, list[str]]],
    tokenizer_folder: Path,
    language: str,
    processes: int,
    encode_chunk: Encode = encode,
) -> Iterator[tuple[T, Encoded]]:
    """Encode every chunk, and yield the results with their keys, in order.

    A single process encodes in the caller. `encode_chunk` goes to other processes, so it is a
    function of a module.
    """
    if processes == 1:
        tokenizer = Tokenizer.load(tokenizer_folder)
        for key, texts in chunks:
            yield key, encode_chunk(texts, tokenizer, language)
        return
    pool = ProcessPoolExecutor(
        processes,
        get_context("spawn"),
        _start_worker,
        (str(tokenizer_folder), language, encode_chunk),
    )
    waiting: deque[tuple[T, Future[Encoded]]] = deque()
    try:
        for key, texts in chunks:
            waiting.append((key, pool.submit(_encode_in_worker, texts)))
            if len(waiting) > 3 * processes:
                first_key, future = waiting.popleft()
                yield first_key, future.result()
        for first_key, future in waiting:
            yield first_key, future.result()
    except BrokenProcessPool as error:
        remedy = "run the same command again to continue, with fewer --processes if memory is short"
        raise DataError(f"a worker process died (killed, or out of memory); {remedy}") from error
    finally:
        pool.shutdown(cancel_futures=True)


_worker: tuple[Encode, Tokenizer, str]


def _start_worker(tokenizer_folder: str, language: str, encode_chunk: Encode) -> None:
    global _worker
    # Ctrl-C reaches the whole group. The main process decides, and ends the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _worker = encode_chunk, Tokenizer.load(tokenizer_folder), language


def _leave_with_parent() -> None:
    # A parent that is killed cannot end its workers, which would wait for work for ever.
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _encode_in_worker(texts: list[str]) -> Encoded:
    encode_chunk, tokenizer, language = _worker
    return encode_chunk(texts, tokenizer, language)
