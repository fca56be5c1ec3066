"""Texts encoded as token ids in several processes, in order.

One process reads. The others split sentences and tokenize chunks of about a megabyte. So no queue
is large, and the result does not depend on the number of processes. Workers are spawned, never
forked: tokenizers and Arrow run threads, and a fork in the middle of one hangs. Workers load
neither torch nor Arrow, and take half a second and 60 MB each.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TypeVar

from litebert.data.encoding import Encode, Encoded, encode
from litebert.errors import DataError
from litebert.tokenizer import Tokenizer

T = TypeVar("T")


def encode_all(
    chunks: Iterable[tuple[T, list[str]]],
    tokenizer_folder: Path,
    language: str,
    processes: int,
    encode_chunk: Encode = encode,
) -> Iterator[tuple[T, Encoded]]:
    """Encode every chunk, and yield the results with their keys, in order.

    A single process encodes in the caller. Otherwise at most three chunks per process wait.

    Args:
        encode_chunk: a function of a module, because it goes to other processes.

    Raises:
        DataError: a worker process died.
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
