"""The next of a stream is made by a thread while the one before is used."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

T = TypeVar("T")


def in_advance(source: Iterator[T]) -> Generator[T, None, None]:
    """The same, each made by a thread while the one before is used."""
    with ThreadPoolExecutor(1, "reading ahead") as thread:
        coming = thread.submit(next, source, _END)
        while (item := coming.result()) is not _END:
            coming = thread.submit(next, source, _END)
            yield cast(T, item)


_END = object()
