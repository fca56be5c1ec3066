"""Token shards on disk: written completely or not at all, read memory-mapped without a copy.

    DIR/train-00000.arrow ...     Arrow IPC files, one row per document, column `sentences:
                                  list<list<uint16>>`
    DIR/heldout-00000.arrow ...   (uint32 where the vocabulary has more than 65,536 tokens)
    DIR/tokenizer/                the tokenizer that made the ids
    DIR/index.json                format, tokenizer, counts, sizes and sha256 per shard; written
                                  last: if it exists, the set is complete

Opening checks names and sizes. Reading every byte for its checksum takes a second per gigabyte or
more, so only `verify=True` does it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from litebert.base.errors import DataError, nearest
from litebert.base.json_reader import fault_of, read_json
from litebert.base.storage import is_inside, sha256_of, write_json
from litebert.data import shard_files
from litebert.data.shard_files import (
    AHEAD,
    Block,
    FolderFiles,
    Ids,
    Offsets,
    ShardFiles,
    StoreFiles,
)
from litebert.parts import MARKER
from litebert.remote import cache, stores
from litebert.remote.names import as_url, join, require_local, shorten
from litebert.tokenizer import Tokenizer

FORMAT_VERSION = 1
INDEX = "index.json"
TOKENIZER = "tokenizer"


SPLITS = ("train", "heldout")
MOST_AT_ONCE = 256
"""Shards that are opened and counted at once; of a larger set, each when it is read."""
MOST_OPEN = 4096
_TRIES = 5
"""How often a shard is fetched that other processes delete from the cache at once."""
UNDEALT = "documents"
"""Stands in place of a split in the files of a part, whose documents `merge` deals."""


@dataclass(frozen=True)
class ShardInfo:
    """The entry of a shard in the index. `text` is a checksum of the texts in the shard."""

    file: str
    split: str
    documents: int
    sentences: int
    tokens: int
    bytes: int
    sha256: str
    text: str

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> ShardInfo:
        if unknown := entry.keys() - _FIELDS.keys():
            raise ValueError(f"there is an unknown field '{min(unknown)}'")
        info = cls(**{name: entry[name] for name in _FIELDS})
        for name, kind in _FIELDS.items():
            value = getattr(info, name)
            if type(value).__name__ != kind or (kind == "int" and value < 0):
                raise ValueError(f"{name} is {value!r}")
        if not is_inside(info.file):
            raise ValueError(
                f"file is {info.file!r}, which is not the name of a file in this folder"
            )
        if info.split not in (*SPLITS, UNDEALT):
            raise ValueError(f"split is {info.split!r}; {nearest(info.split, SPLITS)}")
        return info


_FIELDS: dict[str, str] = {field.name: str(field.type) for field in fields(ShardInfo)}


# ------------------------------------------------------------------------------------------ writing


def write_index(folder: Path, content: dict[str, Any], shards: Sequence[ShardInfo]) -> None:
    content = {"format": FORMAT_VERSION, **content, "shards": [asdict(shard) for shard in shards]}
    write_json(folder / INDEX, content)


# ------------------------------------------------------------------------------------------ reading


class _ShardBlocks(Sequence[Block]):
    """The record batches of many shards. A shard is opened when it is read, and the ones that were
    read last stay open: a process may map some 65,000 files at most.
    """

    def __init__(self, files: ShardFiles, infos: Sequence[ShardInfo]) -> None:
        self._files, self._infos = files, [info for info in infos if info.documents]
        self.documents: list[int] = []
        self._origins: list[tuple[int, int]] = []
        for number, info in enumerate(self._infos):
            counts = [info.documents]
            if info.tokens >= shard_files.BATCH_TOKENS:  # a smaller shard has a single record batch
                counts = [block.documents for block in self._read(number)]
            self.documents += counts
            self._origins += [(number, batch) for batch in range(len(counts))]
        self._most = files.count_open(self._infos, MOST_OPEN)
        self._opened: dict[int, list[Block]] = {}
        """The record batches of open shards by their numbers, the one read last at the end."""
        self._lock = threading.Lock()

    def fetch_ahead(self, indices: Iterable[int]) -> None:
        numbers = dict.fromkeys(self._origins[index][0] for index in indices)
        self._files.fetch_ahead(
            self._infos[number] for number in numbers if number not in self._opened
        )

    def _read(self, number: int) -> list[Block]:
        info = self._infos[number]
        blocks = [block for block in self._read_file(info) if block.documents]
        documents = sum(block.documents for block in blocks)
        if documents != info.documents or (
            len(blocks) > 1 and info.tokens < shard_files.BATCH_TOKENS
        ):
            index = join(self._files.name, INDEX)
            raise DataError(
                f"{index} counts {info.documents} documents in {info.file}, which holds "
                f"{documents} in {len(blocks)} batches; prepare the data again"
            )
        return blocks

    def _read_file(self, info: ShardInfo) -> list[Block]:
        for _ in range(_TRIES):
            path = self._files.open_file(info)
            try:
                return shard_files.read_blocks(path)
            except DataError as error:
                # Another process may have made room in the cache in this moment.
                if not self._files.is_remote or path.exists():
                    name = join(self._files.name, info.file)
                    raise DataError(str(error).replace(str(path), name)) from error
        raise DataError(
            f"the cache has no room for {info.file} of {self._files.name}, because other processes "
            f"use it; set {cache.SIZE_VARIABLE} to more"
        )

    def __len__(self) -> int:
        return len(self._origins)

    def __getitem__(self, index: Any) -> Any:
        number, batch = self._origins[index]
        with self._lock:
            blocks = self._opened.pop(number, None) or self._read(number)
            self._opened[number] = blocks
            if len(self._opened) > self._most:
                del self._opened[next(iter(self._opened))]
        return blocks[batch]

    def __iter__(self) -> Iterator[Block]:
        for number in range(len(self._infos)):
            self._files.fetch_ahead(self._infos[number : number + 1 + AHEAD])
            yield from self._read(number)


class Split:
    """One split of a set, with documents numbered through all its shards."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks: Sequence[Block] = [block for block in blocks if block.documents]
        spans = [
            (block.sentence_offsets, block.document_offsets[[0, -1]]) for block in self._blocks
        ]
        self.sentences = sum(int(last - first) for _, (first, last) in spans)
        self.tokens = sum(int(offsets[last] - offsets[first]) for offsets, (first, last) in spans)
        self._number_documents([block.documents for block in self._blocks])

    @classmethod
    def of_shards(cls, files: ShardFiles, infos: Sequence[ShardInfo]) -> Split:
        split = cls([])
        split._blocks = blocks = _ShardBlocks(files, infos)
        split.sentences = sum(info.sentences for info in infos)
        split.tokens = sum(info.tokens for info in infos)
        split._number_documents(blocks.documents)
        return split

    def _number_documents(self, documents: Sequence[int]) -> None:
        self._starts = np.cumsum([0, *documents], dtype=np.int64)
        self.documents = int(self._starts[-1])

    @cached_property
    def document_tokens(self) -> Offsets:
        counts = [np.diff(block.sentence_offsets[block.document_offsets]) for block in self._blocks]
        return np.concatenate([np.zeros(0, np.int64), *counts]).astype(np.int64, copy=False)

    @cached_property
    def document_sentences(self) -> Offsets:
        counts = [np.diff(block.document_offsets) for block in self._blocks]
        return np.concatenate([np.zeros(0, np.int64), *counts]).astype(np.int64, copy=False)

    def read_segments(
        self, unit: Literal["sentence", "document"]
    ) -> Iterator[tuple[Ids, npt.NDArray[np.int32]]]:
        """Yield, for each stored block, a view of its token ids (n,), and where its sentences or
        documents start, int32 (s + 1,), from 0 to n.
        """
        for block in self._blocks:
            starts = block.sentence_offsets[
                block.document_offsets[0] : block.document_offsets[-1] + 1
            ]
            if unit == "document":
                starts = block.sentence_offsets[block.document_offsets]
            base = starts[0]
            yield block.ids[base : starts[-1]], starts - base if base else starts

    def read_document(self, document: int) -> tuple[Ids, Offsets]:
        """Return a view of the token ids of a document (n,), and where its sentences start, (s +
        1,), from 0 to n.
        """
        if not 0 <= document < self.documents:
            raise IndexError(f"document {document} of {self.documents}")
        number = int(self._starts.searchsorted(document, side="right")) - 1
        block = self._blocks[number]
        row = document - int(self._starts[number])
        first, last = block.document_offsets[row : row + 2]
        offsets = block.sentence_offsets[first : last + 1].astype(np.int64)
        return block.ids[offsets[0] : offsets[-1]], offsets - offsets[0]

    def read(self, documents: Offsets) -> Documents:
        """Read several documents at once, int64 (B,). A document may occur more than once."""
        numbers = self._starts.searchsorted(documents, side="right") - 1
        groups: list[tuple[Block, Any, Offsets]] = []
        used = sorted(set(numbers.tolist()))
        if isinstance(self._blocks, _ShardBlocks):
            self._blocks.fetch_ahead(used)
        for number in used:
            rows = slice(None) if len(used) == 1 else np.flatnonzero(numbers == number)
            groups.append((self._blocks[number], rows, documents[rows] - self._starts[number]))
        return Documents(groups, len(documents))


class Documents:
    """B documents of a split, each array with an element for each. A point in a document is the
    number of tokens before it.
    """

    def __init__(self, groups: Sequence[tuple[Block, Any, Offsets]], size: int) -> None:
        """`groups` has each block, its documents' rows in this batch, and their numbers in it."""
        self._base, self._first, self._last, self.tokens = np.zeros((4, size), np.int64)
        self._groups = [(block, rows) for block, rows, _ in groups]
        for block, rows, documents in groups:
            self._first[rows] = block.document_offsets[documents]
            self._last[rows] = block.document_offsets[documents + 1]
            self._base[rows] = block.sentence_offsets[self._first[rows]]
            self.tokens[rows] = block.sentence_offsets[self._last[rows]] - self._base[rows]

    @property
    def sentences(self) -> Offsets:
        return self._last - self._first

    def find_starts(self, numbers: Offsets) -> Offsets:
        """Return where sentences start, by their number; the one after the last is the end."""
        offsets = self._first + numbers
        for block, rows in self._groups:
            offsets[rows] = block.sentence_offsets[offsets[rows]]
        return offsets - self._base

    def count_starts(self, points: Offsets) -> Offsets:
        """Count the sentences that start at a point or before it; the end counts as a start."""
        offsets = self._base + points
        for block, rows in self._groups:
            # The search is in the type of the offsets, for otherwise numpy would convert them all.
            offsets[rows] = block.sentence_offsets.searchsorted(
                offsets[rows].astype(np.int32), "right"
            )
        return (offsets - self._first).clip(0, self.sentences + 1)

    def read_passages(self, starts: Offsets, ends: Offsets) -> list[Ids]:
        """Return the tokens from `starts` to `ends`, points (B,), as views of the mapped files."""
        edges = np.stack((self._base + starts, self._base + ends), 1)
        ids_of_row: dict[int, Ids] = {}
        for block, rows in self._groups:
            numbers = np.arange(len(edges))[rows].tolist()
            ids_of_row |= {
                row: block.ids[start:end]
                for row, (start, end) in zip(numbers, edges[rows].tolist(), strict=True)
            }
        return [ids_of_row[row] for row in range(len(edges))]


class Shards:
    """A complete set: its splits, its tokenizer, and its index."""

    def __init__(self, path: Path, verify: bool, files: ShardFiles | None = None) -> None:
        """`path` is a folder here with the index and the tokenizer; `files` are the shards, by
        default those of the folder.
        """
        self._files = files or FolderFiles(path)
        self.path = path
        self.name, self.location = self._files.name, self._files.location
        self.index, infos = read_index(path)
        self.fingerprint = sha256_of(path / INDEX)
        self._files.check(infos, verify)
        self.tokenizer = Tokenizer.load(path / TOKENIZER)
        if self.tokenizer.fingerprint != self.index["tokenizer"]["fingerprint"]:
            raise DataError(
                f"{path / TOKENIZER} is not the tokenizer of these shards; prepare the data again"
            )
        self.unigram_entropy = float(self.index["unigram_entropy"]) + 0.0  # no -0.0
        """Nats per token of the train split: the loss of a model that knows frequencies only."""
        self.top_piece_share = float(self.index["top_piece_share"])
        """Share of the most frequent token in the train split: the accuracy of predicting it."""
        self.train = self._read_split("train", infos)
        self.heldout = self._read_split("heldout", infos)

    def _read_split(self, name: str, infos: Sequence[ShardInfo]) -> Split:
        is_large = len(infos) > MOST_AT_ONCE or self._files.is_remote
        infos = [info for info in infos if info.split == name]
        if is_large:
            return Split.of_shards(self._files, infos)
        split = Split(
            [block for info in infos for block in shard_files.read_blocks(self.path / info.file)]
        )
        for unit in ("documents", "sentences", "tokens"):
            recorded, actual = sum(getattr(info, unit) for info in infos), getattr(split, unit)
            if recorded != actual:
                counts = f"counts {recorded} {unit} in the {name} shards, which hold {actual}"
                raise DataError(f"{self.path / INDEX} {counts}; prepare the data again")
        return split

    @classmethod
    def open(cls, folder: str | Path, verify: bool = False) -> Shards:
        """Open a prepared folder, here or in a store. `verify` also reads every byte for its
        checksum.

        Raises:
            DataError: it is no complete set, or a part is missing, changed or of another version.
        """
        path, files = _open_folder(folder)
        try:
            return cls(path, verify, files)
        except DataError as error:
            if not files.is_remote:
                raise
            # People know the store, and not the copy of its records.
            raise DataError(str(error).replace(str(path), files.name)) from None


def _open_folder(folder: str | Path) -> tuple[Path, ShardFiles]:
    """Return a folder here that has the index and the tokenizer of a set, and the set's files."""
    url = as_url(folder)
    if url is None:
        require_local(folder)
        return Path(folder), FolderFiles(Path(folder))
    url = url.rstrip("/")
    entry = stores.look(join(url, INDEX))
    if entry is None:
        others = stores.list_below(url)
        fault = f"holds no {INDEX}, which prepared data has" if others else "does not exist"
        raise DataError(f"{shorten(url)} {fault}; run litebert prepare, to its end")
    index = stores.read_range(entry.url, 0, entry.size)
    names = [
        f"{TOKENIZER}/{file.url.rpartition('/')[2]}"
        for file in stores.list_below(join(url, TOKENIZER))
    ]
    return cache.copy_records(url, names, index, INDEX), StoreFiles(url)


def has_index(folder: str | Path) -> bool:
    url, name = as_url(folder), join(folder, INDEX)
    return Path(name).exists() if url is None else stores.look(name) is not None


def read_index(folder: Path) -> tuple[dict[str, Any], list[ShardInfo]]:
    path = folder / INDEX
    if folder.is_file():
        raise DataError(f"{folder} is a file; give the folder that litebert prepare writes from it")
    if not folder.is_dir():
        raise DataError(f"{folder} does not exist; make it with litebert prepare")
    if not path.exists():
        if any(
            (folder / name).exists() for name in ("recipe.json", "finetune.json", "config.json")
        ):
            raise DataError(
                f"{folder} is a run or a model, not data; give the folder that litebert "
                "prepare wrote"
            )
        if (folder / MARKER).exists():
            raise DataError(
                f"{folder} is a part of a set; make the set of all parts with litebert merge"
            )
        raise DataError(
            f"{folder} holds no {INDEX}, which prepared data has; run litebert prepare, to its end"
        )
    index = read_json(path, DataError, "prepare the data again")
    if (version := index.get("format")) != FORMAT_VERSION:
        other = f"has format {version}, and this version of litebert reads {FORMAT_VERSION}"
        raise DataError(f"{path} {other}; prepare the data again")
    try:
        index["tokenizer"]["fingerprint"], index["settings"].items(), index["documents"]["kept"]
        float(index["unigram_entropy"]), float(index["top_piece_share"])
        infos = [ShardInfo.from_json(shard) for shard in index["shards"]]
        for name, count in Counter(info.file for info in infos).items():
            if count > 1:  # its documents would count twice
                raise ValueError(f"the shard {name!r} is listed twice")
        return index, infos
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(f"{path} is damaged ({fault_of(error)}); prepare the data again") from error
