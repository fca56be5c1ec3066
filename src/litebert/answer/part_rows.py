"""The work that parts of answers share, and the rows of the input that a part reads.

Parquet files tell how many rows they have. Where all files do, the windows of a part are neighbors,
and the part reads the rows of its windows only:

    files      |------ a.parquet ------|-- b.parquet --|---------- c.parquet ----------|
    windows    |   0   |   1   |   2   |   3   |   4   |   5   |   6   |   7   |   8   |
    parts      |         1/3           |         2/3           |         3/3           |

Of other files a part reads all rows, and computes every n-th window.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litebert.answer.model import Model
from litebert.base.errors import ConfigError, DataError
from litebert.base.storage import sha256_of
from litebert.interop.loaded import Unread
from litebert.parts import Turns, cut_stretches, make_identity
from litebert.remote.names import shorten
from litebert.tasks.task import Row
from litebert.text.lines import find_suffix
from litebert.text.records import SUFFIXES, FileFormat, count_parquet_rows

Stretches = Mapping[int, tuple[int, int]]
"""The rows to read, from the first to before the second, by the number of the file."""
_REQUESTS = 8
"""Files whose rows are counted at a time: one in a store takes the time of its answers."""


@dataclass
class PartRows:
    """The rows of files, of which a part reads all or its stretch."""

    files: Sequence[str]
    open_rows: Callable[[Stretches | None], Iterator[Row[Any]]]
    """Reads the rows of stretches, or of all files for None."""
    counts: Sequence[int] | None
    """The rows of each file, where all files tell."""
    begins: Sequence[int] = ()
    """The number of the first row of each window, where the rows are counted."""
    _read: int = field(default=0, init=False)

    @classmethod
    def plan(
        cls,
        files: Sequence[str],
        form: FileFormat | None,
        sizes: Iterable[int],
        open_rows: Callable[[Stretches | None], Iterator[Row[Any]]],
    ) -> PartRows:
        """Count the rows of files that tell them; `sizes` are the rows of windows, endlessly."""
        if any((form or SUFFIXES.get(find_suffix(file))) != "parquet" for file in files):
            return cls(files, open_rows, None)
        with ThreadPoolExecutor(_REQUESTS) as threads:
            counts = [count or 0 for count in threads.map(count_parquet_rows, files)]
        if 0 in counts:  # reading it will say what is wrong
            return cls(files, open_rows, None)
        begins, begin, total = list[int](), 0, sum(counts)
        for size in sizes:
            if begin >= total:
                break
            begins.append(begin)
            begin += size
        return cls(files, open_rows, counts, begins)

    @property
    def rows(self) -> int | None:
        """The rows of all files, where they were counted before."""
        return None if self.counts is None else sum(self.counts)

    @property
    def windows(self) -> int | None:
        """The windows of all rows, where they were counted before."""
        return None if self.counts is None else len(self.begins)

    @property
    def total(self) -> int:
        """The rows of all files, after the last row was read."""
        return self._read if self.counts is None else sum(self.counts)

    def read(self, turns: Turns) -> Iterator[Row[Any]]:
        """Yield the rows from the first window that is due."""
        stretches: dict[int, tuple[int, int]] | None = None
        if self.counts is not None:  # the rows of the windows from the first that is due
            edges, due = [*self.begins, sum(self.counts)], turns.stretch
            stretches = cut_stretches(self.counts, edges[due.start], edges[due.stop])
        for row in self.open_rows(stretches):
            self._read += 1
            yield row
        if stretches is not None:
            expected = sum(last - first for first, last in stretches.values())
            if self._read != expected:
                names = ", ".join(shorten(self.files[number]) for number in stretches)
                raise DataError(
                    f"{names} gave {self._read} rows to answer in place of {expected}; leave the "
                    "files as they are while parts read them"
                )


def make_answer_identity(
    verb: str,
    model: Model,
    settings: Mapping[str, Any],
    files: Sequence[str],
    out: Any,
    rows: int | None = None,
) -> dict[str, Any]:
    """Return the identity of answers of a model to files, of which `rows` may be known."""
    if not isinstance(out, (str, Path)):
        raise ConfigError("a part is written next to the output; give --out a file")
    choices = {
        name: getattr(model, name)
        for name in ("engine", "dtype", "device", "exit_confidence", "min_precision")
    }
    settings = {**settings, **choices, "sources": list(files)}
    return make_identity(verb, settings, fingerprint_model(model), files, rows)


def fingerprint_model(model: Model) -> str:
    """Return the sha256 (hex) of a model: its weights, or its graph, its task and its tokenizer."""
    words = "" if model.tokenizer is None else model.tokenizer.fingerprint
    digest = hashlib.sha256(json.dumps([dict(model.task), words], sort_keys=True).encode())
    if isinstance(model.network, Unread):
        # Graphs, and weights; those of a run are in its newest checkpoint.
        for path in sorted((*model.path.iterdir(), *model.path.glob("*/*.safetensors"))):
            if path.is_file() and (".onnx" in path.name or path.suffix in (".safetensors", ".bin")):
                digest.update(sha256_of(path).encode())
    else:
        from litebert.train.teacher import compute_fingerprint  # an exported model has no torch

        digest.update(compute_fingerprint(model).encode())
    return digest.hexdigest()
