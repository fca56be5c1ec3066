"""The parts of a set merged to the set that one machine would have written, bit for bit.

    data.parts/1-of-2/documents-00000.arrow ...  the documents of part 1, in order: token ids, and
                                                 the hash, the bytes and the words of each text
    data.parts/1-of-2/tokenizer/, part.json

The documents of all parts go through the same writer as texts do (building.py), which drops
duplicates across parts, deals the splits and cuts the shards. Only the encoding is done.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.base import storage
from litebert.base.errors import DataError
from litebert.base.progress import task
from litebert.data import shards as disk
from litebert.data.building import finish_set, reporting_writes
from litebert.data.dealing import DocumentHashes, Hashed, Key
from litebert.data.encoding import Encoded
from litebert.data.filtering import FilterCounts, is_dropped_by
from litebert.data.near_duplicates import find_near_duplicates, write_signatures
from litebert.data.shard_files import Block, read_blocks
from litebert.data.shards import ShardInfo, Shards
from litebert.parts.finished import FinishedPart
from litebert.remote import cache
from litebert.remote.names import is_url
from litebert.text.tally import Tally
from litebert.tokenizer import Tokenizer

EXCERPT = 24

Row = tuple[Block, int]


def merge_shards(out: str | Path, parts: Sequence[FinishedPart]) -> Shards:
    """Write the set `out` of all its parts. The same call again continues."""
    corpus = _PartsCorpus(parts)
    corpus.count_filtered()
    if similarity := corpus.header["settings"].get("near_duplicates", 0.0):
        folder = cache.find_folder() if is_url(out) else Path(out)
        with task("comparing documents"):  # parts may be on a disk that is only read
            corpus.drop_near_duplicates(similarity, folder if folder.is_dir() else folder.parent)
    return finish_set(out, corpus)


class _PartsCorpus:
    def __init__(self, parts: Sequence[FinishedPart]) -> None:
        self._parts = parts
        self.header: dict[str, Any] = parts[0].marker["header"]
        self.duplicates = 0
        self.dropped: dict[str, Any] = {}
        self._is_dropped: npt.NDArray[np.bool_] | None = None
        self.tally = Tally()
        for number, part in enumerate(parts):
            with _reporting_damage(part):
                tally = Tally.from_state(part.marker["tally"])
                self.duplicates += part.marker["documents"]["duplicates"]
            if number:  # every part lists all files
                tally.files.clear()
                tally.skipped.clear()
            self.tally.add(tally)

    def save_tokenizer(self, folder: Path) -> None:
        tokenizer = folder / disk.TOKENIZER
        storage.remove(tokenizer)  # it may be that of other parts, whose merge was killed
        with storage.write_whole(tokenizer) as unfinished:
            unfinished.mkdir()
            for file in (self._parts[0].folder / disk.TOKENIZER).iterdir():
                shutil.copyfile(file, unfinished / file.name)  # without the mode: it may be 444

    def count_filtered(self) -> None:
        """Count what the filters dropped from distinct documents, and leave these out."""
        settings = self.header["settings"]
        filters, languages = settings.get("filters", ()), settings.get("keep_languages", ())
        if not filters and not languages:
            return
        counts, is_dropped = FilterCounts(filters), bytearray()
        seen = DocumentHashes(), DocumentHashes()
        for document, note in self._read_rows():
            is_dropped.append(is_dropped_by(note))
            if note and seen[is_dropped[-1]].is_new(document.digest):
                assert isinstance(document.data, int)
                counts.add(note, document.digest, document.data)
            elif is_dropped[-1]:
                self.duplicates += 1
        self._is_dropped = np.frombuffer(is_dropped, bool)
        if filters:
            self.dropped["filters"] = counts.list_rules()
        if languages:
            self.dropped["languages"] = counts.list_languages()

    def drop_near_duplicates(self, similarity: float, scratch: Path) -> None:
        """Leave out documents that resemble an earlier one; `scratch` is a folder to write in."""
        seen, is_copy, is_compared = DocumentHashes(), bytearray(), bytearray()
        for document, note in self._read_rows():
            block, row = document.content
            is_empty = block.document_offsets[row] == block.document_offsets[row + 1]
            is_copy.append(not is_dropped_by(note) and not seen.is_new(document.digest))
            is_compared.append(not is_empty and not is_copy[-1])
        with reporting_writes(scratch), tempfile.TemporaryFile(dir=scratch) as file:
            write_signatures(file, self._read_blocks())
            result = find_near_duplicates(file, similarity, ~np.frombuffer(is_compared, bool))
        # A copy goes with its first document, which may be dropped itself.
        copies = np.frombuffer(is_copy, bool)
        filtered = self._is_dropped
        self._is_dropped = result.dropped | copies
        if filtered is not None:
            self._is_dropped |= filtered
        self.duplicates += int(copies.sum())
        excerpts = self._read_excerpts({i for example in result.examples for i in example[:2]})
        self.dropped["near_duplicates"] = {
            "similarity": similarity,
            "documents": int(result.dropped.sum()),
            "examples": [
                {"dropped": excerpts[later], "kept": excerpts[first], "similarity": round(value, 3)}
                for later, first, value in result.examples
            ],
        }

    def _read_excerpts(self, numbers: set[int]) -> dict[int, str]:
        if not numbers:
            return {}
        tokenizer = Tokenizer.load(self._parts[0].folder / disk.TOKENIZER)
        excerpts, first = dict[int, str](), 0
        for block in self._read_blocks():
            for number in numbers & set(range(first, first + block.documents)):
                begin, end = block.sentence_offsets[
                    block.document_offsets[[number - first, number - first + 1]]
                ]
                ids = block.ids[begin : min(end, begin + EXCERPT)].tolist()
                excerpts[number] = tokenizer.decode(ids)
            first += block.documents
        return excerpts

    def _read_blocks(self) -> Iterator[Block]:
        for part in self._parts:
            with _reporting_damage(part):
                infos = [ShardInfo.from_json(entry) for entry in part.marker["shards"]]
            for info in infos:
                for block in read_blocks(part.open_file(info.file)):
                    with _reporting_damage(part):
                        if block.texts is None:
                            raise ValueError("the file has no texts")
                    yield block

    def read(self) -> Iterator[Hashed[Row]]:
        for number, (document, _) in enumerate(self._read_rows()):
            if self._is_dropped is None or not self._is_dropped[number]:
                yield document

    def _read_rows(self) -> Iterator[tuple[Hashed[Row], str]]:
        for block in self._read_blocks():
            assert block.texts is not None
            digests, notes = block.texts.digests.tobytes(), block.texts.notes
            sizes, words = block.texts.sizes.tolist(), block.texts.words.tolist()
            for row, (size, count) in enumerate(zip(sizes, words, strict=True)):
                digest = digests[16 * row : 16 * row + 16]
                yield Hashed((block, row), size, digest, count), notes[row] if notes else ""

    def encode(
        self, chunks: Iterable[tuple[Key, list[Row]]], tokenizer: Path
    ) -> Iterator[tuple[Key, Encoded]]:
        for key, rows in chunks:
            yield key, _gather(rows)


@contextmanager
def _reporting_damage(part: FinishedPart) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DataError(
            f"part {part.part} ({part.name}) is damaged; delete that folder and run its command "
            "again"
        ) from None


def _gather(rows: Sequence[Row]) -> Encoded:
    if not rows:  # the last chunk of a shard, where the chunk before ended with the last document
        return Encoded(np.zeros(0, np.uint16), np.zeros(0, np.int32), np.zeros(0, np.int32))
    pieces: list[tuple[Any, Any, Any]] = []
    for _, group in groupby(rows, key=lambda row: id(row[0])):
        members = list(group)
        block, numbers = members[0][0], np.array([number for _, number in members])
        # Documents that lie next to each other are copied at once.
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
            documents = block.document_offsets[run[0] : run[-1] + 2]
            sentences = block.sentence_offsets[documents[0] : documents[-1] + 1]
            ids = block.ids[sentences[0] : sentences[-1]]
            pieces.append((ids, np.diff(sentences), np.diff(documents)))
    ids, sentence_tokens, document_sentences = (
        np.concatenate(arrays) for arrays in zip(*pieces, strict=True)
    )
    return Encoded(ids, sentence_tokens, document_sentences).without_empty()
