"""Texts of held-out documents and of task files that the documents to train on hold too.

A text is contaminated where a run of 13 tokens of it stands in a document to train on. Brown and
others (2020), appendix C, look for 13-grams of words, and for shorter ones, down to 8, where texts
are short. Thirteen tokens are eight to ten words. Shorter texts are counted, and not looked for.

Memory holds the runs of the texts, 16 bytes each, at most `MOST_RUNS` of each file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.base.errors import DataError
from litebert.base.json_reader import parse_json
from litebert.data.encoding import encode_sentences
from litebert.data.shard_files import Block
from litebert.text.files import TABLES
from litebert.text.lines import find_suffix
from litebert.text.records import Notes, read_cells, read_lines, read_records
from litebert.text.sentences import split_sentences
from litebert.tokenizer import Tokenizer

RUN = 13
MOST_RUNS = 1 << 22
"""Runs of one file, or of the held-out documents, that are looked for."""
HELDOUT = "heldout"
EXAMPLES = 3
_LONGEST_NAME = 40
"""Characters of a column's name; a first row of longer cells, or of numbers, is no header."""
_TEXTS = 1000
_PIECE = 1 << 14
_CELL = np.uint64(40)
"""Bits of a hash that do not choose its cell, of 16 million."""

Hashes = npt.NDArray[np.uint64]
Ids = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


def check_texts(name: str) -> None:
    if name != HELDOUT and not Path(name).is_file():
        raise DataError(
            f"check_against names {name}, which is no file; give files, or {HELDOUT} for the "
            "held-out documents"
        )


def read_texts(name: str) -> Iterator[str]:
    """Yield the texts of a task file: each line, each row of a table, each string of .json."""
    suffix, notes = find_suffix(name), Notes()
    lines, form = read_lines(name, notes), TABLES.get(suffix)
    if suffix == ".json":
        try:
            yield from _list_strings(parse_json("\n".join(line for _, line in lines)))
            return
        except ValueError:  # objects one a line
            lines = read_lines(name, notes)
    if form is None:
        yield from (line.replace("\t", "\n") for _, line in lines)
    elif form in ("jsonl", "parquet"):
        for row in read_records(name, (), notes):
            yield "\n".join(_list_strings(row.values))
    else:
        for number, cells in read_cells(form, name, lines, (), notes):
            is_header = number == 1 and not any(
                cell.isdecimal() or not 0 < len(cell) <= _LONGEST_NAME for cell in cells
            )
            if not is_header:
                yield "\n".join(cells)


def _list_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for element in value.values() if isinstance(value, dict) else value:
            yield from _list_strings(element)


class _Texts:
    """The texts of one file, as hashes of their runs, and those that were found."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.texts = 0
        self.short = 0
        self.left_out = 0
        """Texts beyond `MOST_RUNS`, which are not looked for."""
        self._runs: list[Hashes] = []
        self._numbers: list[npt.NDArray[np.int32]] = []
        self.examples: dict[int, Ids] = {}
        """A run that was found, of the first few texts, by the number of the text."""

    @property
    def is_full(self) -> bool:
        return sum(map(len, self._runs)) >= MOST_RUNS

    def leave_out(self, texts: int) -> None:
        self.texts += texts
        self.left_out += texts

    def add(self, ids: Ids, starts: npt.NDArray[Any]) -> None:
        """Add texts end to end, (tokens,) and (texts + 1,), unless there is no room."""
        if self.is_full:
            self.leave_out(len(starts) - 1)
            return
        every = _hash_every_run(ids)
        text = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        # The runs that lie within one text.
        within = np.flatnonzero(text[: len(every)] == text[len(text) - len(every) :])
        hashes, numbers = every[within], text[within]
        self._runs.append(hashes)
        self._numbers.append((numbers + self.texts).astype(np.int32))
        self.texts += len(starts) - 1
        self.short += int((np.diff(starts) < RUN).sum())

    def finish(self) -> None:
        self._every = np.concatenate([np.zeros(0, np.uint64), *self._runs])
        self._number = np.concatenate([np.zeros(0, np.int32), *self._numbers])
        self.hashes, first = np.unique(self._every, return_index=True)
        self._firsts = self._number[first]
        self._is_found = np.zeros(len(self.hashes), bool)
        self._runs, self._numbers = [], []

    def find(self, hashes: Hashes, positions: npt.NDArray[np.int64], ids: Ids) -> Mask:
        """Note which of some runs, at positions in `ids`, these texts hold, (runs,)."""
        if not len(self.hashes):
            return np.zeros(len(hashes), bool)
        index = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        is_equal: Mask = self.hashes[index] == hashes
        self._is_found[index[is_equal]] = True
        numbers, first = np.unique(self._firsts[index[is_equal]], return_index=True)
        for number, position in zip(numbers, positions[is_equal][first], strict=True):
            self.examples.setdefault(int(number), ids[position : position + RUN].copy())
            if len(self.examples) > EXAMPLES:
                del self.examples[max(self.examples)]
            if number > max(self.examples):
                break
        return is_equal

    def count_found(self) -> int:
        is_found = self._is_found[np.searchsorted(self.hashes, self._every)]
        return len(np.unique(self._number[is_found]))


def _hash_every_run(ids: Ids) -> Hashes:
    """Hash the run of 13 that begins at each token, (tokens - 12,)."""
    count = max(0, len(ids) - RUN + 1)
    hashes = np.empty(count, np.uint64)
    # In pieces that stay in the cache of the processor.
    for first in range(0, count, _PIECE):
        last = min(first + _PIECE, count)
        single = ids[first : last + RUN - 1].astype(np.uint64)
        double = _join(single[:-1], single[1:])
        four = _join(double[:-2], double[2:])
        eight = _join(four[:-4], four[4:])
        twelve = _join(eight[: len(eight) - 4], four[8:])
        hashes[first:last] = _join(twelve[: last - first], single[12:])
    return hashes


def _join(left: Hashes, right: Hashes) -> Hashes:
    values: Hashes = left * np.uint64(0x9E3779B97F4A7C15)
    values += right
    values ^= values >> np.uint64(29)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(32)
    return values


class Contamination:
    def __init__(
        self, names: Iterable[str], tokenizer: Tokenizer, language: str, heldout: Iterable[Block]
    ) -> None:
        self._tokenizer = tokenizer
        self._files = []
        self._cells = np.zeros(1 << 24, bool)
        for name in names:
            file = _Texts(name)
            if name == HELDOUT:
                for block in heldout:
                    starts = block.sentence_offsets[block.document_offsets].astype(np.int64)
                    file.add(block.ids[starts[0] : starts[-1]], starts - starts[0])
            else:
                texts = read_texts(name)
                while some := list(islice(texts, _TEXTS)):
                    if file.is_full:
                        file.leave_out(len(some))
                        continue
                    split = [split_sentences(text, language) for text in some]
                    encoded = encode_sentences(split, tokenizer)
                    sentences = np.concatenate([[0], np.cumsum(encoded.sentence_tokens)])
                    documents = np.concatenate([[0], np.cumsum(encoded.document_sentences)])
                    file.add(encoded.ids, sentences[documents].astype(np.int64))
            file.finish()
            self._files.append(file)
            self._cells[file.hashes >> _CELL] = True
        self._documents = 0

    def search(self, block: Block) -> None:
        starts = block.sentence_offsets[block.document_offsets].astype(np.int64)
        ids, bounds = block.ids[starts[0] : starts[-1]], starts - starts[0]
        hashes = _hash_every_run(ids)
        # Most runs have a cell without a text, and need no search.
        positions = np.flatnonzero(self._cells[hashes >> _CELL])
        documents = np.searchsorted(bounds, positions, "right") - 1
        is_within = positions + RUN <= bounds[documents + 1]
        positions, documents = positions[is_within], documents[is_within]
        is_found = np.zeros(len(positions), bool)
        for file in self._files:
            is_found |= file.find(hashes[positions], positions, ids)
        self._documents += len(np.unique(documents[is_found]))

    def to_json(self) -> dict[str, Any]:
        files = {
            file.name: {
                "texts": file.texts,
                "short": file.short,
                "left_out": file.left_out,
                "found": file.count_found(),
                "examples": [
                    self._tokenizer.decode(run.tolist()) for _, run in sorted(file.examples.items())
                ],
            }
            for file in self._files
        }
        return {"documents": self._documents, "files": files}
