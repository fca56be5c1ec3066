"""The documents of text sources, encoded in several processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litebert import storage
from litebert.data import shards as disk
from litebert.data.dealing import Hashed, Key, hash_documents
from litebert.data.encoding import Encode, Encoded, encode
from litebert.data.settings import ShardSettings
from litebert.data.workers import encode_all
from litebert.machine import count_cores
from litebert.parts import Part
from litebert.text.sources import Reading, read_documents
from litebert.text.tally import Tally
from litebert.tokenizer import Tokenizer

MOST_PROCESSES = 8
"""Largest number of processes by default. With more, the one reader is the limit, and only memory
grows.
"""


@dataclass(frozen=True)
class TextCorpus:
    """The documents of text sources, or of one part of them."""

    settings: ShardSettings
    reading: Reading
    processes: int
    """Processes that encode; 0 for one per core, at most `MOST_PROCESSES`."""
    part: Part | None = None
    encode_chunk: Encode = encode
    duplicates: int = 0
    dropped: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tally(self) -> Tally:
        return self.reading.tally

    def read(self) -> Iterator[Hashed[str]]:
        """Yield the documents in order."""
        return hash_documents(read_documents(self.settings.sources, self.reading, self.part))

    def encode(
        self, chunks: Iterable[tuple[Key, list[str]]], tokenizer: Path
    ) -> Iterator[tuple[Key, Encoded]]:
        """Encode every chunk, over several processes."""
        processes = self.processes or min(count_cores(), MOST_PROCESSES)
        return encode_all(chunks, tokenizer, self.settings.language, processes, self.encode_chunk)


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Save the tokenizer in the folder, unless it is there already."""
    target = folder / disk.TOKENIZER
    if target.exists() and Tokenizer.load(target).fingerprint != tokenizer.fingerprint:
        storage.remove(target)  # the command was corrected before it finished a shard
    if not target.exists():
        with storage.write_whole(target) as unfinished:
            tokenizer.save(unfinished)
