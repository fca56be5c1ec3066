"""The parts of a set merged to the set that one machine would have written, bit for bit.

    data.parts/1-of-2/documents-00000.arrow ...  the documents of part 1, in order: token ids, and
                                                 the hash, the bytes and the words of each text
    data.parts/1-of-2/tokenizer/, part.json

A part drops the duplicates within itself, and keeps documents without tokens. Here the documents of
all parts go through the same writer as texts do (building.py): it drops duplicates across parts,
deals the splits and cuts the shards. Only the encoding is done. Memory is that of `prepare`: a few
shards, and 15 bytes for each document. Near-duplicates, where they are dropped, are found before
(near_duplicates.py), with 55 bytes more for each document.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert import storage
from litebert.data import arrow_files
from litebert.data import shards as disk
from litebert.data.arrow_files import Block
from litebert.data.building import finish_set
from litebert.data.dealing import DocumentHashes, Hashed, Key
from litebert.data.encoding import Encoded
from litebert.data.filtering import FilterCounts, is_dropped_by
from litebert.data.near_duplicates import find_near_duplicates, write_signatures
from litebert.data.shards import ShardInfo, Shards
from litebert.errors import DataError
from litebert.parts.finished import FinishedPart
from litebert.progress import task
from litebert.remote import cache
from litebert.remote.names import is_url
from litebert.text.tally import Tally
from litebert.tokenizer import Tokenizer

EXCERPT = 24
"""Tokens of a document that an example of a near-duplicate shows."""

Row = tuple[Block, int]
"""A document of a part: its block, and its number in the block."""


def merge_shards(out: str | Path, parts: Sequence[FinishedPart]) -> Shards:
    """Write the set `out` of all its parts. The same call again continues.

    Raises:
        DataError: a part is damaged, the folder holds something else, or the disk is full.
    """
    header = parts[0].marker["header"]

    def save_tokenizer(folder: Path) -> None:
        tokenizer = folder / disk.TOKENIZER
        storage.remove(tokenizer)  # it may be that of other parts, whose merge was killed
        with storage.write_whole(tokenizer) as unfinished:
            unfinished.mkdir()
            for file in (parts[0].folder / disk.TOKENIZER).iterdir():
                shutil.copyfile(file, unfinished / file.name)  # without the mode: it may be 444

    corpus = _PartsCorpus(parts)
    corpus.count_filtered(header["settings"])
    if similarity := header["settings"].get("near_duplicates", 0.0):
        folder = cache.find_folder() if is_url(out) else Path(out)
        with task("comparing documents"):  # parts may be on a disk that is only read
            corpus.drop_near_duplicates(similarity, folder if folder.is_dir() else folder.parent)
    return finish_set(out, header, corpus, save_tokenizer)


class _PartsCorpus:
    """The documents of all parts, in order."""

    def __init__(self, parts: Sequence[FinishedPart]) -> None:
        self._parts = parts
        self.duplicates = 0
        self.dropped: dict[str, Any] = {}
        self._is_dropped: npt.NDArray[np.bool_] | None = None
        self.tally = Tally()
        for number, part in enumerate(parts):
            try:
                tally = Tally.from_state(part.marker["tally"])
                self.duplicates += part.marker["documents"]["duplicates"]
            except (KeyError, TypeError, ValueError, AttributeError):
                raise _make_damage_error(part) from None
            if number:  # every part lists all files
                tally.files.clear()
                tally.skipped.clear()
            self.tally.add(tally)

    def count_filtered(self, settings: Mapping[str, Any]) -> None:
        """Count what the filters dropped from distinct documents, and leave these out."""
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
        """Leave out documents that resemble an earlier one, and note how many.

        Args:
            scratch: a folder to write in.
        """
        seen, is_copy, is_compared = DocumentHashes(), bytearray(), bytearray()
        for document, note in self._read_rows():
            block, row = document.content
            is_empty = block.document_offsets[row] == block.document_offsets[row + 1]
            is_copy.append(not is_dropped_by(note) and not seen.is_new(document.digest))
            is_compared.append(not is_empty and not is_copy[-1])
        with storage.naming(scratch), tempfile.TemporaryFile(dir=scratch) as file:
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
                {
                    "dropped": excerpts[later],
                    "kept": excerpts[first],
                    "similarity": round(value, 3),
                }
                for later, first, value in result.examples
            ],
        }

    def _read_excerpts(self, numbers: set[int]) -> dict[int, str]:
        """Read the beginnings of some documents."""
        tokenizer, excerpts, first = None, dict[int, str](), 0
        for block in self._read_blocks() if numbers else ():
            for number in numbers & set(range(first, first + block.documents)):
                tokenizer = tokenizer or Tokenizer.load(self._parts[0].folder / disk.TOKENIZER)
                begin, end = block.sentence_offsets[
                    block.document_offsets[[number - first, number - first + 1]]
                ]
                ids = block.ids[begin : min(end, begin + EXCERPT)].tolist()
                excerpts[number] = tokenizer.decode(ids)
            first += block.documents
        return excerpts

    def _read_blocks(self) -> Iterator[Block]:
        for part in self._parts:
            for info in _list_infos(part):
                for block in arrow_files.read_blocks(part.open_file(info.file)):
                    if block.texts is None:
                        raise _make_damage_error(part)
                    yield block

    def read(self) -> Iterator[Hashed[Row]]:
        """Yield the documents in order, without those that are dropped."""
        for number, (document, _) in enumerate(self._read_rows()):
            if self._is_dropped is None or not self._is_dropped[number]:
                yield document

    def _read_rows(self) -> Iterator[tuple[Hashed[Row], str]]:
        """Yield every document, with the note of the filters."""
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
        """Yield the token ids of every chunk, which are known."""
        for key, rows in chunks:
            yield key, _gather(rows)


def _list_infos(part: FinishedPart) -> list[ShardInfo]:
    try:
        return [ShardInfo.from_json(entry) for entry in part.marker["shards"]]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _make_damage_error(part) from None


def _make_damage_error(part: FinishedPart) -> DataError:
    return DataError(
        f"part {part.part} ({part.name}) is damaged; delete that folder and run its command again"
    )


def _gather(rows: Sequence[Row]) -> Encoded:
    """Return rows as one chunk, without the documents that have no tokens."""
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
